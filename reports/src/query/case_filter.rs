//! Which cases a question is about: one list of words for every question, and the one place that turns it into SQL.

use modelfarm_matrix::axes::{Harness, Mode, Workload};
use modelfarm_matrix::case::CaseId;

use crate::store::statement::{Statement, built};

/// Which cases. An empty list leaves nothing out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseFilter {
    /// Case ids.
    pub ids: Vec<CaseId>,
    /// Targets.
    pub targets: Vec<String>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Architectures, as the attempts were made with them.
    pub architectures: Vec<String>,
    /// Model ids.
    pub models: Vec<String>,
    /// Harnesses.
    pub harnesses: Vec<Harness>,
    /// Workloads.
    pub workloads: Vec<Workload>,
}

impl CaseFilter {
    /// Adds the conditions to a statement whose text so far ends within its `WHERE`, and names attempts `a` and cases `c`.
    pub(crate) fn narrow(&self, statement: Statement) -> Statement {
        self.narrow_cases(statement).and_in("a.architecture", &self.architectures)
    }

    /// The conditions that a case tells by itself; its architecture is told by its attempts.
    fn narrow_cases(&self, statement: Statement) -> Statement {
        let Self { ids, targets, modes, architectures: _, models, harnesses, workloads } = self;
        statement
            .and_in("c.case_id", ids.iter().map(CaseId::as_str))
            .and_in("c.target", targets)
            .and_in("c.mode", modes.iter().map(|word| word.as_str()))
            .and_in("c.model", models)
            .and_in("c.harness", harnesses.iter().map(|word| word.as_str()))
            .and_in("c.workload", workloads.iter().map(|word| word.as_str()))
    }

    /// The cases that it lets through, with `columns` of `cases c`: few rows, after which attempts are found by their index.
    pub(crate) fn select_cases(&self, columns: &'static str) -> Statement {
        let query = self.narrow_cases(built("SELECT ").text(columns).text(" FROM cases c WHERE 1 = 1"));
        if self.architectures.is_empty() {
            return query;
        }
        let attempted = query.text(" AND c.case_key IN (SELECT a.case_key FROM attempts a WHERE 1 = 1");
        attempted.and_in("a.architecture", &self.architectures).text(")")
    }

    /// Whether it names cases or models: a small part of the cases.
    pub(crate) fn names_few(&self) -> bool {
        !(self.ids.is_empty() && self.models.is_empty())
    }
}
