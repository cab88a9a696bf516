//! What must be there before a plan can be made: matrix, targets, expectations, fixtures, models.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use modelfarm_fixtures::{FixtureHub, RunningHub};
use modelfarm_matrix::SMOKE_TOML;
use modelfarm_matrix::expectation::Expectations;
use modelfarm_matrix::matrix_file::Matrix;
use modelfarm_matrix::model::Model;
use modelfarm_matrix::plan::{Filters, Plan, Shard, plan};
use modelfarm_matrix::target::Targets;

use super::Farm;
use super::expectations_file::{ExpectationsFile, today};
use crate::catalogue::{self, Catalogue, Hubs};
use crate::cli::{ExecutionOptions, Selection};
use crate::environment::{self, Environment, EnvironmentSettings, SyncEvent};
use crate::exit::Failure;
use crate::fixture_build::{self, FixtureBuildError, Wanted};
use crate::hub::{DownloadLimits, HubClient, HubOptions, Token};
use crate::progress::{self, Activity};
use crate::state_lock::InUse;

/// A matrix file, read.
#[derive(Debug, Clone)]
pub struct MatrixText {
    /// The file as the person named it.
    pub file: String,
    /// Its text.
    pub text: String,
}

impl MatrixText {
    /// Reads a matrix file. `smoke`, where no file has that name, is the one that comes with the program.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("smoke") && !path.exists() {
            return Ok(Self::smoke());
        }
        let text = read_text("matrix", path)?;
        Ok(Self { file: path.display().to_string(), text })
    }

    /// The matrix of the demo, which comes with the program.
    pub fn smoke() -> Self {
        Self { file: "smoke".to_owned(), text: SMOKE_TOML.to_owned() }
    }
}

/// The largest file of settings that is read.
const MOST_BYTES: u64 = 16 << 20;

