//! Generated tokens: what follows a flip is not judged, and a flip is excused only where the reference was unsure.

use safetensors::Dtype as Stored;

use modelfarm_matrix::axes::{Dtype, Precision, Workload};
use modelfarm_matrix::outcome::Outcome;

use super::numerical_model::Normal;
use super::{Judgement, Leaves, judge_leaves, question};
use crate::judge::Place;

const BATCH: usize = 2;
const STEPS: usize = 8;
const VOCABULARY: usize = 64;
/// The legitimate error of a logit in these tests.
const NOISE: f64 = 0.01;

/// One run: logits by step and row, and tokens by row and step.
#[derive(Clone)]
struct Run {
    logits: Vec<f64>,
    tokens: Vec<f64>,
}

fn at(step: usize, row: usize, token: usize) -> usize {
    (step * BATCH + row) * VOCABULARY + token
}

impl Run {
    /// A clear winner at every step: token 10 + step, by a margin of at least 5.
    fn reference() -> Self {
        let mut logits: Vec<f64> = Normal(3).many(STEPS * BATCH * VOCABULARY, 0.5).iter().map(|v| v.min(1.0)).collect();
        for step in 0..STEPS {
            for row in 0..BATCH {
                logits[at(step, row, 10 + step)] = 6.0;
            }
        }
        Self::greedy(logits)
    }

    fn greedy(logits: Vec<f64>) -> Self {
        let mut tokens = vec![0.0; BATCH * STEPS];
        for (place, row) in logits.chunks(VOCABULARY).enumerate() {
            let (step, row_of_batch) = (place / BATCH, place % BATCH);
            tokens[row_of_batch * STEPS + step] = crate::judge::logits::largest(row).unwrap() as f64;
        }
        Self { logits, tokens }
    }

    fn noisy(&self, seed: u64) -> Self {
        let noise = Normal(seed).many(self.logits.len(), NOISE / 4.0);
        Self::greedy(self.logits.iter().zip(noise).map(|(value, noise)| value + noise).collect())
    }

    /// From `step` on another text.
    fn diverged_after(mut self, step: usize, row: usize) -> Self {
        for later in step + 1..STEPS {
            let mut random = Normal(100 + later as u64);
            for token in 0..VOCABULARY {
                self.logits[at(later, row, token)] = random.next();
            }
        }
        Self::greedy(self.logits)
    }

    fn leaves(&self, dtype: Stored) -> Leaves {
        Leaves::default().with("tokens", Stored::I64, &[BATCH, STEPS], self.tokens.clone()).with(
            "logits",
            dtype,
            &[STEPS, BATCH, VOCABULARY],
            self.logits.clone(),
        )
    }
}

fn judged(reference: &Run, yardstick: &Run, device: &Run) -> Judgement {
    let question = question(Workload::Generate, Dtype::Float32, Precision::Medium);
    let (reference, yardstick) = (reference.leaves(Stored::F64), yardstick.leaves(Stored::F32));
    judge_leaves(&reference, &yardstick, &device.leaves(Stored::F32), &question).unwrap()
}

/// A reference whose second best token at step 3 of row 1 is `margin` below the best.
fn unsure(margin: f64) -> Run {
    let mut reference = Run::reference();
    reference.logits[at(3, 1, 50)] = 6.0 - margin;
    Run::greedy(reference.logits)
}

fn flipped(run: &Run) -> Run {
    let mut flipped = run.clone();
    let (best, second) = (at(3, 1, 13), at(3, 1, 50));
    flipped.logits[second] = flipped.logits[best] + 1e-4;
    Run::greedy(flipped.logits).diverged_after(3, 1)
}

#[test]
fn equal_tokens_and_logits_within_noise_pass() {
    let reference = Run::reference();
    let judgement = judged(&reference, &reference.noisy(1), &reference.noisy(2));
    assert_eq!(judgement.outcome, Outcome::Pass, "{:?}", judgement.message);
    assert_eq!(judgement.flip, None);
    assert_eq!(judgement.metrics.top1_agreement, Some(1.0));
}

#[test]
fn a_flip_within_the_noise_is_a_tie() {
    let reference = unsure(0.004);
    let judgement = judged(&reference, &reference.noisy(1), &flipped(&reference.noisy(2)));
    assert_eq!(judgement.outcome, Outcome::InconclusiveTie, "{:?}", judgement.message);
    let flip = judgement.flip.unwrap();
    assert_eq!(flip.place, Some(Place { row: 1, step: 3 }));
    assert!((flip.margin.unwrap() - 0.004).abs() < 1e-12);
    // What followed the flip is not in the statistics: 4 steps of row 1 and 8 of row 0.
    let logits = judgement.leaves.iter().find(|leaf| leaf.name == "logits").unwrap();
    assert_eq!(logits.count, (4 + 8) * VOCABULARY as u64);
}

#[test]
fn a_flip_against_a_clear_margin_fails() {
    let reference = unsure(1.0);
    let judgement = judged(&reference, &reference.noisy(1), &flipped(&reference.noisy(2)));
    assert_eq!(judgement.outcome, Outcome::Mismatch);
}

#[test]
fn a_wrong_token_over_right_logits_fails() {
    let reference = unsure(0.004);
    let mut device = reference.noisy(2);
    // Not what its own logits say.
    let token = if device.tokens[STEPS + 3] == 13.0 { 50.0 } else { 13.0 };
    device.tokens[STEPS + 3] = token;
    let reference_token = reference.tokens[STEPS + 3];
    let judgement = judged(&reference, &reference.noisy(1), &device);
    if token == reference_token {
        panic!("the noise of this seed flips the token already");
    }
    assert_eq!(judgement.outcome, Outcome::Mismatch, "{:?}", judgement.message);
    assert!(judgement.message.unwrap().contains("no margin that could excuse it"));
}

#[test]
fn a_token_outside_the_vocabulary_fails() {
    for token in [-1.0, VOCABULARY as f64, 1e18] {
        let reference = unsure(0.004);
        let mut device = reference.noisy(2);
        device.tokens[STEPS + 3] = token;
        assert_eq!(judged(&reference, &reference.noisy(1), &device).outcome, Outcome::Mismatch, "{token}");
    }
}

#[test]
fn a_flip_that_the_yardstick_shares_is_a_tie() {
    let reference = unsure(0.004);
    let flipped_yardstick = flipped(&reference.noisy(1));
    let judgement = judged(&reference, &flipped_yardstick, &flipped(&reference.noisy(2)));
    assert_eq!(judgement.outcome, Outcome::InconclusiveTie);
    assert!(judgement.flip.unwrap().shared_with_yardstick);
}

#[test]
fn a_yardstick_that_flips_does_not_excuse_wrong_logits() {
    // Its logits after its own flip are far from the reference's and say nothing about legitimate noise.
    let reference = unsure(0.004);
    let yardstick = flipped(&reference.noisy(1));
    let mut device = reference.noisy(2);
    assert_eq!(judged(&reference, &yardstick, &device).outcome, Outcome::Pass);
    device.logits.iter_mut().for_each(|value| *value *= 1.05);
    assert_eq!(judged(&reference, &yardstick, &device).outcome, Outcome::Mismatch);
}

#[test]
fn a_tie_does_not_excuse_wrong_logits_before_it() {
    let reference = unsure(0.004);
    let mut device = flipped(&reference.noisy(2));
    device.logits[at(1, 0, 0)] += 3.0;
    device.logits[at(2, 0, 1)] -= 3.0;
    assert_eq!(judged(&reference, &reference.noisy(1), &device).outcome, Outcome::Mismatch);
}
