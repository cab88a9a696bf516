//! The events of a run, in order.

use modelfarm_matrix::event::Event;
use serde::Serialize;
use utoipa::ToSchema;

use super::run_reference::find_run;
use crate::store::statement::sql;
use crate::store::{Store, StoreError};

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct StoredEvent {
    /// Its number in the run: a reader goes on after the last it has seen.
    pub sequence: u64,
    /// UTC milliseconds since 1970.
    pub at: i64,
    /// The shard it happened in, such as `2/3`.
    pub shard: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Store {
    /// The events of a run with a number above `after_sequence`, in order, at most `limit`.
    ///
    /// A number is of this store: events that are merged in get new numbers in their old order, after all that were there.
    pub async fn events(&self, run: &str, after_sequence: u64, limit: u64) -> Result<Vec<StoredEvent>, StoreError> {
        let mut transaction = self.database.read().await?;
        let run = find_run(&mut transaction, run).await?;
        let query =
            sql("SELECT e.sequence, e.at, e.payload, s.shard FROM events e JOIN run_shards s ON s.shard_key = e.shard_key \
                         WHERE e.run_key = $1 AND e.sequence > $2 ORDER BY e.sequence LIMIT $3");
        let rows = transaction.all(query.bind(run.run_key).bind(after_sequence).bind(limit)).await?;
        rows.iter()
            .map(|row| {
                let (sequence, at, shard) = (row.unsigned("sequence")?, row.int("at")?, row.text("shard")?);
                Ok(StoredEvent { sequence, at, shard, event: row.json("payload")? })
            })
            .collect()
    }
}
