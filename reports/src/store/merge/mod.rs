//! Taking over another store: a shard's result, or a whole history.
//!
//! Everything has a name that is the same in every store (run id, session id, case id, attempt id), so a second merge of the
//! same store finds everything present, and the order of merges does not matter.
//!
//! Rows travel in pages: each page is read, examined row by row, and written in a few statements. What is new here as a whole (a
//! run, a start of a shard) is not looked up.

mod attempts;
mod events;
mod examined;
mod keys;
mod left_behind;

use std::collections::BTreeMap;
use std::path::Path;

use modelfarm_matrix::case::{Case, CaseId};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::case_keys::put_cases;
use super::database::{Dialect, Lock, Row, Transaction};
use super::detail_blob::decompress;
use super::recording::{model_values, put_environment};
use super::row_batch::insert_rows;
use super::statement::sql;
use super::table_columns::MODELS;
use super::{Store, StoreError};
use crate::query::{environment, model};
use crate::rows::RunState;
use keys::{Keys, MergedRun, Shards};

/// Rows read at a time: a shard of a hundred thousand attempts must not stand in memory.
const PAGE: i64 = 512;

/// What a merge took over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MergeReport {
    /// Runs that were not here.
    pub runs_new: u64,
    /// Runs that were here, perhaps with fewer attempts.
    pub runs_present: u64,
    /// Attempts that were not here.
    pub attempts_new: u64,
    /// Attempts that were here already.
    pub attempts_present: u64,
    /// Different attempts under one number of one case of one run, from a shard that ran twice: the one that began later stays.
    pub attempts_conflicting: u64,
    /// Events that were not here.
    pub events_new: u64,
    /// Events that were here already.
    pub events_present: u64,
    /// Confirmations that were not here.
    pub confirmations_new: u64,
    /// Confirmations that were here already.
    pub confirmations_present: u64,
}

impl Store {
    /// Takes over a SQLite file of the same schema, such as a shard's `farm.db`, in one transaction.
    ///
    /// # Errors
    /// The file is missing, damaged, of another schema, or holds a run of this store with another plan. This store then is as
    /// it was.
    pub async fn merge(&self, from: &Path) -> Result<MergeReport, StoreError> {
        let source = Store::open_file_read_only(from).await?;
        let report = self.merge_store(&source).await;
        source.close().await;
        report
    }

    /// Takes over another open store, in one transaction: `db copy` is this.
    pub async fn merge_store(&self, source: &Store) -> Result<MergeReport, StoreError> {
        let mut from = source.database.read().await?;
        refuse_a_damaged_file(&mut from, source.name()).await?;
        let mut merge = Merge { from, into: self.database.write().await?, report: MergeReport::default() };
        merge.into.lock(Lock::Merge).await?;
        merge.plans().await?;
        merge.environments_and_models().await?;
        let runs = merge.runs().await?;
        let shards = merge.shards(&runs).await?;
        let cases = merge.cases().await?;
        for run in runs.values() {
            merge.attempts(run, &cases).await?;
            merge.events(run, &shards).await?;
        }
        merge.confirmations(&cases).await?;
        merge.references().await?;
        merge.artifacts().await?;
        merge.into.commit().await?;
        Ok(merge.report)
    }
}

struct Merge {
    from: Transaction,
    into: Transaction,
    report: MergeReport,
}

/// Pages may be damaged where no query of the merge looks, such as in an index.
async fn refuse_a_damaged_file(from: &mut Transaction, name: &str) -> Result<(), StoreError> {
    if from.dialect() == Dialect::Sqlite {
        let verdict = from.one(sql("PRAGMA quick_check(1)")).await?.text("quick_check")?;
        if verdict != "ok" {
            return Err(StoreError::Corrupt { database: name.to_owned(), detail: verdict.chars().take(300).collect() });
        }
    }
    Ok(())
}

impl Merge {
    async fn plans(&mut self) -> Result<(), StoreError> {
        for row in self.from.all(sql("SELECT plan_id, cases, created_at FROM plans ORDER BY plan_id")).await? {
            let cases = row.bytes("cases")?;
            decompress("cases", &cases)?;
            let insert = sql("INSERT INTO plans (plan_id, cases, created_at) VALUES ($1, $2, $3) \
                              ON CONFLICT (plan_id) DO UPDATE SET created_at = excluded.created_at \
                              WHERE excluded.created_at < plans.created_at");
            let insert = insert.bind(row.text("plan_id")?).bind(cases).bind(row.int("created_at")?);
            self.into.execute(insert).await?;
        }
        Ok(())
    }

    async fn environments_and_models(&mut self) -> Result<(), StoreError> {
        let query = sql("SELECT environment_id, name, packages, requirements, created_at FROM environments \
                         ORDER BY environment_id");
        for row in self.from.all(query).await? {
            put_environment(&mut self.into, &environment(&row)?).await?;
        }
        let query = sql("SELECT model, revision, source, architecture, class, harness, tags, downloads, seen_at FROM models \
                         ORDER BY model, revision");
        let rows = self.from.all(query).await?;
        let models = rows.iter().map(|row| Ok(model_values(&model(row)?, row.int("seen_at")?))).collect::<Result<_, _>>()?;
        insert_rows(&mut self.into, &MODELS, models).await.map(|_| ())
    }

