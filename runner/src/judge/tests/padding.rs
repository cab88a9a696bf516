//! Padded positions: what stands there changes nothing, what stands elsewhere does, and no mask makes anything pass.

use proptest::prelude::*;
use safetensors::Dtype as Stored;
use serde_json::json;

use modelfarm_matrix::outcome::Outcome;

use super::numerical_model::{BATCH, Normal, TOKENS, VOCABULARY, WIDTH};
use super::tensor_writer::Stored as Leaf;
use super::{Bench, Leaves, judge_in};
use crate::judge::{Judgement, Padding, Policy, Role, reference_health};

/// The last positions of the second row.
const PADDED: usize = 4;
const LOGITS: &str = "logits";

fn is_padded(position: usize) -> bool {
    position >= BATCH * TOKENS - PADDED
}

fn mask() -> Leaves {
    let values = (0..BATCH * TOKENS).map(|position| f64::from(u8::from(!is_padded(position)))).collect();
    Leaves::default().with("attention_mask", Stored::I64, &[BATCH, TOKENS], values)
}

/// A bench with leaves of two dimensions and of whole numbers beside those of the model.
fn bench() -> Bench {
    let mut bench = Bench::float32();
    let scores = Normal(5).many(BATCH * TOKENS, 1.0);
    let chosen: Vec<f64> = (0..BATCH * TOKENS * 2).map(|place| (place * 7 % 5) as f64).collect();
    for (leaves, dtype) in
        [(&mut bench.reference, Stored::F64), (&mut bench.yardstick, Stored::F32), (&mut bench.device, Stored::F32)]
    {
        let grown = std::mem::take(leaves);
        *leaves = grown
            .with("start_logits", dtype, &[BATCH, TOKENS], scores.clone())
            .with("experts", Stored::I64, &[BATCH, TOKENS, 2], chosen.clone())
            .with("kinds", Stored::I64, &[BATCH, TOKENS], chosen[..BATCH * TOKENS].to_vec());
    }
    bench
}

fn judged_by(inputs: &Leaves, told: serde_json::Value, bench: &Bench) -> Judgement {
    let folder = tempfile::tempdir().unwrap();
    let facts = json!({ "padding": told });
    let padding = Padding::of(&inputs.write(folder.path(), "inputs"), facts.as_object().unwrap());
    judge_in(folder.path(), &bench.reference, &bench.yardstick, &bench.device, padding, &bench.question).unwrap()
}

fn every_leaf(bench: &Bench) -> serde_json::Value {
    json!([{ "mask": "attention_mask", "leaves": bench.device.0.keys().collect::<Vec<_>>() }])
}

fn judged(bench: &Bench) -> Judgement {
    judged_by(&mask(), every_leaf(bench), bench)
}

fn outcome(bench: &Bench) -> Outcome {
    judged(bench).outcome
}

/// Elements of a leaf at one position.
fn at(leaf: &Leaf, position: usize) -> std::ops::Range<usize> {
    let each = leaf.values.len() / (BATCH * TOKENS);
    position * each..(position + 1) * each
}

fn fill(leaves: &mut Leaves, names: &[&str], position: usize, value: f64) {
    for name in names {
        let leaf = leaves.get(name);
        let range = at(leaf, position);
        leaf.values[range].fill(value);
    }
}

const FLOATING: [&str; 5] = ["hidden_states.0", "hidden_states.1", "hidden_states.2", LOGITS, "start_logits"];
const WHOLE: [&str; 2] = ["experts", "kinds"];

#[test]
fn only_real_positions_are_counted() {
    let judgement = judged(&bench());
    assert_eq!(judgement.outcome, Outcome::Pass, "{:?}", judgement.message);
    let real = (BATCH * TOKENS - PADDED) as u64;
    for leaf in &judgement.leaves {
        let each = leaf.shape.iter().skip(2).product::<u64>();
        assert_eq!((leaf.count, leaf.left_out), (real * each, PADDED as u64 * each), "{}", leaf.name);
    }
    let logits = judgement.leaves.iter().find(|leaf| leaf.name == LOGITS).unwrap();
    assert_eq!((logits.shape.as_slice(), logits.top1_agreement), ([2, 16, VOCABULARY as u64].as_slice(), Some(1.0)));
    let hidden = judgement.leaves.iter().find(|leaf| leaf.name == "hidden_states.1").unwrap();
    assert_eq!((hidden.count, hidden.top1_agreement), (real * WIDTH as u64, None));
}

