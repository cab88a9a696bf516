//! Merging: once, twice, in any order, and never half.

use std::collections::BTreeMap;
use std::path::PathBuf;

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::event::Event;
use modelfarm_reports::query::{Artifact, ResultFilter};
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::{CachedReference, Environment, MergeReport, NewRun, Store, StoreError};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::databases::{every_kind, open};
use crate::past_the_store::PastTheStore;
use crate::samples::{case, cases, failed, new_run, passed};

const RUN: &str = "01927c5e-7a2b-7c3d-8e4f-5a6b7c8d9e0f";

struct ShardFile {
    path: PathBuf,
    _folder: TempDir,
}

#[derive(Debug, Clone)]
struct Tried {
    case: usize,
    attempt: u32,
    passes: bool,
    is_retried: bool,
    started_at: i64,
}

/// A shard's own database with these attempts, as a run on another host leaves it.
async fn shard(number: usize, tried: &[Tried]) -> ShardFile {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let store = Store::create_or_migrate_file(&path).await.unwrap();
    let new = NewRun { run_id: RUN.into(), shard: format!("{number}/3"), host: format!("host-{number}"), ..new_run(&cases(6)) };
    let run = store.begin_run(&new).await.unwrap();
    store.append_event(&run, &Event::RunStarted { planned: 2, already_final: 0 }).await.unwrap();
    let environment = Environment {
        environment_id: "e1".into(),
        name: "torchtpu".into(),
        packages: [("torch".to_owned(), "2.15.0".to_owned())].into(),
        requirements: "torch==2.15.0".into(),
        created_at: 1000 + number as i64,
    };
    store.record_environment(&environment).await.unwrap();
    let reference = CachedReference {
        key: "k".into(),
        host: format!("host-{}", number % 2),
        path: "references/k".into(),
        bytes: 7,
        created_at: 1,
        last_used_at: number as i64,
        facts: serde_json::json!({}),
    };
    store.record_reference(&reference).await.unwrap();
    for tried in tried {
        let case = case(tried.case);
        let sample = if tried.passes { passed(&case) } else { failed(&case) };
        let attempt = Attempt { attempt: tried.attempt, started_at: tried.started_at, host: new.host.clone(), ..sample };
        let result = match tried.is_retried {
            true => store.finish_attempt_before_retry(&run, &attempt).await,
            false => store.finish_attempt(&run, &attempt).await,
        };
        match result {
            Ok(_) => {
                let artifact =
                    Artifact { kind: "outputs".into(), host: new.host.clone(), path: format!("out/{number}"), bytes: 9 };
                store.record_artifact(&run, case.id().as_str(), tried.attempt, &artifact).await.unwrap();
            }
            Err(error) => assert!(matches!(error, StoreError::AttemptExists { .. }), "{error}"),
        }
    }
    store.append_event(&run, &Event::RunFinished { interrupted: false }).await.unwrap();
    store.end_shard(&run, RunState::Partial).await.unwrap();
    store.close().await;
    ShardFile { path, _folder: folder }
}

/// Everything in a store. Events of one start of a shard must stand in their old order.
async fn content(url: &str) -> Vec<String> {
    let mut database = PastTheStore::to(url).await;
    let events = database.lines(&["shard_key", "origin_sequence"], "events ORDER BY run_key, sequence").await;
    let mut last = BTreeMap::new();
    for event in events {
        let (shard, origin) = event.split_once('|').unwrap();
        let origin: i64 = origin.parse().unwrap();
        assert!(last.insert(shard.to_owned(), origin).is_none_or(|before| before < origin));
    }
    database.content().await
}

fn any_tried() -> impl Strategy<Value = Tried> {
    (0usize..4, 1u32..3, any::<bool>(), any::<bool>(), 0i64..5)
        .prop_map(|(case, attempt, passes, is_retried, started_at)| Tried { case, attempt, passes, is_retried, started_at })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 20, ..ProptestConfig::default() })]
    #[test]
    fn neither_order_nor_repetition_matters(
        shards in prop::collection::vec(prop::collection::vec(any_tried(), 0..6), 3),
        order in prop::collection::vec(0usize..3, 0..4),
        last in Just(vec![0usize, 1, 2]).prop_shuffle(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut files = Vec::new();
            for (index, tried) in shards.iter().enumerate() {
                files.push(shard(index + 1, tried).await);
            }
            for (plain, shuffled) in every_kind().await.into_iter().zip(every_kind().await) {
                let (one, other) = (open(&plain).await, open(&shuffled).await);
                for file in &files {
                    one.merge(&file.path).await.unwrap();
                }
                for index in order.iter().chain(&last) {
                    other.merge(&files[*index].path).await.unwrap();
                }
                let before = content(&plain.url).await;
                prop_assert_eq!(&before, &content(&shuffled.url).await);
                // And a merge of the merged adds nothing.
                let report = one.merge_store(&other).await.unwrap();
                prop_assert_eq!((report.attempts_new, report.events_new, report.runs_new), (0, 0, 0));
                prop_assert_eq!(content(&plain.url).await, before);
                one.close().await;
                other.close().await;
            }
            Ok(())
        })?;
    }
}

fn all_of(cases: std::ops::Range<usize>) -> Vec<Tried> {
    cases.map(|case| Tried { case, attempt: 1, passes: case != 3, is_retried: false, started_at: 10 + case as i64 }).collect()
}

