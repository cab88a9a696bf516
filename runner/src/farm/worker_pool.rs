//! The zygotes of a run: one for each target, started when first needed and again when one is lost.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use modelfarm_matrix::axes::Harness;
use modelfarm_matrix::target::{Backend, Target};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::environment::Environment;
use crate::farm::compile_cache;
use crate::state_dir::StateDir;
use crate::worker::device_slots::DeviceSlots;
use crate::worker::sandbox::{Confinement, SEARCH_PATH, Sandbox};
use crate::worker::zygote::{Zygote, ZygoteCommand, ZygoteError};

/// Importing the libraries takes seconds; on a cold disk and a loaded machine it takes minutes.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// A worker that ends before it is ready is started again this often.
const START_TRIES: u32 = 5;

/// What the pool needs to start workers.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The state folder.
    pub state: StateDir,
    /// This run's scratch folder.
    pub scratch: PathBuf,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The folder with the worker's Python packages.
    pub worker_source: PathBuf,
    /// The PJRT interposer.
    pub interposer: PathBuf,
    /// Plugin files that a person put in place of a target's own, by target.
    pub plugins: BTreeMap<String, PathBuf>,
    /// Architectures whose code a zygote imports before the first fork.
    pub preload: Vec<String>,
    /// Harnesses whose library workers import once, besides transformers.
    pub harnesses: Vec<Harness>,
    /// CPU threads of a child.
    pub threads: usize,
}

/// Whose code a worker's children run.
///
/// Children of one worker could meddle with each other's files. A model that brings its own code, be
/// it trusted or not, therefore gets children of another worker than those that only bring weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// Only the libraries of the environment.
    Library,
    /// The model's own.
    Own,
}

/// A target's worker, and what belongs to it.
#[derive(Debug)]
pub struct Worker {
    /// The process.
    pub zygote: Zygote,
    /// Its scratch folder; a job's `out` is made inside it.
    pub scratch: PathBuf,
    _rewriter: Option<Rewriter>,
}

/// The process that rewrites programs, and the folder of its socket: a socket's path may have 107 bytes at most, which a state
/// folder deep in a person's home would exceed.
#[derive(Debug)]
struct Rewriter {
    _process: Child,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Default)]
struct Slot {
    worker: Option<Arc<Worker>>,
    starts: u32,
}

/// Starting a worker takes seconds: the map is not locked meanwhile, only the worker's own slot is.
type Slots = HashMap<(String, Code), Arc<tokio::sync::Mutex<Slot>>>;

/// The workers of a run.
#[derive(Debug)]
pub struct WorkerPool {
    settings: WorkerSettings,
    environments: BTreeMap<String, Environment>,
    workers: tokio::sync::Mutex<Slots>,
    devices: HashMap<String, DeviceSlots>,
}

/// Where a plugin file is looked for.
pub fn plugin_path(target: &Target, environment: &Environment, settings: &WorkerSettings) -> Option<PathBuf> {
    let replaced = settings.plugins.get(&target.name).cloned();
    replaced.or_else(|| target.plugin.as_ref().map(|relative| environment.site_packages.join(relative)))
}

impl WorkerPool {
    /// A pool for these targets; starts nothing yet.
    pub fn new(
        settings: WorkerSettings,
        environments: BTreeMap<String, Environment>,
        targets: &[Target],
        cores: usize,
    ) -> Self {
        let devices = targets.iter().map(|target| (target.name.clone(), DeviceSlots::new(&target.slots, cores))).collect();
        Self { settings, environments, workers: tokio::sync::Mutex::default(), devices }
    }

    /// The environment that a target's workers run in.
    pub fn environment(&self, target: &Target) -> Option<&Environment> {
        self.environments.get(&target.environment)
    }

    /// The device slots of a target.
    pub fn devices(&self, target: &Target) -> Option<&DeviceSlots> {
        self.devices.get(&target.name)
    }

