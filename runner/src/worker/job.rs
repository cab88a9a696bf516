//! One job in a forked child: events, deadline, memory, device slot, and how it ended.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};

use modelfarm_matrix::outcome::Stage;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::device_slots::{DeviceSlot, DeviceSlots};
use super::output_tail::read_tail;
use super::process_memory::{JobProcesses, host_pid};
use super::protocol::{Failure, FromChild, MAX_LINE_BYTES, Request, ToChild};
use super::zygote::{JobNotice, Zygote, ZygoteError};

/// What a job may use.
#[derive(Debug, Clone, Copy)]
pub struct JobLimits {
    /// Deadline; waiting for a device does not count.
    pub timeout: Duration,
    /// Resident memory of its processes, in bytes.
    pub memory_bytes: u64,
}

/// Why the farm killed a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Killed {
    /// The deadline passed.
    Deadline,
    /// It held more memory than allowed.
    Memory {
        /// What was seen, in bytes.
        resident_bytes: u64,
    },
    /// It said something that no child says.
    Protocol {
        /// What.
        what: String,
    },
    /// The run is being stopped.
    Interrupted,
}

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Signal(i32),
    /// Together with its zygote.
    ZygoteLost,
}

/// Everything that is known of a finished job.
#[derive(Debug)]
pub struct JobReport {
    /// How the process ended.
    pub ending: Ending,
    /// Why the farm killed it, if it did.
    pub killed: Option<Killed>,
    /// The exception it reported, if any.
    pub failure: Option<Failure>,
    /// Its result files by role, if it reported success.
    pub files: Option<BTreeMap<String, String>>,
    /// What it observed.
    pub facts: Map<String, Value>,
    /// The stages it entered, with the milliseconds since dispatch.
    pub stages: Vec<(Stage, f64)>,
    /// Milliseconds from dispatch to the child's first instruction.
    pub first_instruction_ms: Option<f64>,
    /// When its end was known.
    pub ended: Instant,
    /// The largest resident memory it had, in bytes.
    pub max_rss_bytes: u64,
    /// The end of what it wrote.
    pub output_tail: String,
}

impl JobReport {
    /// The stage it was in when it ended.
    pub fn last_stage(&self) -> Stage {
        self.stages.last().map_or(Stage::Load, |(stage, _)| *stage)
    }
}

const MEMORY_SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// A job that was killed is given up when its zygote does not confirm its end in this time.
const END_WITHIN: Duration = Duration::from_secs(20);

type Granting<'a> = Pin<Box<dyn Future<Output = DeviceSlot> + Send + 'a>>;

