//! A zygote: one warm process for each (environment, target), which forks a child for each job.

use std::collections::{BTreeMap, HashMap};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use modelfarm_matrix::axes::Harness;
use modelfarm_matrix::target::Backend;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::{mpsc, watch};

use super::output_tail::read_tail;
use super::protocol::{FromZygote, MAX_LINE_BYTES, PROTOCOL, Request, ToZygote};
use super::sandbox::{Confinement, Sandbox};

/// Why a zygote cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ZygoteError {
    /// The process could not be started.
    #[error("start a worker ({program}): {reason}")]
    Start {
        /// What was to be started.
        program: String,
        /// Why not.
        reason: String,
    },
    /// It ended, or said something else, before it was ready.
    #[error("start a worker: {reason}; the end of its output:\n{output}")]
    NotReady {
        /// What happened.
        reason: String,
        /// What it wrote.
        output: String,
    },
    /// It is gone.
    #[error("reach the worker: it ended; the end of its output:\n{output}")]
    Lost {
        /// What it wrote.
        output: String,
    },
    /// A system call failed.
    #[error("talk to the worker: {0}")]
    Io(String),
}

/// How a zygote is started.
#[derive(Debug, Clone)]
pub struct ZygoteCommand {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// What the worker may use.
    pub confinement: Confinement,
    /// The environment's Python.
    pub python: PathBuf,
    /// What the worker starts.
    pub backend: Backend,
    /// Architectures whose code it imports before the first fork.
    pub preload: Vec<String>,
    /// Harnesses whose library it imports before the first fork, besides transformers.
    pub harnesses: Vec<Harness>,
    /// How long imports may take.
    pub ready_within: Duration,
}

/// What the zygote says of one job.
#[derive(Debug, Clone)]
pub(super) enum JobNotice {
    Spawned { pid: i32 },
    Exited { code: Option<i32>, signal: Option<i32>, max_rss_bytes: u64 },
    Lost,
}

type Listeners = Arc<Mutex<Option<HashMap<u64, mpsc::UnboundedSender<JobNotice>>>>>;

/// A running zygote. Dropping it ends it and all of its children.
#[derive(Debug)]
pub struct Zygote {
    control: StdUnixStream,
    sending: tokio::sync::Mutex<()>,
    listeners: Listeners,
    next_job: AtomicU64,
    root_pid: i32,
    packages: BTreeMap<String, String>,
    import_ms: f64,
    output: watch::Receiver<Option<String>>,
    _process: Child,
}

/// The farm's ends of a new job's channel and output pipe.
#[derive(Debug)]
pub(super) struct SpawnedJob {
    pub number: u64,
    pub channel: UnixStream,
    pub output: pipe::Receiver,
    pub notices: mpsc::UnboundedReceiver<JobNotice>,
}

impl Zygote {
    /// Starts a zygote and waits until it may fork.
    pub async fn start(command: &ZygoteCommand) -> Result<Self, ZygoteError> {
        let io = |error: std::io::Error| ZygoteError::Io(error.to_string());
        let (ours, theirs) = StdUnixStream::pair().map_err(io)?;
        let mut started =
            command.sandbox.command(&command.confinement, &command.python, &["-s", "-B", "-m", "modelfarm_worker"]);
        started.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = started
            .spawn()
            .map_err(|error| ZygoteError::Start { program: command.python.display().to_string(), reason: error.to_string() })?;
        // It holds the worker's end of the socket pair: while it lives, the worker's end would go unseen.
        drop(started);
        let root_pid = process.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();

        let (output_sender, output) = watch::channel(None);
        if let (Some(stdout), Some(stderr)) = (process.stdout.take(), process.stderr.take()) {
            tokio::spawn(async move {
                let (out, err) = tokio::join!(read_tail(stdout), read_tail(stderr));
                let _ = output_sender.send(Some(format!("{out}{err}").trim().to_owned()));
            });
        }
        let reading = ours.try_clone().map_err(io)?;
        reading.set_nonblocking(true).map_err(io)?;
        let mut lines = BufReader::new(UnixStream::from_std(reading).map_err(io)?);
        let mut zygote = Self {
            control: ours,
            sending: tokio::sync::Mutex::new(()),
            listeners: Arc::new(Mutex::new(Some(HashMap::new()))),
            next_job: AtomicU64::new(1),
            root_pid,
            packages: BTreeMap::new(),
            import_ms: 0.0,
            output,
            _process: process,
        };
        let start = ToZygote::Start {
            protocol: PROTOCOL,
            backend: command.backend,
            preload: &command.preload,
            harnesses: &command.harnesses,
        };
        zygote.send(&start, &[]).await?;
        let first = tokio::time::timeout(command.ready_within, next_message(&mut lines)).await;
        let not_ready = |reason: String, output: String| ZygoteError::NotReady { reason, output };
        match first {
            Ok(Ok(FromZygote::Ready { protocol: PROTOCOL, packages, import_ms })) => {
                (zygote.packages, zygote.import_ms) = (packages, import_ms);
            }
            Ok(Ok(other)) => {
                return Err(not_ready(format!("expected `ready` of protocol {PROTOCOL}, found {other:?}"), String::new()));
            }
            Ok(Err(reason)) => {
                let output = zygote.last_words().await;
                return Err(not_ready(reason, output));
            }
            Err(_) => {
                let seconds = command.ready_within.as_secs();
                return Err(not_ready(format!("it was not ready within {seconds} s"), String::new()));
            }
        }
        let listeners = zygote.listeners.clone();
        tokio::spawn(async move {
            while let Ok(message) = next_message(&mut lines).await {
                let (job, notice) = match message {
                    FromZygote::Spawned { job, pid } => (job, JobNotice::Spawned { pid }),
                    FromZygote::Exited { job, code, signal, max_rss_bytes } => {
                        (job, JobNotice::Exited { code, signal, max_rss_bytes })
                    }
                    FromZygote::Ready { .. } => continue,
                };
                let mut guard = listeners.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(all) = guard.as_mut() else { break };
                let is_last = matches!(notice, JobNotice::Exited { .. });
                if let Some(listener) = all.get(&job) {
                    let _ = listener.send(notice);
                }
                if is_last {
                    all.remove(&job);
                }
            }
            let rest = listeners.lock().unwrap_or_else(PoisonError::into_inner).take();
            for listener in rest.into_iter().flat_map(HashMap::into_values) {
                let _ = listener.send(JobNotice::Lost);
            }
        });
        Ok(zygote)
    }

