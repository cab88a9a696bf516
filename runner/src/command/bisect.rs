//! `modelfarm bisect`: which package, and which version of it, broke a case.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use modelfarm_matrix::bisection::{Bisection, Probe};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::change::{Night, Reading};
use modelfarm_matrix::outcome::Outcome;
use modelfarm_matrix::retrial::RetrialPurpose;
use modelfarm_reports::query::{CaseFilter, ResultFilter};
use modelfarm_reports::rows::ResultRow;
use modelfarm_reports::store::Store;
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::Farm;
use super::prepare::MatrixText;
use super::printing::print_rows;
use super::retrying::Retrying;
use crate::cli::Output;
use crate::environment::{self, EnvironmentSettings, Requirements};
use crate::exit::{ExitCode, Failure};
use crate::progress;

/// What is searched, and between which runs.
pub struct Wanted<'a> {
    /// The case.
    pub case: CaseId,
    /// A run in which it passed.
    pub good: &'a str,
    /// A run in which it failed.
    pub bad: &'a str,
    /// The matrix that the case is of.
    pub matrix: &'a Path,
    /// How often the case is tried in each environment.
    pub tries: u32,
}

/// One environment that was tried.
#[derive(Debug, Clone, Serialize)]
struct ProbeRow {
    step: String,
    environment_id: Option<String>,
    outcomes: Vec<Outcome>,
    reading: &'static str,
}

impl TableRow for ProbeRow {
    const COLUMNS: &'static [&'static str] = &["step", "environment_id", "outcomes", "reading"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

/// Searches, and says what the first bad set of packages is. Exit code 1 where it was found, as after any regression.
pub async fn bisect(farm: &Farm, wanted: &Wanted<'_>, output: &Output) -> Result<ExitCode, Failure> {
    farm.create_state()?;
    let store = Arc::new(Store::create_or_migrate(&farm.database).await?);
    let text = MatrixText::read(wanted.matrix)?;
    let retrying =
        Retrying { farm, store: &store, matrix: &text, tries: wanted.tries, jobs: Some(1), what: RetrialPurpose::Bisect };
    let (good, bad) = (environment_of(&store, wanted, wanted.good).await?, environment_of(&store, wanted, wanted.bad).await?);
    let (good, bad) = (retrying.kept(&good).await?, retrying.kept(&bad).await?);
    let settings = EnvironmentSettings::load(farm.state.root()).map_err(Failure::to)?;
    let parse = |text: &str| Requirements::parse(text, "the kept requirements", &settings).map_err(Failure::to);
    let (good_lines, bad_lines) = (parse(&good.requirements)?.by_package(), parse(&bad.requirements)?.by_package());
    let packages = changed(&good_lines, &bad_lines);
    let Some(mut search) = Bisection::new(packages.len()) else {
        return Err(Failure::usage("both runs used the same packages: nothing in them can have broken the case"));
    };
    progress::line(&format!("{} packages differ: {}", packages.len(), packages.join(", ")));
    let mut trial = Trial { retrying: &retrying, case: &wanted.case, name: &bad.name, rows: Vec::new() };

    // Ends that do not show the change cannot be searched between.
    for (step, expected) in [(0, Probe::Good), (packages.len(), Probe::Bad)] {
        let found = trial.probe(&step_name(step, &packages), &mixed(&good_lines, &bad_lines, &packages[..step])).await?;
        if found != expected {
            print_rows(&trial.rows, output)?;
            let side = if step == 0 { "pass in the packages of the good run" } else { "fail in the packages of the bad run" };
            return Err(Failure::usage(format!("the case does not {side}: packages alone did not break it, or it flakes")));
        }
    }
    while let Some(step) = search.next() {
        let lines = mixed(&good_lines, &bad_lines, &packages[..step]);
        let found = trial.probe(&step_name(step, &packages), &lines).await?;
        search.tell(step, found);
    }
    let (last_good, first_bad) = search.between();
    let found = match &packages[last_good..first_bad] {
        [package] => {
            let before = mixed(&good_lines, &bad_lines, &packages[..last_good]);
            versions(&mut trial, &settings, package, &before, &bad_lines).await?
        }
        several => format!("one of {} broke it; not every set of their versions goes together", several.join(", ")),
    };
    print_rows(&trial.rows, output)?;
    progress::line(&found);
    Store::clone(&store).close().await;
    Ok(ExitCode::Unexpected)
}

/// Walks the versions of the package that broke the case, with the packages before it as they were when it broke.
async fn versions(
    trial: &mut Trial<'_>,
    settings: &EnvironmentSettings,
    package: &str,
    before: &BTreeMap<String, String>,
    bad_lines: &BTreeMap<String, String>,
) -> Result<String, Failure> {
    let (from, to) =
        (before.get(package).and_then(|line| version(line)), bad_lines.get(package).and_then(|line| version(line)));
    let (Some(from), Some(to)) = (from, to) else {
        let what = if before.contains_key(package) { "removing" } else { "adding" };
        return Ok(format!("first bad: {what} {package}"));
    };
    let state = trial.retrying.farm.state.root();
    let between = environment::versions_between(state, package, from, to, settings).await.map_err(Failure::to)?;
    let mut all = vec![from.to_owned()];
    all.extend(between);
    all.push(to.to_owned());
    let Some(mut search) = Bisection::new(all.len() - 1) else { return Ok(format!("first bad: {package} {to}")) };
    while let Some(step) = search.next() {
        let mut lines = before.clone();
        lines.insert(package.to_owned(), format!("{package}=={}", all[step]));
        let found = trial.probe(&format!("{package} {}", all[step]), &lines).await?;
        search.tell(step, found);
    }
    let (last_good, first_bad) = search.between();
    let untestable = match first_bad - last_good {
        1 => String::new(),
        _ => format!("; {} could not be tested", all[last_good + 1..first_bad].join(", ")),
    };
    Ok(format!("first bad: {package} {}; the last good is {}{untestable}", all[first_bad], all[last_good]))
}

/// The environment in which a run's attempt of the case counted.
async fn environment_of(store: &Store, wanted: &Wanted<'_>, run: &str) -> Result<String, Failure> {
    let filter = ResultFilter {
        run: Some(run.to_owned()),
        cases: CaseFilter { ids: vec![wanted.case.clone()], ..CaseFilter::default() },
        final_only: true,
        ..ResultFilter::default()
    };
    let rows = store.results(&filter).await?;
    let id = |row: &ResultRow| row.environment_id.clone();
    rows.first()
        .and_then(id)
        .ok_or_else(|| Failure::usage(format!("run {run} has no result of case {} with a known environment", wanted.case)))
}

/// The packages whose requirement differs, by name.
fn changed(good: &BTreeMap<String, String>, bad: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = good.keys().chain(bad.keys()).collect();
    names.into_iter().filter(|name| good.get(*name) != bad.get(*name)).cloned().collect()
}

/// The good requirements, with those of some packages as they are in the bad ones.
fn mixed(good: &BTreeMap<String, String>, bad: &BTreeMap<String, String>, from_bad: &[String]) -> BTreeMap<String, String> {
    let mut lines = good.clone();
    for package in from_bad {
        match bad.get(package) {
            Some(line) => lines.insert(package.clone(), line.clone()),
            None => lines.remove(package),
        };
    }
    lines
}

/// `name==version ...`: the version.
fn version(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("==")?;
    rest.split([' ', ';', ',']).next().filter(|version| !version.is_empty())
}

fn step_name(step: usize, packages: &[String]) -> String {
    match step {
        0 => "as in the good run".to_owned(),
        step if step == packages.len() => "as in the bad run".to_owned(),
        step => format!("with the bad run's {}", packages[..step].join(", ")),
    }
}

/// Tries the case in one environment after the other.
struct Trial<'a> {
    retrying: &'a Retrying<'a>,
    case: &'a CaseId,
    name: &'a str,
    rows: Vec<ProbeRow>,
}