#[tokio::test]
async fn three_shards_make_a_whole_run_and_a_missing_one_a_partial() {
    let mut files = Vec::new();
    for number in 1..=3usize {
        files.push(shard(number, &all_of((number - 1) * 2..number * 2)).await);
    }
    for database in every_kind().await {
        let store = open(&database).await;
        store.merge(&files[2].path).await.unwrap();
        store.merge(&files[0].path).await.unwrap();
        let row = store.run(RUN).await.unwrap();
        assert_eq!((row.state, row.planned, row.finished), (RunState::Partial, 6, 4));
        assert_eq!(row.shards, ["1/3", "3/3"]);

        let report = store.merge(&files[1].path).await.unwrap();
        let expected = MergeReport { runs_present: 1, attempts_new: 2, events_new: 4, ..MergeReport::default() };
        assert_eq!(report, expected);
        let again = store.merge(&files[1].path).await.unwrap();
        let expected = MergeReport { runs_present: 1, attempts_present: 2, events_present: 4, ..MergeReport::default() };
        assert_eq!(again, expected);

        let row = store.run("latest").await.unwrap();
        assert_eq!((row.state, row.finished, row.pass, row.fail), (RunState::Complete, 6, 5, 1));
        assert_eq!(row.hosts, ["host-1", "host-2", "host-3"]);
        let sequences: Vec<u64> = store.events(RUN, 0, 100).await.unwrap().iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (1..=12).collect::<Vec<u64>>());
        assert_eq!(store.results(&ResultFilter::default()).await.unwrap().len(), 6);
        assert_eq!(store.artifacts_of(RUN, case(5).id().as_str(), 1).await.unwrap().len(), 1);
        assert_eq!(store.environments(None).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn of_two_attempts_of_one_number_the_later_stays() {
    let early = shard(1, &[Tried { case: 0, attempt: 1, passes: false, is_retried: false, started_at: 10 }]).await;
    let late = shard(1, &[Tried { case: 0, attempt: 1, passes: true, is_retried: false, started_at: 20 }]).await;
    for files in [[&early, &late], [&late, &early]] {
        for database in every_kind().await {
            let store = open(&database).await;
            store.merge(&files[0].path).await.unwrap();
            let report = store.merge(&files[1].path).await.unwrap();
            assert_eq!((report.attempts_new, report.attempts_conflicting), (0, 1));
            let row = store.run(RUN).await.unwrap();
            assert_eq!((row.pass, row.fail), (1, 0));
        }
    }
}

#[tokio::test]
async fn a_damaged_file_leaves_the_store_as_it_was() {
    let (good, bad) = (shard(1, &all_of(0..2)).await, shard(2, &all_of(2..6)).await);
    let whole = std::fs::read(&bad.path).unwrap();
    for database in every_kind().await {
        let store = open(&database).await;
        store.merge(&good.path).await.unwrap();
        let before = content(&database.url).await;
        // A page at a time: in every place the damage is either noticed, or in what holds nothing.
        for page in (0..whole.len() / 4096).step_by(3) {
            let mut damaged = whole.clone();
            damaged[page * 4096..(page + 1) * 4096].fill(0xa5);
            std::fs::write(&bad.path, &damaged).unwrap();
            let error = store.merge(&bad.path).await.unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "page {page}: {error}");
            assert_eq!(content(&database.url).await, before);
        }
        std::fs::write(&bad.path, &whole[..whole.len() / 2]).unwrap();
        assert!(store.merge(&bad.path).await.is_err());
        assert_eq!(content(&database.url).await, before);
        std::fs::write(&bad.path, &whole).unwrap();
        assert_eq!(store.merge(&bad.path).await.unwrap().attempts_new, 4);
    }
}

#[tokio::test]
async fn a_file_with_impossible_values_or_another_plan_is_refused() {
    for statement in [
        "UPDATE attempts SET outcome = 'splendid'",
        "UPDATE attempts SET duration_ms = 'long'",
        "UPDATE cases SET canonical = 'v1/a/b'",
        "UPDATE cases SET case_id = '0000000000000000'",
        "UPDATE events SET payload = '{\"type\":\"party\"}'",
        "UPDATE attempt_details SET leaves = x'01ff'",
        "UPDATE runs SET run_id = '../../etc'",
    ] {
        let file = shard(1, &all_of(0..1)).await;
        PastTheStore::to(&format!("sqlite://{}", file.path.display())).await.execute(statement).await.unwrap();
        for database in every_kind().await {
            let store = open(&database).await;
            let error = store.merge(&file.path).await.unwrap_err();
            assert!(matches!(error, StoreError::Value { .. }), "{statement}: {error}");
            assert!(content(&database.url).await.is_empty(), "{statement}");
        }
    }
    let file = shard(1, &all_of(0..1)).await;
    for database in every_kind().await {
        let store = open(&database).await;
        store.begin_run(&NewRun { run_id: RUN.into(), plan_id: "other".into(), ..new_run(&[]) }).await.unwrap();
        assert!(matches!(store.merge(&file.path).await.unwrap_err(), StoreError::PlanDiffers { .. }));
    }
}

#[tokio::test]
async fn a_file_without_the_constraints_of_the_schema_is_refused() {
    let file = shard(1, &all_of(0..2)).await;
    let mut source = PastTheStore::to(&format!("sqlite://{}", file.path.display())).await;
    let again = [
        "PRAGMA foreign_keys = OFF",
        "CREATE TABLE copied AS SELECT * FROM runs",
        "DROP TABLE runs",
        "ALTER TABLE copied RENAME TO runs",
        // The same run in other letters.
        "INSERT INTO runs SELECT run_key + 1, upper(run_id), matrix, plan_id, planned, started_at, last_sequence, finished, selection \
         FROM runs",
    ];
    for statement in again {
        source.execute(statement).await.unwrap();
    }
    for database in every_kind().await {
        let store = open(&database).await;
        let error = store.merge(&file.path).await.unwrap_err().to_string();
        assert!(error.contains("a second one of the same thing"), "{error}");
        assert!(content(&database.url).await.is_empty());
    }
}
