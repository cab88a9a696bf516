//! Recording a finished attempt: its row, its case's standing, its run's count and its event become visible at once.

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::event::Event;
use uuid::Uuid;

use super::attempt_columns::{Place, attempt_values, detail_values};
use super::case_keys::put_case;
use super::recording::{next_sequence, put_event};
use super::row_batch::insert_row;
use super::statement::{built, sql};
use super::table_columns::{ATTEMPT_DETAILS, ATTEMPTS};
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
        // The run's row comes first: who holds it until the commit counts its cases alone.
        let sequence = next_sequence(&mut transaction, run.run_key).await?;
        let case_key = put_case(&mut transaction, &attempt.case).await?;
        let earlier = EarlierTries::of(&mut transaction, run.run_key, case_key).await?;
        let is_last = i64::from(attempt.attempt) > earlier.last;
        let place = Place { run_key: run.run_key, case_key, is_final: is_last && !is_retried };
        let values = attempt_values(&place, &Uuid::now_v7().to_string(), is_retried, attempt);
        let insert = ATTEMPTS.insert(1, transaction.dialect()).bind_all(values);
        let row = transaction.one(insert).await.map_err(|error| match error {
            error if error.is_unique_violation() => {
                StoreError::AttemptExists { case_id: attempt.case.id().to_string(), attempt: attempt.attempt }
            }
            error => error,
        })?;
        insert_row(&mut transaction, &ATTEMPT_DETAILS, detail_values(row.int("attempt_key")?, attempt)).await?;
        let replaced = if is_last { earlier.finals } else { 0 };
        if replaced > 0 {
            mark_finals(&mut transaction, run.run_key, [case_key]).await?;
        }
        let change = i64::from(place.is_final) - replaced;
        if change != 0 {
            let count = sql("UPDATE runs SET finished = finished + $1 WHERE run_key = $2");
            transaction.execute(count.bind(change).bind(run.run_key)).await?;
        }
        put_event(&mut transaction, run, sequence, &finished_event(attempt)).await?;
        transaction.commit().await?;
        Ok(u64::try_from(sequence).unwrap_or_default())
    }
}

/// What a run has of a case so far.
struct EarlierTries {
    /// The highest number of a try; 0 where there is none.
    last: i64,
    /// How many of them count: one or none.
    finals: i64,
}

impl EarlierTries {
    async fn of(transaction: &mut Transaction, run_key: i64, case_key: i64) -> Result<Self, StoreError> {
        let tries = sql("SELECT COALESCE(MAX(attempt), 0) AS last, COUNT(CASE WHEN is_final = 1 THEN 1 END) AS finals \
                         FROM attempts WHERE run_key = $1 AND case_key = $2");
        let row = transaction.one(tries.bind(run_key).bind(case_key)).await?;
        Ok(Self { last: row.int("last")?, finals: row.int("finals")? })
    }
}

/// The event that tells of a recorded attempt.
pub(crate) fn finished_event(attempt: &Attempt) -> Event {
    Event::AttemptFinished {
        case_id: attempt.case.id(),
        attempt: attempt.attempt,
        outcome: attempt.outcome,
        stage: attempt.stage,
        unexpected: attempt.verdict.is_unexpected(),
    }
}

/// Marks the attempt that counts for each of these cases in a run: the last, unless another try was to follow it.
pub(crate) async fn mark_finals(
    transaction: &mut Transaction,
    run_key: i64,
    case_keys: impl IntoIterator<Item = i64>,
) -> Result<(), StoreError> {
    let mut case_keys = case_keys.into_iter().peekable();
    if case_keys.peek().is_none() {
        return Ok(());
    }
    let mark =
        built("UPDATE attempts SET is_final = 1 - is_final WHERE run_key = ").bind(run_key).and_in("case_key", case_keys);
    let mark = mark.text(
        " AND is_final <> CASE WHEN is_retried = 0 AND attempt = (SELECT MAX(last.attempt) FROM attempts last \
         WHERE last.run_key = attempts.run_key AND last.case_key = attempts.case_key) THEN 1 ELSE 0 END",
    );
    transaction.execute(mark).await.map(|_| ())
}

/// Counts the final cases of a run anew.
pub(crate) async fn count_finals(transaction: &mut Transaction, run_key: i64) -> Result<(), StoreError> {
    let count = sql("UPDATE runs SET finished = (SELECT COUNT(*) FROM attempts \
                     WHERE attempts.run_key = runs.run_key AND attempts.is_final = 1) WHERE run_key = $1");
    transaction.execute(count.bind(run_key)).await.map(|_| ())
}
