//! The schema goes up, down and up again.

use modelfarm_reports::store::{NEWEST_SCHEMA, Store, StoreError};

use crate::databases::{every_kind, open};
use crate::samples::{case, cases, new_run, passed};

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
