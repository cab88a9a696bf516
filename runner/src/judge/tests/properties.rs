//! What holds for any numbers.

use proptest::prelude::*;
use safetensors::Dtype as Stored;

use modelfarm_matrix::axes::{Dtype, Precision};
use modelfarm_matrix::outcome::Outcome;

use super::numerical_model::Normal;
use super::{Leaves, forward, judge_leaves};

const ROWS: usize = 16;
const COLUMNS: usize = 32;

/// A leaf of normal numbers with a magnitude and a mean, and its noisy image at a dtype.
#[derive(Debug, Clone)]
struct Pair {
    reference: Leaves,
    yardstick: Leaves,
    dtype: Dtype,
}

fn pairs() -> impl Strategy<Value = Pair> {
    let dtypes = prop_oneof![Just(Dtype::Float32), Just(Dtype::Bfloat16), Just(Dtype::Float16)];
    (dtypes, any::<u64>(), -4..3i32, -2.0..2.0f64, 0.0..2.0f64).prop_map(|(dtype, seed, magnitude, mean, noise)| {
        let scale = 10f64.powi(magnitude);
        let mut random = Normal(seed);
        let values: Vec<f64> = (0..ROWS * COLUMNS).map(|_| scale * (random.next() + mean)).collect();
        let stored = match dtype {
            Dtype::Float32 => Stored::F32,
            Dtype::Bfloat16 => Stored::BF16,
            Dtype::Float16 => Stored::F16,
        };
        let noisy = values.iter().map(|value| value + scale * noise * dtype.epsilon() * random.next()).collect();
        let leaves = |stored, values| Leaves::default().with("x", stored, &[ROWS, COLUMNS], values);
        Pair { reference: leaves(Stored::F64, values), yardstick: leaves(stored, noisy), dtype }
    })
}

impl Pair {
    fn outcome_of(&self, change: impl FnOnce(&mut Vec<f64>)) -> Outcome {
        let mut device = self.yardstick.clone();
        change(&mut device.get("x").values);
        let question = forward(self.dtype, Precision::Highest);
        judge_leaves(&self.reference, &self.yardstick, &device, &question).unwrap().outcome
    }

    fn rms(&self) -> f64 {
        let values = &self.reference.0["x"].values;
        (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_yardstick_itself_always_passes(pair in pairs()) {
        prop_assert_eq!(pair.outcome_of(|_| {}), Outcome::Pass);
    }

    #[test]
    fn a_gain_beyond_the_gate_always_fails(pair in pairs(), beyond in 1.0..40.0f64, sign in prop::bool::ANY) {
        let gain = if sign { 1.0 } else { -1.0 } * beyond * 0.05;
        prop_assert_eq!(pair.outcome_of(|values| values.iter_mut().for_each(|v| *v *= 1.0 + gain)), Outcome::Mismatch);
    }

    #[test]
    fn an_offset_beyond_the_gate_always_fails(pair in pairs(), beyond in 1.0..40.0f64, sign in prop::bool::ANY) {
        // Beyond what the mean of a bfloat16 leaf may be wrong by: its share of the gain, and half an epsilon.
        let offset = if sign { 1.0 } else { -1.0 } * beyond * 0.05 * pair.rms();
        prop_assert_eq!(pair.outcome_of(|values| values.iter_mut().for_each(|v| *v += offset)), Outcome::Mismatch);
    }

    #[test]
    fn swapped_rows_always_fail(pair in pairs(), first in 0..ROWS, by in 1..ROWS) {
        let second = (first + by) % ROWS;
        let swap = |values: &mut Vec<f64>| for i in 0..COLUMNS {
            values.swap(first * COLUMNS + i, second * COLUMNS + i);
        };
        prop_assert_eq!(pair.outcome_of(swap), Outcome::Mismatch);
    }

    #[test]
    fn zeros_and_one_special_value_always_fail(pair in pairs(), place in 0..ROWS * COLUMNS) {
        prop_assert_eq!(pair.outcome_of(|values| values.fill(0.0)), Outcome::Mismatch);
        for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            prop_assert_eq!(pair.outcome_of(|values| values[place] = special), Outcome::NonFinite);
        }
    }

    #[test]
    fn a_leafs_statistics_do_not_depend_on_the_others(pairs in proptest::collection::vec(pairs(), 2..5)) {
        let renamed = |name: fn(usize, usize) -> String| {
            let mut all = [Leaves::default(), Leaves::default()];
            for (i, pair) in pairs.iter().enumerate() {
                let name = name(i, pairs.len());
                all[0].0.insert(name.clone(), pair.reference.0["x"].clone());
                let mut yardstick = pair.yardstick.0["x"].clone();
                yardstick.dtype = Stored::F32;
                all[1].0.insert(name, yardstick);
            }
            let question = forward(Dtype::Float32, Precision::Highest);
            let mut leaves = judge_leaves(&all[0], &all[1], &all[1], &question).unwrap().leaves;
            leaves.iter_mut().for_each(|leaf| leaf.name.clear());
            leaves
        };
        let ascending = renamed(|i, _| format!("leaf.{i}"));
        let mut descending = renamed(|i, of| format!("leaf.{}", of - i));
        descending.reverse();
        prop_assert_eq!(ascending, descending);
    }
}
