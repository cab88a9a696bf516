//! Taking over another store: a shard's result, or a whole history.
//!
//! Everything has a name that is the same in every store (run id, session id, case id, attempt id), so a second merge of the
//! same store finds everything present, and the order of merges does not matter.

use std::collections::BTreeMap;
use std::path::Path;

use modelfarm_matrix::case::Case;
use modelfarm_matrix::event::Event;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::attempt_columns::{attempt_detail, cells, result_columns};
use super::database::{Dialect, Row, Transaction};
use super::detail_blob::decompress;
use super::files::{put_artifact, put_reference, reference};
use super::finishing::{mark_final, put_case};
use super::recording::{put_environment, put_model};
use super::statement::{built, sql};
use super::table_columns::{ATTEMPT_DETAILS, ATTEMPTS, EVENTS};
use super::{Store, StoreError};
use crate::query::{Artifact, environment, model};
use crate::rows::RunState;

/// Rows read at a time: a shard of a hundred thousand attempts must not stand in memory.
const PAGE: i64 = 500;

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

    /// Takes over another open store: `db copy` from SQLite to PostgreSQL is this.
    pub async fn merge_store(&self, source: &Store) -> Result<MergeReport, StoreError> {
        let mut from = source.database.read().await?;
        refuse_a_damaged_file(&mut from, source.name()).await?;
        let mut merge = Merge { from, into: self.database.write().await?, report: MergeReport::default() };
        merge.plans().await?;
        merge.environments_and_models().await?;
        let runs = merge.runs().await?;
        let shards = merge.shards(&runs).await?;
        let cases = merge.cases().await?;
        merge.attempts(&runs, &cases).await?;
        merge.events(&runs, &shards).await?;
        merge.files().await?;
        merge.into.commit().await?;
        Ok(merge.report)
    }
}

/// A key of the source by the key here.
type Keys = BTreeMap<i64, i64>;

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

