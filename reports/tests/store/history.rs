//! What changed, since when, and what flakes: the questions about time, on runs that are really recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::axes::Harness;
use modelfarm_matrix::case::Case;
use modelfarm_matrix::change::Change;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_matrix::rhythm::NightState;
use modelfarm_matrix::works::Works;
use modelfarm_reports::query::{CaseFilter, Comparison, HistoryFilter, Question, Rhythm};
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::{Environment, NewRun, Store, StoreError, now_ms};

use crate::databases::{every_kind, open};
use crate::samples::{case, failed, new_run, passed};

/// A night that is recorded: tries by case, as letters (`P` passes, `F` fails, `-` says nothing).
struct Recorded<'a> {
    tries: &'a [(usize, &'a str)],
    environment: &'a str,
    revision: &'a str,
    host: &'a str,
    selection: &'a str,
}

const NIGHT: Recorded<'static> = Recorded { tries: &[], environment: "e1", revision: "r1", host: "a", selection: "" };

/// Records a run of the cases that are named; returns its id.
async fn record(store: &Store, night: &Recorded<'_>) -> String {
    let cases: Vec<Case> = night.tries.iter().map(|(number, _)| case(*number)).collect();
    record_planned(store, night, &cases).await
}

async fn record_planned(store: &Store, night: &Recorded<'_>, planned: &[Case]) -> String {
    // Runs begin in different milliseconds, as nights do.
    tokio::time::sleep(Duration::from_millis(3)).await;
    let plan_id = format!("{:016x}", planned.len());
    let selection = night.selection.into();
    let run = store.begin_run(&NewRun { plan_id, selection, ..new_run(planned) }).await.unwrap();
    for (number, tries) in night.tries {
        for (place, letter) in tries.chars().enumerate() {
            let attempt = Attempt { attempt: place as u32 + 1, started_at: now_ms(), ..tried(&case(*number), letter, night) };
            match place + 1 == tries.len() {
                true => store.finish_attempt(&run, &attempt).await.unwrap(),
                false => store.finish_attempt_before_retry(&run, &attempt).await.unwrap(),
            };
        }
    }
    store.end_shard(&run, RunState::Complete).await.unwrap();
    run.run_id().to_owned()
}

fn tried(case: &Case, letter: char, night: &Recorded<'_>) -> Attempt {
    let attempt = match letter {
        'P' => passed(case),
        'F' => failed(case),
        '-' => Attempt { outcome: Outcome::InfraError, ..failed(case) },
        _ => panic!("{letter}"),
    };
    Attempt {
        environment_id: Some(night.environment.into()),
        revision: Some(night.revision.into()),
        host: night.host.into(),
        ..attempt
    }
}

async fn environment(store: &Store, id: &str, packages: &[(&str, &str)]) {
    let packages: BTreeMap<String, String> =
        packages.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect();
    let environment = Environment {
        environment_id: id.into(),
        name: "torchtpu".into(),
        packages,
        requirements: String::new(),
        created_at: 1,
    };
    store.record_environment(&environment).await.unwrap();
}

fn changes(comparison: &Comparison) -> Vec<(String, Change)> {
    let mut found: Vec<_> = comparison.rows.iter().map(|row| (row.model.to_string(), row.change)).collect();
    found.sort();
    found
}

fn tiny(number: usize, change: Change) -> (String, Change) {
    (format!("zoo/tiny-{number}"), change)
}

