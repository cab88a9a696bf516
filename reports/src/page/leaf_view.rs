//! The figures of output leaves against the gate.

use modelfarm_matrix::axes::Dtype;
use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};
use serde::Serialize;

use super::Gates;
use crate::figures::{count, counted, measured};
use crate::visible_text::one_line;

/// The leaves of an attempt, worst first.
#[derive(Serialize)]
pub(super) struct LeavesView {
    counted: String,
    rows: Vec<LeafRow>,
    left_out: Option<String>,
    multiple: String,
    floor: String,
}

#[derive(Serialize)]
struct LeafRow {
    name: String,
    shape: String,
    dtype: String,
    how: &'static str,
    rmse: String,
    yardstick: String,
    /// RMSE over what the yardstick makes legitimate.
    ratio: String,
    /// The ratio in thousandths of twice the gate, for the drawing.
    width: f64,
    beyond: bool,
    max_abs: String,
    gain: String,
    gain_legitimate: String,
    pcc: String,
    top1: String,
    nonfinite: String,
    unequal: String,
    mean_error: String,
    divergence: String,
    bad: bool,
    /// What the RMSE gate, or the exact comparison, says; other gates may say otherwise.
    mark: &'static str,
}

impl LeavesView {
    /// At most `most` leaves, worst first.
    pub(super) fn new(leaves: &[LeafStatistics], dtype: Dtype, gates: &Gates, most: usize) -> Option<Self> {
        if leaves.is_empty() {
            return None;
        }
        let mut sorted: Vec<(f64, &LeafStatistics)> = leaves.iter().map(|leaf| (badness(leaf, dtype, gates), leaf)).collect();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let left_out = leaves.len().saturating_sub(most) as u64;
        Some(Self {
            counted: counted(leaves.len() as u64, "leaf").replace("leafs", "leaves"),
            rows: sorted.iter().take(most).map(|(_, leaf)| row(leaf, dtype, gates)).collect(),
            left_out: (left_out > 0).then(|| format!("{} better ones are left out", count(left_out))),
            multiple: gates.rmse_multiple.to_string(),
            floor: format!("{} × eps({dtype}) × RMS(reference)", gates.floor_epsilons),
        })
    }
}

/// RMSE(device) / max(RMSE(yardstick), floor); zero where there is no error.
fn ratio(leaf: &LeafStatistics, dtype: Dtype, gates: &Gates) -> f64 {
    let legitimate = leaf.yardstick_rmse().max(gates.floor_epsilons * dtype.epsilon() * leaf.rms_ref());
    if leaf.rmse() == 0.0 { 0.0 } else { leaf.rmse() / legitimate }
}

/// What leaves are sorted by: a number that is larger the worse the leaf is.
fn badness(leaf: &LeafStatistics, dtype: Dtype, gates: &Gates) -> f64 {
    if leaf.nonfinite_mismatches > 0 || (leaf.kind == LeafKind::Exact && leaf.unequal > 0) {
        return f64::INFINITY;
    }
    let ratio = ratio(leaf, dtype, gates);
    if ratio.is_nan() { f64::INFINITY } else { ratio }
}

fn row(leaf: &LeafStatistics, dtype: Dtype, gates: &Gates) -> LeafRow {
    let exact = leaf.kind == LeafKind::Exact;
    let ratio = ratio(leaf, dtype, gates);
    let within = ratio <= gates.rmse_multiple;
    let bad = leaf.nonfinite_mismatches > 0 || if exact { leaf.unequal > 0 } else { !within };
    let unless_exact = |text: String| if exact { "–".to_owned() } else { text };
    let shape = leaf.shape.iter().take(8).map(u64::to_string).collect::<Vec<_>>().join(" × ");
    LeafRow {
        name: one_line(&leaf.name, 160),
        shape: if leaf.shape.is_empty() { "scalar".to_owned() } else { shape },
        dtype: one_line(&leaf.dtype, 20),
        how: if exact { "exact" } else { "distance" },
        rmse: unless_exact(measured(leaf.rmse())),
        yardstick: unless_exact(measured(leaf.yardstick_rmse())),
        ratio: unless_exact(measured(ratio)),
        width: if exact || ratio.is_nan() { 0.0 } else { super::health_view::thousandths(ratio / (2.0 * gates.rmse_multiple)) },
        beyond: !exact && !within,
        max_abs: measured(leaf.max_abs_error),
        gain: unless_exact(measured(leaf.gain_error())),
        gain_legitimate: unless_exact(measured(leaf.yardstick_gain_error)),
        pcc: leaf.pcc().filter(|_| !exact).map_or("–".to_owned(), |pcc| format!("{pcc:.6}")),
        top1: leaf.top1_agreement.map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        nonfinite: count(leaf.nonfinite_mismatches),
        unequal: if exact { format!("{} of {}", count(leaf.unequal), count(leaf.count)) } else { "–".to_owned() },
        mean_error: unless_exact(measured(leaf.mean_error())),
        divergence: leaf.kl_divergence.map_or("–".to_owned(), measured),
        bad,
        mark: match (leaf.nonfinite_mismatches, exact) {
            (1.., _) => "✗ non-finite",
            (0, true) if bad => "✗ unequal",
            (0, true) => "✓ equal",
            (0, false) if bad => "✗ beyond",
            (0, false) => "✓ within",
        },
    }
}
