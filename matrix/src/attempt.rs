//! One try of a case: what the store keeps of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::case::Case;
use crate::expectation::Verdict;
use crate::fault::{Evidence, Fault};
use crate::leaf::LeafStatistics;
use crate::outcome::{Check, Outcome, Stage};

/// The figures of an attempt. Those of several leaves are the worst leaf's. Absent means not measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Metrics {
    /// RMSE(device) / max(RMSE(yardstick), floor).
    pub rmse_ratio: Option<f64>,
    /// ‖device − ref‖ / ‖ref‖.
    pub rel_l2: Option<f64>,
    /// max |device − ref|.
    pub max_abs: Option<f64>,
    /// Pearson's correlation.
    pub pcc: Option<f64>,
    /// Cosine similarity.
    pub cosine: Option<f64>,
    /// |Σ device·ref / Σ ref² − 1|.
    pub gain_error: Option<f64>,
    /// Share of rows with the same largest logit.
    pub top1_agreement: Option<f64>,
    /// Graphs that `torch.compile` made.
    pub graph_count: Option<i64>,
    /// Graph breaks.
    pub graph_break_count: Option<i64>,
    /// Recompilations.
    pub recompile_count: Option<i64>,
    /// Programs compiled by the PJRT plugin.
    pub compile_count: Option<i64>,
    /// Milliseconds the PJRT plugin spent compiling.
    pub compile_ms: Option<f64>,
    /// Programs launched.
    pub execute_count: Option<i64>,
    /// Bytes from host to device.
    pub h2d_bytes: Option<i64>,
    /// Bytes from device to host.
    pub d2h_bytes: Option<i64>,
    /// Peak of live bytes on the device.
    pub peak_device_bytes: Option<i64>,
    /// Tokens generated a second.
    pub tokens_per_s: Option<f64>,
}

/// One try of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was asked.
    pub case: Case,
    /// 1 for the first try of this case in this run.
    pub attempt: u32,
    /// `config.model_type`.
    pub architecture: String,
    /// The commit that was tested, once known.
    pub revision: Option<String>,
    /// How far it was checked.
    pub check: Check,
    /// What was observed.
    pub outcome: Outcome,
    /// Where it ended.
    pub stage: Stage,
    /// Whose problem it is.
    pub fault: Option<Fault>,
    /// What was known when the fault was assigned.
    pub evidence: Evidence,
    /// Outcome and expectation together.
    pub verdict: Verdict,
    /// Why the expectation was declared, where one was.
    pub expectation_reason: Option<String>,
    /// The masked message that groups the same failure across models.
    pub signature: Option<String>,
    /// The message, bounded.
    pub message: Option<String>,
    /// The traceback, bounded.
    pub traceback: Option<String>,
    /// The end of what the process wrote, bounded.
    pub output_tail: Option<String>,
    /// Start, UTC milliseconds since 1970.
    pub started_at: i64,
    /// From start to the committed row, milliseconds.
    pub duration_ms: i64,
    /// The farm's own part: dispatch to the child's first instruction, and its last byte to the committed row. Milliseconds.
    pub farm_overhead_ms: Option<f64>,
    /// The host's name.
    pub host: String,
    /// The environment's id.
    pub environment_id: Option<String>,
    /// The hash of the inputs file.
    pub inputs_hash: Option<String>,
    /// The key of the reference that was used.
    pub reference_key: Option<String>,
    /// Figures.
    pub metrics: Metrics,
    /// Every leaf's statistics.
    pub leaves: Vec<LeafStatistics>,
    /// What the worker reported: devices, graph break reasons, time by stage, the policy's version, ...
    pub facts: Value,
}
