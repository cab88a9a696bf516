//! How each architecture stands in a run.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::axes::{Harness, Mode};
use modelfarm_matrix::exclusion::Exclusion;
use modelfarm_matrix::outcome::{Outcome, Standing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ResultFilter;
use crate::store::statement::built;
use crate::store::{Row, Store, StoreError};

/// Cases that passed, failed, and said nothing about the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Passed.
    pub pass: u64,
    /// Failed.
    pub fail: u64,
    /// Inconclusive.
    pub inconclusive: u64,
}

impl Counts {
    /// Counts more cases of one outcome.
    pub fn add(&mut self, outcome: Outcome, cases: u64) {
        match outcome.standing() {
            Standing::Pass => self.pass += cases,
            Standing::Fail => self.fail += cases,
            Standing::Inconclusive => self.inconclusive += cases,
        }
    }
}

/// An architecture, as `query architectures` and `fixtures list` print it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
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
        let mut transaction = self.database.read().await?;
        let query = built(
            "SELECT a.architecture, c.class, c.harness, c.model, c.target, c.mode, a.outcome, COUNT(*) AS cases \
             FROM attempts a JOIN cases c ON c.case_key = a.case_key WHERE a.is_final = 1",
        );
        let query = filter.narrow(&mut transaction, query).await?;
        let query = query.text(" GROUP BY a.architecture, c.class, c.harness, c.model, c.target, c.mode, a.outcome");
        let mut found: BTreeMap<String, Found> = BTreeMap::new();
        for row in transaction.all(query).await? {
            found.entry(row.text("architecture")?).or_default().add(&row)?;
        }
        Ok(found.into_iter().map(|(name, found)| found.row(name)).collect())
    }
}

/// What is known of an architecture.
#[derive(Default)]
struct Found {
    classes: BTreeSet<String>,
    harnesses: BTreeSet<Harness>,
    models: BTreeSet<String>,
    all: Counts,
    results: BTreeMap<String, BTreeMap<Mode, Counts>>,
}

impl Found {
    fn add(&mut self, row: &Row) -> Result<(), StoreError> {
        let (outcome, cases) = (row.word("outcome")?, row.unsigned("cases")?);
        self.classes.insert(row.text("class")?);
        self.harnesses.insert(row.word("harness")?);
        self.models.insert(row.text("model")?);
        self.all.add(outcome, cases);
        self.results.entry(row.text("target")?).or_default().entry(row.word("mode")?).or_default().add(outcome, cases);
        Ok(())
    }

    fn row(self, architecture: String) -> ArchitectureRow {
        ArchitectureRow {
            architecture,
            class: self.classes.into_iter().collect(),
            harness: Harness::ALL.iter().copied().filter(|harness| self.harnesses.contains(harness)).collect(),
            models: self.models.len() as u64,
            healthy: None,
            excluded_reason: None,
            excluded_needs: None,
            pass: Some(self.all.pass),
            fail: Some(self.all.fail),
            inconclusive: Some(self.all.inconclusive),
            results: self.results,
        }
    }
}