    /// The worker of a target, started where there is none or the last one is lost.
    pub async fn worker(&self, target: &Target, code: Code) -> Result<Arc<Worker>, ZygoteError> {
        let slot = self.workers.lock().await.entry((target.name.clone(), code)).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(worker) = slot.worker.as_ref().filter(|worker| !worker.zygote.is_lost()) {
            return Ok(worker.clone());
        }
        let mut tries = 1;
        let worker = loop {
            slot.starts += 1;
            match self.start(target, code, slot.starts).await {
                // Somebody ended it, or the kernel for want of memory; what is wrong with it itself would show each time.
                Err(ZygoteError::NotReady { .. }) if tries < START_TRIES => tries += 1,
                started => break Arc::new(started?),
            }
        };
        tracing::info!(target = target.name, ?code, import_ms = worker.zygote.import_ms(), "worker ready");
        slot.worker = Some(worker.clone());
        Ok(worker)
    }

    async fn start(&self, target: &Target, code: Code, number: u32) -> Result<Worker, ZygoteError> {
        let problem = |what: String, reason: String| ZygoteError::Start { program: what, reason };
        let environment =
            self.environment(target).ok_or_else(|| problem(target.environment.clone(), "no such environment".into()))?;
        let scratch = self.settings.scratch.join(match code {
            Code::Library => format!("{}-{number}", target.name),
            Code::Own => format!("{}-own-code-{number}", target.name),
        });
        for folder in ["home", "tmp"] {
            let folder = scratch.join(folder);
            std::fs::create_dir_all(&folder).map_err(|error| problem(folder.display().to_string(), error.to_string()))?;
        }
        for folder in [self.settings.state.hub(), self.settings.state.references()] {
            std::fs::create_dir_all(&folder).map_err(|error| problem(folder.display().to_string(), error.to_string()))?;
        }
        let mut env = self.environment_variables(target, &scratch);
        let mut readable = vec![
            environment.folder.clone(),
            self.settings.worker_source.clone(),
            self.settings.state.programs(),
            self.settings.state.hub(),
            self.settings.state.references(),
        ];
        readable.extend(interpreter_folders(environment));
        let mut writable = Vec::new();
        let mut devices = Vec::new();
        let mut rewriter = None;
        if target.backend == Backend::TorchTpu {
            if let Some(plugin) = plugin_path(target, environment, &self.settings) {
                if !plugin.is_file() {
                    let what = format!("the PJRT plugin of target {}", target.name);
                    return Err(problem(what, format!("{} does not exist", plugin.display())));
                }
                readable.extend(self.settings.plugins.get(&target.name).and_then(|path| path.parent().map(Path::to_owned)));
                if let Some(folder) =
                    compile_cache::folder(&self.settings.state, environment, target, &plugin, &self.settings.interposer)
                {
                    std::fs::create_dir_all(&folder)
                        .map_err(|error| problem(folder.display().to_string(), error.to_string()))?;
                    // A model's own code could leave others a program that makes them pass: it may only read.
                    match code {
                        Code::Library => writable.push(folder.clone()),
                        Code::Own => readable.push(folder.clone()),
                    }
                    env.insert(compile_cache::VARIABLE.into(), folder.into());
                    // For each program that it loads, XLA:CPU reports tuning hints of its own code generator as errors.
                    env.insert("TF_CPP_MIN_LOG_LEVEL".into(), "3".into());
                }
                env.insert("MODELFARM_PJRT_PLUGIN".into(), plugin.into());
            }
            env.insert("TPU_LIBRARY_PATH".into(), self.settings.interposer.clone().into());
            if !target.emulated {
                devices = device_nodes();
            }
            if target.emulated || self.settings.plugins.contains_key(&target.name) {
                let files = readable.clone();
                let folder = tempfile::Builder::new().prefix("modelfarm-").tempdir();
                let folder = folder.map_err(|error| problem("a folder for the rewriter's socket".into(), error.to_string()))?;
                let socket = folder.path().join("rewriter");
                // Connecting needs no right to write; replacing the socket would.
                readable.push(folder.path().to_owned());
                let confinement = Confinement {
                    readable: files,
                    scratch: scratch.clone(),
                    writable: vec![folder.path().to_owned()],
                    devices: vec![],
                    env: env.clone(),
                };
                let process = start_rewriter(self.settings.sandbox, &confinement, &environment.python, &socket).await?;
                rewriter = Some(Rewriter { _process: process, _folder: folder });
                env.insert("MODELFARM_PJRT_REWRITER".into(), socket.into());
            }
            if let (true, Some(gib)) = (target.emulated, target.hbm_gib) {
                env.insert("MODELFARM_PJRT_HBM_BYTES".into(), (gib << 30).to_string().into());
            }
        }
        let command = ZygoteCommand {
            sandbox: self.settings.sandbox,
            confinement: Confinement { readable, scratch: scratch.clone(), writable, devices, env },
            python: environment.python.clone(),
            backend: target.backend,
            preload: self.settings.preload.clone(),
            harnesses: self.settings.harnesses.clone(),
            ready_within: READY_WITHIN,
        };
        let zygote = Zygote::start(&command).await?;
        Ok(Worker { zygote, scratch, _rewriter: rewriter })
    }

