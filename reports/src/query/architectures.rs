//! How each architecture stands in a run.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::axes::{Harness, Mode};
use modelfarm_matrix::outcome::{Outcome, Standing};
use serde::{Deserialize, Serialize};

use super::ResultFilter;
use crate::rows::ResultRow;
use crate::store::{Store, StoreError};

/// Cases that passed, failed, and said nothing about the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Passed.
    pub pass: u64,
    /// Failed.
    pub fail: u64,
    /// Inconclusive.
    pub inconclusive: u64,
}

impl Counts {
    /// Counts one more case.
    pub fn add(&mut self, outcome: Outcome) {
        match outcome.standing() {
            Standing::Pass => self.pass += 1,
            Standing::Fail => self.fail += 1,
            Standing::Inconclusive => self.inconclusive += 1,
        }
    }
}

/// An architecture, as `query architectures` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchitectureRow {
    /// `config.model_type`, or the class where the library has no such word.
    pub architecture: String,
    /// The classes that were run.
    pub class: Vec<String>,
    /// The libraries that ran them.
    pub harness: Vec<Harness>,
    /// How many models.
    pub models: u64,
    /// Whether fixtures of it are fit to be judged; none where there are none.
    pub healthy: Option<bool>,
    /// Why it is left out of the fixtures.
    pub excluded_reason: Option<String>,
    /// Cases that passed.
    pub pass: u64,
    /// Cases that failed.
    pub fail: u64,
    /// Cases that said nothing about the target.
    pub inconclusive: u64,
    /// The same by target and mode.
    pub results: BTreeMap<String, BTreeMap<Mode, Counts>>,
}

impl Store {
    /// The architectures of the attempts that count and that a filter lets through, by name.
    pub async fn architectures(&self, filter: &ResultFilter) -> Result<Vec<ArchitectureRow>, StoreError> {
        let filter = ResultFilter { final_only: true, limit: None, ..filter.clone() };
        Ok(by_architecture(&self.results(&filter).await?))
    }
}

fn by_architecture(rows: &[ResultRow]) -> Vec<ArchitectureRow> {
    let mut architectures: BTreeMap<&str, Vec<&ResultRow>> = BTreeMap::new();
    for row in rows {
        architectures.entry(&row.architecture).or_default().push(row);
    }
    architectures.into_iter().map(|(name, rows)| architecture(name, &rows)).collect()
}

fn architecture(name: &str, rows: &[&ResultRow]) -> ArchitectureRow {
    let mut all = Counts::default();
    let mut results: BTreeMap<String, BTreeMap<Mode, Counts>> = BTreeMap::new();
    for row in rows {
        all.add(row.outcome);
        results.entry(row.target.clone()).or_default().entry(row.mode).or_default().add(row.outcome);
    }
    let classes: BTreeSet<&String> = rows.iter().map(|row| &row.class).collect();
    let models: BTreeSet<&str> = rows.iter().map(|row| row.model.as_str()).collect();
    ArchitectureRow {
        architecture: name.to_owned(),
        class: classes.into_iter().cloned().collect(),
        harness: Harness::ALL.iter().copied().filter(|harness| rows.iter().any(|row| row.harness == *harness)).collect(),
        models: models.len() as u64,
        healthy: None,
        excluded_reason: None,
        pass: all.pass,
        fail: all.fail,
        inconclusive: all.inconclusive,
        results,
    }
}
