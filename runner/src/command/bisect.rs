//! `modelfarm bisect`: which package, and which version of it, broke a case.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use modelfarm_matrix::bisection::{Bisection, Probe};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::outcome::{Outcome, Standing};
use modelfarm_matrix::retrial::RetrialPurpose;
use modelfarm_reports::query::{CaseFilter, ResultFilter};
use modelfarm_reports::rows::ResultRow;
use modelfarm_reports::store::{self, Store, StoreError};
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::Farm;
use super::prepare::MatrixText;
use super::printing::print_rows;
use super::retrying::{Cases, Retrying};
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
    /// More targets, where the runs had a file of them.
    pub targets_file: Option<&'a Path>,
}

/// What is known of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Good,
    Bad,
    Untestable,
    /// The last row: the answer.
    FirstBad,
}

impl From<Probe> for Word {
    fn from(probe: Probe) -> Self {
        match probe {
            Probe::Good => Self::Good,
            Probe::Bad => Self::Bad,
            Probe::Untestable => Self::Untestable,
        }
    }
}

/// One environment that was tried, or the answer.
#[derive(Debug, Clone, Serialize)]
struct ProbeRow {
    step: String,
    /// Where the versions of one package are walked, or the answer is one package.
    package: Option<String>,
    version: Option<String>,
    environment_id: Option<String>,
    outcomes: Vec<Outcome>,
    reading: Word,
}

impl TableRow for ProbeRow {
    const COLUMNS: &'static [&'static str] = &["step", "package", "version", "environment_id", "outcomes", "reading"];
    const SHOWN: &'static [&'static str] = &["step", "environment_id", "outcomes", "reading"];
}

/// A package and a version of it.
type Pinned<'a> = (&'a str, &'a str);

/// Searches, and says what the first bad set of packages is. Exit code 1 where it was found, as after any regression.
pub async fn bisect(farm: &Farm, wanted: &Wanted<'_>, output: &Output) -> Result<ExitCode, Failure> {
    let text = MatrixText::read(wanted.matrix)?;
    let _in_use = farm.create_state()?;
    let store = Arc::new(Store::create_or_migrate(&farm.database).await?);
    let retrying = Retrying {
        farm,
        store: &store,
        matrix: &text,
        tries: wanted.tries,
        jobs: Some(1),
        targets_file: wanted.targets_file,
        what: RetrialPurpose::Bisect,
    };
    let ends = Ends::of(&store, wanted).await?;
    let settings = EnvironmentSettings::load(farm.state.root()).map_err(Failure::to)?;
    let good = Side::new(retrying.kept(ends.good_environment()?).await?, &settings)?;
    let bad = Side::new(retrying.kept(ends.bad_environment()?).await?, &settings)?;
    let packages = changed(&good, &bad);
    let Some(mut search) = Bisection::new(packages.len()) else {
        return Err(Failure::usage(format!(
            "both runs used the same packages (environment {}): no package broke the case{}",
            bad.kept.environment_id,
            ends.other_differences()
        )));
    };
    let differences = ends.other_differences();
    if !differences.is_empty() {
        progress::line(&format!("packages alone are searched{differences}"));
    }
    let differ = if packages.len() == 1 { "package differs" } else { "packages differ" };
    progress::line(&format!("{} {differ}: {}", packages.len(), packages.join(", ")));
    let cases = retrying.cases(std::slice::from_ref(&wanted.case)).await?;
    let mut trial = Trial {
        retrying: &retrying,
        cases,
        case: &wanted.case,
        name: &bad.kept.name,
        bad_outcome: ends.bad.outcome,
        rows: Vec::new(),
    };

    // Ends that do not show the change cannot be searched between.
    for (step, expected) in [(0, Probe::Good), (packages.len(), Probe::Bad)] {
        let found = trial.probe(&step_name(step, &packages), None, &mixed(&good, &bad, &packages[..step])).await?;
        if found != expected {
            print_rows(&trial.rows, output)?;
            let outcomes = trial.rows.last().map(|row| told(&row.outcomes)).unwrap_or_default();
            trial.cases.close().await;
            return Err(Failure::usage(end_is_not_as_it_was(step == 0, &ends, &outcomes)));
        }
    }
    while let Some(step) = search.next() {
        let found = trial.probe(&step_name(step, &packages), None, &mixed(&good, &bad, &packages[..step])).await?;
        search.tell(step, found);
    }
    let (last_good, first_bad) = search.between();
    let found = match &packages[last_good..first_bad] {
        [package] => {
            let before = mixed(&good, &bad, &packages[..last_good]);
            versions(&mut trial, &settings, package, before, (&good, &bad)).await?
        }
        several => Found::one_of(several),
    };
    trial.rows.push(found.row);
    print_rows(&trial.rows, output)?;
    progress::line(&found.told);
    trial.cases.close().await;
    Store::clone(&store).close().await;
    Ok(ExitCode::Unexpected)
}

