//! Merging more than a page: what lies on both sides of a page's edge, and what is half here.

use modelfarm_matrix::attempt::Attempt;
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::RunState;
use modelfarm_reports::store::{MergeReport, NewRun, PastTry, Store};

use crate::databases::{TestDatabase, every_kind, open, sqlite};
use crate::past_the_store::PastTheStore;
use crate::samples::{case, cases, failed, new_run, passed, past_run};

const RUN: &str = "01927c5e-7a2b-7c3d-8e4f-5a6b7c8d9e0f";
/// More than a page of cases, whose three tries each end on no page's edge.
const CASES: usize = 701;

fn run(shard: &str) -> NewRun {
    NewRun { run_id: RUN.into(), shard: shard.into(), ..new_run(&cases(CASES)) }
}

fn tried(number: usize, attempt: u32, started_at: i64, is_last: bool) -> PastTry {
    let sample = if is_last { passed(&case(number)) } else { failed(&case(number)) };
    PastTry { attempt: Attempt { attempt, started_at, ..sample }, is_retried: !is_last }
}

/// A SQLite file with these tries.
async fn file(tries: Vec<PastTry>) -> TestDatabase {
    let database = sqlite();
    let store = open(&database).await;
    store.record_past_run(&past_run(run("1/1"), tries)).await.unwrap();
    store.close().await;
    database
}

async fn content(database: &TestDatabase) -> Vec<String> {
    PastTheStore::to(&database.url).await.content().await
}

async fn numbers_of_final_attempts(store: &Store) -> Vec<u32> {
    let filter = ResultFilter { run: Some(RUN.into()), final_only: true, ..ResultFilter::default() };
    store.results(&filter).await.unwrap().iter().map(|row| row.attempt).collect()
}

#[tokio::test]
async fn a_page_may_end_inside_a_case() {
    let tries = (0..CASES).flat_map(|number| (1..=3).map(move |attempt| tried(number, attempt, 10, attempt == 3)));
    let source = file(tries.collect()).await;
    for database in every_kind().await {
        let store = open(&database).await;
        let report = store.merge(source.file()).await.unwrap();
        assert_eq!((report.attempts_new, report.events_new), (3 * CASES as u64, 3 * CASES as u64 + 2));
        assert_eq!(content(&database).await, content(&source).await);
        let row = store.run(RUN).await.unwrap();
        assert_eq!((row.state, row.finished, row.pass), (RunState::Complete, CASES as u64, CASES as u64));
        assert_eq!(numbers_of_final_attempts(&store).await, vec![3; CASES]);
        let again = store.merge(source.file()).await.unwrap();
        let (attempts_present, events_present) = (report.attempts_new, report.events_new);
        let expected = MergeReport { runs_present: 1, attempts_present, events_present, ..MergeReport::default() };
        assert_eq!(again, expected);
        assert_eq!(content(&database).await, content(&source).await);
    }
}

#[tokio::test]
async fn a_page_may_hold_conflicts_beside_what_is_new_and_what_is_here() {
    // Of each four cases: the first began later in one shard, the second in the other, the third and fourth are in one alone.
    let in_one = (0..CASES).filter(|number| number % 4 != 3).map(|number| {
        let started_at = if number % 4 == 0 { 20 } else { 10 };
        tried(number, 1, started_at, true)
    });
    let in_other = (0..CASES).filter(|number| number % 4 != 2).map(|number| {
        let started_at = if number % 4 == 1 { 20 } else { 10 };
        PastTry { attempt: Attempt { started_at, ..failed(&case(number)) }, is_retried: false }
    });
    let (one, other) = (file(in_one.collect()).await, file(in_other.collect()).await);
    let conflicts = (0..CASES).filter(|number| number % 4 < 2).count() as u64;
    let passes = (0..CASES).filter(|number| number % 4 == 0 || number % 4 == 2).count() as u64;
    let mut contents = Vec::new();
    // And how many of those the first file loses.
    let lost = |remainder: usize| (0..CASES).filter(|number| number % 4 == remainder).count() as u64;
    for (files, lost) in [([&one, &other], lost(1)), ([&other, &one], lost(0))] {
        for database in every_kind().await {
            let store = open(&database).await;
            let first = store.merge(files[0].file()).await.unwrap();
            let second = store.merge(files[1].file()).await.unwrap();
            assert_eq!((first.attempts_conflicting, second.attempts_conflicting), (0, conflicts));
            assert_eq!(first.attempts_new + second.attempts_new, CASES as u64);
            let row = store.run(RUN).await.unwrap();
            assert_eq!((row.finished, row.pass), (CASES as u64, passes));
            // Whatever lost is here no more, and is not taken again.
            let third = store.merge(files[0].file()).await.unwrap();
            assert_eq!((third.attempts_new, third.attempts_conflicting), (0, lost));
            assert_eq!(store.run(RUN).await.unwrap().pass, passes);
            contents.push(content(&database).await);
        }
    }
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn a_run_that_is_half_here_gets_its_other_half() {
    let first = (0..CASES).step_by(2).map(|number| tried(number, 1, 10, number % 3 == 0));
    let half = file(first.collect()).await;
    // The same run further on: the tries of before, their retries, and the other cases.
    let whole = sqlite();
    let store = open(&whole).await;
    store.merge(half.file()).await.unwrap();
    let retries = (0..CASES).step_by(2).filter(|number| number % 3 != 0).map(|number| tried(number, 2, 20, true));
    let others = (1..CASES).step_by(2).map(|number| tried(number, 1, 20, true));
    store.record_past_run(&past_run(run("1/1"), retries.chain(others).collect())).await.unwrap();
    assert_eq!(store.run(RUN).await.unwrap().finished, CASES as u64);
    store.close().await;
    for database in every_kind().await {
        let store = open(&database).await;
        let first = store.merge(half.file()).await.unwrap();
        let finished = (0..CASES).step_by(2).filter(|number| number % 3 == 0).count() as u64;
        assert_eq!(store.run(RUN).await.unwrap().finished, finished);
        let second = store.merge(whole.file()).await.unwrap();
        assert_eq!(second.attempts_present, first.attempts_new);
        assert_eq!(content(&database).await, content(&whole).await);
        // And the half, which knows less, changes nothing.
        assert_eq!(store.merge(half.file()).await.unwrap().attempts_present, first.attempts_new);
        assert_eq!(content(&database).await, content(&whole).await);
    }
}

#[tokio::test]
async fn a_source_that_is_wrong_about_what_counts_is_corrected() {
    let tries = (0..CASES).flat_map(|number| (1..=2).map(move |attempt| tried(number, attempt, 10, attempt == 2)));
    let source = file(tries.collect()).await;
    let right = content(&source).await;
    let mut past = PastTheStore::to(&source.url).await;
    past.execute("UPDATE attempts SET is_final = 1 - is_final").await.unwrap();
    past.execute("UPDATE runs SET finished = 7").await.unwrap();
    for database in every_kind().await {
        open(&database).await.merge(source.file()).await.unwrap();
        assert_eq!(content(&database).await, right);
    }
}
