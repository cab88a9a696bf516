//! Trying cases again in an environment that is chosen: what `confirm` and `bisect` do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use modelfarm_matrix::case::{Case, CaseId};
use modelfarm_matrix::outcome::Outcome;
use modelfarm_matrix::retrial::RetrialPurpose;
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::store::{NewRun, Store};

use super::Farm;
use super::prepare::{self, MatrixText, Prepared, prepare};
use super::run::execute;
use crate::cli::{ExecutionOptions, Selection};
use crate::environment::{self, Environment, EnvironmentSettings};
use crate::exit::Failure;
use crate::farm::RunEnd;
use crate::progress::{self, Activity};

/// How cases are tried again.
pub struct Retrying<'a> {
    /// The farm.
    pub farm: &'a Farm,
    /// The store that keeps the tries.
    pub store: &'a Arc<Store>,
    /// The matrix that the cases are of.
    pub matrix: &'a MatrixText,
    /// How often each case is tried.
    pub tries: u32,
    /// Models at a time.
    pub jobs: Option<usize>,
    /// More targets, where the runs had a file of them.
    pub targets_file: Option<&'a Path>,
    /// What for.
    pub what: RetrialPurpose,
}

/// Cases that are ready to be tried in one environment after the other.
pub struct Cases {
    prepared: Prepared,
    execution: ExecutionOptions,
}

impl Cases {
    /// Ends what was set up for them.
    pub async fn close(self) {
        if let Some(hub) = self.prepared.fixture_hub {
            hub.shutdown().await;
        }
    }
}

impl Retrying<'_> {
    /// Reads the matrix, asks the Hub, and plans these cases.
    pub async fn cases(&self, ids: &[CaseId]) -> Result<Cases, Failure> {
        let execution = ExecutionOptions {
            repeat: self.tries,
            jobs: self.jobs,
            targets_file: self.targets_file.map(Path::to_owned),
            ..ExecutionOptions::default()
        };
        let mut prepared =
            prepare(self.farm, self.matrix.clone(), &Selection::default(), &execution, Some(ids.to_vec())).await?;
        self.what.as_str().clone_into(&mut prepared.selection);
        let planned: BTreeSet<CaseId> = prepared.plan.all_cases.iter().map(Case::id).collect();
        let missing: Vec<&str> = ids.iter().filter(|id| !planned.contains(id)).map(CaseId::as_str).collect();
        let cases = Cases { prepared, execution };
        if missing.is_empty() {
            return Ok(cases);
        }
        cases.close().await;
        Err(Failure::usage(format!(
            "the matrix {} does not have the case{} {}; name with --matrix the file that the runs were of, as \
             `modelfarm plan --matrix FILE` lists its cases",
            self.matrix.file,
            if missing.len() == 1 { "" } else { "s" },
            missing.join(", ")
        )))
    }

    /// Runs cases in one environment, as a run of its own; the outcomes of its tries by case.
    pub async fn in_environment(
        &self,
        cases: &mut Cases,
        environment: Environment,
    ) -> Result<BTreeMap<CaseId, Vec<Outcome>>, Failure> {
        let Cases { prepared, execution } = cases;
        prepared.environments.insert(environment.name.clone(), environment);
        let run_id = NewRun::new_id();
        let expectations = prepare::expectations(None, self.matrix, &prepared.targets)?;
        let selection = Selection::default();
        let end = execute(self.farm, self.store, prepared, expectations, &run_id, &selection, execution).await?;
        if end == RunEnd::Interrupted {
            return Err(Failure::interrupted());
        }
        let filter = ResultFilter { run: Some(run_id), final_only: false, ..ResultFilter::default() };
        let mut outcomes: BTreeMap<CaseId, Vec<Outcome>> = BTreeMap::new();
        for row in self.store.results(&filter).await? {
            outcomes.entry(row.case_id.clone()).or_default().push(row.outcome);
        }
        Ok(outcomes)
    }

    /// What the store keeps of an environment that results were made in.
    pub async fn kept(&self, id: &str) -> Result<modelfarm_reports::store::Environment, Failure> {
        let all = self.store.environments(None).await?;
        all.into_iter()
            .find(|kept| kept.environment_id == id)
            .ok_or_else(|| Failure::usage(format!("no environment `{id}` is kept; `modelfarm query environments` lists them")))
    }

    /// The environment that results were made in, made again where it is no longer there.
    pub async fn made_again(&self, id: &str) -> Result<Environment, Failure> {
        let kept = self.kept(id).await?;
        let made = self.made_of(&kept.name, &kept.requirements).await?;
        if made.id != id {
            progress::line(&format!(
                "environment {id} was made with another Python or platform; the same packages are now in {}",
                made.id
            ));
        }
        Ok(made)
    }

    /// An environment of these requirements.
    pub async fn made_of(&self, name: &str, requirements: &str) -> Result<Environment, Failure> {
        let settings = EnvironmentSettings::load(self.farm.state.root()).map_err(Failure::to)?;
        let mut activity: Option<Activity> = None;
        let made = environment::recreate(self.farm.state.root(), name, requirements, &settings, |event| {
            if let Some(text) = prepare::describe(name, &event) {
                match &mut activity {
                    Some(activity) => activity.say(&text),
                    None => activity = Some(Activity::begin(&text)),
                }
            }
        });
        made.await.map_err(Failure::to)
    }
}
