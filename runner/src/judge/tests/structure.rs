//! Leaves, shapes and dtypes that are not what they should be.

use safetensors::Dtype as Stored;

use modelfarm_matrix::outcome::Outcome;

use super::{Bench, judge_leaves};

fn rejected(change: impl FnOnce(&mut super::Leaves)) -> String {
    let judgement = Bench::float32().judge_changed(change);
    assert_eq!(judgement.outcome, Outcome::ShapeMismatch);
    judgement.message.unwrap()
}

#[test]
fn a_missing_leaf_fails() {
    let message = rejected(|leaves| drop(leaves.0.remove("hidden_states.1")));
    assert_eq!(message, "leaf `hidden_states.1` is missing");
}

#[test]
fn an_extra_leaf_fails() {
    let message = rejected(|leaves| {
        let leaf = leaves.0["logits"].clone();
        leaves.0.insert("more".to_owned(), leaf);
    });
    assert_eq!(message, "leaf `more` is not in the reference");
}

#[test]
fn a_float64_leaf_where_float32_was_expected_fails() {
    let message = rejected(|leaves| leaves.get("logits").dtype = Stored::F64);
    assert_eq!(message, "leaf `logits` has dtype F64, expected F32");
}

#[test]
fn another_shape_of_as_many_elements_fails() {
    let message = rejected(|leaves| leaves.get("logits").shape = vec![16, 2, 128]);
    assert_eq!(message, "leaf `logits` has shape [16, 2, 128], expected [2, 16, 128]");
}

#[test]
fn no_leaves_at_all_fail() {
    assert!(rejected(|leaves| leaves.0.clear()).ends_with("and 1 more"));
}

#[test]
fn a_reference_that_does_not_fit_its_yardstick_is_no_fault_of_the_target() {
    let bench = Bench::float32();
    let mut reference = bench.reference.clone();
    reference.get("logits").shape = vec![32, 128];
    let judgement = judge_leaves(&reference, &bench.yardstick, &bench.device, &bench.question).unwrap();
    assert_eq!(judgement.outcome, Outcome::ReferenceError);
}

#[test]
fn nothing_passes_without_an_informative_leaf() {
    let bench = Bench::float32();
    let constant = |dtype, value| super::Leaves::default().with("output", dtype, &[2, 3], vec![value; 6]);
    let empty = |dtype| super::Leaves::default().with("output", dtype, &[0, 3], vec![]);
    let both = |reference: super::Leaves, same: super::Leaves| {
        judge_leaves(&reference, &same, &same, &bench.question).unwrap().outcome
    };
    assert_eq!(both(super::Leaves::default(), super::Leaves::default()), Outcome::ReferenceError);
    assert_eq!(both(empty(Stored::F64), empty(Stored::F32)), Outcome::ReferenceError);
    for value in [0.0, 1.0, f64::NAN, f64::INFINITY] {
        let outcome = both(constant(Stored::F64, value), constant(Stored::F32, value));
        assert_eq!(outcome, Outcome::ReferenceError, "{value}");
    }
    assert_eq!(both(constant(Stored::I64, 7.0), constant(Stored::I64, 7.0)), Outcome::ReferenceError);
}

#[test]
fn a_leaf_of_zeros_must_be_exactly_zero() {
    let with_zeros = |leaves: &super::Leaves, dtype, value| leaves.clone().with("zero", dtype, &[4], vec![value; 4]);
    let bench = Bench::float32();
    let reference = with_zeros(&bench.reference, Stored::F64, 0.0);
    let yardstick = with_zeros(&bench.yardstick, Stored::F32, 0.0);
    for (value, expected) in [(0.0, Outcome::Pass), (-0.0, Outcome::Pass), (1e-30, Outcome::Mismatch)] {
        let device = with_zeros(&bench.device, Stored::F32, value);
        let judgement = judge_leaves(&reference, &yardstick, &device, &bench.question).unwrap();
        assert_eq!(judgement.outcome, expected, "{value}");
    }
}

#[test]
fn discrete_leaves_are_compared_exactly() {
    let bench = Bench::float32();
    let with_choice =
        |leaves: &super::Leaves, last| leaves.clone().with("experts", Stored::I64, &[4], vec![3.0, 1.0, 0.0, last]);
    let judged = |yardstick, device| {
        let (reference, yardstick) = (with_choice(&bench.reference, 2.0), with_choice(&bench.yardstick, yardstick));
        judge_leaves(&reference, &yardstick, &with_choice(&bench.device, device), &bench.question).unwrap()
    };
    assert_eq!(judged(2.0, 2.0).outcome, Outcome::Pass);
    let judgement = judged(2.0, 3.0);
    assert_eq!(judgement.outcome, Outcome::Mismatch);
    assert!(judgement.message.unwrap().contains("leaf `experts` I64[4]: 1 of 4 elements differ"));
    // The CPU itself chooses otherwise at the case's dtype.
    assert_eq!(judged(3.0, 3.0).outcome, Outcome::InconclusiveTie);
    assert_eq!(judged(3.0, 5.0).outcome, Outcome::Mismatch);
}
