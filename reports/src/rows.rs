//! The rows that queries return: the JSON of `query results` and `query runs`, and what every page shows.

use modelfarm_matrix::attempt::Metrics;
use modelfarm_matrix::axes::{Dtype, Harness, Mode, Precision, Weights, Workload};
use modelfarm_matrix::case::{Case, CaseId};
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::leaf::LeafStatistics;
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::{Check, Outcome, Stage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One attempt, as `query results` prints it. Absent is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ResultRow {
    /// The case's id.
    pub case_id: CaseId,
    /// The run.
    pub run_id: String,
    /// 1 for the first try of the case in the run.
    pub attempt: u32,
    /// The repository.
    pub model: ModelId,
    /// The commit that was tested.
    pub revision: Option<String>,
    /// `config.model_type`.
    pub architecture: String,
    /// The class that was run.
    pub class: String,
    /// The library that ran it.
    pub harness: Harness,
    /// Where the weights came from.
    pub weights: Weights,
    /// What was run.
    pub workload: Workload,
    /// The input profile.
    pub inputs: String,
    /// The compute dtype.
    pub dtype: Dtype,
    /// The matmul precision.
    pub precision: Precision,
    /// The attention implementation.
    pub attention: String,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// How far it was checked.
    pub check: Check,
    /// What was observed.
    pub outcome: Outcome,
    /// Where it ended.
    pub stage: Stage,
    /// Whose problem it is.
    pub fault: Option<Fault>,
    /// Outcome and expectation together.
    pub verdict: Verdict,
    /// The masked message.
    pub signature: Option<String>,
    /// The message.
    pub message: Option<String>,
    /// Milliseconds from start to the committed row.
    pub duration_ms: i64,
    /// Start, RFC 3339 in UTC.
    pub started_at: String,
    /// The host.
    pub host: String,
    /// Figures; of several leaves the worst leaf's.
    pub metrics: Metrics,
    /// The environment.
    pub environment_id: Option<String>,
}

impl ResultRow {
    /// The case that was asked.
    pub fn case(&self) -> Case {
        Case {
            model: self.model.clone(),
            class: self.class.clone(),
            harness: self.harness,
            weights: self.weights,
            workload: self.workload,
            inputs: self.inputs.clone(),
            dtype: self.dtype,
            precision: self.precision,
            attention: self.attention.clone(),
            target: self.target.clone(),
            mode: self.mode,
        }
    }
}

/// What `show` and the pages tell of an attempt beyond its row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttemptDetail {
    /// The row.
    #[serde(flatten)]
    pub row: ResultRow,
    /// Why the expectation was declared, where one was.
    pub expectation_reason: Option<String>,
    /// The traceback.
    pub traceback: Option<String>,
    /// The end of what the process wrote.
    pub output_tail: Option<String>,
    /// Milliseconds of the farm's own work in it.
    pub farm_overhead_ms: Option<f64>,
    /// The inputs' hash.
    pub inputs_hash: Option<String>,
    /// The reference's key.
    pub reference_key: Option<String>,
    /// Every leaf's statistics.
    pub leaves: Vec<LeafStatistics>,
    /// What the worker reported.
    pub facts: Value,
    /// What was known when the fault was assigned.
    pub evidence: Value,
}

modelfarm_matrix::words! {
    /// How far a run came.
    pub enum RunState ("run state") {
        /// Every planned case of all shards is final.
        Complete => "complete",
        /// Ended, but cases are missing.
        Partial => "partial",
        /// Still going.
        Running => "running",
        /// Ended early by a signal or a crash.
        Interrupted => "interrupted",
    }
}

/// One run, as `query runs` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunRow {
    /// The run.
    pub run_id: String,
    /// The matrix's name.
    pub matrix: String,
    /// Which of its cases were to be taken, apart from shards; empty where all. Only runs of one selection are compared.
    pub selection: String,
    /// The plan: the same question has the same id.
    pub plan_id: String,
    /// How far it came.
    pub state: RunState,
    /// Start, RFC 3339 in UTC.
    pub started_at: String,
    /// End, RFC 3339 in UTC.
    pub ended_at: Option<String>,
    /// Cases planned in all shards.
    pub planned: u64,
    /// Cases that are final.
    pub finished: u64,
    /// Final cases that passed.
    pub pass: u64,
    /// Final cases that failed.
    pub fail: u64,
    /// Final cases that say nothing about the target.
    pub inconclusive: u64,
    /// Final cases whose outcome was not the declared one.
    pub unexpected: u64,
    /// Median of the farm's own milliseconds a case.
    pub farm_overhead_ms_median: Option<f64>,
    /// Cases an hour of wall time while running.
    pub cases_per_hour: Option<f64>,
    /// The shards seen, such as `2/3`.
    pub shards: Vec<String>,
    /// The hosts seen.
    pub hosts: Vec<String>,
    /// The environments used.
    pub environments: Vec<String>,
    /// Facts of the run's hosts: sandbox, cores, the farm's version, ...
    pub facts: Value,
}
