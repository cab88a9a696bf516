//! Files that stay on a host while the store knows them: cached references, and what attempts leave behind.

use serde_json::Value;

use super::attempt_columns::json_text;
use super::cell::{Cell, values};
use super::row_batch::insert_row;
use super::statement::sql;
use super::table_columns::{ARTIFACTS, MODEL_REFERENCES};
use super::time::now_ms;
use super::{Row, RunHandle, Store, StoreError};
use crate::query::Artifact;

/// A cached reference: what the CPU computed for a model and inputs.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CachedReference {
    /// Made of everything that can change it.
    pub key: String,
    /// The host that keeps it.
    pub host: String,
    /// Its folder there.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// UTC milliseconds since 1970.
    pub created_at: i64,
    /// UTC milliseconds since 1970.
    pub last_used_at: i64,
    /// Its dtype, how long it took, ...
    pub facts: Value,
}

impl Store {
    /// Records a reference, or that it was made again.
    pub async fn record_reference(&self, reference: &CachedReference) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        insert_row(&mut transaction, &MODEL_REFERENCES, reference_values(reference)).await?;
        transaction.commit().await
    }

    /// Says that a reference was used now.
    pub async fn use_reference(&self, key: &str, host: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let used = sql("UPDATE model_references SET last_used_at = $1 WHERE reference_key = $2 AND host = $3");
        transaction.execute(used.bind(now_ms()).bind(key).bind(host)).await?;
        transaction.commit().await
    }

    /// Forgets a reference whose files are gone.
    pub async fn forget_reference(&self, key: &str, host: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let forget = sql("DELETE FROM model_references WHERE reference_key = $1 AND host = $2");
        transaction.execute(forget.bind(key).bind(host)).await?;
        transaction.commit().await
    }

    /// A host's references, those unused for longest first: the order in which to evict them.
    pub async fn references(&self, host: &str) -> Result<Vec<CachedReference>, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = sql("SELECT reference_key, host, path, bytes, created_at, last_used_at, facts FROM model_references \
                         WHERE host = $1 ORDER BY last_used_at, reference_key");
        transaction.all(query.bind(host)).await?.iter().map(reference).collect()
    }

    /// Records a file that an attempt left on its host.
    pub async fn record_artifact(
        &self,
        run: &RunHandle,
        case_id: &str,
        attempt: u32,
        artifact: &Artifact,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let find = sql("SELECT a.attempt_key FROM attempts a JOIN cases c ON c.case_key = a.case_key \
                        WHERE a.run_key = $1 AND c.case_id = $2 AND a.attempt = $3");
        let find = find.bind(run.run_key).bind(case_id).bind(attempt);
        let Some(row) = transaction.optional(find).await? else {
            return Err(StoreError::NoSuchCase(format!("{}/{case_id}/{attempt}", run.run_id())));
        };
        insert_row(&mut transaction, &ARTIFACTS, artifact_values(row.int("attempt_key")?, artifact)).await?;
        transaction.commit().await
    }
}

/// A reference, in the order of `MODEL_REFERENCES`.
pub(crate) fn reference_values(reference: &CachedReference) -> Vec<Cell> {
    let CachedReference { key, host, path, bytes, created_at, last_used_at, facts } = reference;
    values![key, host, path, *bytes, *created_at, *last_used_at, json_text(facts)]
}

pub(crate) fn reference(row: &Row) -> Result<CachedReference, StoreError> {
    Ok(CachedReference {
        key: row.text("reference_key")?,
        host: row.text("host")?,
        path: row.text("path")?,
        bytes: row.unsigned("bytes")?,
        created_at: row.int("created_at")?,
        last_used_at: row.int("last_used_at")?,
        facts: row.json("facts")?,
    })
}

/// A file, in the order of `ARTIFACTS`.
pub(crate) fn artifact_values(attempt_key: i64, artifact: &Artifact) -> Vec<Cell> {
    let Artifact { kind, host, path, bytes } = artifact;
    values![attempt_key, kind, host, path, *bytes]
}
