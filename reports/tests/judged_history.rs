//! A small generated history, merged and judged: the changes that only the nights decide are told exactly. `.ci/bench/history` judges a year.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail by a panic")]

#[path = "../examples/generate_history/calendar.rs"]
mod calendar;
#[path = "../examples/generate_history/cases.rs"]
mod cases;
#[path = "../examples/judge_history/expected.rs"]
mod expected;
#[path = "../examples/generate_history/history.rs"]
mod history;
#[path = "../examples/judge_history/known_truth.rs"]
mod known_truth;
#[path = "../examples/generate_history/pattern.rs"]
mod pattern;
#[path = "../examples/generate_history/random.rs"]
mod random;
#[path = "../examples/judge_history/score.rs"]
mod score;
#[path = "../examples/generate_history/tries.rs"]
mod tries;
#[path = "../examples/generate_history/truth.rs"]
mod truth;

use jiff::civil::Date;
use modelfarm_matrix::change::Change;
use modelfarm_reports::store::Store;
use serde_json::{Value, json};

use history::{Wanted, generate};
use known_truth::KnownTruth;
use score::{Score, TruthClass};

async fn judged(store: &Store, truth: &Value) -> Score {
    let mut score = Score::default();
    score.judge(store, &KnownTruth::of(truth.clone()).unwrap()).await.unwrap();
    score
}

#[tokio::test]
async fn what_only_the_nights_decide_is_told_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let (nights, models) = (24, 60);
    let wanted =
        Wanted { out: folder.path().join("nights"), nights, models, seed: 1, last_night: Date::constant(2026, 11, 30) };
    generate(&wanted).await.unwrap();
    let store = Store::create_or_migrate_file(&folder.path().join("farm.db")).await.unwrap();
    let mut truth: Value = serde_json::from_slice(&std::fs::read(wanted.out.join("truth.json")).unwrap()).unwrap();
    for night in truth["nights"].as_array().unwrap() {
        store.merge(&wanted.out.join(night["file"].as_str().unwrap())).await.unwrap();
    }

    let score = judged(&store, &truth).await;
    let (comparisons, exact) = score.certain();
    assert_eq!(exact, comparisons, "{:#?}", score.examples);
    assert_eq!(score.wrong_causes, 0, "{:#?}", score.examples);
    assert!(score.is_fine());
    for change in [Change::Regressed, Change::Fixed, Change::StillFailing, Change::Vanished] {
        assert!(score.table.contains_key(&(TruthClass::Certain(Some(change)), Some(change))), "a history without {change}");
    }

    // A truth with one regression a night later is not what the store tells.
    let regresses = |case: &&mut Value| case["pattern"] == "regresses" && case["changes"][0]["night"] != json!(nights);
    let case = truth["cases"].as_array_mut().unwrap().iter_mut().find(regresses).unwrap();
    let later = case["changes"][0]["night"].as_u64().unwrap() + 1;
    case["changes"][0]["night"] = json!(later);
    let (comparisons, exact) = judged(&store, &truth).await.certain();
    assert!(comparisons - exact == 2 || comparisons - exact == 1, "{} of {comparisons}", comparisons - exact);
}