    /// All that a worker's environment holds: nothing of the person's own.
    fn environment_variables(&self, target: &Target, scratch: &Path) -> BTreeMap<String, OsString> {
        let threads = self.settings.threads.to_string();
        let mut env: BTreeMap<String, OsString> = [
            ("PATH", SEARCH_PATH),
            ("LANG", "C.UTF-8"),
            ("PYTHONUNBUFFERED", "1"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            // Dynamo formats a stack for each node of a graph, and the marks below its lines cost a twentieth of all tracing.
            ("PYTHONNODEBUGRANGES", "1"),
            ("HF_HUB_OFFLINE", "1"),
            ("HF_HUB_DISABLE_TELEMETRY", "1"),
            ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0"),
            ("TPU_SKIP_MDS_QUERY", "1"),
            // Programs that come from a cache of the framework's own would be seen by nobody.
            ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1"),
            ("MODELFARM_THREADS", &threads),
            ("OMP_NUM_THREADS", &threads),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), OsString::from(value)))
        .collect();
        for (name, folder) in [("HOME", "home"), ("TMPDIR", "tmp"), ("HF_HOME", "home"), ("TORCHINDUCTOR_CACHE_DIR", "tmp")] {
            env.insert(name.to_owned(), scratch.join(folder).into());
        }
        env.insert("PYTHONPATH".to_owned(), self.settings.worker_source.clone().into());
        env.extend(target.env.iter().map(|(name, value)| (name.clone(), OsString::from(value))));
        env
    }

    /// Ends all workers.
    pub async fn shut_down(&self) {
        self.workers.lock().await.clear();
    }
}

/// The folders of the interpreter that an environment was made with: its own links point there.
fn interpreter_folders(environment: &Environment) -> Vec<PathBuf> {
    let Ok(real) = environment.python.canonicalize() else { return Vec::new() };
    let prefix = real.parent().and_then(Path::parent).map(Path::to_owned);
    // Interpreters below /usr are in the sandbox anyway.
    prefix.filter(|prefix| !prefix.starts_with("/usr") && prefix != Path::new("/")).into_iter().collect()
}

/// The device nodes of TPUs on this host.
fn device_nodes() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_tpu = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("accel") || name == "vfio"
    };
    entries.map(|entry| entry.path()).filter(is_tpu).collect()
}

/// Starts the program rewriter and waits until its socket can be used.
async fn start_rewriter(
    sandbox: Sandbox,
    confinement: &Confinement,
    python: &Path,
    socket: &Path,
) -> Result<Child, ZygoteError> {
    let problem = |reason: String| ZygoteError::Start { program: "the program rewriter".into(), reason };
    let path = socket.to_str().ok_or_else(|| problem("the state folder's path is not valid UTF-8".into()))?;
    let mut command = sandbox.command(confinement, python, &["-s", "-B", "-m", "modelfarm_rewriter", "--socket", path]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| problem(error.to_string()))?;
    let Some(stdout) = child.stdout.take() else { return Err(problem("it has no output".into())) };
    let mut lines = BufReader::new(stdout).lines();
    match tokio::time::timeout(READY_WITHIN, lines.next_line()).await {
        Ok(Ok(Some(line))) if line.starts_with("ready") => {
            // Its further output, should there be any, must not fill the pipe.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            Ok(child)
        }
        Ok(Ok(Some(line))) => Err(problem(format!("expected `ready`, found {line:?}"))),
        Ok(Ok(None)) => {
            Err(ZygoteError::NotReady { reason: "the program rewriter ended".into(), output: "its errors stand above".into() })
        }
        Ok(Err(error)) => Err(problem(error.to_string())),
        Err(_) => Err(problem(format!("it was not ready within {} s", READY_WITHIN.as_secs()))),
    }
}
