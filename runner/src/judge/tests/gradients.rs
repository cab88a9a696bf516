//! Gradients: of very different magnitudes, and of nothing but noise.

use safetensors::Dtype as Stored;

use modelfarm_matrix::axes::{Dtype, Precision, Workload};
use modelfarm_matrix::outcome::Outcome;

use super::numerical_model::Normal;
use super::{Leaves, judge_leaves, question};

/// A large gradient, a small one, and the bias of a key projection, whose gradient cancels in exact arithmetic.
fn step(dtype: Stored, relative_noise: f64, seed: u64, cancelled: f64) -> Leaves {
    let mut noise = Normal(seed);
    let mut leaf = |seed: u64, count: usize, scale: f64| -> Vec<f64> {
        let values = Normal(seed).many(count, scale);
        values.into_iter().map(|value| value * (1.0 + relative_noise * noise.next())).collect()
    };
    Leaves::default()
        .with("loss", dtype, &[], leaf(1, 1, 3.0))
        .with("gradient.embedding.weight", dtype, &[64, 32], leaf(2, 2048, 1e-2))
        .with("gradient.early.weight", dtype, &[32, 32], leaf(3, 1024, 1e-6))
        .with("gradient.k_proj.bias", dtype, &[32], leaf(seed + 50, 32, cancelled))
        .with("parameter.embedding.weight", dtype, &[64, 32], leaf(5, 2048, 0.02))
        .with("parameter.k_proj.bias", dtype, &[32], leaf(seed + 60, 32, 0.1 * cancelled))
}

fn judged(yardstick: &Leaves, device: &Leaves) -> Outcome {
    let question = question(Workload::TrainStep, Dtype::Float32, Precision::Highest);
    let reference = step(Stored::F64, 0.0, 7, 1e-17);
    judge_leaves(&reference, yardstick, device, &question).unwrap().outcome
}

#[test]
fn a_gradient_that_cancels_to_noise_does_not_fail() {
    let yardstick = step(Stored::F32, 1e-7, 8, 1e-9);
    assert_eq!(judged(&yardstick, &step(Stored::F32, 1e-7, 9, 1.5e-9)), Outcome::Pass);
    // The yardstick may cancel exactly, and so may the device.
    let mut exact = yardstick.clone();
    for name in ["gradient.k_proj.bias", "parameter.k_proj.bias"] {
        exact.get(name).values.fill(0.0);
    }
    assert_eq!(judged(&exact, &step(Stored::F32, 1e-7, 9, 1e-9)), Outcome::Pass);
    assert_eq!(judged(&yardstick, &exact), Outcome::Pass);
}

#[test]
fn a_gradient_that_should_cancel_and_does_not_fails() {
    let yardstick = step(Stored::F32, 1e-7, 8, 1e-9);
    assert_eq!(judged(&yardstick, &step(Stored::F32, 1e-7, 9, 1e-4)), Outcome::Mismatch);
}

#[test]
fn a_small_gradient_is_judged_by_its_own_magnitude() {
    let yardstick = step(Stored::F32, 1e-7, 8, 1e-9);
    for change in [0.0, 1.01, -1.0] {
        let mut device = step(Stored::F32, 1e-7, 9, 1e-9);
        device.get("gradient.early.weight").values.iter_mut().for_each(|value| *value *= change);
        assert_eq!(judged(&yardstick, &device), Outcome::Mismatch, "{change}");
    }
}

#[test]
fn a_parameter_that_was_not_updated_shows_in_its_gradient() {
    let yardstick = step(Stored::F32, 1e-7, 8, 1e-9);
    let mut device = step(Stored::F32, 1e-7, 9, 1e-9);
    device.get("gradient.embedding.weight").values.fill(0.0);
    assert_eq!(judged(&yardstick, &device), Outcome::Mismatch);
}
