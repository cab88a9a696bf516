//! How much error is legitimate in a leaf, from its statistics alone.

use modelfarm_matrix::axes::Workload;
use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};

use super::policy::Policy;
use super::question::Question;

/// The largest RMS among the gradients and among the parameters of one training step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scales {
    gradient: f64,
    parameter: f64,
}

impl Scales {
    pub(crate) fn of(leaves: &[LeafStatistics], question: &Question) -> Self {
        let largest = |group: &str| {
            let members = leaves.iter().filter(|leaf| question.workload == Workload::TrainStep && in_group(leaf, group));
            members.map(LeafStatistics::rms_ref).fold(0.0, f64::max)
        };
        Self { gradient: largest("gradient"), parameter: largest("parameter") }
    }

    fn for_leaf(&self, leaf: &LeafStatistics) -> f64 {
        match () {
            _ if in_group(leaf, "gradient") => self.gradient,
            _ if in_group(leaf, "parameter") => self.parameter,
            _ => 0.0,
        }
    }
}

fn in_group(leaf: &LeafStatistics, group: &str) -> bool {
    leaf.kind == LeafKind::Distance && leaf.name.split('.').next() == Some(group)
}

/// The legitimate noise of one leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noise {
    /// RMS of the reference.
    pub(crate) rms_ref: f64,
    /// The epsilon that the leaf's numbers are rounded to.
    pub(crate) epsilon: f64,
    /// max(RMSE(yardstick), floor): what the RMSE gate multiplies.
    pub(crate) rmse: f64,
    /// The same without the floor of the dtype: what part of it may point one way is for the gates of gain and mean to say.
    pub(crate) measured: f64,
    /// The error that the largest of the leaf's elements may have by itself, before the multiple.
    pub(crate) element: f64,
    /// Errors that count as independent.
    pub(crate) rows: f64,
}

impl Noise {
    pub(crate) fn of(leaf: &LeafStatistics, scales: &Scales, question: &Question, policy: &Policy) -> Self {
        let (rms_ref, yardstick) = (leaf.rms_ref(), leaf.yardstick_rmse());
        let epsilon = question.storage_epsilon().max(stored_epsilon(&leaf.dtype));
        let multiply = question.multiply_epsilon().max(epsilon);
        let count = leaf.count.max(1) as f64;

        // The last roundings of a few elements may all go one way on the device, and cancel in the yardstick.
        let few = (policy.few_elements / count).sqrt().max(1.0);
        let dtype_floor = policy.floor_epsilons * epsilon * rms_ref * few;
        // The yardstick of a few elements may be right by luck. That of many is not.
        let sample_floor = policy.floor_epsilons * multiply * rms_ref / count.sqrt();
        // What cancels in exact arithmetic leaves noise in proportion to what it was made of.
        let unresolved = yardstick > 0.0 && yardstick >= policy.unresolved_share * rms_ref;
        let scale_floor = if unresolved { multiply * scales.for_leaf(leaf) } else { 0.0 };
        let underflow = if rms_ref > 0.0 { question.underflow() } else { 0.0 };

        let measured = yardstick.max(sample_floor).max(scale_floor).max(underflow);
        let rmse = measured.max(dtype_floor);
        let last = leaf.shape.last().copied().unwrap_or(1).max(1);
        let rows = (leaf.count / last).clamp(1, policy.most_independent_rows.max(1));
        Self { rms_ref, epsilon, rmse, measured, element: leaf.yardstick_max_abs_error.max(rmse), rows: rows as f64 }
    }
}

/// The epsilon of a leaf whose own dtype is coarser than the case's; nothing for others.
fn stored_epsilon(dtype: &str) -> f64 {
    use safetensors::Dtype::*;
    [F16, BF16, F8_E4M3, F8_E5M2].into_iter().find(|known| known.to_string() == dtype).map_or(0.0, super::decode::epsilon)
}
