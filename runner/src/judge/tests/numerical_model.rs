//! A small residual network over 2 × 16 tokens, computed in float64, float32, bfloat16, or float32 whose matrix multiplications
//! round their operands to bfloat16.

use half::bf16;
use safetensors::Dtype as Stored;

use modelfarm_matrix::axes::{Dtype, Precision};

use super::tensor_writer::Leaves;

pub(super) const BATCH: usize = 2;
pub(super) const TOKENS: usize = 16;
pub(super) const WIDTH: usize = 64;
pub(super) const VOCABULARY: usize = 128;
const LAYERS: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Arithmetic {
    Float64,
    Float32,
    Bfloat16,
    Bfloat16Multiply,
}

impl Arithmetic {
    pub(super) fn of(dtype: Dtype, precision: Precision) -> Self {
        match (dtype, precision) {
            (Dtype::Float32, Precision::Medium) => Self::Bfloat16Multiply,
            (Dtype::Float32, _) => Self::Float32,
            _ => Self::Bfloat16,
        }
    }

    /// What a stored number becomes.
    fn round(self, value: f64) -> f64 {
        match self {
            Self::Float64 => value,
            Self::Float32 | Self::Bfloat16Multiply => f64::from(value as f32),
            Self::Bfloat16 => to_bfloat16(value),
        }
    }

    /// What the result of an operator becomes on its way to the next one.
    fn between(self, value: f64, implementation: Implementation) -> f64 {
        if implementation == Implementation::Cpu { self.round(value) } else { value }
    }

    fn operand(self, value: f64) -> f64 {
        if self == Self::Bfloat16Multiply { to_bfloat16(value) } else { value }
    }

    /// Sums of products are accumulated in float32, as matrix units do, and in float64 only for the reference.
    fn accumulate(self, sum: f64, product: f64) -> f64 {
        if self == Self::Float64 { sum + product } else { f64::from((sum + product) as f32) }
    }
}

fn to_bfloat16(value: f64) -> f64 {
    bf16::from_f32(value as f32).to_f64()
}

/// Two right implementations of the same arithmetic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Implementation {
    /// Stores the result of every operator.
    Cpu,
    /// Sums in the other order, and fuses an operator with the one that uses its result, which is not rounded in between.
    Device,
}

/// A reproducible stream of nearly normal numbers.
pub(super) struct Normal(pub(super) u64);

impl Normal {
    fn uniform(&mut self) -> f64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn next(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    pub(super) fn many(&mut self, count: usize, scale: f64) -> Vec<f64> {
        (0..count).map(|_| scale * self.next()).collect()
    }
}

/// Runs the model with weights and inputs rounded to `dtype`.
pub(super) fn run(dtype: Dtype, arithmetic: Arithmetic, implementation: Implementation) -> Leaves {
    let stored = match arithmetic {
        Arithmetic::Float64 => Stored::F64,
        Arithmetic::Bfloat16 => Stored::BF16,
        Arithmetic::Float32 | Arithmetic::Bfloat16Multiply => Stored::F32,
    };
    let rows = BATCH * TOKENS;
    let weights = |seed: u64, rows: usize, columns: usize| {
        let values = Normal(seed).many(rows * columns, 1.0 / (rows as f64).sqrt());
        values.into_iter().map(|value| round_to(dtype, value)).collect::<Vec<_>>()
    };
    let inputs = Normal(1).many(rows * WIDTH, 1.0);
    let mut hidden: Vec<f64> = inputs.into_iter().map(|value| round_to(dtype, value)).collect();
    let shape = [BATCH, TOKENS, WIDTH];
    let mut leaves = Leaves::default().with("hidden_states.0", stored, &shape, hidden.clone());
    for layer in 1..=LAYERS {
        let normal = normalised(&hidden, arithmetic, implementation);
        let inner = multiply(&normal, &weights(10 * layer, WIDTH, 4 * WIDTH), WIDTH, arithmetic, implementation);
        let inner: Vec<f64> = inner.into_iter().map(|value| arithmetic.between(value, implementation)).collect();
        let active: Vec<f64> = inner.iter().map(|value| arithmetic.round(value / (1.0 + (-value).exp()))).collect();
        let outer = multiply(&active, &weights(10 * layer + 1, 4 * WIDTH, WIDTH), 4 * WIDTH, arithmetic, implementation);
        let added = hidden.iter().zip(outer).map(|(value, change)| value + arithmetic.between(change, implementation));
        hidden = added.map(|value| arithmetic.round(value)).collect();
        leaves = leaves.with(&format!("hidden_states.{layer}"), stored, &shape, hidden.clone());
    }
    let normal = normalised(&hidden, arithmetic, implementation);
    let logits: Vec<f64> = multiply(&normal, &weights(99, WIDTH, VOCABULARY), WIDTH, arithmetic, implementation)
        .into_iter()
        .map(|value| arithmetic.round(value))
        .collect();
    leaves.with("logits", stored, &[BATCH, TOKENS, VOCABULARY], logits)
}

fn round_to(dtype: Dtype, value: f64) -> f64 {
    if dtype == Dtype::Float32 { f64::from(value as f32) } else { to_bfloat16(value) }
}

fn normalised(values: &[f64], arithmetic: Arithmetic, implementation: Implementation) -> Vec<f64> {
    let squares =
        |row: &[f64]| ordered(row.len(), implementation).fold(0.0, |sum, i| arithmetic.accumulate(sum, row[i] * row[i]));
    let row_normalised = |row: &[f64]| {
        let scale = arithmetic.between(1.0 / (squares(row) / row.len() as f64 + 1e-6).sqrt(), implementation);
        row.iter().map(|value| arithmetic.round(value * scale)).collect::<Vec<_>>()
    };
    values.chunks(WIDTH).flat_map(row_normalised).collect()
}

fn multiply(left: &[f64], right: &[f64], inner: usize, arithmetic: Arithmetic, implementation: Implementation) -> Vec<f64> {
    let columns = right.len() / inner;
    let left: Vec<f64> = left.iter().map(|value| arithmetic.operand(*value)).collect();
    let right: Vec<f64> = right.iter().map(|value| arithmetic.operand(*value)).collect();
    let mut result = Vec::with_capacity(left.len() / inner * columns);
    for row in left.chunks(inner) {
        for column in 0..columns {
            let sum = ordered(inner, implementation)
                .fold(0.0, |sum, i| arithmetic.accumulate(sum, row[i] * right[i * columns + column]));
            result.push(sum);
        }
    }
    result
}

fn ordered(count: usize, implementation: Implementation) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| if implementation == Implementation::Cpu { i } else { count - 1 - i })
}
