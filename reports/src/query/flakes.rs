//! Cases that pass and fail by chance, and hosts on which more fails than elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use modelfarm_matrix::axes::{Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::change::{FlakeRate, Night, flakes};
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::{Outcome, Standing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::complete_runs::newest_run;
use crate::store::statement::{built, sql};
use crate::store::{Store, StoreError, Transaction, rfc3339};

/// A case that flakes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlakeRow {
    /// The case.
    pub case_id: CaseId,
    /// `config.model_type`.
    pub architecture: String,
    /// The repository.
    pub model: ModelId,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// What was run.
    pub workload: Workload,
    /// Runs that say something of it.
    pub runs: u64,
    /// Tries that passed or failed.
    pub tries: u64,
    /// Tries that failed.
    pub failed: u64,
    /// The probability that a try fails, as estimated.
    pub rate: f64,
    /// The hosts on which it failed, with how often.
    pub failed_on: BTreeMap<String, u64>,
    /// Start of the last failing try, RFC 3339 in UTC.
    pub last_failed_at: Option<String>,
}

/// A host, over the cases that both passed and failed in the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostRow {
    /// The host.
    pub host: String,
    /// Tries on it that passed or failed.
    pub tries: u64,
    /// Tries on it that failed.
    pub failed: u64,
    /// As many would have failed if they failed as often as the same cases do elsewhere.
    pub expected: f64,
    /// How many standard deviations more failed than expected.
    pub excess: f64,
    /// Whether that is no chance: more than four.
    pub stands_out: bool,
}

/// So many standard deviations are no chance, over some dozen hosts.
const STANDS_OUT: f64 = 4.0;

/// One try.
struct Try {
    run_key: i64,
    attempt: i64,
    started_at: i64,
    outcome: Outcome,
    host: String,
    ground: u64,
}

impl Try {
    fn passed(&self) -> Option<bool> {
        match self.outcome.standing() {
            Standing::Pass => Some(true),
            Standing::Fail => Some(false),
            Standing::Inconclusive => None,
        }
    }
}

impl Store {
    /// The cases that flaked in the newest `window` complete runs of a matrix, the most often failing first.
    pub async fn flakes(&self, matrix: Option<&str>, window: u32) -> Result<Vec<FlakeRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let tries = doubtful_tries(&mut transaction, matrix, window).await?;
        let keys: Vec<i64> = tries.keys().copied().collect();
        let mut rows = Vec::new();
        for keys in keys.chunks(500) {
            let query = built(
                "SELECT c.case_key, c.case_id, c.model, c.target, c.mode, c.workload, (SELECT last.architecture FROM attempts last \
                 WHERE last.case_key = c.case_key ORDER BY last.started_at DESC LIMIT 1) AS architecture \
                 FROM cases c WHERE 1 = 1",
            );
            for row in transaction.all(query.and_in("c.case_key", keys.iter().copied())).await? {
                let Some(tries) = tries.get(&row.int("case_key")?) else { continue };
                let nights = nights(tries);
                if !flakes(&nights) {
                    continue;
                }
                let rate = FlakeRate::of(tries.iter().filter_map(Try::passed));
                let mut failed_on: BTreeMap<String, u64> = BTreeMap::new();
                for failed in tries.iter().filter(|one| one.passed() == Some(false)) {
                    *failed_on.entry(failed.host.clone()).or_default() += 1;
                }
                let last_failed_at = tries.iter().filter(|one| one.passed() == Some(false)).map(|one| one.started_at).max();
                rows.push(FlakeRow {
                    case_id: row.word("case_id")?,
                    architecture: row.text("architecture")?,
                    model: row.word("model")?,
                    target: row.text("target")?,
                    mode: row.word("mode")?,
                    workload: row.word("workload")?,
                    runs: nights.len() as u64,
                    tries: rate.tries,
                    failed: rate.failed,
                    rate: rate.of_failing(),
                    failed_on,
                    last_failed_at: last_failed_at.map(rfc3339),
                });
            }
        }
        rows.sort_by(|a, b| b.rate.total_cmp(&a.rate).then_with(|| a.case_id.as_str().cmp(b.case_id.as_str())));
        Ok(rows)
    }

    /// The hosts of the newest `window` complete runs of a matrix, those on which most fails first.
    pub async fn host_flakes(&self, matrix: Option<&str>, window: u32) -> Result<Vec<HostRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let tries = doubtful_tries(&mut transaction, matrix, window).await?;
        Ok(hosts(tries.values()))
    }
}