#[test]
fn without_a_word_of_the_worker_every_position_is_judged() {
    let mut bench = bench();
    assert!(judged_by(&mask(), json!([]), &bench).leaves.iter().all(|leaf| leaf.left_out == 0));
    fill(&mut bench.device, &[LOGITS], BATCH * TOKENS - 1, f64::NAN);
    assert_eq!(judged_by(&mask(), json!([]), &bench).outcome, Outcome::NonFinite);
    let another = json!([{ "mask": "attention_mask", "leaves": ["hidden_states.1"] }]);
    assert_eq!(judged_by(&mask(), another, &bench).outcome, Outcome::NonFinite);
    assert_eq!(outcome(&bench), Outcome::Pass);
}

#[test]
fn a_leaf_of_other_outer_dimensions_is_judged_as_a_whole() {
    let mut bench = bench();
    for leaves in [&mut bench.reference, &mut bench.yardstick, &mut bench.device] {
        leaves.get(LOGITS).shape = vec![TOKENS, BATCH, VOCABULARY];
    }
    fill(&mut bench.device, &[LOGITS], BATCH * TOKENS - 1, f64::NAN);
    assert_eq!(outcome(&bench), Outcome::NonFinite);
}

#[test]
fn a_mask_that_is_none_leaves_out_nothing() {
    let mut bench = bench();
    fill(&mut bench.device, &[LOGITS], BATCH * TOKENS - 1, f64::NAN);
    let zeros = |count| vec![0.0; count];
    let named = |dtype, shape: &[usize], values| Leaves::default().with("attention_mask", dtype, shape, values);
    let mut second_row_empty = mask();
    second_row_empty.get("attention_mask").values[TOKENS..].fill(0.0);
    for (inputs, why) in [
        (Leaves::default().with("other", Stored::I64, &[2], zeros(2)), "missing"),
        (named(Stored::F32, &[BATCH, TOKENS], mask().0["attention_mask"].values.clone()), "not whole numbers"),
        (named(Stored::I64, &[BATCH, TOKENS], zeros(BATCH * TOKENS)), "nothing is real"),
        (second_row_empty, "nothing of a row is real"),
        (named(Stored::I64, &[BATCH, 1, TOKENS], zeros(BATCH * TOKENS)), "three dimensions"),
        (named(Stored::I64, &[BATCH, 0], Vec::new()), "no positions"),
        (named(Stored::I64, &[0, TOKENS], Vec::new()), "no rows"),
        (named(Stored::BOOL, &[BATCH, (1 << 20) + 1], zeros(BATCH * ((1 << 20) + 1))), "huge"),
    ] {
        assert_eq!(judged_by(&inputs, every_leaf(&bench), &bench).outcome, Outcome::NonFinite, "{why}");
    }
}

#[test]
fn words_that_cannot_be_understood_leave_out_nothing() {
    let bench = bench();
    let many = vec![json!({ "mask": "attention_mask", "leaves": [LOGITS] }); 65];
    for told in [json!(null), json!(7), json!("all"), json!({ "mask": 1 }), json!([{ "mask": "attention_mask" }]), json!(many)]
    {
        let judgement = judged_by(&mask(), told.clone(), &bench);
        assert!(judgement.leaves.iter().all(|leaf| leaf.left_out == 0), "{told}");
    }
}

#[test]
fn inputs_that_cannot_be_read_are_an_error_with_their_role() {
    let bench = bench();
    let folder = tempfile::tempdir().unwrap();
    let inputs = folder.path().join("inputs.safetensors");
    std::fs::write(&inputs, b"no tensors").unwrap();
    let facts = json!({ "padding": every_leaf(&bench) });
    let padding = Padding::of(&inputs, facts.as_object().unwrap());
    let judged = judge_in(folder.path(), &bench.reference, &bench.yardstick, &bench.device, padding, &bench.question);
    assert_eq!(judged.unwrap_err().role, Role::Inputs);
}