    /// Versions of the packages it imported.
    pub fn packages(&self) -> &BTreeMap<String, String> {
        &self.packages
    }

    /// Milliseconds it spent on imports.
    pub fn import_ms(&self) -> f64 {
        self.import_ms
    }

    /// The pid of the process that the farm started: the sandbox, or the zygote itself.
    pub fn root_pid(&self) -> i32 {
        self.root_pid
    }

    /// Whether it is gone.
    pub fn is_lost(&self) -> bool {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// What it wrote before it ended; waits a moment for it.
    pub async fn last_words(&self) -> String {
        let mut output = self.output.clone();
        let waited = tokio::time::timeout(Duration::from_secs(2), output.wait_for(Option::is_some)).await;
        waited.ok().and_then(Result::ok).and_then(|text| text.clone()).unwrap_or_default()
    }

    /// Forks a child for a request.
    pub(super) async fn spawn(&self, request: &Request) -> Result<SpawnedJob, ZygoteError> {
        let io = |error: std::io::Error| ZygoteError::Io(error.to_string());
        let number = self.next_job.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = UnixStream::pair().map_err(io)?;
        let theirs = theirs.into_std().map_err(io)?;
        theirs.set_nonblocking(false).map_err(io)?;
        let (output_sender, output) = pipe::pipe().map_err(io)?;
        let output_end = output_sender.into_blocking_fd().map_err(io)?;
        let (sender, notices) = mpsc::unbounded_channel();
        let registered = match self.listeners.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(all) => all.insert(number, sender).is_none(),
            None => false,
        };
        let sent = match registered {
            true => self.send(&ToZygote::Spawn { job: number, request }, &[theirs.as_fd(), output_end.as_fd()]).await,
            false => Err(ZygoteError::Io("it ended".to_owned())),
        };
        match sent {
            Ok(()) => Ok(SpawnedJob { number, channel: ours, output, notices }),
            Err(_) => Err(ZygoteError::Lost { output: self.last_words().await }),
        }
    }

    /// Kills the process group of a job.
    pub(super) async fn kill(&self, job: u64) {
        // Where the zygote is gone, its end has killed the job.
        let _ = self.send(&ToZygote::Kill { job }, &[]).await;
    }

    /// Sends one line, with file descriptors on its first byte.
    async fn send(&self, message: &ToZygote<'_>, descriptors: &[BorrowedFd<'_>]) -> Result<(), ZygoteError> {
        let io = |reason: String| ZygoteError::Io(reason);
        let mut line = serde_json::to_vec(message).map_err(|error| io(error.to_string()))?;
        line.push(b'\n');
        let _turn = self.sending.lock().await;
        // Lines are small against the socket's buffer, but a zygote that does not read must not block the farm for ever.
        self.control.set_write_timeout(Some(Duration::from_secs(10))).map_err(|error| io(error.to_string()))?;
        self.control.set_nonblocking(false).map_err(|error| io(error.to_string()))?;
        let mut rest = &line[..];
        if !descriptors.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(io("too many descriptors for one message".to_owned()));
            }
            let sent = rustix::net::sendmsg(&self.control, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL);
            rest = &rest[sent.map_err(|error| io(error.to_string()))?..];
        }
        (&self.control).write_all(rest).map_err(|error| io(error.to_string()))
    }
}

async fn next_message(lines: &mut BufReader<UnixStream>) -> Result<FromZygote, String> {
    let mut line = Vec::new();
    let read = lines.take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line).await.map_err(|error| error.to_string())?;
    if read == 0 {
        return Err("it ended".to_owned());
    }
    serde_json::from_slice(&line)
        .map_err(|error| format!("not understood ({error}): {}", String::from_utf8_lossy(&line[..read.min(200)])))
}
