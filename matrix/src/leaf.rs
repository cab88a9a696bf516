//! The statistics of one output leaf: enough to judge it again under another policy without running it again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sums over one leaf of a target's outputs (`device`), its reference and its yardstick, all taken in f64.
///
/// Elements whose reference is not finite are left out of the sums and counted in `nonfinite_mismatches` where they differ.
/// JSON has no infinity: a sum that overflowed is null there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeafStatistics {
    /// Dotted path of the leaf.
    pub name: String,
    /// Shape, outermost dimension first.
    pub shape: Vec<u64>,
    /// Dtype as the target returned it, in safetensors' words (`F32`).
    pub dtype: String,
    /// How the leaf is judged.
    pub kind: LeafKind,
    /// Number of elements that enter the sums.
    pub count: u64,
    /// Elements that are not judged: those at padded positions, and generated ones behind a choice that differs.
    #[serde(default)]
    pub left_out: u64,
    /// Σ ref².
    #[schema(nullable)]
    pub sum_ref_squared: f64,
    /// Σ device².
    #[schema(nullable)]
    pub sum_device_squared: f64,
    /// Σ ref.
    #[schema(nullable)]
    pub sum_ref: f64,
    /// Σ device.
    #[schema(nullable)]
    pub sum_device: f64,
    /// Σ (device − ref)².
    #[schema(nullable)]
    pub sum_error_squared: f64,
    /// Σ device·ref.
    #[schema(nullable)]
    pub sum_device_ref: f64,
    /// max |device − ref|.
    #[schema(nullable)]
    pub max_abs_error: f64,
    /// Elements where exactly one side is NaN or infinite, or both are in different ways.
    pub nonfinite_mismatches: u64,
    /// Σ (yardstick − ref)².
    #[schema(nullable)]
    pub sum_yardstick_error_squared: f64,
    /// max |yardstick − ref|.
    #[schema(nullable)]
    pub yardstick_max_abs_error: f64,
    /// |Σ yardstick·ref / Σ ref² − 1|: the gain error that is legitimate.
    #[schema(nullable)]
    pub yardstick_gain_error: f64,
    /// |mean(yardstick − ref)|.
    #[schema(nullable)]
    pub yardstick_mean_error: f64,
    /// Share of rows whose largest element stands at the same place, for logits.
    pub top1_agreement: Option<f64>,
    /// Mean Kullback-Leibler divergence of softmax(ref) from softmax(device) in nats a row, for logits.
    pub kl_divergence: Option<f64>,
    /// Elements that differ, for leaves that are compared exactly.
    pub unequal: u64,
}

/// How a leaf is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LeafKind {
    /// By distance from the reference, against the yardstick.
    Distance,
    /// Exactly: integers, booleans, tokens.
    Exact,
}

impl LeafStatistics {
    /// Root mean square of the reference.
    pub fn rms_ref(&self) -> f64 {
        root_mean(self.sum_ref_squared, self.count)
    }

    /// Root mean square error of the device.
    pub fn rmse(&self) -> f64 {
        root_mean(self.sum_error_squared, self.count)
    }

    /// Root mean square error of the yardstick.
    pub fn yardstick_rmse(&self) -> f64 {
        root_mean(self.sum_yardstick_error_squared, self.count)
    }

    /// Signed error of the gain: Σ device·ref / Σ ref² − 1. Zero for a reference of zeros.
    pub fn gain_error(&self) -> f64 {
        if self.sum_ref_squared > 0.0 { self.sum_device_ref / self.sum_ref_squared - 1.0 } else { 0.0 }
    }

    /// Signed mean error, mean(device − ref).
    pub fn mean_error(&self) -> f64 {
        if self.count > 0 { (self.sum_device - self.sum_ref) / self.count as f64 } else { 0.0 }
    }

    /// Relative L2 error, ‖device − ref‖ / ‖ref‖; infinite where only the reference is zero.
    pub fn rel_l2(&self) -> f64 {
        ratio(self.sum_error_squared.sqrt(), self.sum_ref_squared.sqrt())
    }

    /// Cosine of the angle between device and reference; 1 where both are zero.
    pub fn cosine(&self) -> f64 {
        let norms = (self.sum_ref_squared * self.sum_device_squared).sqrt();
        if norms > 0.0 { (self.sum_device_ref / norms).clamp(-1.0, 1.0) } else { f64::from(self.sum_error_squared == 0.0) }
    }

    /// Pearson's correlation of device and reference; none where either is constant.
    pub fn pcc(&self) -> Option<f64> {
        let n = self.count as f64;
        let covariance = self.sum_device_ref - self.sum_device * self.sum_ref / n;
        let variances =
            (self.sum_device_squared - self.sum_device.powi(2) / n) * (self.sum_ref_squared - self.sum_ref.powi(2) / n);
        (self.count > 1 && variances > 0.0).then(|| (covariance / variances.sqrt()).clamp(-1.0, 1.0))
    }
}

fn root_mean(sum: f64, count: u64) -> f64 {
    if count > 0 { (sum / count as f64).sqrt() } else { 0.0 }
}

fn ratio(a: f64, b: f64) -> f64 {
    if a == 0.0 { 0.0 } else { a / b }
}
