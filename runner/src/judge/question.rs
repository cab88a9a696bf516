//! What of a case decides how its outputs are judged.

use modelfarm_matrix::axes::{Dtype, Precision, Workload};
use modelfarm_matrix::case::Case;

/// The axes of a case that the judge depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// What was run.
    pub workload: Workload,
    /// The compute dtype.
    pub dtype: Dtype,
    /// The matrix multiplication precision that the target declares.
    pub precision: Precision,
}

impl From<&Case> for Question {
    fn from(case: &Case) -> Self {
        Self { workload: case.workload, dtype: case.dtype, precision: case.precision }
    }
}

impl Question {
    /// The epsilon of the compute dtype: what every stored number is rounded to.
    pub fn storage_epsilon(&self) -> f64 {
        self.dtype.epsilon()
    }

    /// The epsilon that the operands of matrix multiplications are rounded to, where that is coarser than the dtype.
    pub fn multiply_epsilon(&self) -> f64 {
        let operands = match (self.dtype, self.precision) {
            (Dtype::Float32, Precision::Medium) => Dtype::Bfloat16.epsilon(),
            // Two bfloat16 parts hold 16 bits of significand.
            (Dtype::Float32, Precision::High) => 2f64.powi(-15),
            _ => 0.0,
        };
        operands.max(self.storage_epsilon())
    }

    /// What a device may flush to zero: the smallest normal number, or for float16, whose subnormals matter, the smallest one.
    pub fn underflow(&self) -> f64 {
        match self.dtype {
            Dtype::Float32 | Dtype::Bfloat16 => f64::from(f32::MIN_POSITIVE),
            Dtype::Float16 => 2f64.powi(-24),
        }
    }
}