impl Trial<'_> {
    async fn probe(&mut self, step: &str, lines: &BTreeMap<String, String>) -> Result<Probe, Failure> {
        let text: String = lines.values().map(|line| format!("{line}\n")).collect();
        let (environment_id, outcomes) = match self.retrying.made_of(self.name, &text).await {
            Ok(environment) => {
                let id = environment.id.clone();
                let mut outcomes = self.retrying.in_environment(environment, std::slice::from_ref(self.case)).await?;
                (Some(id), outcomes.remove(self.case).unwrap_or_default())
            }
            // Versions that do not go together are no answer.
            Err(failure) => {
                progress::line(&format!("{step}: {failure}"));
                (None, Vec::new())
            }
        };
        let reading = Night { outcomes: outcomes.clone(), ground: 0 }.reading();
        let (probe, told) = match reading {
            Reading::Passed => (Probe::Good, "good"),
            Reading::Failed => (Probe::Bad, "bad"),
            Reading::Mixed | Reading::Silent => (Probe::Untestable, "cannot be told"),
        };
        self.rows.push(ProbeRow { step: step.to_owned(), environment_id, outcomes, reading: told });
        Ok(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> BTreeMap<String, String> {
        text.split_whitespace().map(|one| (one.split("==").next().unwrap_or(one).to_owned(), one.to_owned())).collect()
    }

    #[test]
    fn a_mixture_takes_some_packages_from_the_bad_run() {
        let (good, bad) = (lines("a==1 b==1 c==1"), lines("a==2 c==1 d==1"));
        let packages = changed(&good, &bad);
        assert_eq!(packages, ["a", "b", "d"]);
        assert_eq!(mixed(&good, &bad, &packages[..0]), good);
        assert_eq!(mixed(&good, &bad, &packages[..2]), lines("a==2 c==1"));
        assert_eq!(mixed(&good, &bad, &packages), bad);
    }

    #[test]
    fn a_version_is_what_follows_the_name() {
        assert_eq!(version("torch==2.15.0+cpu --hash=sha256:00"), Some("2.15.0+cpu"));
        assert_eq!(version("six==1.17.0 ; python_version < '3.12'"), Some("1.17.0"));
        assert_eq!(version("six>=1"), None);
    }
}
