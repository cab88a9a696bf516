//! The store: everything that was asked and observed, for ever, in SQLite or PostgreSQL.
//!
//! A store that was opened for reading creates and migrates nothing. In one that records, every function returns after its
//! transaction is committed; what a killed process had committed is there when the store is opened again.

pub(crate) mod attempt_columns;
mod case_keys;
mod cell;
mod confirmation;
mod database;
mod database_url;
pub(crate) mod detail_blob;
mod environment_use;
mod error;
mod files;
mod finishing;
pub(crate) mod liveness;
mod merge;
mod migration;
mod past_run;
#[cfg(test)]
mod query_plans;
mod recording;
mod revision;
mod row_batch;
pub(crate) mod statement;
mod table_columns;
mod time;

use std::path::Path;

pub use confirmation::{Confirmation, Retrial};
pub use database_url::DatabaseUrl;
pub use error::StoreError;
pub use files::CachedReference;
pub use liveness::this_host;
pub use merge::MergeReport;
pub use migration::NEWEST_SCHEMA;
pub use past_run::{PastRun, PastTry};
pub use recording::{Environment, NewRun, RunHandle};
pub use revision::Revision;
pub use time::{now_ms, rfc3339};

pub(crate) use database::{Database, Row, Transaction};
pub(crate) use detail_blob::decompress;

/// An open store. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) database: Database,
}

impl Store {
    /// Opens the store of a writing command: creates what is missing and migrates what is old.
    pub async fn create_or_migrate(url: &str) -> Result<Self, StoreError> {
        let database = Database::open_for_writing(&url.parse()?).await?;
        migration::migrate(&database).await?;
        Ok(Self { database })
    }

    /// Opens the store of a reading command: creates and migrates nothing.
    pub async fn open_read_only(url: &str) -> Result<Self, StoreError> {
        let database = Database::open_for_reading(&url.parse()?).await?;
        migration::check(&database).await?;
        Ok(Self { database })
    }

    /// `create_or_migrate` of a SQLite file.
    pub async fn create_or_migrate_file(path: &Path) -> Result<Self, StoreError> {
        let database = Database::open_for_writing(&DatabaseUrl::file(path)).await?;
        migration::migrate(&database).await?;
        Ok(Self { database })
    }

    /// `open_read_only` of a SQLite file.
    pub async fn open_file_read_only(path: &Path) -> Result<Self, StoreError> {
        let database = Database::open_for_reading(&DatabaseUrl::file(path)).await?;
        migration::check(&database).await?;
        Ok(Self { database })
    }

    /// Brings a database to the newest schema; returns the versions that were missing.
    pub async fn migrate(url: &str) -> Result<Vec<i64>, StoreError> {
        let database = Database::open_for_writing(&url.parse()?).await?;
        let versions = migration::migrate(&database).await;
        database.close().await;
        versions
    }

    /// Takes the newest migration back, with everything that it holds; returns its version, or none where none is left.
    pub async fn revert(url: &str) -> Result<Option<i64>, StoreError> {
        let database = Database::open_for_writing(&url.parse()?).await?;
        let version = migration::revert(&database).await;
        database.close().await;
        version
    }

    /// The database's URL without a password, for messages.
    pub fn name(&self) -> &str {
        &self.database.name
    }

    /// Closes every connection. Without it they close when the process ends, and nothing is lost either.
    pub async fn close(self) {
        self.database.close().await;
    }
}