/// The answer, as the last row and as a sentence.
struct Found {
    row: ProbeRow,
    told: String,
}

impl Found {
    fn new(told: String, pinned: Option<(&str, Option<&str>)>) -> Self {
        let row = ProbeRow {
            step: told.clone(),
            package: pinned.map(|(package, _)| package.to_owned()),
            version: pinned.and_then(|(_, version)| version.map(str::to_owned)),
            environment_id: None,
            outcomes: Vec::new(),
            reading: Word::FirstBad,
        };
        Self { told: format!("first bad: {told}"), row }
    }

    /// Sets of packages between could not be tried.
    fn one_of(packages: &[String]) -> Self {
        Self::new(format!("one of {}; what lies between could not be told, as the rows say", packages.join(", ")), None)
    }
}

/// Walks the versions of the package that broke the case, with the packages before it as they were when it broke.
async fn versions(
    trial: &mut Trial<'_>,
    settings: &EnvironmentSettings,
    package: &str,
    before: Lines,
    (good, bad): (&Side, &Side),
) -> Result<Found, Failure> {
    let (from, to) = match (good.version(package), bad.version(package)) {
        (Some(from), Some(to)) if from != to => (from, to),
        (Some(_), Some(to)) => {
            return Ok(Found::new(format!("{package} {to}, whose files are others than before"), Some((package, Some(to)))));
        }
        (None, Some(to)) => {
            return Ok(Found::new(format!("{package} {to}, which was not there before"), Some((package, Some(to)))));
        }
        (_, None) => return Ok(Found::new(format!("{package}, which is gone"), Some((package, None)))),
    };
    let state = trial.retrying.farm.state.root();
    // Of a package that became older, the row is walked backwards.
    let mut between = environment::versions_between(state, package, from, to, settings).await.map_err(Failure::to)?;
    if between.is_empty() {
        between = environment::versions_between(state, package, to, from, settings).await.map_err(Failure::to)?;
        between.reverse();
    }
    let mut all = vec![from.to_owned()];
    all.extend(between);
    all.push(to.to_owned());
    let Some(mut search) = Bisection::new(all.len() - 1) else { return Ok(Found::one_of(&[package.to_owned()])) };
    while let Some(step) = search.next() {
        let mut lines = before.clone();
        lines.insert(package.to_owned(), vec![format!("{package}=={}", all[step])]);
        let found = trial.probe(&format!("{package} {}", all[step]), Some((package, &all[step])), &lines).await?;
        search.tell(step, found);
    }
    let (last_good, first_bad) = search.between();
    let untestable = match first_bad - last_good {
        1 => String::new(),
        _ => format!("; {} could not be told", all[last_good + 1..first_bad].join(", ")),
    };
    let told = format!("{package} {}; the last good is {}{untestable}", all[first_bad], all[last_good]);
    Ok(Found::new(told, Some((package, Some(&all[first_bad])))))
}

/// What both runs say of the case.
struct Ends {
    good_run: String,
    bad_run: String,
    good: ResultRow,
    bad: ResultRow,
}

impl Ends {
    async fn of(store: &Store, wanted: &Wanted<'_>) -> Result<Self, Failure> {
        let Wanted { case, good, bad, .. } = wanted;
        let (good_run, bad_run) = (store.resolve_run(good).await?, store.resolve_run(bad).await?);
        if good_run == bad_run {
            return Err(Failure::usage(format!(
                "--good {good} and --bad {bad} are one run, {good_run}; name a run in which the case passed and one in which it failed"
            )));
        }
        let ends = Self {
            good: result_of(store, case, "--good", good, &good_run).await?,
            bad: result_of(store, case, "--bad", bad, &bad_run).await?,
            good_run,
            bad_run,
        };
        ends.check(case)?;
        Ok(ends)
    }

    fn check(&self, case: &CaseId) -> Result<(), Failure> {
        let passed = |row: &ResultRow| row.outcome.standing() == Standing::Pass;
        let (good, bad) = (self.good.outcome, self.bad.outcome);
        let wrong = match (passed(&self.good), passed(&self.bad)) {
            (true, false) => return Ok(()),
            (false, true) => format!("it is `{good}` in the --good run and `{bad}` in the --bad run; are they swapped?"),
            (true, true) => format!("it passed in both runs; choose a --bad run in which it failed, not {}", self.bad_run),
            (false, false) => {
                format!("it is `{good}` in the --good run already; choose a run in which it passed, not {}", self.good_run)
            }
        };
        Err(Failure::usage(format!("case {case}: {wrong} (`modelfarm query results --case {case}` lists its results)")))
    }

    fn good_environment(&self) -> Result<&str, Failure> {
        Self::environment(&self.good)
    }

