//! Writing what happens: runs, their shards, environments, models and events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::event::Event;
use modelfarm_matrix::model::Model;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::attempt_columns::json_text;
use super::cell::{Cell, values};
use super::detail_blob::compress;
use super::row_batch::{insert_row, insert_rows};
use super::statement::sql;
use super::table_columns::{EVENTS, MODELS};
use super::time::now_ms;
use super::{Store, StoreError, Transaction};
use crate::rows::RunState;

/// A run, or one shard of it, that begins or goes on.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// A UUID (version 7 sorts by time). Shards of one run share it.
    pub run_id: String,
    /// The matrix's name.
    pub matrix: String,
    /// Which of the matrix's cases it is to take, in one text a selection; empty where all.
    pub selection: String,
    /// The plan's id.
    pub plan_id: String,
    /// The canonical strings of the cases of *all* shards, in any order.
    pub planned_cases: Vec<String>,
    /// Which shard, such as `2/3`; `1/1` for a whole run.
    pub shard: String,
    /// Where it runs: `this_host()`.
    pub host: String,
    /// The process that runs it.
    pub pid: u32,
    /// Sandbox, cores, the farm's version, ...
    pub facts: Value,
}

impl NewRun {
    /// A new run id.
    pub fn new_id() -> String {
        Uuid::now_v7().to_string()
    }
}

/// A started shard of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHandle {
    pub(crate) run_key: i64,
    pub(crate) shard_key: i64,
    run_id: String,
}

impl RunHandle {
    /// The run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }
}

/// A locked set of packages, with enough to make it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Environment {
    /// Its fingerprint.
    pub environment_id: String,
    /// Its name, such as `torchtpu`.
    pub name: String,
    /// Version by package, plugin and libtpu included.
    pub packages: BTreeMap<String, String>,
    /// The requirements text that makes it.
    pub requirements: String,
    /// UTC milliseconds since 1970.
    pub created_at: i64,
}

impl Store {
    /// Begins a run or a shard of it, or goes on with one: the same call after a crash is how a run resumes.
    ///
    /// # Errors
    /// The run exists with another plan.
    pub async fn begin_run(&self, new: &NewRun) -> Result<RunHandle, StoreError> {
        let mut transaction = self.database.write().await?;
        let run = open_shard(&mut transaction, new, now_ms()).await?;
        transaction.commit().await?;
        Ok(run)
    }

    /// Says that the shard's process lives. Every event says so too; call this at least each half minute besides.
    pub async fn heartbeat(&self, run: &RunHandle) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let beat = sql("UPDATE run_shards SET heartbeat_at = $1 WHERE shard_key = $2 AND ended_at IS NULL");
        transaction.execute(beat.bind(now_ms()).bind(run.shard_key)).await?;
        transaction.commit().await
    }

    /// Says that the shard has ended: `Complete`, `Partial` or `Interrupted`. What the whole run then is, `runs` computes.
    pub async fn end_shard(&self, run: &RunHandle, state: RunState) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        close_shard(&mut transaction, run, state, now_ms()).await?;
        transaction.commit().await
    }

    /// Records an environment; the same fingerprint is the same environment.
    pub async fn record_environment(&self, environment: &Environment) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        put_environment(&mut transaction, environment).await?;
        transaction.commit().await
    }

    /// Records what was known of a model; later knowledge of the same revision replaces earlier.
    pub async fn record_model(&self, model: &Model) -> Result<(), StoreError> {
        self.record_models(std::slice::from_ref(model)).await
    }

    /// Records several models in one transaction.
    pub async fn record_models(&self, models: &[Model]) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        put_models(&mut transaction, models, now_ms()).await?;
        transaction.commit().await
    }

    /// Appends an event to a run; returns its number, committed.
    pub async fn append_event(&self, run: &RunHandle, event: &Event) -> Result<u64, StoreError> {
        let mut transaction = self.database.write().await?;
        let sequence = next_sequence(&mut transaction, run.run_key).await?;
        put_event(&mut transaction, run, sequence, event).await?;
        transaction.commit().await?;
        Ok(u64::try_from(sequence).unwrap_or_default())
    }

    /// The cases of a run that need no other try: what a resumed run leaves out.
    pub async fn final_cases(&self, run: &RunHandle) -> Result<BTreeSet<CaseId>, StoreError> {
        let mut transaction = self.database.read().await?;
        let cases = sql("SELECT c.case_id FROM attempts a JOIN cases c ON c.case_key = a.case_key \
                         WHERE a.run_key = $1 AND a.is_final = 1");
        transaction.all(cases.bind(run.run_key)).await?.iter().map(|row| row.word("case_id")).collect()
    }

    /// The highest number of a try of each case of a run, final or not: the next try is one more.
    pub async fn last_attempts(&self, run: &RunHandle) -> Result<BTreeMap<CaseId, u32>, StoreError> {
        let mut transaction = self.database.read().await?;
        let cases = sql("SELECT c.case_id, MAX(a.attempt) AS attempt FROM attempts a JOIN cases c ON c.case_key = a.case_key \
                         WHERE a.run_key = $1 GROUP BY c.case_id");
        let rows = transaction.all(cases.bind(run.run_key)).await?;
        rows.iter().map(|row| Ok((row.word("case_id")?, u32::try_from(row.unsigned("attempt")?).unwrap_or(u32::MAX)))).collect()
    }

    /// How long each case took in the newest other run of the same matrix; none where there is no such run.
    pub async fn earlier_durations(&self, run: &RunHandle) -> Result<BTreeMap<CaseId, Duration>, StoreError> {
        let mut transaction = self.database.read().await?;
        let earlier = sql("SELECT r.run_key FROM runs r JOIN runs this ON this.matrix = r.matrix \
                           AND this.selection = r.selection WHERE this.run_key = $1 AND r.run_key <> $1 ORDER BY r.started_at DESC, r.run_id DESC LIMIT 1");
        let Some(earlier) = transaction.optional(earlier.bind(run.run_key)).await? else { return Ok(BTreeMap::new()) };
        let cases = sql("SELECT c.case_id, a.duration_ms FROM attempts a JOIN cases c ON c.case_key = a.case_key \
                         WHERE a.run_key = $1 AND a.is_final = 1");
        let rows = transaction.all(cases.bind(earlier.int("run_key")?)).await?;
        rows.iter().map(|row| Ok((row.word("case_id")?, Duration::from_millis(row.unsigned("duration_ms")?)))).collect()
    }
}