/// Runs a job to its end.
pub async fn run(
    zygote: &Zygote,
    request: &Request,
    limits: JobLimits,
    slots: Option<&DeviceSlots>,
    mut stop: watch::Receiver<bool>,
    mut on_stage: impl FnMut(Stage),
) -> Result<JobReport, ZygoteError> {
    let dispatched = Instant::now();
    let job = zygote.spawn(request).await?;
    let number = job.number;
    let mut notices = job.notices;
    let mut output = tokio::spawn(read_tail(job.output));
    let (reading, writing) = job.channel.into_split();
    let mut conversation = Conversation::new(reading, writing, dispatched);

    let mut processes: Option<JobProcesses> = None;
    let mut killed: Option<Killed> = None;
    let mut waited_for_device = Duration::ZERO;
    let mut slot: Option<DeviceSlot> = None;
    let mut waiting: Option<(Instant, Granting<'_>)> = None;
    let mut sample = tokio::time::interval(MEMORY_SAMPLE_EVERY);
    sample.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut give_up: Option<Instant> = None;

    let (ending, max_rss_bytes) = loop {
        let mut kill_for: Option<Killed> = None;
        tokio::select! {
            notice = notices.recv() => match notice {
                Some(JobNotice::Spawned { pid }) => {
                    processes = host_pid(zygote.root_pid(), pid).map(JobProcesses::led_by);
                }
                Some(JobNotice::Exited { code, signal, max_rss_bytes }) => {
                    let ending = match (signal, code) {
                        (Some(signal), _) => Ending::Signal(signal),
                        (None, code) => Ending::Exited(code.unwrap_or_default()),
                    };
                    break (ending, max_rss_bytes);
                }
                Some(JobNotice::Lost) | None => break (Ending::ZygoteLost, 0),
            },
            said = conversation.next(), if conversation.open => match said {
                Said::Event(FromChild::Stage { stage }) => {
                    conversation.stages.push((stage, dispatched.elapsed().as_secs_f64() * 1e3));
                    on_stage(stage);
                }
                Said::Event(FromChild::NeedDevice) => match slots {
                    Some(slots) if waiting.is_none() && slot.is_none() => waiting = Some((Instant::now(), Box::pin(slots.acquire()))),
                    _ => conversation.reply(&ToChild::Device { env: &BTreeMap::new() }).await,
                },
                Said::Event(FromChild::DeviceDone) => slot = None,
                Said::Event(event) => conversation.take(event),
                Said::Nonsense(what) => kill_for = Some(Killed::Protocol { what }),
                Said::End => {}
            },
            granted = async { Some(waiting.as_mut()?.1.as_mut().await) }, if waiting.is_some() => {
                if let (Some(granted), Some((since, _))) = (granted, waiting.take()) {
                    waited_for_device += since.elapsed();
                    conversation.reply(&ToChild::Device { env: granted.env() }).await;
                    slot = Some(granted);
                }
            }
            _ = sample.tick() => {
                let still_waiting = waiting.as_ref().map_or(Duration::ZERO, |(since, _)| since.elapsed());
                if dispatched.elapsed() > limits.timeout + waited_for_device + still_waiting {
                    kill_for = Some(Killed::Deadline);
                } else if let Some(processes) = &mut processes {
                    let resident_bytes = processes.resident_bytes();
                    if resident_bytes > limits.memory_bytes {
                        kill_for = Some(Killed::Memory { resident_bytes });
                    }
                }
                if give_up.is_some_and(|at| Instant::now() > at) {
                    break (Ending::ZygoteLost, 0);
                }
            }
            () = raised(&mut stop), if killed.is_none() => kill_for = Some(Killed::Interrupted),
        }
        if let (Some(reason), None) = (kill_for, &killed) {
            killed = Some(reason);
            give_up = Some(Instant::now() + END_WITHIN);
            zygote.kill(number).await;
        }
    };
    let ended = Instant::now();
    drop((waiting, slot));
    // What it said before it ended may still stand in the channel.
    while conversation.open {
        match tokio::time::timeout(Duration::from_secs(1), conversation.next()).await {
            Ok(Said::Event(FromChild::Stage { stage })) => {
                conversation.stages.push((stage, dispatched.elapsed().as_secs_f64() * 1e3));
                on_stage(stage);
            }
            Ok(Said::Event(event)) => conversation.take(event),
            _ => break,
        }
    }
    // A process that escaped the group may hold the pipe open: its words are not waited for.
    let output_tail = match tokio::time::timeout(Duration::from_millis(500), &mut output).await {
        Ok(text) => text.unwrap_or_default(),
        Err(_) => {
            output.abort();
            "[its output pipe was held open by another process]".to_owned()
        }
    };
    Ok(JobReport {
        ending,
        killed,
        failure: conversation.failure,
        files: conversation.files,
        facts: conversation.facts,
        stages: conversation.stages,
        first_instruction_ms: conversation.first_instruction_ms,
        ended,
        max_rss_bytes,
        output_tail,
    })
}

/// Waits until a run is to stop.
pub async fn raised(stop: &mut watch::Receiver<bool>) {
    // A sender that is gone can raise nothing any more.
    if stop.wait_for(|stopping| *stopping).await.is_err() {
        std::future::pending::<()>().await;
    }
}

enum Said {
    Event(FromChild),
    Nonsense(String),
    End,
}

/// The job's channel and what came over it.
struct Conversation {
    lines: BufReader<OwnedReadHalf>,
    writing: OwnedWriteHalf,
    /// A partial line, kept when waiting for the rest is interrupted.
    line: Vec<u8>,
    dispatched: Instant,
    open: bool,
    failure: Option<Failure>,
    files: Option<BTreeMap<String, String>>,
    facts: Map<String, Value>,
    stages: Vec<(Stage, f64)>,
    first_instruction_ms: Option<f64>,
}

impl Conversation {
    fn new(reading: OwnedReadHalf, writing: OwnedWriteHalf, dispatched: Instant) -> Self {
        Self {
            lines: BufReader::new(reading),
            writing,
            line: Vec::new(),
            dispatched,
            open: true,
            failure: None,
            files: None,
            facts: Map::new(),
            stages: Vec::new(),
            first_instruction_ms: None,
        }
    }

    /// The next line. Safe to cancel: what was read of a line stays.
    async fn next(&mut self) -> Said {
        let room = (MAX_LINE_BYTES + 1).saturating_sub(self.line.len()) as u64;
        let _ = (&mut self.lines).take(room).read_until(b'\n', &mut self.line).await;
        let complete = self.line.ends_with(b"\n");
        if !complete && self.line.len() > MAX_LINE_BYTES {
            self.open = false;
            return Said::Nonsense(format!("a line of more than {MAX_LINE_BYTES} bytes"));
        }
        if !complete {
            // The end of the channel: what stands there is no line.
            self.open = false;
            return Said::End;
        }
        let line = std::mem::take(&mut self.line);
        match serde_json::from_slice(&line) {
            Ok(event) => Said::Event(event),
            Err(error) => {
                self.open = false;
                let shown = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
                Said::Nonsense(format!("a line that is no event ({error}): {shown}"))
            }
        }
    }

    fn take(&mut self, event: FromChild) {
        match event {
            FromChild::Started => {
                self.first_instruction_ms.get_or_insert(self.dispatched.elapsed().as_secs_f64() * 1e3);
            }
            FromChild::Facts { facts } => self.facts.extend(facts),
            FromChild::Failed(failure) => {
                self.failure.get_or_insert(failure);
            }
            FromChild::Done { files } => {
                self.files.get_or_insert(files);
            }
            FromChild::Stage { .. } | FromChild::NeedDevice | FromChild::DeviceDone => {}
        }
    }

    async fn reply(&mut self, reply: &ToChild<'_>) {
        // A child that is gone cannot read; its end is reported by the zygote.
        if let Ok(mut line) = serde_json::to_vec(reply) {
            line.push(b'\n');
            let _ = self.writing.write_all(&line).await;
        }
    }
}