    fn bad_environment(&self) -> Result<&str, Failure> {
        Self::environment(&self.bad)
    }

    fn environment(row: &ResultRow) -> Result<&str, Failure> {
        row.environment_id.as_deref().ok_or_else(|| {
            Failure::usage(format!("in which environment run {} tried case {} is not known", row.run_id, row.case_id))
        })
    }

    /// What else differs between the runs, as the end of a sentence; empty where nothing is known to.
    fn other_differences(&self) -> String {
        let mut differences = Vec::new();
        if let (Some(good), Some(bad)) = (&self.good.revision, &self.bad.revision)
            && good != bad
        {
            differences.push(format!("the model's revision ({good}, then {bad})"));
        }
        if self.good.host != self.bad.host {
            differences.push(format!("the host ({}, then {})", self.good.host, self.bad.host));
        }
        if differences.is_empty() { String::new() } else { format!("; also different: {}", differences.join(", ")) }
    }
}

/// The result of the case that counts in a run.
async fn result_of(store: &Store, case: &CaseId, option: &str, named: &str, run: &str) -> Result<ResultRow, Failure> {
    let filter = ResultFilter {
        run: Some(run.to_owned()),
        cases: CaseFilter { ids: vec![case.clone()], ..CaseFilter::default() },
        final_only: true,
        ..ResultFilter::default()
    };
    if let Some(row) = store.results(&filter).await?.into_iter().next() {
        return Ok(row);
    }
    let elsewhere = match store.attempts_of(case.as_str(), Some(1)).await {
        Err(StoreError::NoSuchCase(_)) => {
            let which = "`modelfarm query results` lists the cases that have one";
            return Err(Failure::usage(format!("no result of case {case} is recorded; {which}")));
        }
        found => found?,
    };
    let newest = elsewhere.first().map(|newest| format!("; run {} has", newest.row.run_id)).unwrap_or_default();
    Err(Failure::usage(format!(
        "{option} {named}: run {run} has no result of case {case}{newest} (`modelfarm query results --case {case}` lists all)"
    )))
}

/// Why the ends cannot be searched between.
fn end_is_not_as_it_was(is_good: bool, ends: &Ends, outcomes: &str) -> String {
    let (side, run, was) = match is_good {
        true => ("good", &ends.good_run, ends.good.outcome),
        false => ("bad", &ends.bad_run, ends.bad.outcome),
    };
    format!(
        "in the packages of the {side} run {run}, where the case was `{was}`, it is now {outcomes}: packages alone did not break it, or it \
         flakes{}",
        ends.other_differences()
    )
}

/// Outcomes in words.
fn told(outcomes: &[Outcome]) -> String {
    match outcomes {
        [] => "not tried, as the environment could not be made".to_owned(),
        some => some.iter().map(|outcome| format!("`{outcome}`")).collect::<Vec<_>>().join(", "),
    }
}

/// The lines of requirements by package.
type Lines = BTreeMap<String, Vec<String>>;

/// The packages of one run.
struct Side {
    kept: store::Environment,
    lines: Lines,
}

impl Side {
    fn new(kept: store::Environment, settings: &EnvironmentSettings) -> Result<Self, Failure> {
        let place = format!("the kept requirements of environment {}", kept.environment_id);
        let lines = Requirements::parse(&kept.requirements, &place, settings).map_err(Failure::to)?.by_package();
        Ok(Self { kept, lines })
    }

    fn version(&self, package: &str) -> Option<&str> {
        self.kept.packages.get(package).map(String::as_str)
    }

    fn is_hashed(&self, package: &str) -> bool {
        self.lines.get(package).is_some_and(|lines| lines.iter().all(|line| line.contains(" --hash=")))
    }
}

/// The packages that differ, by name: of another version, or of one version with other files. A package that is
/// locked in one run and only pinned in the other is the same.
fn changed(good: &Side, bad: &Side) -> Vec<String> {
    let names: BTreeSet<&String> = good.kept.packages.keys().chain(bad.kept.packages.keys()).collect();
    let differs = |name: &&String| {
        let other_files = good.is_hashed(name) && bad.is_hashed(name) && good.lines.get(*name) != bad.lines.get(*name);
        good.version(name) != bad.version(name) || other_files
    };
    names.into_iter().filter(differs).cloned().collect()
}

/// The good requirements, with those of some packages as they are in the bad ones.
fn mixed(good: &Side, bad: &Side, from_bad: &[String]) -> Lines {
    let mut lines = good.lines.clone();
    for package in from_bad {
        match (bad.lines.get(package), bad.version(package)) {
            (Some(asked), Some(_)) => lines.insert(package.clone(), asked.clone()),
            _ => lines.remove(package),
        };
    }
    lines
}