/// Compares each host with the others: of every case that both passed and failed, how often it fails elsewhere.
fn hosts<'a>(cases: impl Iterator<Item = &'a Vec<Try>>) -> Vec<HostRow> {
    #[derive(Default)]
    struct Sums {
        tries: u64,
        failed: u64,
        expected: f64,
        variance: f64,
    }
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    for tries in cases {
        let mut by_host: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (host, passed) in tries.iter().filter_map(|one| Some((one.host.as_str(), one.passed()?))) {
            let (all, failed) = by_host.entry(host).or_default();
            *all += 1;
            *failed += u64::from(!passed);
        }
        let (all, all_failed) = by_host.values().fold((0, 0), |(a, f), (tries, failed)| (a + tries, f + failed));
        for (host, (tries, failed)) in &by_host {
            let elsewhere = FlakeRate { failed: all_failed - failed, tries: all - tries };
            if elsewhere.tries == 0 {
                continue; // nothing to compare with
            }
            let p = elsewhere.of_failing();
            let sum = sums.entry((*host).to_owned()).or_default();
            sum.tries += tries;
            sum.failed += failed;
            sum.expected += *tries as f64 * p;
            sum.variance += *tries as f64 * p * (1.0 - p);
        }
    }
    let row = |(host, sum): (String, Sums)| {
        let excess = (sum.failed as f64 - sum.expected) / sum.variance.max(1.0).sqrt();
        let Sums { tries, failed, expected, .. } = sum;
        HostRow { host, tries, failed, expected, excess, stands_out: excess > STANDS_OUT }
    };
    let mut rows: Vec<HostRow> = sums.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.excess.total_cmp(&a.excess).then_with(|| a.host.cmp(&b.host)));
    rows
}

/// The tries, in their order, of the cases that both passed and failed in the newest complete runs of a matrix.
async fn doubtful_tries(
    transaction: &mut Transaction,
    matrix: Option<&str>,
    window: u32,
) -> Result<HashMap<i64, Vec<Try>>, StoreError> {
    let newest = newest_run(transaction, matrix).await?;
    let runs = sql("SELECT run_key FROM runs WHERE matrix = $1 AND selection = $2 AND finished >= planned \
                    AND started_at <= $3 ORDER BY started_at DESC, run_id DESC LIMIT $4");
    let runs = runs.bind(&newest.matrix).bind(&newest.selection).bind(newest.started_at).bind(window);
    let runs = transaction.all(runs).await?;
    let runs = runs.iter().map(|row| row.int("run_key")).collect::<Result<Vec<_>, _>>()?;
    let failing = Outcome::ALL.iter().filter(|outcome| outcome.standing() == Standing::Fail).map(|outcome| outcome.as_str());
    let query = built("SELECT a.case_key FROM attempts a WHERE 1 = 1");
    let query = query
        .and_in("a.run_key", runs.iter().copied())
        .text(" GROUP BY a.case_key HAVING COUNT(CASE WHEN a.outcome = 'pass' THEN 1 END) > 0");
    let query = query.text(" AND COUNT(CASE WHEN 1 = 1").and_in("a.outcome", failing).text(" THEN 1 END) > 0");
    let doubtful = transaction.all(query).await?;
    let doubtful = doubtful.iter().map(|row| row.int("case_key")).collect::<Result<Vec<_>, _>>()?;
    let mut tries: HashMap<i64, Vec<Try>> = HashMap::new();
    for cases in doubtful.chunks(500) {
        for run in &runs {
            let query = built(
                "SELECT case_key, attempt, started_at, outcome, host, environment_id, revision FROM attempts WHERE run_key = ",
            );
            for row in transaction.all(query.bind(*run).and_in("case_key", cases.iter().copied())).await? {
                let mut ground = DefaultHasher::new();
                (row.optional_text("environment_id")?, row.optional_text("revision")?).hash(&mut ground);
                tries.entry(row.int("case_key")?).or_default().push(Try {
                    run_key: *run,
                    attempt: row.int("attempt")?,
                    started_at: row.int("started_at")?,
                    outcome: row.word("outcome")?,
                    host: row.text("host")?,
                    ground: ground.finish(),
                });
            }
        }
    }
    let places: HashMap<i64, usize> = runs.iter().rev().enumerate().map(|(place, run)| (*run, place)).collect();
    for tries in tries.values_mut() {
        tries.sort_by_key(|one| (places.get(&one.run_key).copied(), one.attempt));
    }
    Ok(tries)
}

/// Tries in their order, by run.
fn nights(tries: &[Try]) -> Vec<Night> {
    tries
        .chunk_by(|a, b| a.run_key == b.run_key)
        .map(|tries| Night {
            outcomes: tries.iter().map(|one| one.outcome).collect(),
            ground: tries.last().map(|one| one.ground).unwrap_or_default(),
        })
        .collect()
}
