//! What every night has in common: when it was, what it ran on, and what was missing.

use std::collections::BTreeMap;

use modelfarm_reports::store::Environment;
use uuid::Builder;

use crate::random::Random;

/// Shards of a night, each on a host of its own.
pub const SHARDS: usize = 4;
const PACKAGES: [&str; 8] = ["torch", "torch-tpu", "libtpu", "jax", "jaxlib", "transformers", "tokenizers", "numpy"];
const DAY_MS: i64 = 86_400_000;

/// A package that is another from this night on.
#[derive(Clone)]
pub struct PackageChange {
    pub package: &'static str,
    pub from: String,
    pub to: String,
}

/// A night.
pub struct Night {
    pub run_id: String,
    pub started_at: i64,
    pub environment: Environment,
    pub package_change: Option<PackageChange>,
    /// The shard that never came, of 0 to below `SHARDS`.
    pub missing_shard: Option<usize>,
    /// The share of cases that the farm had trouble with.
    pub silent_share: f64,
    /// By how many hosts the shards are moved.
    shift: usize,
}

impl Night {
    /// The host that a shard ran on.
    pub fn host(&self, shard: usize) -> String {
        host((shard + self.shift) % SHARDS)
    }
}

pub fn host(number: usize) -> String {
    format!("host-{}", number + 1)
}

/// The nights from the oldest to the newest, which began on `last_day` at two o'clock.
pub fn nights(seed: u64, count: usize, last_day_ms: i64) -> Vec<Night> {
    let mut minor = [0; PACKAGES.len()];
    let mut nights: Vec<Night> = Vec::with_capacity(count);
    for number in 0..count {
        let mut random = Random::of(seed, &format!("night {number}"));
        let started_at = last_day_ms - DAY_MS * (count - 1 - number) as i64 + 2 * 3_600_000;
        let is_inner = number > 0 && number + 1 < count;
        let version = |minor: usize| format!("2.{minor}.0");
        // About each sixth night, and never long without one.
        let is_due = random.happens(0.08) || number % 10 == 4;
        let package_change = (number > 1 && is_due).then(|| {
            let index = random.below(PACKAGES.len());
            let from = version(minor[index]);
            minor[index] += 1;
            PackageChange { package: PACKAGES[index], from, to: version(minor[index]) }
        });
        let environment = match nights.last() {
            Some(before) if package_change.is_none() => before.environment.clone(),
            _ => {
                let packages: BTreeMap<String, String> =
                    PACKAGES.iter().zip(minor).map(|(name, minor)| ((*name).to_owned(), version(minor))).collect();
                let requirements = packages.iter().map(|(name, version)| format!("{name}=={version}\n")).collect();
                let environment_id = Random::of(seed, &format!("environment of night {number}")).hex(16);
                Environment { environment_id, name: "torchtpu".into(), packages, requirements, created_at: started_at }
            }
        };
        let mut bytes = [0; 10];
        bytes.fill_with(|| random.number() as u8);
        nights.push(Night {
            run_id: Builder::from_unix_timestamp_millis(started_at as u64, &bytes).into_uuid().to_string(),
            started_at,
            environment,
            package_change,
            missing_shard: (is_inner && random.happens(0.01)).then(|| random.below(SHARDS)),
            silent_share: if is_inner && random.happens(0.02) { 0.2 } else { 0.0 },
            shift: random.below(SHARDS),
        });
    }
    nights
}