/// Writes the run where it is new, and a start of its shard.
pub(crate) async fn open_shard(transaction: &mut Transaction, new: &NewRun, at: i64) -> Result<RunHandle, StoreError> {
    let run_id =
        Uuid::parse_str(&new.run_id).map_err(|_| StoreError::RunId(new.run_id.chars().take(80).collect()))?.to_string();
    let cases: BTreeSet<&str> = new.planned_cases.iter().map(String::as_str).collect();
    let planned = cases.len() as u64;
    let cases = compress(cases.into_iter().collect::<Vec<_>>().join("\n").as_bytes());
    let plan = sql("INSERT INTO plans (plan_id, cases, created_at) VALUES ($1, $2, $3) ON CONFLICT (plan_id) DO NOTHING");
    transaction.execute(plan.bind(&new.plan_id).bind(cases).bind(at)).await?;
    let run = sql("INSERT INTO runs (run_id, matrix, selection, plan_id, planned, started_at, last_sequence) \
                   VALUES ($1, $2, $3, $4, $5, $6, 0) ON CONFLICT (run_id) DO NOTHING");
    let run = run.bind(&run_id).bind(&new.matrix).bind(&new.selection).bind(&new.plan_id).bind(planned).bind(at);
    transaction.execute(run).await?;
    let run = transaction.one(sql("SELECT run_key, plan_id FROM runs WHERE run_id = $1").bind(&run_id)).await?;
    let (run_key, stored) = (run.int("run_key")?, run.text("plan_id")?);
    if stored != new.plan_id {
        return Err(StoreError::PlanDiffers { run_id, stored, given: new.plan_id.clone() });
    }
    // A new start of a shard ends an earlier one that never said that it ended.
    let earlier = sql("UPDATE run_shards SET state = $1, ended_at = heartbeat_at \
                       WHERE run_key = $2 AND shard = $3 AND ended_at IS NULL");
    transaction.execute(earlier.bind(RunState::Interrupted.as_str()).bind(run_key).bind(&new.shard)).await?;
    let shard = sql("INSERT INTO run_shards \
                     (session_id, run_key, shard, host, pid, started_at, heartbeat_at, ended_at, state, facts) \
                     VALUES ($1, $2, $3, $4, $5, $6, $6, NULL, $7, $8) RETURNING shard_key");
    let shard = shard
        .bind(Uuid::now_v7().to_string())
        .bind(run_key)
        .bind(&new.shard)
        .bind(&new.host)
        .bind(new.pid)
        .bind(at)
        .bind(RunState::Running.as_str())
        .bind(json_text(&new.facts));
    let shard_key = transaction.one(shard).await?.int("shard_key")?;
    Ok(RunHandle { run_key, shard_key, run_id })
}

