//! Merging: once, twice, in any order, and never half.

use std::path::PathBuf;

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::event::Event;
use modelfarm_reports::query::{Artifact, ResultFilter};
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::{CachedReference, Environment, MergeReport, NewRun, Store, StoreError};
use proptest::prelude::*;
use sqlx::{ConnectOptions, Row};
use tempfile::TempDir;

use crate::databases::{every_kind, open, sqlite};
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

/// Everything in a SQLite store under the names that are the same in every store.
async fn content(store: &Store) -> Vec<String> {
    let path = store.name().strip_prefix("sqlite://").unwrap();
    let mut connection = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let mut lines = Vec::new();
    for query in [
        "SELECT json_array('run', run_id, plan_id, planned, started_at, matrix) FROM runs",
        "SELECT json_array('shard', r.run_id, s.session_id, s.shard, s.host, s.started_at, s.heartbeat_at, s.ended_at, s.state, s.facts) \
         FROM run_shards s JOIN runs r ON r.run_key = s.run_key",
        "SELECT json_array('attempt', r.run_id, c.canonical, a.attempt_id, a.attempt, a.is_final, a.is_retried, a.outcome, \
         a.started_at, a.host, a.rmse_ratio, hex(d.output), hex(d.leaves), d.facts, d.evidence) FROM attempts a \
         JOIN runs r ON r.run_key = a.run_key JOIN cases c ON c.case_key = a.case_key \
         JOIN attempt_details d ON d.attempt_key = a.attempt_key",
        "SELECT json_array('event', s.session_id, e.origin_sequence, e.at, e.case_id, e.attempt, e.type, e.payload) \
         FROM events e JOIN run_shards s ON s.shard_key = e.shard_key",
        "SELECT json_array('environment', environment_id, name, packages, requirements, created_at) FROM environments",
        "SELECT json_array('reference', reference_key, host, path, last_used_at) FROM model_references",
        "SELECT json_array('artifact', a.attempt_id, f.kind, f.host, f.path, f.bytes) FROM artifacts f \
         JOIN attempts a ON a.attempt_key = f.attempt_key",
        "SELECT json_array('plan', plan_id, hex(cases), created_at) FROM plans",
    ] {
        let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
        lines.extend(rows.iter().map(|row| row.get::<String, _>(0)));
    }
    lines.sort();
    // Events of one start of a shard stand in their old order.
    let query = "SELECT shard_key, origin_sequence FROM events ORDER BY run_key, sequence";
    let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
    let mut last = std::collections::BTreeMap::new();
    for row in rows {
        let (shard, origin): (i64, i64) = (row.get(0), row.get(1));
        assert!(last.insert(shard, origin).is_none_or(|before| before < origin));
    }
    lines
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
            let (plain, shuffled) = (sqlite(), sqlite());
            let (plain, shuffled) = (open(&plain).await, open(&shuffled).await);
            for file in &files {
                plain.merge(&file.path).await.unwrap();
            }
            for index in order.iter().chain(&last) {
                shuffled.merge(&files[*index].path).await.unwrap();
            }
            prop_assert_eq!(content(&plain).await, content(&shuffled).await);
            // And a merge of the merged adds nothing.
            let before = content(&plain).await;
            let path = PathBuf::from(shuffled.name().strip_prefix("sqlite://").unwrap());
            let report = plain.merge(&path).await.unwrap();
            prop_assert_eq!((report.attempts_new, report.events_new, report.runs_new), (0, 0, 0));
            prop_assert_eq!(content(&plain).await, before);
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
        let database = sqlite();
        let store = open(&database).await;
        store.merge(&files[0].path).await.unwrap();
        let report = store.merge(&files[1].path).await.unwrap();
        assert_eq!((report.attempts_new, report.attempts_conflicting), (0, 1));
        let row = store.run(RUN).await.unwrap();
        assert_eq!((row.pass, row.fail), (1, 0));
    }
}

#[tokio::test]
async fn a_damaged_file_leaves_the_store_as_it_was() {
    let (good, bad) = (shard(1, &all_of(0..2)).await, shard(2, &all_of(2..6)).await);
    let database = sqlite();
    let store = open(&database).await;
    store.merge(&good.path).await.unwrap();
    let before = content(&store).await;
    let whole = std::fs::read(&bad.path).unwrap();
    // A page at a time: in every place the damage is either noticed, or in what holds nothing.
    for page in (0..whole.len() / 4096).step_by(3) {
        let mut damaged = whole.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xa5);
        std::fs::write(&bad.path, &damaged).unwrap();
        let error = store.merge(&bad.path).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "page {page}: {error}");
        assert_eq!(content(&store).await, before);
    }
    std::fs::write(&bad.path, &whole[..whole.len() / 2]).unwrap();
    assert!(store.merge(&bad.path).await.is_err());
    assert_eq!(content(&store).await, before);
    std::fs::write(&bad.path, &whole).unwrap();
    assert_eq!(store.merge(&bad.path).await.unwrap().attempts_new, 4);
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
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file.path);
        sqlx::query(statement).execute(&mut options.connect().await.unwrap()).await.unwrap();
        let database = sqlite();
        let store = open(&database).await;
        let error = store.merge(&file.path).await.unwrap_err();
        assert!(matches!(error, StoreError::Value { .. }), "{statement}: {error}");
        assert!(content(&store).await.is_empty(), "{statement}");
    }
    let file = shard(1, &all_of(0..1)).await;
    let database = sqlite();
    let store = open(&database).await;
    store.begin_run(&NewRun { run_id: RUN.into(), plan_id: "other".into(), ..new_run(&[]) }).await.unwrap();
    assert!(matches!(store.merge(&file.path).await.unwrap_err(), StoreError::PlanDiffers { .. }));
}
