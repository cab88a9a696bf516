//! The one event stream of a run: stored first, seen by everybody else after.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use modelfarm_matrix::attempt::Attempt;
use modelfarm_matrix::event::Event;
use modelfarm_reports::store::{RunHandle, Store, StoreError};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// How often a run says that it lives where nothing else happens.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(20);

enum Entry {
    Event(Event),
    Attempt { attempt: Box<Attempt>, retried: bool, reply: oneshot::Sender<()> },
}

/// Writes events and attempts of one run in order, and hands each on once it is committed.
///
/// The first error of the store ends the run: what cannot be recorded is not worth running.
#[derive(Debug)]
pub struct Recorder {
    entries: mpsc::UnboundedSender<Entry>,
    committed: broadcast::Sender<Event>,
    failure: Arc<Mutex<Option<StoreError>>>,
    writer: JoinHandle<()>,
}

impl Recorder {
    /// Starts recording. `stop` is raised on the first error.
    pub fn start(store: Arc<Store>, run: RunHandle, stop: watch::Sender<bool>) -> Self {
        let (entries, mut queue) = mpsc::unbounded_channel();
        let (committed, _) = broadcast::channel(4096);
        let failure = Arc::new(Mutex::new(None));
        let (sender, error) = (committed.clone(), failure.clone());
        let writer = tokio::spawn(async move {
            loop {
                let entry = match tokio::time::timeout(HEARTBEAT_EVERY, queue.recv()).await {
                    Ok(Some(entry)) => entry,
                    Ok(None) => break,
                    Err(_) => {
                        let _ = store.heartbeat(&run).await;
                        continue;
                    }
                };
                let written = match entry {
                    Entry::Event(event) => store.append_event(&run, &event).await.map(|_| event),
                    Entry::Attempt { attempt, retried, reply } => {
                        let begun = Instant::now();
                        let written = match retried {
                            true => store.finish_attempt_before_retry(&run, &attempt).await,
                            false => store.finish_attempt(&run, &attempt).await,
                        };
                        let took = begun.elapsed();
                        let written = match (written, attempt.farm_overhead_ms) {
                            (Ok(_), Some(_)) => {
                                let (id, ms) = (attempt.case.id(), took.as_secs_f64() * 1e3);
                                store.add_farm_overhead(&run, &id, attempt.attempt, ms).await
                            }
                            (written, _) => written.map(drop),
                        };
                        written.map(|()| {
                            let _ = reply.send(());
                            finished(&attempt)
                        })
                    }
                };
                match written {
                    // Nobody may be listening.
                    Ok(event) => drop(sender.send(event)),
                    Err(problem) => {
                        error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
                        let _ = stop.send(true);
                        break;
                    }
                }
            }
        });
        Self { entries, committed, failure, writer }
    }

    /// What is committed from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.committed.subscribe()
    }

    /// Records an event.
    pub fn event(&self, event: Event) {
        // A closed queue means that the store failed, which `finish` reports.
        let _ = self.entries.send(Entry::Event(event));
    }

    /// Records an attempt; returns once it is committed, or none where the store failed.
    pub async fn attempt(&self, attempt: Attempt, retried: bool) -> Option<()> {
        let (reply, committed) = oneshot::channel();
        self.entries.send(Entry::Attempt { attempt: Box::new(attempt), retried, reply }).ok()?;
        committed.await.ok()
    }

    /// Waits until everything is written.
    pub async fn finish(self) -> Result<(), StoreError> {
        drop(self.entries);
        let _ = self.writer.await;
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn finished(attempt: &Attempt) -> Event {
    Event::AttemptFinished {
        case_id: attempt.case.id(),
        attempt: attempt.attempt,
        outcome: attempt.outcome,
        stage: attempt.stage,
        unexpected: attempt.verdict.is_unexpected(),
    }
}
