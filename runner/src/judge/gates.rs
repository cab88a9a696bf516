//! The gates that a floating leaf must pass.

use std::fmt;

use modelfarm_matrix::leaf::LeafStatistics;

use super::noise::Noise;
use super::policy::Policy;

/// What a leaf is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Rmse,
    Gain,
    MeanError,
    Top1,
    Divergence,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gate::Rmse => "root mean square error",
            Gate::Gain => "gain error",
            Gate::MeanError => "mean error",
            Gate::Top1 => "largest error in rows whose winner changed",
            Gate::Divergence => "Kullback-Leibler divergence",
        })
    }
}

/// A figure and what it may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    pub(crate) gate: Gate,
    pub(crate) found: f64,
    pub(crate) allowed: f64,
}

impl Reading {
    /// Whether the gate is passed. A figure that is not a number passes nothing.
    pub(crate) fn passes(&self) -> bool {
        self.found <= self.allowed
    }

    /// How far beyond the gate, as a ratio of errors: above 1 fails.
    pub(crate) fn excess(&self) -> f64 {
        match self.gate {
            _ if self.found.is_nan() => f64::INFINITY,
            _ if self.found == 0.0 => 0.0,
            // A divergence grows with the square of the errors.
            Gate::Divergence => (self.found / self.allowed).sqrt(),
            _ => self.found / self.allowed,
        }
    }
}

/// Every gate's reading of a leaf.
pub(crate) fn readings(leaf: &LeafStatistics, noise: &Noise, policy: &Policy) -> Vec<Reading> {
    let m = policy.noise_multiple;
    let reading = |gate, found, allowed| Reading { gate, found, allowed };
    let mut readings = vec![reading(Gate::Rmse, leaf.rmse(), m * noise.rmse)];
    if noise.rms_ref > 0.0 {
        readings.push(reading(Gate::Gain, leaf.gain_error().abs(), allowed_gain_error(leaf, noise, policy)));
    }
    readings.push(reading(Gate::MeanError, leaf.mean_error().abs(), allowed_mean_error(leaf, noise, policy)));
    // If no element errs by more than `element`, no row diverges by more than half its square, and no winner changes but by ties.
    let element = m * noise.element;
    if leaf.top1_agreement.is_some_and(|share| share < 1.0) {
        readings.push(reading(Gate::Top1, leaf.max_abs_error, policy.tie_multiple * element));
    }
    if let Some(divergence) = leaf.kl_divergence {
        readings.push(reading(Gate::Divergence, divergence, (element * element / 2.0).max(f64::EPSILON * 64.0)));
    }
    readings
}

fn allowed_gain_error(leaf: &LeafStatistics, noise: &Noise, policy: &Policy) -> f64 {
    let by_chance = noise.measured / noise.rms_ref / noise.rows.sqrt();
    let explained = policy.noise_multiple * leaf.yardstick_gain_error.max(by_chance);
    explained.max(policy.floor_epsilons * noise.epsilon).max(policy.smallest_gain_error)
}

fn allowed_mean_error(leaf: &LeafStatistics, noise: &Noise, policy: &Policy) -> f64 {
    let by_chance = noise.measured / noise.rows.sqrt();
    let explained = policy.noise_multiple * leaf.yardstick_mean_error.max(by_chance);
    let mean_ref = if leaf.count > 0 { leaf.sum_ref.abs() / leaf.count as f64 } else { 0.0 };
    let rounding = (noise.epsilon / 2.0).max(policy.smallest_mean_error) * noise.rms_ref;
    explained.max(rounding + policy.floor_epsilons * noise.epsilon * mean_ref)
}

/// Whether a leaf can tell right from wrong: outputs of zeros would fail, and it is not one number all over.
pub(crate) fn is_informative(leaf: &LeafStatistics, noise: &Noise, policy: &Policy) -> bool {
    if leaf.count == 0 || noise.rms_ref == 0.0 {
        return false;
    }
    let zeros_fail = noise.rms_ref > policy.noise_multiple * noise.rmse || 1.0 > allowed_gain_error(leaf, noise, policy);
    let mean = leaf.sum_ref / leaf.count as f64;
    let deviation = (noise.rms_ref * noise.rms_ref - mean * mean).max(0.0).sqrt();
    let varies = leaf.count == 1 || deviation > policy.floor_epsilons * noise.epsilon * noise.rms_ref;
    zeros_fail && varies
}
