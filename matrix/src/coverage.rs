//! Which expectation counts for which case.

use crate::expectation::Expectations;
use crate::known_case::KnownCase;

/// Which expectation counts for which case, by their places in the file and in the list of cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// For each entry the cases that it matches.
    matched: Vec<Vec<usize>>,
    /// For each case the first entry that matches it.
    taken_by: Vec<Option<usize>>,
}

impl Coverage {
    /// Of every entry and every case.
    pub fn of(expectations: &Expectations, cases: &[KnownCase]) -> Self {
        let mut taken_by = vec![None; cases.len()];
        let matched = expectations.entries().iter().enumerate().map(|(entry, declared)| {
            let select = &declared.expectation.select;
            let matched: Vec<usize> = (0..cases.len()).filter(|case| cases[*case].may_match(select)).collect();
            for case in &matched {
                taken_by[*case].get_or_insert(entry);
            }
            matched
        });
        Self { matched: matched.collect(), taken_by }
    }

    /// The cases that an entry matches, whether it counts for them or not.
    pub fn matched(&self, entry: usize) -> &[usize] {
        self.matched.get(entry).map_or(&[], Vec::as_slice)
    }

    /// The cases that an entry counts for.
    pub fn taken(&self, entry: usize) -> impl Iterator<Item = usize> {
        self.matched(entry).iter().copied().filter(move |case| self.taken_by[*case] == Some(entry))
    }

    /// The entry that counts for a case.
    pub fn taker(&self, case: usize) -> Option<usize> {
        self.taken_by.get(case).copied().flatten()
    }
}
