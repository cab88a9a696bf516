//! What every night saw of some cases, without their tries: the base of the questions about time.

use std::collections::HashMap;

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::Outcome;

use super::case_filter::CaseFilter;
use crate::store::statement::{Statement, built, sql};
use crate::store::{Row, StoreError, Transaction};

/// Which cases, and from when.
#[derive(Debug, Clone, Default)]
pub struct HistoryFilter {
    /// Runs of this matrix; none means every one.
    pub matrix: Option<String>,
    /// Runs that started at or after this, UTC milliseconds.
    pub from: i64,
    /// Of these cases.
    pub cases: CaseFilter,
}

/// A case with its history.
pub(crate) struct CaseHistory {
    pub(crate) case_id: CaseId,
    pub(crate) architecture: String,
    pub(crate) model: ModelId,
    pub(crate) target: String,
    pub(crate) mode: Mode,
    pub(crate) workload: Workload,
    pub(crate) dtype: Dtype,
    /// What counted in each complete or other run, oldest first.
    pub(crate) nights: Vec<CountedNight>,
}

/// What counted in one run.
pub(crate) struct CountedNight {
    pub(crate) run_key: i64,
    pub(crate) started_at: i64,
    pub(crate) outcome: Outcome,
    pub(crate) environment_id: Option<String>,
}

/// The histories that a filter lets through. The cases are found first, so that the attempts are read by their index.
pub(crate) async fn case_histories(
    transaction: &mut Transaction,
    filter: &HistoryFilter,
) -> Result<Vec<CaseHistory>, StoreError> {
    let matrix_runs = match &filter.matrix {
        None => None,
        Some(matrix) => {
            let query = sql("SELECT run_key FROM runs WHERE matrix = $1 AND started_at >= $2");
            let rows = transaction.all(query.bind(matrix).bind(filter.from)).await?;
            Some(rows.iter().map(|row| row.int("run_key")).collect::<Result<std::collections::HashSet<_>, _>>()?)
        }
    };
    let mut cases: HashMap<i64, CaseHistory> = HashMap::new();
    for row in transaction.all(of_cases(filter)).await? {
        let key = row.int("case_key")?;
        let (run_key, night) = (row.int("run_key")?, counted(&row)?);
        if matrix_runs.as_ref().is_some_and(|runs| !runs.contains(&run_key)) {
            continue;
        }
        let case = match cases.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(CaseHistory {
                case_id: row.word("case_id")?,
                architecture: row.text("architecture")?,
                model: row.word("model")?,
                target: row.text("target")?,
                mode: row.word("mode")?,
                workload: row.word("workload")?,
                dtype: row.word("dtype")?,
                nights: Vec::new(),
            }),
        };
        case.nights.push(night);
    }
    let mut cases: Vec<CaseHistory> = cases.into_values().collect();
    for case in &mut cases {
        case.nights.sort_by_key(|night| (night.started_at, night.run_key));
    }
    cases.sort_by(|a, b| {
        (&a.architecture, a.model.as_str(), &a.target, a.mode, a.case_id.as_str()).cmp(&(
            &b.architecture,
            b.model.as_str(),
            &b.target,
            b.mode,
            b.case_id.as_str(),
        ))
    });
    Ok(cases)
}

/// By architecture where one is asked for, which attempts have an index of; else by case.
fn of_cases(filter: &HistoryFilter) -> Statement {
    let columns = "SELECT a.case_key, a.run_key, a.started_at, a.outcome, a.environment_id, a.architecture, c.case_id, c.model, \
                   c.target, c.mode, c.workload, c.dtype FROM cases c JOIN attempts a ON a.case_key = c.case_key \
                   WHERE a.is_final = 1 AND a.started_at >= ";
    filter.cases.narrow(built(columns).bind(filter.from))
}

fn counted(row: &Row) -> Result<CountedNight, StoreError> {
    Ok(CountedNight {
        run_key: row.int("run_key")?,
        started_at: row.int("started_at")?,
        outcome: row.word("outcome")?,
        environment_id: row.optional_text("environment_id")?,
    })
}
