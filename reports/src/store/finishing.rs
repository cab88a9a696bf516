//! Recording a finished attempt: its row, its case and its event become visible at once.

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::case::Case;
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::event::Event;
use uuid::Uuid;

use super::attempt_columns::{Place, insert_attempt, insert_case, insert_details};
use super::recording::put_event;
use super::statement::sql;
use super::{RunHandle, Store, StoreError, Transaction};

impl Store {
    /// Records an attempt after which its case is final; returns the number of its `AttemptFinished` event, committed.
    ///
    /// # Errors
    /// The run has this attempt already.
    pub async fn finish_attempt(&self, run: &RunHandle, attempt: &Attempt) -> Result<u64, StoreError> {
        self.finish(run, attempt, false).await
    }

    /// Records an attempt that will be followed by another try: its case is not final yet, also for a resumed run.
    pub async fn finish_attempt_before_retry(&self, run: &RunHandle, attempt: &Attempt) -> Result<u64, StoreError> {
        self.finish(run, attempt, true).await
    }

    /// Adds the time of its own commit to what the farm spent on an attempt: it is known only after the commit.
    pub async fn add_farm_overhead(&self, run: &RunHandle, case_id: &CaseId, attempt: u32, ms: f64) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let add = sql("UPDATE attempts SET farm_overhead_ms = farm_overhead_ms + $1 WHERE run_key = $2 AND attempt = $3 \
                       AND case_key = (SELECT case_key FROM cases WHERE case_id = $4)");
        transaction.execute(add.bind(Some(ms)).bind(run.run_key).bind(attempt).bind(case_id.as_str())).await?;
        transaction.commit().await
    }

    async fn finish(&self, run: &RunHandle, attempt: &Attempt, is_retried: bool) -> Result<u64, StoreError> {
        let mut transaction = self.database.write().await?;
        let case_key = put_case(&mut transaction, &attempt.case).await?;
        let place = Place { run_key: run.run_key, case_key, is_final: !is_retried };
        let insert = insert_attempt(&place, &Uuid::now_v7().to_string(), is_retried, attempt);
        let row = transaction.one(insert).await.map_err(|error| match error {
            error if error.is_unique_violation() => {
                StoreError::AttemptExists { case_id: attempt.case.id().to_string(), attempt: attempt.attempt }
            }
            error => error,
        })?;
        transaction.execute(insert_details(row.int("attempt_key")?, attempt)).await?;
        mark_final(&mut transaction, run.run_key, case_key).await?;
        let event = Event::AttemptFinished {
            case_id: attempt.case.id(),
            attempt: attempt.attempt,
            outcome: attempt.outcome,
            stage: attempt.stage,
            unexpected: attempt.verdict.is_unexpected(),
        };
        let sequence = put_event(&mut transaction, run, &event).await?;
        transaction.commit().await?;
        Ok(sequence)
    }
}

/// Marks the attempt that counts for a case in a run: the last, unless another try was to follow it.
pub(crate) async fn mark_final(transaction: &mut Transaction, run_key: i64, case_key: i64) -> Result<(), StoreError> {
    let mark = sql("UPDATE attempts SET is_final = 1 - is_final WHERE run_key = $1 AND case_key = $2 AND is_final <> \
                    CASE WHEN is_retried = 0 AND attempt = \
                    (SELECT MAX(last.attempt) FROM attempts last WHERE last.run_key = $1 AND last.case_key = $2) \
                    THEN 1 ELSE 0 END");
    transaction.execute(mark.bind(run_key).bind(case_key)).await.map(|_| ())
}

/// The key of a case, which is written where it is new.
pub(crate) async fn put_case(transaction: &mut Transaction, case: &Case) -> Result<i64, StoreError> {
    let id = case.id();
    let find = || sql("SELECT case_key FROM cases WHERE case_id = $1").bind(id.as_str());
    if let Some(row) = transaction.optional(find()).await? {
        return row.int("case_key");
    }
    transaction.execute(insert_case(case)).await?;
    transaction.one(find()).await?.int("case_key")
}
