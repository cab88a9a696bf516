//! Writing a history: a file a night, and the truth about it.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use modelfarm_reports::store::{NewRun, PastRun, Store};
use serde_json::json;

use crate::calendar::{self, Night, SHARDS};
use crate::cases::{self, HistoryModel};
use crate::random::Random;
use crate::tries::Evening;
use crate::truth::{self, file_name, shard_name};

/// What to generate.
pub struct Wanted {
    pub out: PathBuf,
    pub nights: usize,
    pub models: usize,
    pub seed: u64,
    pub last_night: Date,
}

/// Writes everything; returns the number of attempts.
pub async fn generate(wanted: &Wanted) -> Result<usize, Box<dyn Error>> {
    std::fs::create_dir_all(&wanted.out)?;
    let last_day = wanted.last_night.to_zoned_datetime(TimeZone::UTC)?.timestamp().as_millisecond();
    let nights = calendar::nights(wanted.seed, wanted.nights, last_day);
    let models = cases::models(wanted.seed, wanted.models, &nights);
    let mut silent = BTreeMap::<String, Vec<usize>>::new();
    let mut attempts = 0;
    for (number, night) in nights.iter().enumerate() {
        let path = wanted.out.join(file_name(number));
        attempts += write_night(&path, wanted.seed, number, night, &models, &mut silent).await?;
        if number % 20 == 19 {
            eprintln!("{} of {} nights", number + 1, nights.len());
        }
    }
    let truth = truth::truth(wanted.seed, &nights, &models, &silent);
    std::fs::write(wanted.out.join("truth.json"), serde_json::to_string(&truth)?)?;
    Ok(attempts)
}

async fn write_night(
    path: &Path,
    seed: u64,
    number: usize,
    night: &Night,
    models: &[HistoryModel],
    silent: &mut BTreeMap<String, Vec<usize>>,
) -> Result<usize, Box<dyn Error>> {
    let there: Vec<&HistoryModel> = models.iter().filter(|model| model.nights.contains(&number)).collect();
    let planned: Vec<String> = there.iter().flat_map(|model| model.cases.iter().map(|case| case.case.canonical())).collect();
    let plan_id = Random::of(seed, &planned.join("\n")).hex(16);
    if path.exists() {
        return Err(format!("{} is there already; name a new folder", path.display()).into());
    }
    let store = Store::create_or_migrate_file(path).await?;
    let mut attempts = 0;
    for shard in (0..SHARDS).filter(|shard| night.missing_shard != Some(*shard)) {
        let mut tries = Vec::new();
        let mut at = night.started_at + 1000;
        for model in there.iter().filter(|model| model.shard == shard) {
            for case in &model.cases {
                let evening = Evening { seed, number, night, model, case };
                if evening.is_silent() {
                    silent.entry(case.case.id().to_string()).or_default().push(number);
                }
                tries.extend(evening.tries(at));
                at = tries.last().map_or(at, |last| last.attempt.started_at + last.attempt.duration_ms + 5);
            }
        }
        attempts += tries.len();
        let run = NewRun {
            run_id: night.run_id.clone(),
            matrix: "nightly".into(),
            plan_id: plan_id.clone(),
            selection: String::new(),
            planned_cases: planned.clone(),
            shard: shard_name(shard),
            host: night.host(shard),
            pid: 1,
            facts: json!({"cores": 8, "sandbox": "bubblewrap"}),
        };
        let past = PastRun {
            run,
            started_at: night.started_at,
            ended_at: at,
            is_interrupted: false,
            environments: vec![night.environment.clone()],
            models: there.iter().filter(|model| model.shard == shard).map(|model| model.on(number)).collect(),
            tries,
        };
        store.record_past_run(&past).await?;
    }
    store.close().await;
    Ok(attempts)
}
