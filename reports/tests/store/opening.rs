//! What cannot be opened says why and what to do, and stays as it was.

use std::path::Path;

use modelfarm_reports::store::{Store, StoreError};

use crate::databases::{every_kind, open, sqlite};
use crate::past_the_store::PastTheStore;
use crate::samples::new_run;

fn url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

#[tokio::test]
async fn reading_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let error = Store::open_read_only(&url(&path)).await.unwrap_err();
    assert!(matches!(error, StoreError::Missing(_)), "{error}");
    assert!(error.to_string().contains("modelfarm run"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    std::fs::write(&path, "").unwrap();
    assert!(matches!(Store::open_read_only(&url(&path)).await.unwrap_err(), StoreError::Missing(_)));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[tokio::test]
async fn a_reading_store_refuses_to_write() {
    for database in every_kind().await {
        open(&database).await.close().await;
        let store = Store::open_read_only(&database.url).await.unwrap();
        let error = store.begin_run(&new_run(&[])).await.unwrap_err();
        assert!(matches!(error, StoreError::OpenedReadOnly(_)), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let text = "this is a diary, not a database\n".repeat(200);
    std::fs::write(&path, &text).unwrap();
    for error in
        [Store::open_read_only(&url(&path)).await.unwrap_err(), Store::create_or_migrate(&url(&path)).await.unwrap_err()]
    {
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains("not a database"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let error = Store::open_read_only(&url(folder.path())).await.unwrap_err();
    assert!(error.to_string().contains("not a file"), "{error}");
}

#[tokio::test]
async fn a_database_of_something_else_is_left_alone() {
    for database in every_kind().await {
        if database.url.starts_with("sqlite:") {
            std::fs::write(database.file(), "").unwrap();
        }
        PastTheStore::to(&database.url).await.execute("CREATE TABLE diary (day TEXT)").await.unwrap();
        for error in [
            Store::open_read_only(&database.url).await.unwrap_err(),
            Store::create_or_migrate(&database.url).await.unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Foreign(_)), "{error}");
        }
    }
}

#[tokio::test]
async fn a_newer_schema_is_named_and_left_alone() {
    for database in every_kind().await {
        open(&database).await.close().await;
        let newer = "INSERT INTO modelfarm_schema VALUES (99990101000000, 'later', 0)";
        PastTheStore::to(&database.url).await.execute(newer).await.unwrap();
        for error in [
            Store::open_read_only(&database.url).await.unwrap_err(),
            Store::create_or_migrate(&database.url).await.unwrap_err(),
            Store::revert(&database.url).await.unwrap_err(),
        ] {
            assert_is_newer(&error);
        }
    }
    let (database, other) = (sqlite(), sqlite());
    open(&database).await.close().await;
    let newer = "INSERT INTO modelfarm_schema VALUES (99990101000000, 'later', 0)";
    PastTheStore::to(&database.url).await.execute(newer).await.unwrap();
    assert_is_newer(&open(&other).await.merge(database.file()).await.unwrap_err());
}

fn assert_is_newer(error: &StoreError) {
    let text = error.to_string();
    assert!(matches!(error, StoreError::NewerSchema { .. }), "{text}");
    assert!(text.contains("99990101000000") && text.contains("update modelfarm"), "{text}");
}

#[tokio::test]
async fn a_path_that_the_system_refuses_says_so() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    let below = folder.path().join("file/farm.db");
    let error = Store::open_read_only(&url(&below)).await.unwrap_err();
    assert!(matches!(error, StoreError::Permission { .. }), "{error}");
    assert!(matches!(Store::create_or_migrate(&url(&below)).await.unwrap_err(), StoreError::Folder { .. }));
}
