//! What all models of a run share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::expectation::Expectations;
use modelfarm_matrix::target::Targets;
use modelfarm_reports::store::Store;
use tokio::sync::watch;

use super::recorder::Recorder;
use super::reference_cache::ReferenceCache;
use super::worker_pool::WorkerPool;
use crate::hub::{DownloadLimits, FileStore, HubClient};
use crate::judge::Policy;

/// What all models of a run share.
#[derive(Debug)]
pub struct Context {
    /// The run's id.
    pub run_id: String,
    /// The store, for what was recorded before.
    pub store: Arc<Store>,
    /// The event stream.
    pub recorder: Recorder,
    /// The workers.
    pub pool: WorkerPool,
    /// References.
    pub references: ReferenceCache,
    /// The Hub's files on this host.
    pub files: FileStore,
    /// The Hub of `HF_ENDPOINT`.
    pub hub: Option<HubClient>,
    /// The fixture Hub.
    pub fixture_hub: Option<HubClient>,
    /// Bounds of downloads from the Hub.
    pub hub_limits: DownloadLimits,
    /// Bounds of downloads from the fixture Hub.
    pub fixture_limits: DownloadLimits,
    /// The declared targets.
    pub targets: Targets,
    /// The declared expectations.
    pub expectations: Expectations,
    /// The judge's policy.
    pub policy: Policy,
    /// The host's name.
    pub host: String,
    /// The hash of the worker's source.
    pub worker_hash: String,
    /// How often an unexpected failure is tried again.
    pub retries: u32,
    /// How often each case is tried, whatever comes out.
    pub repeat: u32,
    /// The seed of everything random.
    pub seed: u64,
    /// Cases that are final already.
    pub already_final: BTreeSet<CaseId>,
    /// The highest number of a try of each case so far.
    pub last_attempts: BTreeMap<CaseId, u32>,
    /// How long cases took in the run of this matrix before.
    pub earlier_durations: BTreeMap<CaseId, Duration>,
    /// Raised when the run is to stop.
    pub stop: watch::Receiver<bool>,
}

impl Context {
    /// Whether the run is to stop.
    pub fn stopping(&self) -> bool {
        *self.stop.borrow()
    }
}
