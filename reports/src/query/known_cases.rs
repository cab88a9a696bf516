//! Every case that was asked or planned, and what was last seen of it: what expectations are held against.

use std::collections::BTreeMap;

use modelfarm_matrix::case::{Case, CaseId};
use modelfarm_matrix::known_case::{KnownCase, Repository, Seen};

use super::run_reference::find_run;
use super::runs::is_complete;
use crate::store::detail_blob::decompress;
use crate::store::statement::{built, sql};
use crate::store::{Row, Store, StoreError, Transaction};

impl Store {
    /// Every case that has an attempt, in the order of the canonical strings. An attempt that is to be tried again tells that
    /// there is the case, and nothing else.
    pub async fn known_cases(&self) -> Result<Vec<KnownCase>, StoreError> {
        let mut transaction = self.database.read().await?;
        let repositories = repositories(&mut transaction).await?;
        let mut in_complete_run = seen_in_complete_runs(&mut transaction).await?;
        // For each case its newest attempt by the index: a history of years is not read for it.
        let query = sql("SELECT c.case_id, c.canonical, n.architecture, f.outcome, f.fault FROM cases c \
                         JOIN attempts n ON n.attempt_key = (SELECT l.attempt_key FROM attempts l \
                         WHERE l.case_key = c.case_key ORDER BY l.started_at DESC, l.attempt_key DESC LIMIT 1) \
                         LEFT JOIN attempts f ON f.attempt_key = (SELECT l.attempt_key FROM attempts l \
                         WHERE l.case_key = c.case_key AND l.is_final = 1 \
                         ORDER BY l.started_at DESC, l.attempt_key DESC LIMIT 1) ORDER BY c.canonical");
        let rows = transaction.all(query).await?;
        rows.iter()
            .map(|row| {
                let case: Case = row.word("canonical")?;
                let tags = repositories.get(case.model.as_str()).map(|repository| repository.tags.clone()).unwrap_or_default();
                Ok(KnownCase {
                    // What an attempt was made with, and not what a later listing says.
                    repository: Some(Repository { architecture: row.text("architecture")?, tags }),
                    newest: seen(row)?,
                    in_complete_run: in_complete_run.remove(&row.word::<CaseId>("case_id")?),
                    case,
                })
            })
            .collect()
    }

    /// The cases that a run was to ask in all its shards, in the order of the canonical strings; what was seen of them is not told.
    pub async fn planned_cases(&self, run: &str) -> Result<Vec<KnownCase>, StoreError> {
        let mut transaction = self.database.read().await?;
        let run = find_run(&mut transaction, run).await?;
        let repositories = repositories(&mut transaction).await?;
        let query = sql("SELECT p.cases FROM plans p JOIN runs r ON r.plan_id = p.plan_id WHERE r.run_key = $1");
        let blob = transaction.one(query.bind(run.run_key)).await?.bytes("cases")?;
        let wrong = |detail: String| StoreError::Value { column: "cases", detail };
        let text = String::from_utf8(decompress("cases", &blob)?).map_err(|error| wrong(error.to_string()))?;
        text.lines()
            .map(|line| {
                let case: Case = line.parse().map_err(|error| wrong(format!("{error}")))?;
                let repository = repositories.get(case.model.as_str()).cloned();
                Ok(KnownCase { case, repository, newest: None, in_complete_run: None })
            })
            .collect()
    }
}

fn seen(row: &Row) -> Result<Option<Seen>, StoreError> {
    let fault = row.optional_word("fault")?;
    Ok(row.optional_word("outcome")?.map(|outcome| Seen { outcome, fault }))
}

/// What was last known of each model's repository.
async fn repositories(transaction: &mut Transaction) -> Result<BTreeMap<String, Repository>, StoreError> {
    let query = sql("SELECT model, architecture, tags FROM models ORDER BY seen_at, revision");
    let rows = transaction.all(query).await?;
    let of_row =
        |row: &Row| Ok((row.text("model")?, Repository { architecture: row.text("architecture")?, tags: row.json("tags")? }));
    rows.iter().map(of_row).collect()
}

/// What each case came to in the newest complete run that asked it.
async fn seen_in_complete_runs(transaction: &mut Transaction) -> Result<BTreeMap<CaseId, Seen>, StoreError> {
    let mut runs: BTreeMap<i64, bool> = BTreeMap::new();
    // Each round leaves out the runs that the one before found not to be complete: few, among the newest of any case.
    loop {
        let mut query = built(
            "SELECT c.case_id, a.run_key, a.outcome, a.fault FROM cases c \
             JOIN attempts a ON a.attempt_key = (SELECT l.attempt_key FROM attempts l \
             WHERE l.case_key = c.case_key AND l.is_final = 1",
        );
        for run_key in runs.iter().filter(|(_, is_complete)| !**is_complete).map(|(run_key, _)| *run_key) {
            query = query.text(" AND l.run_key <> ").bind(run_key);
        }
        let rows = transaction.all(query.text(" ORDER BY l.started_at DESC, l.attempt_key DESC LIMIT 1)")).await?;
        let mut all_complete = true;
        for row in &rows {
            let run_key = row.int("run_key")?;
            let complete = match runs.get(&run_key) {
                Some(known) => *known,
                None => is_complete(transaction, run_key).await?,
            };
            runs.insert(run_key, complete);
            all_complete &= complete;
        }
        if all_complete {
            let mut last = BTreeMap::new();
            for row in &rows {
                if let Some(seen) = seen(row)? {
                    last.insert(row.word("case_id")?, seen);
                }
            }
            return Ok(last);
        }
    }
}