fn step_name(step: usize, packages: &[String]) -> String {
    match step {
        0 => "as in the good run".to_owned(),
        step if step == packages.len() => "as in the bad run".to_owned(),
        step => format!("with the bad run's {}", packages[..step].join(", ")),
    }
}

/// What tries say of a step. What the bad run came to is bad, even where it says nothing of the target: a package can break
/// the loading of a model too.
fn read(outcomes: &[Outcome], bad: Outcome) -> Probe {
    let is_bad = |outcome: &Outcome| *outcome == bad || outcome.standing() == Standing::Fail;
    match outcomes {
        [] => Probe::Untestable,
        all if all.iter().all(|outcome| outcome.standing() == Standing::Pass) => Probe::Good,
        all if all.iter().all(is_bad) => Probe::Bad,
        _ => Probe::Untestable,
    }
}

/// Tries the case in one environment after the other.
struct Trial<'a> {
    retrying: &'a Retrying<'a>,
    cases: Cases,
    case: &'a CaseId,
    name: &'a str,
    bad_outcome: Outcome,
    rows: Vec<ProbeRow>,
}

impl Trial<'_> {
    async fn probe(&mut self, step: &str, pinned: Option<Pinned<'_>>, lines: &Lines) -> Result<Probe, Failure> {
        let text: String = lines.values().flatten().map(|line| format!("{line}\n")).collect();
        let (environment_id, outcomes) = match self.retrying.made_of(self.name, &text).await {
            Ok(environment) => {
                let id = environment.id.clone();
                let mut outcomes = self.retrying.in_environment(&mut self.cases, environment).await?;
                (Some(id), outcomes.remove(self.case).unwrap_or_default())
            }
            // Versions that do not go together are no answer.
            Err(failure) => {
                progress::line(&format!("{step}: {failure}"));
                (None, Vec::new())
            }
        };
        let probe = read(&outcomes, self.bad_outcome);
        self.rows.push(ProbeRow {
            step: step.to_owned(),
            package: pinned.map(|(package, _)| package.to_owned()),
            version: pinned.map(|(_, version)| version.to_owned()),
            environment_id,
            outcomes,
            reading: probe.into(),
        });
        Ok(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name==version` each, `name==version#hash` for a locked one.
    fn side(text: &str) -> Side {
        let lines: String = text.split_whitespace().map(|one| format!("{}\n", one.replace('#', " --hash=sha256:"))).collect();
        let versions = text.split_whitespace().filter_map(|one| one.split('#').next()?.split_once("=="));
        let kept = store::Environment {
            environment_id: "e".into(),
            name: "torchtpu".into(),
            packages: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).collect(),
            requirements: lines,
            created_at: 0,
        };
        Side::new(kept, &EnvironmentSettings::default()).unwrap()
    }

    #[test]
    fn a_mixture_takes_some_packages_from_the_bad_run() {
        let (good, bad) = (side("a==1 b==1 c==1"), side("a==2 c==1 d==1"));
        let packages = changed(&good, &bad);
        assert_eq!(packages, ["a", "b", "d"]);
        assert_eq!(mixed(&good, &bad, &packages[..0]), good.lines);
        assert_eq!(mixed(&good, &bad, &packages[..2]), side("a==2 c==1").lines);
        assert_eq!(mixed(&good, &bad, &packages), bad.lines);
    }

    #[test]
    fn a_package_is_the_same_whether_locked_or_pinned() {
        assert!(changed(&side("a==1#00"), &side("a==1")).is_empty());
        assert_eq!(changed(&side("a==1#00"), &side("a==1#01")), ["a"]);
        assert_eq!(changed(&side("a==1#00"), &side("a==2")), ["a"]);
    }

    #[test]
    fn lines_for_other_pythons_stay() {
        let mut good = side("a==1");
        let lines = "a==1 ; python_version < '3.12'\na==2 ; python_version >= '3.12'\n";
        good.kept.requirements = lines.into();
        let good = Side::new(good.kept, &EnvironmentSettings::default()).unwrap();
        assert_eq!(mixed(&good, &side("b==1"), &["b".to_owned()])["a"].len(), 2);
    }

    #[test]
    fn what_the_bad_run_came_to_is_bad() {
        use Outcome::{HostOom, InfraError, LoadError, Mismatch, Pass};
        assert_eq!(read(&[Pass, Pass], Mismatch), Probe::Good);
        assert_eq!(read(&[Mismatch, Mismatch], Mismatch), Probe::Bad);
        assert_eq!(read(&[LoadError], LoadError), Probe::Bad);
        for untestable in [&[][..], &[Pass, Mismatch], &[InfraError], &[Pass, InfraError], &[Mismatch, HostOom]] {
            assert_eq!(read(untestable, Mismatch), Probe::Untestable, "{untestable:?}");
        }
    }
}
