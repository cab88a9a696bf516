//! The schema goes up, down and up again.

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::store::{Confirmation, NEWEST_SCHEMA, Retrial, Store, StoreError};

use crate::databases::{every_kind, open};
use crate::past_the_store::PastTheStore;
use crate::samples::{case, cases, failed, new_run, passed};

/// The second version of the schema, which counts final cases.
const SECOND: i64 = 20_261_201_120_000;

#[tokio::test]
async fn up_down_and_up_again() {
    for database in every_kind().await {
        let up = Store::migrate(&database.url).await.unwrap();
        assert_eq!(up.last(), Some(&NEWEST_SCHEMA));
        assert!(Store::migrate(&database.url).await.unwrap().is_empty());
        let store = open(&database).await;
        let run = store.begin_run(&new_run(&cases(1))).await.unwrap();
        store.finish_attempt(&run, &passed(&case(0))).await.unwrap();
        store.close().await;

        let mut down = Vec::new();
        while let Some(version) = Store::revert(&database.url).await.unwrap() {
            down.insert(0, version);
        }
        assert_eq!(down, up);
        let error = Store::open_read_only(&database.url).await.unwrap_err();
        assert!(matches!(error, StoreError::OlderSchema { found: 0, .. }), "{error}");
        assert!(error.to_string().contains("modelfarm db migrate"), "{error}");

        assert_eq!(Store::migrate(&database.url).await.unwrap(), up);
        let store = open(&database).await;
        assert!(store.runs(None).await.unwrap().is_empty());
        let run = store.begin_run(&new_run(&cases(1))).await.unwrap();
        store.finish_attempt(&run, &passed(&case(0))).await.unwrap();
        assert_eq!(Store::open_read_only(&database.url).await.unwrap().runs(None).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn attempts_survive_the_way_down_to_the_first_schema_and_up_again() {
    for database in every_kind().await {
        let store = open(&database).await;
        let run = store.begin_run(&new_run(&cases(4))).await.unwrap();
        store.finish_attempt_before_retry(&run, &failed(&case(0))).await.unwrap();
        store.finish_attempt(&run, &Attempt { attempt: 2, ..passed(&case(0)) }).await.unwrap();
        store.finish_attempt(&run, &failed(&case(1))).await.unwrap();
        store.finish_attempt_before_retry(&run, &failed(&case(2))).await.unwrap();
        let another = store.begin_run(&new_run(&cases(4))).await.unwrap();
        let retrial = Retrial { environment_id: "e1".into(), revision: None, outcomes: vec![Outcome::Pass] };
        let confirmation = Confirmation::new(case(0).id(), retrial.clone(), retrial, Some(true));
        store.record_confirmation(&confirmation).await.unwrap();
        store.close().await;
        let mut past = PastTheStore::to(&database.url).await;
        let before = past.content().await;

        let mut taken_back = Vec::new();
        while taken_back.first() != Some(&SECOND) {
            taken_back.insert(0, Store::revert(&database.url).await.unwrap().unwrap());
        }
        assert!(past.execute("SELECT finished FROM runs").await.is_err());
        assert!(past.execute("SELECT confirmed FROM confirmations").await.is_err());
        assert_eq!(past.lines(&["attempt_id"], "attempts").await.len(), 4);

        assert_eq!(Store::migrate(&database.url).await.unwrap(), taken_back);
        let (confirmations, others): (Vec<_>, Vec<_>) = before.into_iter().partition(|line| line.starts_with("confirmation|"));
        assert_eq!(past.content().await, others, "everything is as it was, and final cases are counted");
        assert_eq!(confirmations.len(), 1, "what the first schema has no place for is gone");
        let store = open(&database).await;
        assert_eq!(store.run(run.run_id()).await.unwrap().finished, 2);
        assert_eq!(store.run(another.run_id()).await.unwrap().finished, 0);
        store.finish_attempt(&run, &Attempt { attempt: 2, ..passed(&case(2)) }).await.unwrap();
        assert_eq!(store.run(run.run_id()).await.unwrap().finished, 3);
        store.record_confirmation(&confirmation).await.unwrap();
        assert_eq!(store.confirmations_of(&case(0).id()).await.unwrap(), [confirmation]);
    }
}

#[tokio::test]
async fn programs_that_start_at_once_migrate_once() {
    for database in every_kind().await {
        let opened = futures_of(8, || Store::create_or_migrate(&database.url)).await;
        for store in opened {
            assert!(store.unwrap().runs(None).await.unwrap().is_empty());
        }
    }
}

/// Runs `count` futures at once.
async fn futures_of<F, T>(count: usize, make: impl Fn() -> F) -> Vec<T>
where
    F: Future<Output = T>,
{
    let mut futures: Vec<_> = (0..count).map(|_| Box::pin(make())).collect();
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *result = Some(value);
            }
        }
        if results.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}
