//! How many cases of a run came to what, by target and mode.

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::outcome::Outcome;

use super::run_reference::find_run;
use crate::store::statement::sql;
use crate::store::{Store, StoreError};

/// Final cases of a run that came to one outcome on a target in a mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeCount {
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// What was observed.
    pub outcome: Outcome,
    /// How many cases.
    pub cases: u64,
}

impl Store {
    /// The counts of a run, by target, mode and outcome; what never came about has no row.
    pub async fn outcome_counts(&self, run: &str) -> Result<Vec<OutcomeCount>, StoreError> {
        let mut transaction = self.database.read().await?;
        let run = find_run(&mut transaction, run).await?;
        let query = sql("SELECT c.target, c.mode, a.outcome, COUNT(*) AS cases FROM attempts a \
                         JOIN cases c ON c.case_key = a.case_key WHERE a.run_key = $1 AND a.is_final = 1 \
                         GROUP BY c.target, c.mode, a.outcome ORDER BY c.target, c.mode, a.outcome");
        let rows = transaction.all(query.bind(run.run_key)).await?;
        rows.iter()
            .map(|row| {
                let (target, mode, outcome) = (row.text("target")?, row.word("mode")?, row.word("outcome")?);
                Ok(OutcomeCount { target, mode, outcome, cases: row.unsigned("cases")? })
            })
            .collect()
    }
}
