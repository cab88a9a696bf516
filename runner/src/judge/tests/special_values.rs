//! NaN, infinities, and numbers that stand for one.

use modelfarm_matrix::outcome::Outcome;

use super::{Bench, judge_leaves};

/// Judges with one element of the logits replaced in reference, yardstick and outputs.
fn judged(values: [f64; 3], change: impl FnOnce(&mut super::Leaves)) -> Outcome {
    let mut bench = Bench::float32();
    let Bench { reference, yardstick, device, .. } = &mut bench;
    for (leaves, value) in [reference, yardstick, device].into_iter().zip(values) {
        leaves.get("logits").values[7] = value;
    }
    change(&mut bench.device);
    judge_leaves(&bench.reference, &bench.yardstick, &bench.device, &bench.question).unwrap().outcome
}

#[test]
fn special_values_at_the_same_places_pass() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(judged([value; 3], |_| {}), Outcome::Pass, "{value}");
    }
}

#[test]
fn special_values_of_another_kind_fail() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for values in [[nan, nan, inf], [inf, inf, -inf], [inf, inf, 0.0], [nan, nan, 0.0], [0.5, 0.5, nan]] {
        assert_eq!(judged(values, |_| {}), Outcome::NonFinite, "{values:?}");
    }
}

#[test]
fn a_mark_of_masked_logits_does_not_hide_the_real_ones() {
    let marks = [f64::MIN, f64::from(f32::MIN), f64::from(f32::MIN)];
    assert_eq!(judged(marks, |_| {}), Outcome::Pass);
    assert_eq!(judged(marks, |leaves| leaves.get("logits").values[8] = 9.0), Outcome::Mismatch);
    assert_eq!(judged([f64::MIN, f64::from(f32::MIN), 0.0], |_| {}), Outcome::NonFinite);
}

#[test]
fn a_huge_number_where_the_reference_is_ordinary_fails() {
    for value in [1e38, -1e38, 1e20] {
        assert_eq!(judged([0.5, 0.5, value], |_| {}), Outcome::Mismatch, "{value}");
    }
}