/// Says that a shard has ended.
pub(crate) async fn close_shard(
    transaction: &mut Transaction,
    run: &RunHandle,
    state: RunState,
    at: i64,
) -> Result<(), StoreError> {
    let end = sql("UPDATE run_shards SET state = $1, heartbeat_at = $2, ended_at = $2 WHERE shard_key = $3");
    transaction.execute(end.bind(state.as_str()).bind(at).bind(run.shard_key)).await.map(|_| ())
}

pub(crate) async fn put_environment(transaction: &mut Transaction, environment: &Environment) -> Result<(), StoreError> {
    // The earliest sight counts, so that the order of merges does not.
    let insert = sql("INSERT INTO environments (environment_id, name, packages, requirements, created_at) \
                      VALUES ($1, $2, $3, $4, $5) ON CONFLICT (environment_id) DO UPDATE SET created_at = excluded.created_at \
                      WHERE excluded.created_at < environments.created_at");
    let insert = insert
        .bind(&environment.environment_id)
        .bind(&environment.name)
        .bind(json_text(&environment.packages))
        .bind(&environment.requirements)
        .bind(environment.created_at);
    transaction.execute(insert).await.map(|_| ())
}

/// Writes models of different names or revisions, as they were known at a time.
pub(crate) async fn put_models(transaction: &mut Transaction, models: &[Model], seen_at: i64) -> Result<(), StoreError> {
    // A statement takes a row once: of two models of one name and revision the last is what is known.
    let name = |model: &Model| (model.id.clone(), model.revision.clone().unwrap_or_default());
    let different: BTreeMap<_, _> = models.iter().map(|model| (name(model), model)).collect();
    let rows = different.into_values().map(|model| model_values(model, seen_at)).collect();
    insert_rows(transaction, &MODELS, rows).await.map(|_| ())
}

/// A model, in the order of `MODELS`.
pub(crate) fn model_values(model: &Model, seen_at: i64) -> Vec<Cell> {
    let Model { id, revision, source, architecture, class, harness, tags, downloads } = model;
    let source = json_text(source);
    values![
        id.as_str(),
        revision.as_deref().unwrap_or_default(),
        source.trim_matches('"'),
        architecture,
        class,
        harness.as_str(),
        json_text(tags),
        *downloads,
        seen_at,
    ]
}

/// The next number of a run. Holding the run's row until the commit makes the order of numbers the order of commits.
pub(crate) async fn next_sequence(transaction: &mut Transaction, run_key: i64) -> Result<i64, StoreError> {
    let next = sql("UPDATE runs SET last_sequence = last_sequence + 1 WHERE run_key = $1 RETURNING last_sequence");
    transaction.one(next.bind(run_key)).await?.int("last_sequence")
}

/// Writes an event that happens now under the number that was drawn for it.
pub(crate) async fn put_event(
    transaction: &mut Transaction,
    run: &RunHandle,
    sequence: i64,
    event: &Event,
) -> Result<(), StoreError> {
    let now = now_ms();
    insert_row(transaction, &EVENTS, event_values(run, sequence, now, event)).await?;
    let beat = sql("UPDATE run_shards SET heartbeat_at = $1 WHERE shard_key = $2 AND ended_at IS NULL");
    transaction.execute(beat.bind(now).bind(run.shard_key)).await.map(|_| ())
}

/// An event, in the order of `EVENTS`.
pub(crate) fn event_values(run: &RunHandle, sequence: i64, at: i64, event: &Event) -> Vec<Cell> {
    let (case_id, attempt) = match event {
        Event::AttemptStarted { case_id, attempt }
        | Event::StageEntered { case_id, attempt, .. }
        | Event::AttemptFinished { case_id, attempt, .. } => (Some(case_id.as_str()), Some(i64::from(*attempt))),
        Event::RunStarted { .. } | Event::ModelStage { .. } | Event::RunFinished { .. } => (None, None),
    };
    let payload = json_text(event);
    values![run.run_key, sequence, run.shard_key, sequence, at, case_id, attempt, event_type(&payload), payload]
}

/// The tag that serde gave the event: the one place where it is defined.
fn event_type(payload: &str) -> String {
    #[derive(Deserialize)]
    struct Tag {
        r#type: String,
    }
    serde_json::from_str::<Tag>(payload).map(|tag| tag.r#type).unwrap_or_default()
}
