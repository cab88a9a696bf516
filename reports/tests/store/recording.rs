//! What is recorded comes back.

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::event::Event;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::query::{CaseFilter, ResultFilter};
use modelfarm_reports::rows::{AttemptDetail, ResultRow, RunState};
use modelfarm_reports::store::{NewRun, PastRun, PastTry, Store, StoreError, rfc3339};
use proptest::prelude::*;

use crate::databases::{every_kind, open};
use crate::samples::{any_attempt, case, cases, failed, new_run, passed, past_run};

/// What an attempt must look like when it comes back.
fn expected(run_id: &str, attempt: &Attempt) -> AttemptDetail {
    let attempt = attempt.clone();
    AttemptDetail {
        row: ResultRow {
            case_id: attempt.case.id(),
            run_id: run_id.to_owned(),
            attempt: attempt.attempt,
            model: attempt.case.model,
            revision: attempt.revision,
            architecture: attempt.architecture,
            class: attempt.case.class,
            harness: attempt.case.harness,
            weights: attempt.case.weights,
            workload: attempt.case.workload,
            inputs: attempt.case.inputs,
            dtype: attempt.case.dtype,
            precision: attempt.case.precision,
            attention: attempt.case.attention,
            target: attempt.case.target,
            mode: attempt.case.mode,
            check: attempt.check,
            outcome: attempt.outcome,
            stage: attempt.stage,
            fault: attempt.fault,
            verdict: attempt.verdict,
            signature: attempt.signature,
            message: attempt.message,
            duration_ms: attempt.duration_ms,
            started_at: rfc3339(attempt.started_at),
            host: attempt.host,
            metrics: attempt.metrics,
            environment_id: attempt.environment_id,
        },
        expectation_reason: attempt.expectation_reason,
        traceback: attempt.traceback,
        output_tail: attempt.output_tail,
        farm_overhead_ms: attempt.farm_overhead_ms,
        inputs_hash: attempt.inputs_hash,
        reference_key: attempt.reference_key,
        leaves: attempt.leaves,
        facts: attempt.facts,
        evidence: serde_json::to_value(attempt.evidence).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn any_attempt_comes_back_as_it_was(attempts in prop::collection::vec(any_attempt(), 1..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for database in every_kind().await {
                let store = open(&database).await;
                let run = store.begin_run(&new_run(&[])).await.unwrap();
                for attempt in &attempts {
                    store.finish_attempt(&run, attempt).await.unwrap();
                    let id = attempt.case.id();
                    let found = store.attempts_of(&format!("{}/{id}/{}", run.run_id(), attempt.attempt), None).await.unwrap();
                    prop_assert_eq!(&found, &vec![expected(run.run_id(), attempt)]);
                    if attempt.attempt < 1000 {
                        let short = store.attempts_of(&format!("{id}/{}", attempt.attempt), None).await.unwrap();
                        prop_assert_eq!(&short, &found);
                    }
                }
                let rows = store.results(&ResultFilter::default()).await.unwrap();
                prop_assert_eq!(rows.len(), attempts.len());
                store.close().await;
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn an_attempt_and_its_event_are_visible_together_and_only_once() {
    for database in every_kind().await {
        let store = open(&database).await;
        let run = store.begin_run(&new_run(&cases(1))).await.unwrap();
        let started = Event::AttemptStarted { case_id: case(0).id(), attempt: 1 };
        assert_eq!(store.append_event(&run, &started).await.unwrap(), 1);
        assert_eq!(store.finish_attempt(&run, &failed(&case(0))).await.unwrap(), 2);
        let error = store.finish_attempt(&run, &passed(&case(0))).await.unwrap_err();
        assert!(matches!(error, StoreError::AttemptExists { attempt: 1, .. }), "{error}");
        let events = store.events("latest", 0, 10).await.unwrap();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].event, started);
        assert!(matches!(events[1].event, Event::AttemptFinished { outcome: Outcome::RuntimeError, unexpected: true, .. }));
        assert_eq!(store.events("latest", 1, 10).await.unwrap(), events[1..]);
        assert_eq!(store.append_event(&run, &Event::RunFinished { interrupted: false }).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn nul_in_a_text_becomes_the_replacement_character() {
    for database in every_kind().await {
        let store = open(&database).await;
        let run = store.begin_run(&new_run(&cases(1))).await.unwrap();
        let mut attempt = failed(&case(0));
        attempt.message = Some("a\0b".into());
        attempt.facts = serde_json::json!({"a\0": "\0"});
        store.finish_attempt(&run, &attempt).await.unwrap();
        let found = store.attempts_of(case(0).id().as_str(), None).await.unwrap();
        assert_eq!(found[0].row.message.as_deref(), Some("a\u{fffd}b"));
        assert_eq!(found[0].facts, attempt.facts);
    }
}

#[tokio::test]
async fn the_last_attempt_counts_and_a_retry_is_not_final() {
    for database in every_kind().await {
        let store = open(&database).await;
        let new = new_run(&cases(2));
        let run = store.begin_run(&new).await.unwrap();
        store.finish_attempt_before_retry(&run, &failed(&case(0))).await.unwrap();
        assert!(store.final_cases(&run).await.unwrap().is_empty());
        assert_eq!(store.last_attempts(&run).await.unwrap()[&case(0).id()], 1);
        assert_eq!(store.run("latest").await.unwrap().finished, 0);
        store.finish_attempt(&run, &Attempt { attempt: 2, ..passed(&case(0)) }).await.unwrap();
        store.finish_attempt(&run, &failed(&case(1))).await.unwrap();
        let filter = ResultFilter { run: Some("latest".into()), final_only: true, ..ResultFilter::default() };
        let numbers: Vec<u32> = store.results(&filter).await.unwrap().iter().map(|row| row.attempt).collect();
        assert_eq!(numbers, [2, 1]);
        assert_eq!(store.results(&ResultFilter { final_only: false, ..filter }).await.unwrap().len(), 3);
        let row = store.run("latest").await.unwrap();
        assert_eq!((row.state, row.planned, row.finished), (RunState::Running, 2, 2));
        assert_eq!((row.pass, row.fail, row.inconclusive, row.unexpected), (1, 1, 0, 1));
        assert_eq!(row.farm_overhead_ms_median, Some(41.5));
        assert_eq!(row.environments, ["e1"]);
        store.end_shard(&run, RunState::Complete).await.unwrap();
        assert_eq!(store.run("latest").await.unwrap().state, RunState::Complete);
    }
}

#[tokio::test]
async fn filters_leave_out_what_they_do_not_name() {
    for database in every_kind().await {
        filters_leave_out_what_they_do_not_name_in(&open(&database).await).await;
    }
}

async fn filters_leave_out_what_they_do_not_name_in(store: &Store) {
    let run = store.begin_run(&new_run(&cases(4))).await.unwrap();
    for number in 0..4 {
        let attempt = if number % 2 == 0 { passed(&case(number)) } else { failed(&case(number)) };
        store.finish_attempt(&run, &attempt).await.unwrap();
    }
    let models = |filter: ResultFilter| {
        let store = store.clone();
        async move {
            let rows = store.results(&filter).await.unwrap();
            rows.iter().map(|row| row.model.name().to_owned()).collect::<Vec<_>>()
        }
    };
    let all = ResultFilter::default();
    let of = |cases: CaseFilter| ResultFilter { cases, ..ResultFilter::default() };
    assert_eq!(models(all.clone()).await, ["tiny-0", "tiny-1", "tiny-2", "tiny-3"]);
    assert_eq!(models(ResultFilter { outcomes: vec![Outcome::Pass], ..all.clone() }).await, ["tiny-0", "tiny-2"]);
    assert_eq!(
        models(of(CaseFilter { ids: vec![case(3).id(), case(1).id()], ..CaseFilter::default() })).await,
        ["tiny-1", "tiny-3"]
    );
    assert_eq!(models(of(CaseFilter { models: vec!["zoo/tiny-2".into()], ..CaseFilter::default() })).await, ["tiny-2"]);
    assert_eq!(models(ResultFilter { limit: Some(1), ..all.clone() }).await, ["tiny-0"]);
    let hostile = vec!["x') OR 1=1 --".to_owned(), "\0".to_owned()];
    assert!(models(of(CaseFilter { targets: hostile, ..CaseFilter::default() })).await.is_empty());
    assert!(models(of(CaseFilter { architectures: vec!["bert".into()], ..CaseFilter::default() })).await.is_empty());
}

#[tokio::test]
async fn runs_are_found_by_what_people_call_them() {
    for database in every_kind().await {
        let store = open(&database).await;
        let none = store.resolve_run("latest").await.unwrap_err().to_string();
        assert!(none.contains("holds no run yet"), "{none}");
        let mut ids = Vec::new();
        for first in ["aaaa0000", "aaaa1111", "bbbb0000"] {
            let id = format!("{first}-7a2b-7c3d-8e4f-5a6b7c8d9e0f");
            store.begin_run(&NewRun { run_id: id.clone(), ..new_run(&[]) }).await.unwrap();
            ids.push(id);
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        }
        assert_eq!(store.resolve_run("latest").await.unwrap(), ids[2]);
        assert_eq!(store.resolve_run("latest~2").await.unwrap(), ids[0]);
        assert_eq!(store.resolve_run("AAAA1").await.unwrap(), ids[1]);
        assert_eq!(store.resolve_run(&ids[0]).await.unwrap(), ids[0]);
        assert!(matches!(store.resolve_run("aaaa").await.unwrap_err(), StoreError::AmbiguousRun { .. }));
        for wrong in ["latest~3", "cccc", "%", "", "last"] {
            let error = store.resolve_run(wrong).await.unwrap_err();
            assert!(matches!(error, StoreError::NoSuchRun { .. }), "{wrong}: {error}");
        }
    }
}

#[tokio::test]
async fn a_run_is_continued_only_with_its_own_plan() {
    for database in every_kind().await {
        let store = open(&database).await;
        let new = new_run(&cases(3));
        let run = store.begin_run(&new).await.unwrap();
        store.finish_attempt(&run, &passed(&case(1))).await.unwrap();
        let again = store.begin_run(&new).await.unwrap();
        assert_eq!(store.final_cases(&again).await.unwrap().into_iter().collect::<Vec<_>>(), [case(1).id()]);
        let other = NewRun { plan_id: "fedcba9876543210".into(), ..new.clone() };
        assert!(matches!(store.begin_run(&other).await.unwrap_err(), StoreError::PlanDiffers { .. }));
        let wrong = NewRun { run_id: "nightly".into(), ..new };
        assert!(matches!(store.begin_run(&wrong).await.unwrap_err(), StoreError::RunId(_)));
        assert_eq!(store.runs(None).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_run_counts_its_final_cases_whatever_order_its_tries_come_in() {
    for database in every_kind().await {
        let store = open(&database).await;
        let run = store.begin_run(&new_run(&cases(1))).await.unwrap();
        let mut finished = Vec::new();
        // The number of the try, and whether another was to follow it.
        for (attempt, is_retried) in [(3, true), (1, false), (2, false), (4, false), (5, true), (6, false), (7, false)] {
            let attempt = Attempt { attempt, ..passed(&case(0)) };
            match is_retried {
                true => store.finish_attempt_before_retry(&run, &attempt).await.unwrap(),
                false => store.finish_attempt(&run, &attempt).await.unwrap(),
            };
            let row = store.run("latest").await.unwrap();
            assert_eq!(row.finished, row.pass, "the run's row and its attempts say the same");
            finished.push(row.finished);
        }
        assert_eq!(finished, [0, 0, 0, 1, 0, 1, 1]);
    }
}

#[tokio::test]
async fn a_run_that_is_over_is_recorded_as_if_it_had_been_written_as_it_went() {
    for database in every_kind().await {
        let store = open(&database).await;
        let new = NewRun { shard: "1/2".into(), ..new_run(&cases(600)) };
        let mut tries: Vec<PastTry> =
            (0..300).map(|number| PastTry { attempt: passed(&case(number)), is_retried: false }).collect();
        // A case whose tries are far apart.
        tries.push(PastTry { attempt: Attempt { attempt: 2, ..failed(&case(0)) }, is_retried: false });
        let past = past_run(new.clone(), tries);
        store.record_past_run(&past).await.unwrap();
        let row = store.run(&new.run_id).await.unwrap();
        assert_eq!((row.state, row.finished, row.pass, row.fail), (RunState::Partial, 300, 299, 1));
        assert_eq!(row.started_at, rfc3339(past.started_at));
        assert_eq!(row.ended_at, Some(rfc3339(past.ended_at)));
        let found = store.attempts_of(&format!("{}/{}/2", new.run_id, case(0).id()), None).await.unwrap();
        assert_eq!(found, [expected(&new.run_id, &past.tries[300].attempt)]);
        let events = store.events(&new.run_id, 0, 1000).await.unwrap();
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (1..=303).collect::<Vec<u64>>());
        assert_eq!(events[0].event, Event::RunStarted { planned: 300, already_final: 0 });
        assert!(matches!(events[1].event, Event::AttemptFinished { attempt: 1, unexpected: false, .. }));
        assert_eq!(events[302].event, Event::RunFinished { interrupted: false });

        let error = store.record_past_run(&past).await.unwrap_err();
        assert!(matches!(error, StoreError::AttemptsExist(_)), "{error}");
        let tries = (300..600).map(|number| PastTry { attempt: passed(&case(number)), is_retried: false }).collect();
        let earlier = past_run(NewRun { shard: "2/2".into(), ..new.clone() }, tries);
        store.record_past_run(&PastRun { started_at: past.started_at - 5, ..earlier }).await.unwrap();
        let row = store.run(&new.run_id).await.unwrap();
        assert_eq!((row.state, row.finished, row.pass), (RunState::Complete, 600, 599));
        assert_eq!(row.started_at, rfc3339(past.started_at - 5));
        assert_eq!(store.events(&new.run_id, 303, 1000).await.unwrap().len(), 302);
    }
}

#[tokio::test]
async fn durations_come_from_the_newest_other_run_of_the_matrix() {
    for database in every_kind().await {
        let store = open(&database).await;
        let mut durations = Vec::new();
        for (number, milliseconds) in [(1, 5_i64), (2, 7), (3, 9)] {
            let mut new = new_run(&cases(1));
            new.run_id = format!("0000000{number}-0000-7000-8000-000000000000");
            let run = store.begin_run(&new).await.unwrap();
            durations.push(store.earlier_durations(&run).await.unwrap().get(&case(0).id()).map(std::time::Duration::as_millis));
            store.finish_attempt(&run, &Attempt { duration_ms: milliseconds, ..passed(&case(0)) }).await.unwrap();
            store.end_shard(&run, RunState::Complete).await.unwrap();
        }
        assert_eq!(durations, [None, Some(5), Some(7)]);
    }
}

#[tokio::test]
async fn an_environment_was_used_when_a_run_that_began_then_tried_something_in_it() {
    for database in every_kind().await {
        let store = open(&database).await;
        for (environment, started_at) in [(Some("e1"), 1000), (Some("e2"), 2000), (Some("e2"), 3000), (None, 3000)] {
            let attempt = Attempt { environment_id: environment.map(str::to_owned), started_at, ..passed(&case(0)) };
            let tries = vec![PastTry { attempt, is_retried: false }];
            let run = PastRun { started_at, ended_at: started_at + 10, ..past_run(new_run(&cases(1)), tries) };
            store.record_past_run(&run).await.unwrap();
        }
        for (since, expected) in [(1000, &["e1", "e2"][..]), (1001, &["e2"]), (3000, &["e2"]), (3001, &[])] {
            let used = store.environments_used_since(since).await.unwrap();
            assert_eq!(used.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{since}");
        }
    }
}
