//! Every defect that the judge must see, and the runs that it must not mistake for one.

use safetensors::Dtype as Stored;

use modelfarm_matrix::axes::{Dtype, Precision};
use modelfarm_matrix::outcome::Outcome;

use super::numerical_model::{self, Arithmetic, Implementation, VOCABULARY};
use super::{Bench, forward, judge_leaves};

#[test]
fn a_correct_float32_run_passes() {
    let judgement = Bench::float32().judge_changed(|_| {});
    assert_eq!(judgement.outcome, Outcome::Pass, "{:?}", judgement.message);
    let metrics = &judgement.metrics;
    assert!(metrics.rmse_ratio.unwrap() < 1.5 && metrics.pcc.unwrap() > 0.999_999);
    assert_eq!(metrics.top1_agreement, Some(1.0));
    assert_eq!(judgement.leaves.len(), 4);
}

#[test]
fn a_correct_bfloat16_run_passes() {
    let bench = Bench::bfloat16();
    let judgement = bench.judge_changed(|_| {});
    assert_eq!(judgement.outcome, Outcome::Pass, "{:?}", judgement.message);
    // It is another run than the yardstick, or this would show nothing.
    assert!(bench.device.0["logits"].values != bench.yardstick.0["logits"].values);
}

#[test]
fn zeros_fail() {
    for bench in [Bench::float32(), Bench::bfloat16()] {
        assert_eq!(bench.outcome_of(|leaves| leaves.map(|_| 0.0)), Outcome::Mismatch);
        assert_eq!(bench.outcome_of(|leaves| leaves.get("logits").values.fill(0.0)), Outcome::Mismatch);
    }
}

#[test]
fn a_gain_of_1_01_at_float32_fails() {
    let times = |leaves: &mut super::Leaves| leaves.map(|value| value * 1.01);
    assert_eq!(Bench::float32().outcome_of(times), Outcome::Mismatch);
    let judgement = Bench::float32_at_medium().judge_changed(times);
    assert_eq!(judgement.outcome, Outcome::Mismatch);
    assert!(judgement.message.unwrap().contains("gain error"));
}

#[test]
fn a_gain_of_1_05_at_bfloat16_fails_by_the_gate_of_gain() {
    for leaf in ["logits", "hidden_states.2"] {
        let judgement =
            Bench::bfloat16().judge_changed(|leaves| leaves.get(leaf).values.iter_mut().for_each(|value| *value *= 1.05));
        assert_eq!(judgement.outcome, Outcome::Mismatch);
        let message = judgement.message.unwrap();
        assert!(message.contains(&format!("leaf `{leaf}`")) && message.contains("gain error"), "{message}");
        // The gate of RMSE alone would let it through.
        assert!(judgement.metrics.rmse_ratio.unwrap() < 3.0);
    }
}

#[test]
fn an_added_offset_fails_also_where_noise_is_large() {
    assert_eq!(Bench::float32().outcome_of(|leaves| leaves.map(|value| value + 1e-3)), Outcome::Mismatch);
    let judgement =
        Bench::bfloat16().judge_changed(|leaves| leaves.get("logits").values.iter_mut().for_each(|value| *value += 0.05));
    assert_eq!(judgement.outcome, Outcome::Mismatch);
    assert!(judgement.message.unwrap().contains("mean error"));
    assert!(judgement.metrics.rmse_ratio.unwrap() < 3.0);
}

#[test]
fn swapped_rows_fail() {
    for bench in [Bench::float32(), Bench::bfloat16()] {
        let swap = |leaves: &mut super::Leaves| {
            let (left, right) = leaves.get("logits").values.split_at_mut(VOCABULARY);
            left.swap_with_slice(&mut right[..VOCABULARY]);
        };
        let judgement = bench.judge_changed(swap);
        assert_eq!(judgement.outcome, Outcome::Mismatch);
        assert!(judgement.metrics.top1_agreement.unwrap() < 1.0);
    }
}

