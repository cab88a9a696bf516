//! Which environments recorded runs used.

use std::collections::BTreeSet;

use super::statement::sql;
use super::{Store, StoreError};

impl Store {
    /// The ids of the environments in which runs tried cases that began at `since` or later, UTC milliseconds since 1970.
    pub async fn environments_used_since(&self, since: i64) -> Result<BTreeSet<String>, StoreError> {
        let mut transaction = self.database.read().await?;
        let used = sql(USED_SINCE).bind(since);
        transaction.all(used).await?.iter().map(|row| row.text("environment_id")).collect()
    }
}

/// By the runs' times: attempts have an index of their run, and none of time alone.
pub(super) const USED_SINCE: &str = "SELECT DISTINCT a.environment_id FROM runs r JOIN attempts a ON a.run_key = r.run_key \
                                     WHERE r.started_at >= $1 AND a.environment_id IS NOT NULL";