#[test]
fn a_reference_may_differ_at_padded_positions_and_nowhere_else() {
    let bench = bench();
    let health = |change: &dyn Fn(&mut Leaves)| {
        let folder = tempfile::tempdir().unwrap();
        let facts = json!({ "padding": every_leaf(&bench) });
        let padding = Padding::of(&mask().write(folder.path(), "inputs"), facts.as_object().unwrap()).unwrap();
        let mut repeat = bench.reference.clone();
        change(&mut repeat);
        let reference = bench.reference.write(folder.path(), "reference");
        let yardstick = bench.yardstick.write(folder.path(), "yardstick");
        let repeat = repeat.write(folder.path(), "repeat");
        let policy = Policy::current();
        let found = reference_health(&reference, &repeat, &yardstick, Some(&padding), &bench.question, &policy).unwrap();
        found.map(|unhealthy| unhealthy.outcome)
    };
    let last = BATCH * TOKENS - 1;
    assert_eq!(health(&|repeat| fill(repeat, &FLOATING, last, f64::NAN)), None);
    assert_eq!(health(&|repeat| fill(repeat, &WHOLE, last, 99.0)), None);
    let nondeterministic = Some(Outcome::Nondeterministic);
    assert_eq!(health(&|repeat| fill(repeat, &[LOGITS], last - PADDED, f64::NAN)), nondeterministic);
    assert_eq!(health(&|repeat| fill(repeat, &["experts"], last - PADDED, 99.0)), nondeterministic);
}

#[test]
fn what_varies_at_padded_positions_only_tells_nothing() {
    let values = |position: usize| if is_padded(position) { position as f64 } else { 0.0 };
    let leaf = |dtype| {
        let values = (0..BATCH * TOKENS * 2).map(|place| values(place / 2)).collect();
        Leaves::default().with("x", dtype, &[BATCH, TOKENS, 2], values)
    };
    let question = bench().question;
    let bench = Bench { question, reference: leaf(Stored::F64), yardstick: leaf(Stored::F32), device: leaf(Stored::F32) };
    assert_eq!(judged_by(&mask(), json!([]), &bench).outcome, Outcome::Pass);
    assert_eq!(outcome(&bench), Outcome::ReferenceError);
}

#[test]
fn a_choice_among_places_is_made_among_real_ones() {
    // The reference's winner stands at a padded place, the device's elsewhere.
    let mut bench = bench();
    fill(&mut bench.reference, &["start_logits"], BATCH * TOKENS - 1, 50.0);
    fill(&mut bench.yardstick, &["start_logits"], BATCH * TOKENS - 1, 50.0);
    fill(&mut bench.device, &["start_logits"], BATCH * TOKENS - 2, 50.0);
    let judgement = judged(&bench);
    let leaf = judgement.leaves.iter().find(|leaf| leaf.name == "start_logits").unwrap();
    assert_eq!((judgement.outcome, leaf.top1_agreement), (Outcome::Pass, Some(1.0)));
    assert!(leaf.kl_divergence.unwrap() < 1e-12);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_at_padded_positions_changes_the_judgement(
        places in proptest::collection::vec((0..PADDED, any::<f64>(), any::<i32>()), 1..6),
    ) {
        let right = bench();
        let mut changed = right.clone();
        for (place, garbage, whole) in places {
            let position = BATCH * TOKENS - 1 - place;
            fill(&mut changed.device, &FLOATING, position, garbage);
            fill(&mut changed.device, &WHOLE, position, f64::from(whole));
        }
        prop_assert_eq!(judged(&changed), judged(&right));
    }

    #[test]
    fn anything_at_real_positions_does(
        position in 0..BATCH * TOKENS - PADDED,
        leaf in prop::sample::select(FLOATING.to_vec()),
        special in prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]),
    ) {
        let mut bench = bench();
        let range = at(bench.device.get(leaf), position);
        bench.device.get(leaf).values[range.start] = special;
        prop_assert_eq!(outcome(&bench), Outcome::NonFinite);
        fill(&mut bench.device, &[leaf], position, 40.0);
        prop_assert_eq!(outcome(&bench), Outcome::Mismatch);
    }

    #[test]
    fn another_choice_at_a_real_position_fails(
        position in 0..BATCH * TOKENS - PADDED,
        leaf in prop::sample::select(WHOLE.to_vec()),
    ) {
        let mut bench = bench();
        fill(&mut bench.device, &[leaf], position, 99.0);
        let judgement = judged(&bench);
        prop_assert_eq!(judgement.outcome, Outcome::Mismatch);
        // Of what is judged: 28 positions of one or two choices.
        let each = if leaf == "experts" { 2 } else { 1 };
        let counted = format!("{each} of {} elements differ", each * (BATCH * TOKENS - PADDED));
        prop_assert!(judgement.message.unwrap().contains(&counted));
    }
}