/// The text of a file of settings; `what` says which one in an error. A pipe could last for ever, and a device has no end.
pub fn read_text(what: &str, path: &Path) -> Result<String, Failure> {
    let failed = |reason: String| Failure::to(format!("read the {what} file {}: {reason}", path.display()));
    let there = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if !there.is_file() {
        return Err(failed("it is no regular file".to_owned()));
    }
    if there.len() > MOST_BYTES {
        return Err(failed(format!("it has {} bytes, expected at most {MOST_BYTES}", there.len())));
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

/// Targets: those that come with the program, and a person's own.
pub fn targets(own: Option<&Path>) -> Result<Targets, Failure> {
    let mut targets = Targets::built_in();
    if let Some(path) = own {
        let text = read_text("targets", path)?;
        targets.extend(Targets::parse(&path.display().to_string(), &text).map_err(|error| Failure::usage(error.to_string()))?);
    }
    Ok(targets)
}

/// Expectations for a run: the named file, else the one beside the matrix, else those that come with the program.
///
/// An entry whose last day is over counts all the same, and is told: what a night declares must not depend on the hour at which a
/// shard began, and a date that went by is no news about a target. `expect check` is where it is an error.
pub fn expectations(named: Option<&Path>, matrix: &MatrixText, targets: &Targets) -> Result<Expectations, Failure> {
    let file = ExpectationsFile::find(named, Some(Path::new(&matrix.file)))?;
    file.declared.check_targets(&file.name, targets).map_err(|error| Failure::usage(error.to_string()))?;
    let expired = file.declared.expired(today()?);
    if let Some(first) = expired.first() {
        progress::line(&format!(
            "{}:{first}: expired expectations, which still count: {}; `modelfarm expect check` lists them",
            file.name,
            expired.len()
        ));
    }
    Ok(file.declared)
}

/// Makes an environment, showing what goes on.
pub async fn environment(farm: &Farm, name: &str, settings: &EnvironmentSettings) -> Result<Environment, Failure> {
    let mut activity: Option<Activity> = None;
    let synced = environment::sync(farm.state.root(), name, settings, |event| {
        if let Some(text) = describe(name, &event) {
            match &mut activity {
                Some(activity) => activity.say(&text),
                None => activity = Some(Activity::begin(&text)),
            }
        }
    });
    synced.await.map_err(Failure::to)
}

/// A step of making an environment, in words; none for one that was there already.
pub fn describe(name: &str, event: &SyncEvent) -> Option<String> {
    Some(match event {
        SyncEvent::Waiting => format!("environment {name}: another process makes it; waiting"),
        SyncEvent::Repairing { reason } => format!("environment {name}: {reason}; making it anew"),
        SyncEvent::FetchingUv => "fetching uv".to_owned(),
        SyncEvent::Resolving => format!("environment {name}: looking up packages"),
        SyncEvent::Resolved { packages, .. } => format!("environment {name}: {packages} packages found"),
        SyncEvent::Downloading { package, begun, ended, .. } => {
            format!("environment {name}: downloading {package} ({ended} of {begun} large packages done)")
        }
        SyncEvent::Installing { packages } => format!("environment {name}: installing {packages} packages"),
        SyncEvent::Compiling { packages } => format!("environment {name}: compiling {packages} packages"),
        SyncEvent::Done { reused: true, .. } => return None,
        SyncEvent::Done { packages, elapsed, .. } => {
            format!("environment {name}: {packages} packages in {:.0} s", elapsed.as_secs_f64())
        }
    })
}

/// The fixture Hub is on this machine, and what it fails at it fails at on purpose: a second try is enough.
pub fn fixture_limits() -> DownloadLimits {
    DownloadLimits {
        call: Duration::from_secs(60),
        idle: Duration::from_secs(30),
        total: Duration::from_secs(300),
        tries: 2,
        ..DownloadLimits::default()
    }
}

/// A Hub that serves the built fixtures on a free port of the loopback address.
pub async fn serve_fixtures(folder: PathBuf) -> Result<(RunningHub, HubClient), Failure> {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let running = FixtureHub::serve(folder, address).await.map_err(Failure::to)?;
    let options = HubOptions { endpoint: Some(running.url()), token: Token::Nobody, limits: fixture_limits() };
    let client = HubClient::new(options).map_err(Failure::to)?;
    Ok((running, client))
}

/// Everything that a plan is made of, and the plan.
pub struct Prepared {
    /// The matrix.
    pub matrix: Matrix,
    /// The matrix file.
    pub matrix_text: MatrixText,
    /// The targets.
    pub targets: Targets,
    /// The environments of the plan's targets, by name.
    pub environments: BTreeMap<String, Environment>,
    /// The Hubs.
    pub hubs: Hubs,
    /// The plan.
    pub plan: Plan,
    /// Which of the matrix's cases it has, apart from the shard; empty where all.
    pub selection: String,
    /// The Hub that serves the fixtures, for as long as it is needed.
    pub fixture_hub: Option<RunningHub>,
    /// Keeps what is in the state folder where it is.
    _in_use: InUse,
}

/// Prepares a run: reads the files, makes environments and fixtures where they are missing, asks the Hubs, plans.
pub async fn prepare(
    farm: &Farm,
    matrix_text: MatrixText,
    selection: &Selection,
    execution: &ExecutionOptions,
    only_cases: Option<Vec<modelfarm_matrix::case::CaseId>>,
) -> Result<Prepared, Failure> {
    let targets = targets(execution.targets_file.as_deref())?;
    let usage = |error: modelfarm_matrix::matrix_file::TomlError| Failure::usage(error.to_string());
    let mut matrix = Matrix::parse(&matrix_text.file, &matrix_text.text, &targets).map_err(usage)?;
    if let Some(seconds) = execution.timeout {
        matrix.replace_timeouts(seconds).map_err(|reason| Failure::usage(format!("--timeout: {reason}")))?;
    }
    for name in &selection.targets {
        targets.get(name).map_err(|unknown| Failure::usage(format!("--target: {unknown}")))?;
    }
    let in_use = farm.create_state()?;

    let settings = EnvironmentSettings::load(farm.state.root()).map_err(Failure::to)?;
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let used = matrix.cases.iter().flat_map(|group| &group.targets).filter_map(|name| targets.get(name.get_ref()).ok());
    wanted.extend(used.chain(targets.control()).map(|target| target.environment.as_str()));
    let mut environments = BTreeMap::new();
    for name in wanted {
        environments.insert(name.to_owned(), environment(farm, name, &settings).await?);
    }

    let mut hubs = Hubs::default();
    let mut fixture_hub = None;
    if catalogue::wants_fixtures(&matrix) {
        let folder = fixtures(farm, &environments, &settings, &Wanted::of(&matrix.models, &selection.models)).await?;
        let (running, client) = serve_fixtures(folder).await?;
        (fixture_hub, hubs.fixtures) = (Some(running), Some(client));
    }
    if catalogue::wants_hub(&matrix) {
        hubs.hub = Some(HubClient::new(HubOptions::default()).map_err(Failure::to)?);
    }
    let Catalogue { models, architectures, tags } = catalogue::read(&matrix, &hubs).await.map_err(Failure::to)?;
    matrix.check_architectures(&matrix_text.file, &matrix_text.text, &architectures).map_err(usage)?;
    // Where a person selects models only those are built, and most tags are not there.
    let missing = |tag: &&String| selection.models.is_empty() && *tag != "all" && !tags.contains(*tag);
    if let Some(tag) = matrix.models.fixtures.iter().find(missing) {
        let known = tags.iter().map(String::as_str).chain(["all"]);
        let unknown = modelfarm_matrix::word::UnknownWord::new("tag of a fixture", tag, known);
        return Err(Failure::usage(format!("{}: [models] fixtures: {unknown}", matrix_text.file)));
    }
    if models.is_empty() {
        let message = format!("nothing to run: the sources that [models] of {} names hold no model", matrix_text.file);
        return Err(Failure::nothing(message));
    }
    check_selection(selection, &models)?;
    let filters = filters(selection, only_cases)?;
    let described = filters.to_string();
    let plan = plan(&matrix, &targets, &models, &filters, selection.shard.unwrap_or(Shard::WHOLE));
    Ok(Prepared { matrix, matrix_text, targets, environments, hubs, plan, selection: described, fixture_hub, _in_use: in_use })
}

/// Builds the fixtures where they are missing or outdated.
async fn fixtures(
    farm: &Farm,
    environments: &BTreeMap<String, Environment>,
    settings: &EnvironmentSettings,
    wanted: &Wanted,
) -> Result<PathBuf, Failure> {
    let environment = match environments.get("torchtpu") {
        Some(environment) => environment.clone(),
        None => self::environment(farm, "torchtpu", settings).await?,
    };
    let mut activity: Option<Activity> = None;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let built = fixture_build::build(&farm.state, &environment, settings, wanted, jobs, |text| match &mut activity {
        Some(activity) => activity.say(text),
        None => activity = Some(Activity::begin(text)),
    })
    .await;
    drop(activity);
    match built {
        // Without one of its own models the demo would test less than it says; of a whole zoo, a new release of a library
        // may leave some behind, which must not stop the rest.
        Err(FixtureBuildError::Models(failed)) if *wanted != Wanted::smoke() => {
            for (id, reason) in &failed {
                progress::line(&format!("left out, as it could not be built: {id}: {reason}"));
            }
            Ok(fixture_build::folder(&farm.state))
        }
        built => built.map_err(Failure::to),
    }
}

/// A selection of what does not exist is a mistake, and not an empty run.
fn check_selection(selection: &Selection, models: &[Model]) -> Result<(), Failure> {
    let known: BTreeSet<&str> = models.iter().map(|model| model.architecture.as_str()).collect();
    for architecture in &selection.architectures {
        if !known.contains(architecture.as_str()) {
            let unknown = modelfarm_matrix::word::UnknownWord::new("architecture", architecture, known.iter().copied());
            return Err(Failure::usage(format!("--architecture: {unknown}")));
        }
    }
    for model in &selection.models {
        if !models.iter().any(|known| known.id.as_str() == model) {
            let nearest = modelfarm_matrix::word::nearest(model, models.iter().map(|model| model.id.as_str()));
            let hint = nearest.map(|id| format!(" (did you mean `{id}`?)")).unwrap_or_default();
            return Err(Failure::usage(format!("--model: `{model}` is not in this matrix{hint}")));
        }
    }
    Ok(())
}

/// The filters of a plan. `only_cases` are those of a run that is repeated, at least one.
fn filters(selection: &Selection, only_cases: Option<Vec<modelfarm_matrix::case::CaseId>>) -> Result<Filters, Failure> {
    let mut cases = selection.cases();
    if let Some(only) = only_cases {
        cases.ids = match cases.ids.is_empty() {
            true => only,
            false => cases.ids.into_iter().filter(|case| only.contains(case)).collect(),
        };
        // An empty list would be no filter at all.
        if cases.ids.is_empty() {
            return Err(Failure::nothing("nothing to run: no --case is among the cases of the run that --rerun names"));
        }
    }
    Ok(Filters { cases, sample: selection.sample })
}