#[tokio::test]
async fn each_case_becomes_what_happened_to_it() {
    for database in every_kind().await {
        let store = open(&database).await;
        let before =
            record(&store, &Recorded { tries: &[(1, "P"), (2, "P"), (3, "F"), (4, "F"), (5, "P"), (6, "P")], ..NIGHT });
        let before = before.await;
        let after =
            Recorded { tries: &[(1, "P"), (2, "F"), (3, "P"), (4, "F"), (6, "-"), (7, "P"), (8, "F"), (9, "FP")], ..NIGHT };
        let after = record(&store, &after).await;
        let comparison = store.comparison(&Question::default()).await.unwrap();
        assert_eq!((&comparison.before.run_id, &comparison.after.run_id), (&before, &after));
        assert_eq!(
            changes(&comparison),
            [
                tiny(2, Change::Regressed),
                tiny(3, Change::Fixed),
                tiny(4, Change::StillFailing),
                tiny(5, Change::Vanished),
                tiny(6, Change::Undecided),
                tiny(7, Change::NewPass),
                tiny(8, Change::NewFailure),
                tiny(9, Change::Flaky),
            ]
        );
        assert_eq!((comparison.in_both, comparison.still_passing), (5, 1));
        assert!(comparison.is_bad());
        let only = Question {
            cases: CaseFilter { models: vec!["zoo/tiny-3".into()], ..CaseFilter::default() },
            ..Question::default()
        };
        let only = store.comparison(&only).await.unwrap();
        assert_eq!(changes(&only), [tiny(3, Change::Fixed)]);
        assert!(!only.is_bad(), "what is not asked for does not fail a night");
    }
}

#[tokio::test]
async fn a_regression_tells_since_when_and_what_else_changed() {
    for database in every_kind().await {
        let store = open(&database).await;
        environment(&store, "e1", &[("torch", "2.14.0"), ("transformers", "5.23.0")]).await;
        environment(&store, "e2", &[("torch", "2.15.0"), ("transformers", "5.23.0")]).await;
        let first = record(&store, &Recorded { tries: &[(1, "P")], ..NIGHT }).await;
        let second =
            record(&store, &Recorded { tries: &[(1, "F")], environment: "e2", revision: "r2", host: "b", ..NIGHT }).await;
        let third =
            record(&store, &Recorded { tries: &[(1, "F")], environment: "e2", revision: "r2", host: "b", ..NIGHT }).await;
        let since = Some(first.parse().unwrap());
        let comparison = store.comparison(&Question { since, ..Question::default() }).await.unwrap();
        let row = &comparison.rows[0];
        assert_eq!(row.change, Change::Regressed);
        assert_eq!(row.before.as_ref().map(|side| &side.run_id), Some(&first));
        assert_eq!(row.first.as_ref().map(|side| &side.run_id), Some(&second), "it broke one night before the newest");
        assert_eq!(row.after.as_ref().map(|side| &side.run_id), Some(&third));
        let told: Vec<_> = row
            .environment_changes
            .iter()
            .map(|one| (one.package.as_str(), one.from.as_deref().unwrap_or("-"), one.to.as_deref().unwrap_or("-")))
            .collect();
        assert_eq!(told, [("torch", "2.14.0", "2.15.0")]);
        assert_eq!((row.model_changed, row.host_changed), (Some(true), Some(true)));
        let against_the_night_before = store.comparison(&Question::default()).await.unwrap();
        assert_eq!(changes(&against_the_night_before), [tiny(1, Change::StillFailing)]);
    }
}

#[tokio::test]
async fn a_run_that_is_not_complete_is_no_baseline_and_nothing_vanishes_in_it() {
    for database in every_kind().await {
        let store = open(&database).await;
        let complete = record(&store, &Recorded { tries: &[(1, "P"), (2, "P")], ..NIGHT }).await;
        let both = [case(1), case(2)];
        let half = record_planned(&store, &Recorded { tries: &[(1, "F")], ..NIGHT }, &both).await;
        let error = store.comparison(&Question::default()).await.unwrap_err();
        assert!(matches!(error, StoreError::NoCompleteRun { before: Some(_), .. }), "{error}");
        let named = Question { run: Some(half.clone()), ..Question::default() };
        let comparison = store.comparison(&named).await.unwrap();
        assert_eq!((&comparison.before.run_id, comparison.after.is_complete), (&complete, false));
        assert_eq!(changes(&comparison), [tiny(1, Change::Regressed)], "the other case has not been reached");
        record(&store, &Recorded { tries: &[(1, "F"), (2, "P")], ..NIGHT }).await;
        let comparison = store.comparison(&Question::default()).await.unwrap();
        assert_eq!(comparison.before.run_id, complete, "the half run is passed over");
        assert_eq!(changes(&comparison), [tiny(1, Change::Regressed)]);
    }
}

