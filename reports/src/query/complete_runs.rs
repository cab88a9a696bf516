//! Runs in which every planned case is final: only those are compared without being asked for by name.

use super::run_reference::find_run;
use super::since::Since;
use crate::store::statement::{built, sql};
use crate::store::{Row, Store, StoreError, Transaction, rfc3339};

/// A run as far as a comparison needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownRun {
    pub(crate) run_key: i64,
    pub(crate) run_id: String,
    pub(crate) matrix: String,
    /// Which of the matrix's cases it was to take; empty where all. Only runs of one selection are compared.
    pub(crate) selection: String,
    pub(crate) started_at: i64,
    pub(crate) is_complete: bool,
}

impl Store {
    /// The ids of the newest complete runs of whole matrices, newest first; of one matrix where it is named.
    pub async fn complete_runs(&self, matrix: Option<&str>, limit: u64) -> Result<Vec<String>, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = built("SELECT run_id FROM runs WHERE selection = '' AND finished >= planned").and_in("matrix", matrix);
        let query = query.text(" ORDER BY started_at DESC, run_id DESC LIMIT ").bind(limit);
        transaction.all(query).await?.iter().map(|row| row.text("run_id")).collect()
    }
}

fn known_run(row: &Row) -> Result<KnownRun, StoreError> {
    Ok(KnownRun {
        run_key: row.int("run_key")?,
        run_id: row.text("run_id")?,
        matrix: row.text("matrix")?,
        selection: row.text("selection")?,
        started_at: row.int("started_at")?,
        is_complete: row.int("finished")? >= row.int("planned")?,
    })
}

/// The run that a reference means.
pub(crate) async fn named_run(transaction: &mut Transaction, reference: &str) -> Result<KnownRun, StoreError> {
    let found = find_run(transaction, reference).await?;
    let query = sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs WHERE run_key = $1");
    known_run(&transaction.one(query.bind(found.run_key)).await?)
}

/// The newest complete run of a whole matrix, of one where it is named.
pub(crate) async fn newest_run(transaction: &mut Transaction, matrix: Option<&str>) -> Result<KnownRun, StoreError> {
    let query = match matrix {
        Some(matrix) => sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs \
                             WHERE matrix = $1 AND selection = '' AND finished >= planned ORDER BY started_at DESC, run_id DESC LIMIT 1")
        .bind(matrix),
        None => sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs \
                     WHERE selection = '' AND finished >= planned ORDER BY started_at DESC, run_id DESC LIMIT 1"),
    };
    match transaction.optional(query).await? {
        Some(row) => known_run(&row),
        None => Err(StoreError::NoCompleteRun { matrix: matrix.map(str::to_owned), before: None }),
    }
}

/// The run that `after` is compared with, and whether it is what was asked for: where no complete run is old enough, it is
/// the oldest one.
pub(crate) async fn baseline_of(
    transaction: &mut Transaction,
    after: &KnownRun,
    since: Option<&Since>,
) -> Result<(KnownRun, bool), StoreError> {
    let at_most = match since {
        Some(Since::Run(reference)) => return Ok((named_run(transaction, reference).await?, true)),
        Some(since) => since.at_most(after.started_at).unwrap_or(after.started_at),
        None => after.started_at,
    };
    let newest = sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs \
                      WHERE matrix = $1 AND selection = $2 AND started_at <= $3 AND started_at < $4 AND run_key <> $5 \
                      AND finished >= planned ORDER BY started_at DESC, run_id DESC LIMIT 1");
    let newest = newest.bind(&after.matrix).bind(&after.selection).bind(at_most).bind(after.started_at).bind(after.run_key);
    if let Some(row) = transaction.optional(newest).await? {
        return Ok((known_run(&row)?, true));
    }
    let oldest = sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs \
                      WHERE matrix = $1 AND selection = $2 AND started_at < $3 AND run_key <> $4 AND finished >= planned \
                      ORDER BY started_at, run_id LIMIT 1");
    let oldest = oldest.bind(&after.matrix).bind(&after.selection).bind(after.started_at).bind(after.run_key);
    match transaction.optional(oldest).await? {
        Some(row) => Ok((known_run(&row)?, false)),
        None => {
            let before = Some(rfc3339(after.started_at));
            Err(StoreError::NoCompleteRun { matrix: Some(after.matrix.clone()), before })
        }
    }
}

/// The complete runs of a matrix that a comparison looks at, oldest first: those between baseline and now, both of which are
/// in it, and `window` before the baseline.
pub(crate) async fn history(
    transaction: &mut Transaction,
    before: &KnownRun,
    after: &KnownRun,
    window: u32,
) -> Result<Vec<KnownRun>, StoreError> {
    let earlier = sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs \
                       WHERE matrix = $1 AND selection = $2 AND started_at < $3 AND finished >= planned \
                       ORDER BY started_at DESC, run_id DESC LIMIT $4");
    let earlier = earlier.bind(&after.matrix).bind(&after.selection).bind(before.started_at).bind(window);
    let mut rows = transaction.all(earlier).await?;
    rows.reverse();
    let between = sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs \
                       WHERE matrix = $1 AND selection = $2 AND started_at > $3 AND started_at < $4 AND finished >= planned \
                       ORDER BY started_at, run_id");
    let between = between.bind(&after.matrix).bind(&after.selection).bind(before.started_at).bind(after.started_at);
    let between = transaction.all(between).await?;
    let mut runs = rows.iter().map(known_run).collect::<Result<Vec<_>, _>>()?;
    runs.push(before.clone());
    runs.extend(between.iter().map(known_run).collect::<Result<Vec<_>, _>>()?);
    runs.push(after.clone());
    Ok(runs)
}

/// A run and the complete runs of its matrix and selection before it, oldest first, at most `most` in all.
pub(crate) async fn runs_up_to(transaction: &mut Transaction, run: &KnownRun, most: u32) -> Result<Vec<KnownRun>, StoreError> {
    let earlier = sql("SELECT run_key, run_id, matrix, selection, started_at, planned, finished FROM runs \
                       WHERE matrix = $1 AND selection = $2 AND started_at < $3 AND finished >= planned \
                       ORDER BY started_at DESC, run_id DESC LIMIT $4");
    let earlier = earlier.bind(&run.matrix).bind(&run.selection).bind(run.started_at).bind(most.saturating_sub(1));
    let mut runs = transaction.all(earlier).await?.iter().map(known_run).collect::<Result<Vec<_>, _>>()?;
    runs.reverse();
    runs.push(run.clone());
    Ok(runs)
}
