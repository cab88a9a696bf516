//! The numbers that decide how much error is too much. They have a version, because old runs are judged again under new ones.

use serde::{Deserialize, Serialize};

/// The constants of every gate. `docs/judging.md` says why each has its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Changes with any number below, and with any formula that uses them.
    pub version: u32,
    /// `m`: how many times the legitimate noise a target may err.
    pub noise_multiple: f64,
    /// Noise is never taken as less than this many epsilons of the compute dtype, relative to the reference.
    pub floor_epsilons: f64,
    /// That floor grows for leaves of fewer elements than this, whose error is a matter of luck on both sides.
    pub few_elements: f64,
    /// A gain error below this is no defect of gain: only the RMSE gate judges it.
    pub smallest_gain_error: f64,
    /// A mean error below this share of the reference's RMS is no offset: only the RMSE gate judges it.
    pub smallest_mean_error: f64,
    /// The errors of one leaf are never taken as more than this many independent ones.
    pub most_independent_rows: u64,
    /// A leaf whose yardstick errs by this share of the reference's RMS is not resolved at the case's dtype.
    pub unresolved_share: f64,
    /// A flipped choice is a tie where the reference's margin is at most this many times the error that an element may have.
    pub tie_multiple: f64,
    /// Two reference runs may differ by this share of the legitimate noise.
    pub repeat_share: f64,
}

impl Policy {
    /// The policy that new attempts are judged under.
    pub const fn current() -> Self {
        Self {
            version: 2,
            noise_multiple: 3.0,
            floor_epsilons: 4.0,
            few_elements: 10.0,
            smallest_gain_error: 5e-4,
            smallest_mean_error: 5e-4,
            most_independent_rows: 64,
            unresolved_share: 0.5,
            tie_multiple: 2.0,
            repeat_share: 0.25,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::current()
    }
}
