//! The generated history is what its truth says, and the same for the same seed.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail by a panic")]

#[path = "../examples/generate_history/calendar.rs"]
mod calendar;
#[path = "../examples/generate_history/cases.rs"]
mod cases;
#[path = "../examples/generate_history/history.rs"]
mod history;
#[path = "../examples/generate_history/pattern.rs"]
mod pattern;
#[path = "../examples/generate_history/random.rs"]
mod random;
#[path = "../examples/generate_history/tries.rs"]
mod tries;
#[path = "../examples/generate_history/truth.rs"]
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::civil::Date;
use modelfarm_matrix::outcome::{Outcome, Standing};
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::{ResultRow, RunState};
use modelfarm_reports::store::Store;
use serde_json::Value;

use history::{Wanted, generate};

const NIGHTS: usize = 16;

async fn generated(out: &Path, seed: u64) -> Value {
    let wanted = Wanted { out: out.to_owned(), nights: NIGHTS, models: 60, seed, last_night: Date::constant(2026, 11, 30) };
    assert!(generate(&wanted).await.unwrap() > 60 * NIGHTS);
    serde_json::from_slice(&std::fs::read(out.join("truth.json")).unwrap()).unwrap()
}

/// The attempts of a night, by case.
async fn attempts(out: &Path, night: &Value) -> BTreeMap<String, Vec<ResultRow>> {
    let store = Store::open_file_read_only(&out.join(night["file"].as_str().unwrap())).await.unwrap();
    let run = store.run(night["run_id"].as_str().unwrap()).await.unwrap();
    let is_whole = night["missing_shard"].is_null();
    assert_eq!(run.state, if is_whole { RunState::Complete } else { RunState::Partial });
    let mut by_case = BTreeMap::<String, Vec<ResultRow>>::new();
    for row in store.results(&ResultFilter::default()).await.unwrap() {
        assert_eq!(row.message.as_ref().map(String::len), Some(300));
        by_case.entry(row.case_id.to_string()).or_default().push(row);
    }
    by_case
}

#[tokio::test]
async fn the_files_hold_what_the_truth_says() {
    let folder = tempfile::tempdir().unwrap();
    let truth = generated(folder.path(), 3).await;
    let shard_of: BTreeMap<&str, &Value> =
        truth["models"].as_array().unwrap().iter().map(|model| (model["model"].as_str().unwrap(), model)).collect();
    let mut seen = BTreeSet::new();
    for night in truth["nights"].as_array().unwrap() {
        let number = night["night"].as_u64().unwrap();
        let attempts = attempts(folder.path(), night).await;
        for case in truth["cases"].as_array().unwrap() {
            let model = shard_of[case["model"].as_str().unwrap()];
            let (first, last) = (model["first_night"].as_u64().unwrap(), model["last_night"].as_u64().unwrap());
            let tries = attempts.get(case["case_id"].as_str().unwrap());
            if !(first..=last).contains(&number) || model["shard"] == night["missing_shard"] {
                assert!(tries.is_none(), "{case} on night {number}");
                continue;
            }
            let tries = tries.unwrap();
            let pattern = case["pattern"].as_str().unwrap();
            seen.insert(pattern.to_owned());
            let outcomes: Vec<Outcome> = tries.iter().map(|row| row.outcome).collect();
            if case["silent_nights"].as_array().unwrap().contains(&number.into()) {
                assert_eq!(outcomes, [Outcome::InfraError], "{case} on night {number}");
                continue;
            }
            let turned = |index: usize| case["changes"][index]["night"].as_u64().unwrap() <= number;
            let failing = match pattern {
                "passes" | "is_often_silent" => Some(false),
                "fails" => Some(true),
                "regresses" => Some(turned(0)),
                "is_fixed" => Some(!turned(0)),
                "regresses_and_is_fixed" => Some(turned(0) && !turned(1)),
                "flakes_then_regresses" if turned(0) => Some(true),
                "fails_on_host" => Some(case["host"] == tries[0].host.as_str()),
                _ => None,
            };
            let standings: Vec<Standing> = outcomes.iter().map(|outcome| outcome.standing()).collect();
            match failing {
                Some(true) => assert_eq!(standings, [Standing::Fail; 4], "{case} on night {number}"),
                Some(false) => assert_eq!(standings, [Standing::Pass], "{case} on night {number}"),
                None => assert!(standings[..standings.len() - 1].iter().all(|standing| *standing == Standing::Fail)),
            }
        }
    }
    assert!(seen.len() >= 6, "a history of little: {seen:?}");
}

#[test]
fn a_turn_has_the_one_cause_that_the_truth_names() {
    let nights = calendar::nights(5, 60, 0);
    let truth = truth::truth(5, &nights, &cases::models(5, 500, &nights), &BTreeMap::new());
    let mut causes = BTreeSet::new();
    for case in truth["cases"].as_array().unwrap() {
        let models = truth["models"].as_array().unwrap();
        let model = models.iter().find(|model| model["model"] == case["model"]).unwrap();
        for change in case["changes"].as_array().unwrap().iter().filter(|change| !change["cause"].is_null()) {
            let night = &truth["nights"][change["night"].as_u64().unwrap() as usize - 1];
            let has_revision =
                model["revisions"].as_array().unwrap().iter().any(|revision| revision["night"] == change["night"]);
            let package = &night["package_change"]["package"];
            match change["cause"].as_str().unwrap() {
                "package" => assert!(change["package"] == *package && !package.is_null() && !has_revision, "{case}"),
                "revision" => assert!(has_revision && package.is_null(), "{case}"),
                "nothing" => assert!(!has_revision && package.is_null(), "{case}"),
                other => panic!("{other}"),
            }
            assert_ne!(night["missing_shard"], model["shard"], "{case}");
            causes.insert(change["cause"].to_string());
        }
    }
    assert_eq!(causes.len(), 3, "{causes:?}");
}

#[tokio::test]
async fn the_same_seed_makes_the_same_history() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (one, other) = (generated(folders[0].path(), 1).await, generated(folders[1].path(), 1).await);
    assert_eq!(one, other);
    for night in one["nights"].as_array().unwrap() {
        assert_eq!(attempts(folders[0].path(), night).await, attempts(folders[1].path(), night).await);
    }
    let another = tempfile::tempdir().unwrap();
    assert_ne!(generated(another.path(), 2).await["cases"], one["cases"]);
}
