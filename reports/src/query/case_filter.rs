//! Which cases a question is about, as SQL: the one place that knows the columns.

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::case_filter::CaseFilter;

use crate::store::statement::{Statement, built};

/// Adds the conditions of a filter to a statement whose text so far ends within its `WHERE`, and names attempts `a` and cases `c`.
pub(crate) fn narrow(filter: &CaseFilter, statement: Statement) -> Statement {
    narrow_cases(filter, statement).and_in("a.architecture", &filter.architectures)
}

/// The cases that a filter lets through, with `columns` of `cases c`: few rows, after which attempts are found by their index.
pub(crate) fn select_cases(filter: &CaseFilter, columns: &'static str) -> Statement {
    let query = narrow_cases(filter, built("SELECT ").text(columns).text(" FROM cases c WHERE 1 = 1"));
    if filter.architectures.is_empty() {
        return query;
    }
    let attempted = query.text(" AND c.case_key IN (SELECT a.case_key FROM attempts a WHERE 1 = 1");
    attempted.and_in("a.architecture", &filter.architectures).text(")")
}

/// The conditions that a case tells by itself; its architecture is told by its attempts.
fn narrow_cases(filter: &CaseFilter, statement: Statement) -> Statement {
    let CaseFilter { ids, targets, modes, architectures: _, models, harnesses, workloads } = filter;
    statement
        .and_in("c.case_id", ids.iter().map(CaseId::as_str))
        .and_in("c.target", targets)
        .and_in("c.mode", modes.iter().map(|word| word.as_str()))
        .and_in("c.model", models)
        .and_in("c.harness", harnesses.iter().map(|word| word.as_str()))
        .and_in("c.workload", workloads.iter().map(|word| word.as_str()))
}
