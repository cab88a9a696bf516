//! Whether anything that a question could tell of has changed, and how large the database is.

use super::statement::sql;
use super::{Store, StoreError, database::Dialect};

/// What differs whenever a store holds something else: two equal revisions of one store answer every question alike, but for time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision {
    /// Numbers drawn by events, those of attempts included, over all runs.
    drawn: i64,
    runs: i64,
    /// Starts of shards, and ends of them.
    began: i64,
    ended: i64,
    confirmations: i64,
    environments: i64,
}

impl Store {
    /// The revision now, from what grows with runs and not with attempts.
    ///
    /// Every attempt and every event draws a number of its run; runs and starts of shards are added, ends of shards are set
    /// once; confirmations and environments are added. Not told: a heartbeat, the time of its own commit that is added to an attempt, and
    /// downloads of a model, which are recorded in a run whose next event is.
    pub async fn revision(&self) -> Result<Revision, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = sql("SELECT (SELECT CAST(COALESCE(SUM(last_sequence), 0) AS BIGINT) FROM runs) AS drawn, \
                         (SELECT COUNT(*) FROM runs) AS runs, (SELECT COUNT(*) FROM run_shards) AS began, \
                         (SELECT COUNT(ended_at) FROM run_shards) AS ended, \
                         (SELECT COUNT(*) FROM confirmations) AS confirmations, \
                         (SELECT COUNT(*) FROM environments) AS environments");
        let row = transaction.one(query).await?;
        Ok(Revision {
            drawn: row.int("drawn")?,
            runs: row.int("runs")?,
            began: row.int("began")?,
            ended: row.int("ended")?,
            confirmations: row.int("confirmations")?,
            environments: row.int("environments")?,
        })
    }

    /// The bytes of the database, without a write-ahead log.
    pub async fn bytes(&self) -> Result<u64, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = match transaction.dialect() {
            Dialect::Sqlite => sql("SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size()"),
            Dialect::Postgres => sql("SELECT pg_database_size(current_database()) AS bytes"),
        };
        transaction.one(query).await?.unsigned("bytes")
    }
}
