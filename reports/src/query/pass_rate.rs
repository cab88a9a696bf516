//! The pass rate over time, with its denominator.

use std::collections::BTreeMap;

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::outcome::{Outcome, Standing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::case_filter::narrow;
use super::case_history::HistoryFilter;
use crate::store::statement::{built, sql};
use crate::store::{Store, StoreError, Transaction, rfc3339};

/// How many cases passed in one run, for a target and a mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PassRateRow {
    /// The run.
    pub run_id: String,
    /// Start, RFC 3339 in UTC.
    pub started_at: String,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// Cases that passed.
    pub pass: u64,
    /// Cases that failed.
    pub fail: u64,
    /// Cases that say nothing of the target: not in the rate.
    pub inconclusive: u64,
    /// `pass / (pass + fail)`; none where neither is.
    pub pass_rate: Option<f64>,
}

/// Cases that passed, failed and said nothing, by target and mode.
type Counts = BTreeMap<(String, Mode), [u64; 3]>;

impl Store {
    /// The pass rate of each run, target and mode, oldest run first, over the cases that a filter lets through.
    pub async fn pass_rate(&self, filter: &HistoryFilter) -> Result<Vec<PassRateRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let runs = match &filter.matrix {
            Some(matrix) => sql("SELECT run_key, run_id, started_at FROM runs WHERE matrix = $1 AND started_at >= $2 \
                                 ORDER BY started_at, run_id")
            .bind(matrix)
            .bind(filter.from),
            None => sql("SELECT run_key, run_id, started_at FROM runs WHERE started_at >= $1 ORDER BY started_at, run_id")
                .bind(filter.from),
        };
        let runs = transaction.all(runs).await?;
        // Few cases are found by what they are; many are found run by run.
        let is_narrow = filter.cases.names_few();
        let mut of_all = if is_narrow { counts(&mut transaction, filter, None).await? } else { BTreeMap::new() };
        let mut rows = Vec::new();
        for run in &runs {
            let run_key = run.int("run_key")?;
            let of_run = match is_narrow {
                true => of_all.remove(&run_key),
                false => counts(&mut transaction, filter, Some(run_key)).await?.remove(&run_key),
            };
            for ((target, mode), [pass, fail, inconclusive]) in of_run.unwrap_or_default() {
                rows.push(PassRateRow {
                    run_id: run.text("run_id")?,
                    started_at: rfc3339(run.int("started_at")?),
                    target,
                    mode,
                    pass,
                    fail,
                    inconclusive,
                    pass_rate: (pass + fail > 0).then(|| pass as f64 / (pass + fail) as f64),
                });
            }
        }
        Ok(rows)
    }
}

/// Counts by run, of one run or of all.
async fn counts(
    transaction: &mut Transaction,
    filter: &HistoryFilter,
    run: Option<i64>,
) -> Result<BTreeMap<i64, Counts>, StoreError> {
    let query = built(
        "SELECT a.run_key, c.target, c.mode, a.outcome, COUNT(*) AS cases FROM attempts a \
         JOIN cases c ON c.case_key = a.case_key WHERE a.is_final = 1 AND ",
    );
    let query = match run {
        Some(run) => query.text("a.run_key = ").bind(run),
        None => query.text("a.started_at >= ").bind(filter.from),
    };
    let query = narrow(&filter.cases, query);
    let query = query.text(" GROUP BY a.run_key, c.target, c.mode, a.outcome");
    let mut found: BTreeMap<i64, Counts> = BTreeMap::new();
    for row in transaction.all(query).await? {
        let outcome: Outcome = row.word("outcome")?;
        let place = match outcome.standing() {
            Standing::Pass => 0,
            Standing::Fail => 1,
            Standing::Inconclusive => 2,
        };
        let of_run = found.entry(row.int("run_key")?).or_default();
        of_run.entry((row.text("target")?, row.word("mode")?)).or_default()[place] += row.unsigned("cases")?;
    }
    Ok(found)
}
