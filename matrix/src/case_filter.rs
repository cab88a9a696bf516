//! Which cases a person means: one list of words for plans, questions and every way to ask them.

use std::collections::BTreeSet;
use std::fmt;

use crate::axes::{Harness, Mode, Workload};
use crate::case::{Case, CaseId};
use crate::model::Model;

/// Which cases. An empty list leaves nothing out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseFilter {
    /// Case ids.
    pub ids: Vec<CaseId>,
    /// Targets.
    pub targets: Vec<String>,
    /// Modes.
    pub modes: Vec<Mode>,
    /// Architectures; of recorded attempts, as they were made with them.
    pub architectures: Vec<String>,
    /// Model ids.
    pub models: Vec<String>,
    /// Harnesses.
    pub harnesses: Vec<Harness>,
    /// Workloads.
    pub workloads: Vec<Workload>,
}

impl CaseFilter {
    /// Whether it names cases or models: a small part of the cases.
    pub fn names_few(&self) -> bool {
        !(self.ids.is_empty() && self.models.is_empty())
    }

    /// Why it leaves a case out.
    pub(crate) fn reason_against(&self, model: &Model, case: &Case) -> Option<&'static str> {
        fn misses<T: PartialEq>(wanted: &[T], found: &T) -> bool {
            !wanted.is_empty() && !wanted.contains(found)
        }
        let text = |wanted: &[String], found: &str| !wanted.is_empty() && !wanted.iter().any(|one| one == found);
        if text(&self.models, model.id.as_str()) {
            Some("not selected by --model")
        } else if text(&self.architectures, &model.architecture) {
            Some("not selected by --architecture")
        } else if misses(&self.harnesses, &model.harness) {
            Some("not selected by --harness")
        } else if text(&self.targets, &case.target) {
            Some("not selected by --target")
        } else if misses(&self.modes, &case.mode) {
            Some("not selected by --mode")
        } else if misses(&self.workloads, &case.workload) {
            Some("not selected by --workload")
        } else if !self.ids.is_empty() && !self.ids.contains(&case.id()) {
            Some("not selected by --case")
        } else {
            None
        }
    }
}

/// The same text for the same cases, in whatever order they were named; empty where nothing is left out.
impl fmt::Display for CaseFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn words<T: fmt::Display>(name: &str, words: &[T]) -> Option<String> {
            let words: BTreeSet<String> = words.iter().map(ToString::to_string).collect();
            (!words.is_empty()).then(|| format!("{name} {}", words.into_iter().collect::<Vec<_>>().join(", ")))
        }
        let Self { ids, targets, modes, architectures, models, harnesses, workloads } = self;
        let parts = [
            words("case", ids),
            words("target", targets),
            words("mode", modes),
            words("architecture", architectures),
            words("model", models),
            words("harness", harnesses),
            words("workload", workloads),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}