#[tokio::test]
async fn a_night_that_did_not_come_is_told() {
    const DAY_MS: i64 = 86_400_000;
    for database in every_kind().await {
        let store = &open(&database).await;
        let nights = async |days: i64| {
            let rhythm = Rhythm { matrix: None, every: DAY_MS, from: 0, now: now_ms() + days * DAY_MS };
            store.nights(&rhythm).await.unwrap()
        };
        assert_eq!(nights(0).await, []);
        let whole = Recorded { tries: &[(1, "P"), (2, "P")], ..NIGHT };
        let run = record(store, &whole).await;
        record_planned(store, &Recorded { tries: &[(1, "P")], ..NIGHT }, &[case(1), case(2)]).await;
        record(store, &Recorded { selection: "--sample 1/2", ..whole }).await;
        let told = nights(0).await;
        assert_eq!(told.len(), 1, "runs that begin anew are of one night: {told:?}");
        assert_eq!((told[0].state, told[0].run_id.as_ref(), told[0].finished), (NightState::Complete, Some(&run), Some(2)));

        let told = nights(2).await;
        let states: Vec<NightState> = told.iter().map(|night| night.state).collect();
        assert_eq!(states, [NightState::Late, NightState::Complete]);
        let told = nights(4).await;
        let states: Vec<NightState> = told.iter().map(|night| night.state).collect();
        assert_eq!(states, [NightState::Late, NightState::Missing, NightState::Missing, NightState::Complete]);
        assert!(told[1].run_id.is_none() && told[1].due_at > told[2].due_at, "{told:?}");
    }
}

#[tokio::test]
async fn runs_of_one_selection_are_compared_with_each_other() {
    for database in every_kind().await {
        let store = open(&database).await;
        let whole = record(&store, &Recorded { tries: &[(1, "P"), (2, "P")], ..NIGHT }).await;
        let sample = record(&store, &Recorded { tries: &[(2, "P")], selection: "sample 1/2", ..NIGHT }).await;
        let next = record(&store, &Recorded { tries: &[(1, "P"), (2, "F")], ..NIGHT }).await;
        let comparison = store.comparison(&Question::default()).await.unwrap();
        assert_eq!((&comparison.before.run_id, &comparison.after.run_id), (&whole, &next));
        assert_eq!(changes(&comparison), [tiny(2, Change::Regressed)]);
        let later = record(&store, &Recorded { tries: &[(2, "F")], selection: "sample 1/2", ..NIGHT }).await;
        assert_eq!(store.comparison(&Question::default()).await.unwrap().after.run_id, next, "a sample is no night of all");
        let named = store.comparison(&Question { run: Some(later), ..Question::default() }).await.unwrap();
        assert_eq!(named.before.run_id, sample);
        assert_eq!(changes(&named), [tiny(2, Change::Regressed)]);
    }
}

#[tokio::test]
async fn a_baseline_that_is_too_young_is_told() {
    for database in every_kind().await {
        let store = open(&database).await;
        let oldest = record(&store, &Recorded { tries: &[(1, "P")], ..NIGHT }).await;
        record(&store, &Recorded { tries: &[(1, "P")], ..NIGHT }).await;
        record(&store, &Recorded { tries: &[(1, "F")], ..NIGHT }).await;
        let asked = Question { since: Some("7d".parse().unwrap()), ..Question::default() };
        let comparison = store.comparison(&asked).await.unwrap();
        assert_eq!((comparison.before.run_id, comparison.is_old_enough), (oldest, false));
    }
}

#[tokio::test]
async fn a_case_that_flakes_is_found_and_does_not_regress_by_chance() {
    for database in every_kind().await {
        let store = open(&database).await;
        for tries in ["P", "FP", "P", "P", "FP", "P", "P", "FFP"] {
            record(&store, &Recorded { tries: &[(1, tries), (2, "P")], ..NIGHT }).await;
        }
        record(&store, &Recorded { tries: &[(1, "F"), (2, "F")], ..NIGHT }).await;
        let comparison = store.comparison(&Question::default()).await.unwrap();
        assert_eq!(changes(&comparison), [tiny(1, Change::Flaky), tiny(2, Change::Regressed)]);
        let flakes = store.flakes(None, 30).await.unwrap();
        let told: Vec<_> = flakes.iter().map(|row| (row.model.as_str(), row.runs, row.tries, row.failed)).collect();
        assert_eq!(told, [("zoo/tiny-1", 9, 13, 5)]);
        assert!(store.flakes(None, 1).await.unwrap().is_empty(), "one night in which all failed");
    }
}

