//! How each architecture stands in a run.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::axes::{Harness, Mode};
use modelfarm_matrix::exclusion::Exclusion;
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

/// An architecture, as `query architectures` and `fixtures list` print it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchitectureRow {
    /// `config.model_type`, or the class where the library has no such word.
    pub architecture: String,
    /// The classes that are run.
    pub class: Vec<String>,
    /// The libraries that run them.
    pub harness: Vec<Harness>,
    /// How many models.
    pub models: u64,
    /// Whether fixtures of it are fit to be judged; none where there are none, or where nothing of the kind is asked of them.
    pub healthy: Option<bool>,
    /// Why it is left out of the fixtures.
    pub excluded_reason: Option<String>,
    /// What would bring it in.
    pub excluded_needs: Option<String>,
    /// Cases that passed; this and the next two are none where no run is asked.
    pub pass: Option<u64>,
    /// Cases that failed.
    pub fail: Option<u64>,
    /// Cases that said nothing about the target.
    pub inconclusive: Option<u64>,
    /// The same by target and mode.
    pub results: BTreeMap<String, BTreeMap<Mode, Counts>>,
}

impl ArchitectureRow {
    /// An architecture of which nothing is known but its name and library, and that no run is asked about.
    pub fn new(architecture: &str, harness: Harness) -> Self {
        Self {
            architecture: architecture.to_owned(),
            class: Vec::new(),
            harness: vec![harness],
            models: 0,
            healthy: None,
            excluded_reason: None,
            excluded_needs: None,
            pass: None,
            fail: None,
            inconclusive: None,
            results: BTreeMap::new(),
        }
    }

    /// Says that it is left out of the fixtures: none that is built of it would be fit to be judged.
    pub fn exclude(&mut self, exclusion: &Exclusion) {
        self.healthy = Some(false);
        self.excluded_reason = Some(exclusion.reason.clone());
        self.excluded_needs = Some(exclusion.needs.clone());
    }
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
        excluded_needs: None,
        pass: Some(all.pass),
        fail: Some(all.fail),
        inconclusive: Some(all.inconclusive),
        results,
    }
}
