//! Taking over what stands beside runs: confirmations, references, and the files of attempts.

use std::collections::{BTreeMap, BTreeSet};

use super::super::StoreError;
use super::super::confirmation::{CONFIRMATION_COLUMNS, confirmation, confirmation_values};
use super::super::files::{artifact_values, reference, reference_values};
use super::super::row_batch::insert_rows;
use super::super::statement::{built, sql};
use super::super::table_columns::{ARTIFACTS, CONFIRMATIONS, MODEL_REFERENCES};
use super::keys::Keys;
use super::{Merge, PAGE};
use crate::query::Artifact;

impl Merge {
    pub(super) async fn confirmations(&mut self, cases: &Keys) -> Result<(), StoreError> {
        let mut last = String::new();
        loop {
            let page = built(CONFIRMATION_COLUMNS).text(" WHERE f.confirmation_id > ").bind(&last);
            let rows = self.from.all(page.text(" ORDER BY f.confirmation_id LIMIT ").bind(PAGE)).await?;
            let mut arrivals = BTreeMap::new();
            for row in &rows {
                last = row.text("confirmation_id")?;
                arrivals.insert(last.clone(), confirmation_values(cases.of(row)?, &confirmation(row)?));
            }
            if rows.is_empty() {
                return Ok(());
            }
            let find =
                built("SELECT confirmation_id FROM confirmations WHERE 1 = 1").and_in("confirmation_id", arrivals.keys());
            for row in self.into.all(find).await? {
                arrivals.remove(&row.text("confirmation_id")?);
                self.report.confirmations_present += 1;
            }
            self.report.confirmations_new += arrivals.len() as u64;
            insert_rows(&mut self.into, &CONFIRMATIONS, arrivals.into_values().collect()).await?;
        }
    }

    pub(super) async fn references(&mut self) -> Result<(), StoreError> {
        let query = sql("SELECT reference_key, host, path, bytes, created_at, last_used_at, facts FROM model_references \
                         ORDER BY reference_key, host");
        let rows = self.from.all(query).await?;
        let references = rows.iter().map(|row| Ok(reference_values(&reference(row)?))).collect::<Result<_, _>>()?;
        insert_rows(&mut self.into, &MODEL_REFERENCES, references).await.map(|_| ())
    }

    pub(super) async fn artifacts(&mut self) -> Result<(), StoreError> {
        let mut last = (i64::MIN, String::new(), String::new(), String::new());
        loop {
            let page = built(
                "SELECT f.attempt_key, a.attempt_id, f.kind, f.host, f.path, f.bytes FROM artifacts f \
                 JOIN attempts a ON a.attempt_key = f.attempt_key WHERE (f.attempt_key, f.kind, f.host, f.path) > (",
            );
            let (attempt_key, kind, host, path) = last;
            let page = page.bind(attempt_key).text(", ").bind(kind).text(", ").bind(host).text(", ").bind(path);
            let page = page.text(") ORDER BY f.attempt_key, f.kind, f.host, f.path LIMIT ").bind(PAGE);
            let rows = self.from.all(page).await?;
            let Some(newest) = rows.last() else { return Ok(()) };
            last = (newest.int("attempt_key")?, newest.text("kind")?, newest.text("host")?, newest.text("path")?);
            let ids = rows.iter().map(|row| row.text("attempt_id")).collect::<Result<BTreeSet<_>, _>>()?;
            let mut keys = BTreeMap::new();
            let find = built("SELECT attempt_id, attempt_key FROM attempts WHERE 1 = 1").and_in("attempt_id", ids);
            for row in self.into.all(find).await? {
                keys.insert(row.text("attempt_id")?, row.int("attempt_key")?);
            }
            let mut taken = Vec::with_capacity(rows.len());
            for row in &rows {
                let (kind, host, path) = (row.text("kind")?, row.text("host")?, row.text("path")?);
                let artifact = Artifact { kind, host, path, bytes: row.unsigned("bytes")? };
                // An attempt that lost to another of its number left nothing here.
                if let Some(here) = keys.get(&row.text("attempt_id")?) {
                    taken.push(artifact_values(*here, &artifact));
                }
            }
            insert_rows(&mut self.into, &ARTIFACTS, taken).await?;
        }
    }
}
