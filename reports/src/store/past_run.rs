//! Recording a run that is over, as a whole.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::case::{Case, CaseId};
use modelfarm_matrix::event::Event;
use modelfarm_matrix::model::Model;
use uuid::{NoContext, Timestamp, Uuid};

use super::attempt_columns::{Place, attempt_values, detail_values};
use super::case_keys::put_cases;
use super::cell::Cell;
use super::finishing::{count_finals, finished_event, mark_finals};
use super::recording::{close_shard, event_values, open_shard, put_environment, put_models};
use super::row_batch::insert_rows;
use super::statement::sql;
use super::table_columns::{ATTEMPT_DETAILS, ATTEMPTS, EVENTS};
use super::{Environment, NewRun, RunHandle, Store, StoreError, Transaction};
use crate::rows::RunState;

/// Attempts written at a time: the texts and blobs of a whole run need not be packed at once.
const PAGE: usize = 256;

/// A run, or a shard of one, that is over and known as a whole.
#[derive(Debug, Clone)]
pub struct PastRun {
    /// The run and its shard.
    pub run: NewRun,
    /// When the shard began, UTC milliseconds since 1970.
    pub started_at: i64,
    /// When it ended, UTC milliseconds since 1970.
    pub ended_at: i64,
    /// Whether a signal or a crash ended it early.
    pub is_interrupted: bool,
    /// The environments that its attempts ran in.
    pub environments: Vec<Environment>,
    /// What was known of its models when it began.
    pub models: Vec<Model>,
    /// Its attempts, in the order in which they ended.
    pub tries: Vec<PastTry>,
}

/// An attempt of a run that is over.
#[derive(Debug, Clone)]
pub struct PastTry {
    /// The attempt.
    pub attempt: Attempt,
    /// Whether another try was to follow it.
    pub is_retried: bool,
}

impl Store {
    /// Records a run that is over, or one more shard of it, with its attempts and their events, in one transaction.
    ///
    /// For histories that are known as a whole, such as generated ones: many times faster than an attempt at a time, and nothing of it
    /// is there until all is. A run that goes on uses `begin_run` and `finish_attempt`, which keep each attempt as it ends.
    ///
    /// # Errors
    /// The run exists with another plan, or has one of the attempts already.
    pub async fn record_past_run(&self, past: &PastRun) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        for environment in &past.environments {
            put_environment(&mut transaction, environment).await?;
        }
        put_models(&mut transaction, &past.models, past.started_at).await?;
        let run = open_shard(&mut transaction, &past.run, past.started_at).await?;
        let mut events = Events { run: &run, sequence: hold(&mut transaction, &run, past.started_at).await?, rows: Vec::new() };
        let cases: BTreeMap<CaseId, Case> =
            past.tries.iter().map(|PastTry { attempt, .. }| (attempt.case.id(), attempt.case.clone())).collect();
        let keys = put_cases(&mut transaction, &cases).await?;
        events.add(past.started_at, &Event::RunStarted { planned: cases.len() as u64, already_final: 0 });
        for page in past.tries.chunks(PAGE) {
            put_tries(&mut transaction, &run, page, &keys).await?;
            for PastTry { attempt, .. } in page {
                events.add(attempt.started_at.saturating_add(attempt.duration_ms), &finished_event(attempt));
            }
            events.write(&mut transaction).await?;
        }
        events.add(past.ended_at, &Event::RunFinished { interrupted: past.is_interrupted });
        events.write(&mut transaction).await?;
        count_finals(&mut transaction, run.run_key).await?;
        let keep = sql("UPDATE runs SET last_sequence = $1 WHERE run_key = $2");
        transaction.execute(keep.bind(events.sequence).bind(run.run_key)).await?;
        let state = if past.is_interrupted { RunState::Interrupted } else { RunState::Complete };
        close_shard(&mut transaction, &run, state, past.ended_at).await?;
        transaction.commit().await
    }
}

/// Keeps other writers from the run until the commit; returns the last number that was given to an event of it.
async fn hold(transaction: &mut Transaction, run: &RunHandle, started_at: i64) -> Result<i64, StoreError> {
    let hold = sql("UPDATE runs SET started_at = CASE WHEN started_at > $1 THEN $1 ELSE started_at END WHERE run_key = $2 \
                    RETURNING last_sequence");
    transaction.one(hold.bind(started_at).bind(run.run_key)).await?.int("last_sequence")
}

/// Writes attempts and their details, and marks those that count.
async fn put_tries(
    transaction: &mut Transaction,
    run: &RunHandle,
    tries: &[PastTry],
    keys: &BTreeMap<CaseId, i64>,
) -> Result<(), StoreError> {
    let mut touched = BTreeSet::new();
    let mut by_id = BTreeMap::new();
    let mut rows = Vec::new();
    for PastTry { attempt, is_retried } in tries {
        let id = attempt.case.id();
        let Some(&case_key) = keys.get(&id) else { return Err(StoreError::NoSuchCase(id.to_string())) };
        touched.insert(case_key);
        let attempt_id = id_of_its_time(attempt.started_at.saturating_add(attempt.duration_ms));
        let place = Place { run_key: run.run_key, case_key, is_final: false };
        rows.push(attempt_values(&place, &attempt_id, *is_retried, attempt));
        by_id.insert(attempt_id, attempt);
    }
    let inserted = insert_rows(transaction, &ATTEMPTS, rows).await.map_err(|error| match error {
        error if error.is_unique_violation() => StoreError::AttemptsExist(run.run_id().to_owned()),
        error => error,
    })?;
    let mut details = Vec::new();
    for row in inserted {
        if let Some(attempt) = by_id.get(&row.text("attempt_id")?) {
            details.push(detail_values(row.int("attempt_key")?, attempt));
        }
    }
    insert_rows(transaction, &ATTEMPT_DETAILS, details).await?;
    mark_finals(transaction, run.run_key, touched).await
}

/// Ids sort by the time of what they name, as those of attempts do that are recorded as they end.
fn id_of_its_time(ms: i64) -> String {
    let ms = u64::try_from(ms).unwrap_or_default();
    let nanoseconds = u32::try_from(ms % 1000).unwrap_or_default() * 1_000_000;
    Uuid::new_v7(Timestamp::from_unix(NoContext, ms / 1000, nanoseconds)).to_string()
}

/// Events on their way, with numbers that go on from the run's last.
struct Events<'a> {
    run: &'a RunHandle,
    sequence: i64,
    rows: Vec<Vec<Cell>>,
}

impl Events<'_> {
    fn add(&mut self, at: i64, event: &Event) {
        self.sequence += 1;
        self.rows.push(event_values(self.run, self.sequence, at, event));
    }

    async fn write(&mut self, transaction: &mut Transaction) -> Result<(), StoreError> {
        insert_rows(transaction, &EVENTS, std::mem::take(&mut self.rows)).await.map(|_| ())
    }
}