fn key(keys: &Keys, row: &Row, column: &'static str) -> Result<i64, StoreError> {
    let key = row.int(column)?;
    keys.get(&key).copied().ok_or_else(|| StoreError::Value { column, detail: format!("key {key} leads nowhere") })
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
        let query = sql("SELECT environment_id, name, packages, requirements, created_at FROM environments");
        for row in self.from.all(query).await? {
            put_environment(&mut self.into, &environment(&row)?).await?;
        }
        let query = sql("SELECT model, revision, source, architecture, class, harness, tags, downloads, seen_at FROM models");
        for row in self.from.all(query).await? {
            put_model(&mut self.into, &model(&row)?, row.int("seen_at")?).await?;
        }
        Ok(())
    }

    async fn runs(&mut self) -> Result<Keys, StoreError> {
        let mut keys = Keys::new();
        let query = sql("SELECT run_key, run_id, matrix, plan_id, planned, started_at FROM runs ORDER BY run_key");
        for row in self.from.all(query).await? {
            let run_id = row.word::<Uuid>("run_id")?.to_string();
            let (plan_id, started_at) = (row.text("plan_id")?, row.int("started_at")?);
            let find = sql("SELECT run_key, plan_id FROM runs WHERE run_id = $1").bind(&run_id);
            let here = if let Some(here) = self.into.optional(find).await? {
                let stored = here.text("plan_id")?;
                if stored != plan_id {
                    return Err(StoreError::PlanDiffers { run_id, stored, given: plan_id });
                }
                let here = here.int("run_key")?;
                let earlier = sql("UPDATE runs SET started_at = $1 WHERE run_key = $2 AND started_at > $1");
                self.into.execute(earlier.bind(started_at).bind(here)).await?;
                self.report.runs_present += 1;
                here
            } else {
                let insert = sql("INSERT INTO runs (run_id, matrix, plan_id, planned, started_at, last_sequence) \
                                  VALUES ($1, $2, $3, $4, $5, 0) RETURNING run_key");
                let insert = insert.bind(&run_id).bind(row.text("matrix")?).bind(&plan_id).bind(row.unsigned("planned")?);
                self.report.runs_new += 1;
                self.into.one(insert.bind(started_at)).await?.int("run_key")?
            };
            keys.insert(row.int("run_key")?, here);
        }
        Ok(keys)
    }

    /// A start of a shard that is here already is replaced where the source knows more of it.
    async fn shards(&mut self, runs: &Keys) -> Result<Keys, StoreError> {
        let mut keys = Keys::new();
        let query = sql("SELECT shard_key, session_id, run_key, shard, host, pid, started_at, heartbeat_at, ended_at, state, \
                         facts FROM run_shards ORDER BY shard_key");
        for row in self.from.all(query).await? {
            let session_id = row.text("session_id")?;
            let state: RunState = row.word("state")?;
            row.json::<Value>("facts")?;
            let insert = sql("INSERT INTO run_shards \
                              (session_id, run_key, shard, host, pid, started_at, heartbeat_at, ended_at, state, facts) \
                              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                              ON CONFLICT (session_id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, \
                              ended_at = excluded.ended_at, state = excluded.state \
                              WHERE (excluded.heartbeat_at, COALESCE(excluded.ended_at, 0), excluded.state) \
                              > (run_shards.heartbeat_at, COALESCE(run_shards.ended_at, 0), run_shards.state)");
            let insert = insert
                .bind(&session_id)
                .bind(key(runs, &row, "run_key")?)
                .bind(row.text("shard")?)
                .bind(row.text("host")?)
                .bind(row.int("pid")?)
                .bind(row.int("started_at")?)
                .bind(row.int("heartbeat_at")?)
                .bind(row.optional_int("ended_at")?)
                .bind(state.as_str())
                .bind(row.text("facts")?);
            self.into.execute(insert).await?;
            let find = sql("SELECT shard_key FROM run_shards WHERE session_id = $1").bind(&session_id);
            keys.insert(row.int("shard_key")?, self.into.one(find).await?.int("shard_key")?);
        }
        Ok(keys)
    }

    async fn cases(&mut self) -> Result<Keys, StoreError> {
        let mut keys = Keys::new();
        let mut last = i64::MIN;
        loop {
            let page = sql("SELECT case_key, case_id, canonical FROM cases WHERE case_key > $1 ORDER BY case_key LIMIT $2");
            let rows = self.from.all(page.bind(last).bind(PAGE)).await?;
            for row in &rows {
                last = row.int("case_key")?;
                let (case, id): (Case, String) = (row.word("canonical")?, row.text("case_id")?);
                if case.id().as_str() != id {
                    let detail = format!("`{id}` is not the id of `{case}`");
                    return Err(StoreError::Value { column: "case_id", detail });
                }
                keys.insert(last, put_case(&mut self.into, &case).await?);
            }
            if rows.is_empty() {
                return Ok(keys);
            }
        }
    }

    async fn attempts(&mut self, runs: &Keys, cases: &Keys) -> Result<(), StoreError> {
        let mut last = i64::MIN;
        loop {
            let page = built(concat!(
                "SELECT ",
                result_columns!(),
                ", a.attempt_id, a.run_key, a.case_key, a.is_final, a.is_retried, d.expectation_reason, d.evidence, d.facts,",
                " d.output, d.leaves FROM attempts a JOIN cases c ON c.case_key = a.case_key",
                " JOIN runs r ON r.run_key = a.run_key JOIN attempt_details d ON d.attempt_key = a.attempt_key",
                " WHERE a.attempt_key > "
            ));
            let page = page.bind(last).text(" ORDER BY a.attempt_key LIMIT ").bind(PAGE);
            let rows = self.from.all(page).await?;
            for row in &rows {
                last = row.int("attempt_key")?;
                // What cannot be read here could not be read later, when it would spoil every query.
                attempt_detail(row)?;
                let (run_key, case_key) = (key(runs, row, "run_key")?, key(cases, row, "case_key")?);
                self.attempt(row, run_key, case_key).await?;
            }
            if rows.is_empty() {
                return Ok(());
            }
        }
    }

    async fn attempt(&mut self, row: &Row, run_key: i64, case_key: i64) -> Result<(), StoreError> {
        let attempt_id = row.text("attempt_id")?;
        let find = sql("SELECT attempt_key, attempt_id, started_at FROM attempts \
                        WHERE run_key = $1 AND case_key = $2 AND attempt = $3");
        let find = find.bind(run_key).bind(case_key).bind(row.int("attempt")?);
        if let Some(here) = self.into.optional(find).await? {
            let here_id = here.text("attempt_id")?;
            if here_id == attempt_id {
                self.report.attempts_present += 1;
                return Ok(());
            }
            self.report.attempts_conflicting += 1;
            if (row.int("started_at")?, &attempt_id) < (here.int("started_at")?, &here_id) {
                return Ok(());
            }
            // Its details and artifacts go with it.
            let delete = sql("DELETE FROM attempts WHERE attempt_key = $1");
            self.into.execute(delete.bind(here.int("attempt_key")?)).await?;
        } else {
            self.report.attempts_new += 1;
        }
        let mut insert = ATTEMPTS.insert();
        for ((column, _), cell) in ATTEMPTS.columns.iter().zip(cells(row, ATTEMPTS.columns)?) {
            insert = match *column {
                "run_key" => insert.bind(run_key),
                "case_key" => insert.bind(case_key),
                _ => insert.bind(cell),
            };
        }
        let attempt_key = self.into.one(insert).await?.int("attempt_key")?;
        let mut insert = ATTEMPT_DETAILS.insert().bind(attempt_key);
        for cell in cells(row, &ATTEMPT_DETAILS.columns[1..])? {
            insert = insert.bind(cell);
        }
        self.into.execute(insert).await?;
        mark_final(&mut self.into, run_key, case_key).await
    }

    async fn events(&mut self, runs: &Keys, shards: &Keys) -> Result<(), StoreError> {
        for (&source_run, &run_key) in runs {
            // Changing the run's row keeps other writers from giving out numbers until the commit.
            let hold = sql("UPDATE runs SET last_sequence = last_sequence WHERE run_key = $1 RETURNING last_sequence");
            let mut sequence = self.into.one(hold.bind(run_key)).await?.int("last_sequence")?;
            let mut last = i64::MIN;
            loop {
                let page = sql("SELECT run_key, sequence, shard_key, origin_sequence, at, case_id, attempt, type, payload \
                                FROM events WHERE run_key = $1 AND sequence > $2 ORDER BY sequence LIMIT $3");
                let rows = self.from.all(page.bind(source_run).bind(last).bind(PAGE)).await?;
                for row in &rows {
                    last = row.int("sequence")?;
                    row.json::<Event>("payload")?;
                    let shard_key = key(shards, row, "shard_key")?;
                    let origin = row.int("origin_sequence")?;
                    let find = sql("SELECT sequence FROM events WHERE shard_key = $1 AND origin_sequence = $2");
                    if self.into.optional(find.bind(shard_key).bind(origin)).await?.is_some() {
                        self.report.events_present += 1;
                        continue;
                    }
                    sequence += 1;
                    self.report.events_new += 1;
                    let mut insert = EVENTS.insert().bind(run_key).bind(sequence).bind(shard_key);
                    for cell in cells(row, &EVENTS.columns[3..])? {
                        insert = insert.bind(cell);
                    }
                    self.into.execute(insert).await?;
                }
                if rows.is_empty() {
                    break;
                }
            }
            let keep = sql("UPDATE runs SET last_sequence = $1 WHERE run_key = $2");
            self.into.execute(keep.bind(sequence).bind(run_key)).await?;
        }
        Ok(())
    }

    async fn files(&mut self) -> Result<(), StoreError> {
        let query = sql("SELECT reference_key, host, path, bytes, created_at, last_used_at, facts FROM model_references");
        for row in self.from.all(query).await? {
            self.into.execute(put_reference(&reference(&row)?)).await?;
        }
        let query = sql("SELECT a.attempt_id, f.kind, f.host, f.path, f.bytes FROM artifacts f \
                         JOIN attempts a ON a.attempt_key = f.attempt_key");
        for row in self.from.all(query).await? {
            let find = sql("SELECT attempt_key FROM attempts WHERE attempt_id = $1").bind(row.text("attempt_id")?);
            // An attempt that lost to another of its number left nothing here.
            if let Some(here) = self.into.optional(find).await? {
                let (kind, host, path) = (row.text("kind")?, row.text("host")?, row.text("path")?);
                let artifact = Artifact { kind, host, path, bytes: row.unsigned("bytes")? };
                self.into.execute(put_artifact(here.int("attempt_key")?, &artifact)).await?;
            }
        }
        Ok(())
    }
}