#[test]
fn swapped_rows_of_the_batch_fail() {
    let judgement = Bench::bfloat16().judge_changed(|leaves| {
        let values = &mut leaves.get("hidden_states.1").values;
        let half = values.len() / 2;
        values.rotate_left(half);
    });
    assert_eq!(judgement.outcome, Outcome::Mismatch);
    assert!(judgement.message.unwrap().contains("hidden_states.1"));
}

#[test]
fn one_nan_in_the_last_leaf_fails() {
    for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let judgement = Bench::bfloat16().judge_changed(|leaves| {
            *leaves.get("logits").values.last_mut().unwrap() = special;
        });
        assert_eq!(judgement.outcome, Outcome::NonFinite);
        assert!(judgement.message.unwrap().contains("leaf `logits` BF16[2, 16, 128]: 1 of 4096 elements"));
    }
}

#[test]
fn bfloat16_multiplication_passes_at_medium_and_fails_at_highest() {
    let medium = Bench::float32_at_medium();
    let judgement = medium.judge_changed(|_| {});
    assert_eq!(judgement.outcome, Outcome::Pass, "{:?}", judgement.message);

    let highest = Bench::float32();
    assert!(highest.reference.0["logits"].values == medium.reference.0["logits"].values);
    let judgement = judge_leaves(&highest.reference, &highest.yardstick, &medium.device, &highest.question).unwrap();
    assert_eq!(judgement.outcome, Outcome::Mismatch);
    assert!(judgement.metrics.rmse_ratio.unwrap() > 100.0);
}

#[test]
fn float32_passes_where_bfloat16_multiplication_is_allowed() {
    let medium = Bench::float32_at_medium();
    let exact = numerical_model::run(Dtype::Float32, Arithmetic::Float32, Implementation::Device);
    let judgement = judge_leaves(&medium.reference, &medium.yardstick, &exact, &medium.question).unwrap();
    assert_eq!(judgement.outcome, Outcome::Pass, "{:?}", judgement.message);
}

#[test]
fn the_worst_leaf_is_named_with_its_figures() {
    let judgement = Bench::float32().judge_changed(|leaves| {
        leaves.get("hidden_states.1").values.iter_mut().for_each(|value| *value *= 1.5);
        leaves.get("logits").values.iter_mut().for_each(|value| *value *= 1.1);
    });
    let message = judgement.message.unwrap();
    assert!(message.starts_with("leaf `hidden_states.1` F32[2, 16, 64]: "), "{message}");
    assert!(message.contains("allowed") && message.contains("2 of 4 leaves fail"), "{message}");
    assert!((judgement.metrics.gain_error.unwrap() - 0.5).abs() < 1e-5);
    assert!((judgement.metrics.rel_l2.unwrap() - 0.5).abs() < 1e-5);
}

#[test]
fn a_winner_that_changes_against_a_clear_margin_fails() {
    // One element in 4096 is too little for any mean over the leaf to see at bfloat16.
    let bench = Bench::bfloat16();
    let judgement = bench.judge_changed(|leaves| leaves.get("logits").values[5] += 4.0);
    assert_eq!(judgement.outcome, Outcome::Mismatch);
    let message = judgement.message.unwrap();
    assert!(message.contains("winner changed") || message.contains("Kullback-Leibler"), "{message}");
}

#[test]
fn a_scalar_whose_yardstick_is_right_by_luck_does_not_fail() {
    let scalar = |dtype, value| super::Leaves::default().with("loss", dtype, &[], vec![value]);
    let exact = f64::from(5.25f32);
    let judged = |precision, device| {
        let question = forward(Dtype::Float32, precision);
        let (reference, yardstick) = (scalar(Stored::F64, exact), scalar(Stored::F32, exact));
        judge_leaves(&reference, &yardstick, &scalar(Stored::F32, device), &question).unwrap().outcome
    };
    assert_eq!(judged(Precision::Highest, exact * (1.0 + 5e-7)), Outcome::Pass);
    assert_eq!(judged(Precision::Medium, exact * 1.004), Outcome::Pass);
    assert_eq!(judged(Precision::Highest, exact * 1.004), Outcome::Mismatch);
    assert_eq!(judged(Precision::Medium, exact * 1.2), Outcome::Mismatch);
    assert_eq!(judged(Precision::Medium, 0.0), Outcome::Mismatch);
}
