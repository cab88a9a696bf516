//! What each case came to in a row of nights: the strips that pages draw.

use std::collections::{BTreeMap, HashMap};

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::Outcome;
use serde::{Deserialize, Serialize};

use super::case_filter::narrow;
use super::complete_runs::{named_run, runs_up_to};
use crate::store::statement::built;
use crate::store::{Store, StoreError, rfc3339};
use modelfarm_matrix::case_filter::CaseFilter;

/// A night of a strip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripNight {
    /// The run.
    pub run_id: String,
    /// Its start, RFC 3339 in UTC.
    pub started_at: String,
}

/// What one case came to, night by night.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseStrip {
    /// The case.
    pub case_id: CaseId,
    /// `config.model_type`, in the newest of the nights.
    pub architecture: String,
    /// The repository.
    pub model: ModelId,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// What was run.
    pub workload: Workload,
    /// The compute dtype.
    pub dtype: Dtype,
    /// What counted in each night; none where the case was not asked, or has no final attempt.
    pub outcomes: Vec<Option<Outcome>>,
}

/// The nights up to a run, and what the cases came to in each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strips {
    /// The nights, oldest first; the last is the run itself.
    pub nights: Vec<StripNight>,
    /// The cases, by architecture, model, target and mode.
    pub cases: Vec<CaseStrip>,
}

impl Store {
    /// What the cases that a filter lets through came to in a run and the complete runs of its matrix and selection before
    /// it, `nights` in all.
    ///
    /// # Errors
    /// The run is not there.
    pub async fn strips(&self, run: &str, nights: u32, filter: &CaseFilter) -> Result<Strips, StoreError> {
        let mut transaction = self.database.read().await?;
        let after = named_run(&mut transaction, run).await?;
        let runs = runs_up_to(&mut transaction, &after, nights).await?;
        let places: HashMap<i64, usize> = runs.iter().enumerate().map(|(place, run)| (run.run_key, place)).collect();
        let mut strips: BTreeMap<i64, CaseStrip> = BTreeMap::new();
        let mut newest: HashMap<i64, usize> = HashMap::new();
        for run in &runs {
            let query = built(
                "SELECT a.case_key, a.outcome, a.architecture, c.case_id, c.model, c.target, c.mode, c.workload, c.dtype \
                               FROM attempts a JOIN cases c ON c.case_key = a.case_key WHERE a.is_final = 1 AND a.run_key = ",
            );
            for row in transaction.all(narrow(filter, query.bind(run.run_key))).await? {
                let key = row.int("case_key")?;
                let place = places[&run.run_key];
                if let std::collections::btree_map::Entry::Vacant(new) = strips.entry(key) {
                    new.insert(CaseStrip {
                        case_id: row.word("case_id")?,
                        architecture: String::new(),
                        model: row.word("model")?,
                        target: row.text("target")?,
                        mode: row.word("mode")?,
                        workload: row.word("workload")?,
                        dtype: row.word("dtype")?,
                        outcomes: vec![None; runs.len()],
                    });
                }
                if let Some(strip) = strips.get_mut(&key) {
                    strip.outcomes[place] = Some(row.word("outcome")?);
                    if newest.get(&key).is_none_or(|known| *known <= place) {
                        newest.insert(key, place);
                        strip.architecture = row.text("architecture")?;
                    }
                }
            }
        }
        let mut cases: Vec<CaseStrip> = strips.into_values().collect();
        cases.sort_by(|a, b| {
            let key = |strip: &CaseStrip| (strip.architecture.clone(), strip.model.clone(), strip.workload, strip.dtype);
            key(a)
                .cmp(&key(b))
                .then_with(|| (&a.target, a.mode, a.case_id.as_str()).cmp(&(&b.target, b.mode, b.case_id.as_str())))
        });
        let nights = runs.iter().map(|run| StripNight { run_id: run.run_id.clone(), started_at: rfc3339(run.started_at) });
        Ok(Strips { nights: nights.collect(), cases })
    }
}