    /// Holds every run of the source here until the commit, by its key in the source.
    async fn runs(&mut self) -> Result<BTreeMap<i64, MergedRun>, StoreError> {
        let mut keys = Keys::of_column("run_key");
        let mut runs = BTreeMap::new();
        let query = sql("SELECT run_key, run_id, matrix, selection, plan_id, planned, started_at FROM runs ORDER BY run_key");
        for row in self.from.all(query).await? {
            let run = self.run(&row).await?;
            keys.add(run.source_key, run.key)?;
            runs.insert(run.source_key, run);
        }
        Ok(runs)
    }

    async fn run(&mut self, row: &Row) -> Result<MergedRun, StoreError> {
        let source_key = row.int("run_key")?;
        let run_id = row.word::<Uuid>("run_id")?.to_string();
        let (plan_id, started_at) = (row.text("plan_id")?, row.int("started_at")?);
        let insert = sql("INSERT INTO runs (run_id, matrix, selection, plan_id, planned, started_at, last_sequence) \
                          VALUES ($1, $2, $3, $4, $5, $6, 0) ON CONFLICT (run_id) DO NOTHING RETURNING run_key");
        let insert = insert.bind(&run_id).bind(row.text("matrix")?).bind(row.text("selection")?).bind(&plan_id);
        let insert = insert.bind(row.unsigned("planned")?);
        if let Some(inserted) = self.into.optional(insert.bind(started_at)).await? {
            self.report.runs_new += 1;
            return Ok(MergedRun { source_key, key: inserted.int("run_key")?, is_new: true, last_sequence: 0 });
        }
        // Changing the run's row keeps other writers from recording into it until the commit.
        let hold = sql("UPDATE runs SET started_at = CASE WHEN started_at > $1 THEN $1 ELSE started_at END WHERE run_id = $2 \
                        RETURNING run_key, plan_id, last_sequence");
        let here = self.into.one(hold.bind(started_at).bind(&run_id)).await?;
        let stored = here.text("plan_id")?;
        if stored != plan_id {
            return Err(StoreError::PlanDiffers { run_id, stored, given: plan_id });
        }
        self.report.runs_present += 1;
        Ok(MergedRun { source_key, key: here.int("run_key")?, is_new: false, last_sequence: here.int("last_sequence")? })
    }

    /// A start of a shard that is here already is replaced where the source knows more of it.
    async fn shards(&mut self, runs: &BTreeMap<i64, MergedRun>) -> Result<Shards, StoreError> {
        let mut shards = Shards::default();
        let query = sql("SELECT shard_key, session_id, run_key, shard, host, pid, started_at, heartbeat_at, ended_at, state, \
                         facts FROM run_shards ORDER BY shard_key");
        for row in self.from.all(query).await? {
            let session_id = row.text("session_id")?;
            let (state, ended_at): (RunState, _) = (row.word("state")?, row.optional_int("ended_at")?);
            let heartbeat_at = row.int("heartbeat_at")?;
            row.json::<Value>("facts")?;
            let source_run = row.int("run_key")?;
            let Some(run) = runs.get(&source_run) else { return Err(keys::leads_nowhere("run_key", source_run)) };
            let insert = sql("INSERT INTO run_shards \
                              (session_id, run_key, shard, host, pid, started_at, heartbeat_at, ended_at, state, facts) \
                              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                              ON CONFLICT (session_id) DO NOTHING RETURNING shard_key");
            let insert = insert
                .bind(&session_id)
                .bind(run.key)
                .bind(row.text("shard")?)
                .bind(row.text("host")?)
                .bind(row.int("pid")?)
                .bind(row.int("started_at")?)
                .bind(heartbeat_at)
                .bind(ended_at)
                .bind(state.as_str())
                .bind(row.text("facts")?);
            let source_key = row.int("shard_key")?;
            if let Some(inserted) = self.into.optional(insert).await? {
                shards.add_new(source_key, inserted.int("shard_key")?)?;
                continue;
            }
            let replace = sql("UPDATE run_shards SET heartbeat_at = $1, ended_at = $2, state = $3 WHERE session_id = $4 \
                               AND ($1, COALESCE($2, 0), $3) > (heartbeat_at, COALESCE(ended_at, 0), state)");
            let replace = replace.bind(heartbeat_at).bind(ended_at).bind(state.as_str()).bind(&session_id);
            self.into.execute(replace).await?;
            let find = sql("SELECT shard_key FROM run_shards WHERE session_id = $1").bind(&session_id);
            shards.add_present(source_key, self.into.one(find).await?.int("shard_key")?)?;
        }
        Ok(shards)
    }

    async fn cases(&mut self) -> Result<Keys, StoreError> {
        let mut keys = Keys::of_column("case_key");
        let mut last = String::new();
        loop {
            // In the order of their ids, as `put_cases` asks for.
            let page = sql("SELECT case_key, case_id, canonical FROM cases WHERE case_id > $1 ORDER BY case_id LIMIT $2");
            let rows = self.from.all(page.bind(&last).bind(PAGE)).await?;
            let mut cases: BTreeMap<CaseId, Case> = BTreeMap::new();
            let mut source_keys = BTreeMap::new();
            for row in &rows {
                let (case, id): (Case, String) = (row.word("canonical")?, row.text("case_id")?);
                let case_id = case.id();
                if case_id.as_str() != id {
                    let detail = format!("`{id}` is not the id of `{case}`");
                    return Err(StoreError::Value { column: "case_id", detail });
                }
                last = id;
                source_keys.insert(case_id.clone(), row.int("case_key")?);
                cases.insert(case_id, case);
            }
            if rows.is_empty() {
                return Ok(keys);
            }
            for (id, key) in put_cases(&mut self.into, &cases).await? {
                if let Some(source_key) = source_keys.get(&id) {
                    keys.add(*source_key, key)?;
                }
            }
        }
    }
}