#[tokio::test]
async fn a_bad_host_stands_out() {
    for database in every_kind().await {
        let store = open(&database).await;
        let good: Vec<(usize, &str)> = (0..20).map(|number| (number, "P")).collect();
        let bad: Vec<(usize, &str)> = (0..20).map(|number| (number, "F")).collect();
        for _ in 0..3 {
            record(&store, &Recorded { tries: &good, host: "good-1", ..NIGHT }).await;
            record(&store, &Recorded { tries: &bad, host: "bad", ..NIGHT }).await;
            record(&store, &Recorded { tries: &good, host: "good-2", ..NIGHT }).await;
        }
        let hosts = store.host_flakes(None, 30).await.unwrap();
        let told: Vec<_> = hosts.iter().map(|row| (row.host.as_str(), row.failed, row.stands_out)).collect();
        assert_eq!(told[0], ("bad", 60, true));
        assert!(told[1..].iter().all(|(_, failed, stands_out)| *failed == 0 && !stands_out), "{told:?}");
    }
}

#[tokio::test]
async fn standings_repairs_rates_and_versions_follow_the_history() {
    for database in every_kind().await {
        let store = open(&database).await;
        environment(&store, "e1", &[("torch", "2.14.0")]).await;
        environment(&store, "e2", &[("torch", "2.15.0")]).await;
        let night = |tries, environment| Recorded { tries, environment, ..NIGHT };
        let first = record(&store, &night(&[(1, "P"), (2, "P")], "e1")).await;
        let second = record(&store, &night(&[(1, "F"), (2, "P")], "e2")).await;
        record(&store, &night(&[(1, "-"), (2, "P")], "e2")).await;
        record(&store, &night(&[(1, "F"), (2, "F")], "e2")).await;
        let last = record(&store, &night(&[(1, "F"), (2, "P")], "e2")).await;
        let filter = HistoryFilter::default();

        let standing = store.standing(&filter).await.unwrap();
        let told: Vec<_> = standing.iter().map(|row| (row.standing, row.since_run.as_str(), row.runs)).collect();
        assert_eq!(told, [(Works::Broken, second.as_str(), 3), (Works::Works, last.as_str(), 1)]);
        assert_eq!(standing[0].before_run.as_deref(), Some(first.as_str()));
        assert_eq!(standing[0].environment_changes.len(), 1);

        let repairs = store.repairs(&filter).await.unwrap();
        assert_eq!(repairs.len(), 1);
        assert_eq!((repairs[0].broke, repairs[0].repaired, repairs[0].open), (2, 1, 1));
        assert!(repairs[0].median_days.is_some_and(|days| days > 0.0 && days < 1.0));

        let of_harness = |harness| CaseFilter { harnesses: vec![harness], ..CaseFilter::default() };
        let timm = HistoryFilter { cases: of_harness(Harness::Timm), ..HistoryFilter::default() };
        assert!(store.standing(&timm).await.unwrap().is_empty() && store.pass_rate(&timm).await.unwrap().is_empty());
        let of_architecture = CaseFilter { architectures: vec!["llama".into()], ..CaseFilter::default() };
        for cases in [CaseFilter::default(), of_architecture, of_harness(Harness::Transformers)] {
            let rates = store.pass_rate(&HistoryFilter { cases, ..HistoryFilter::default() }).await.unwrap();
            let told: Vec<_> = rates.iter().map(|row| (row.pass, row.fail, row.inconclusive)).collect();
            assert_eq!(told, [(2, 0, 0), (1, 1, 0), (1, 0, 1), (0, 2, 0), (1, 1, 0)]);
            assert_eq!(rates[2].pass_rate, Some(1.0), "what says nothing is not in the denominator");
        }

        let versions = store.passing_versions(&filter).await.unwrap();
        assert_eq!(versions.len(), 1);
        assert!(!versions[0].is_newest);
        assert_eq!(versions[0].environment_id.as_deref(), Some("e2"), "the silent night passed as far as it says something");
    }
}
