//! From statistics to an outcome: a pure function, so that old attempts can be judged again under a new policy.

use modelfarm_matrix::attempt::Metrics;
use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};
use modelfarm_matrix::outcome::Outcome;

use super::gates::{self, Reading};
use super::noise::{Noise, Scales};
use super::policy::Policy;
use super::question::Question;
use super::statistics::shown;
use super::ties::Flip;

/// An outcome with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What the statistics say.
    pub outcome: Outcome,
    /// The worst leaf, its figures and the gate, for anything but a pass.
    pub message: Option<String>,
    /// Figures of the worst leaf of each.
    pub metrics: Metrics,
}

struct JudgedLeaf<'a> {
    leaf: &'a LeafStatistics,
    noise: Noise,
    /// The reading farthest beyond its gate.
    worst: Option<Reading>,
    informative: bool,
}

/// Decides over the leaves of one attempt.
pub(crate) fn decide(leaves: &[LeafStatistics], flip: Option<&Flip>, question: &Question, policy: &Policy) -> Decision {
    let scales = Scales::of(leaves, question);
    let judged: Vec<JudgedLeaf> = leaves.iter().map(|leaf| judge_leaf(leaf, &scales, question, policy)).collect();
    let metrics = metrics(&judged);
    let (outcome, message) = outcome(&judged, flip, policy);
    Decision { outcome, message, metrics }
}

fn judge_leaf<'a>(leaf: &'a LeafStatistics, scales: &Scales, question: &Question, policy: &Policy) -> JudgedLeaf<'a> {
    let noise = Noise::of(leaf, scales, question, policy);
    match leaf.kind {
        LeafKind::Distance => {
            let readings = gates::readings(leaf, &noise, policy);
            let worst = readings
                .into_iter()
                .max_by(|a, b| a.passes().cmp(&b.passes()).reverse().then(a.excess().total_cmp(&b.excess())));
            JudgedLeaf { leaf, noise, worst, informative: gates::is_informative(leaf, &noise, policy) }
        }
        LeafKind::Exact => {
            let mean = leaf.sum_ref / leaf.count.max(1) as f64;
            let varies = leaf.sum_ref_squared / leaf.count.max(1) as f64 > mean * mean * (1.0 + 1e-9);
            JudgedLeaf { leaf, noise, worst: None, informative: leaf.count > 1 && varies }
        }
    }
}

fn outcome(judged: &[JudgedLeaf], flip: Option<&Flip>, policy: &Policy) -> (Outcome, Option<String>) {
    if !judged.iter().any(|judged| judged.informative) {
        let message =
            "no leaf of the reference could tell right from wrong: each is empty, zero, constant, not finite or all noise";
        return (Outcome::ReferenceError, Some(message.to_owned()));
    }
    let special: Vec<_> = judged.iter().filter(|judged| judged.leaf.nonfinite_mismatches > 0).collect();
    if let Some(worst) = special.iter().max_by_key(|judged| judged.leaf.nonfinite_mismatches) {
        let (found, of) = (worst.leaf.nonfinite_mismatches, elements(worst.leaf));
        let message = format!(
            "{}: {found} of {of} elements are NaN, infinite or out of range where the reference is not, or the other way round{}",
            described(worst.leaf),
            and_others(special.len(), judged.len())
        );
        return (Outcome::NonFinite, Some(message));
    }
    let failing: Vec<_> = judged
        .iter()
        .filter_map(|judged| judged.worst.filter(|reading| !reading.passes()).map(|reading| (judged, reading)))
        .collect();
    if let Some((worst, reading)) = failing.iter().max_by(|a, b| a.1.excess().total_cmp(&b.1.excess())) {
        let message = format!(
            "{}: {} {:.3e}, allowed {:.3e}; RMSE {:.3e} where {:.3e} is legitimate, reference RMS {:.3e}{}",
            described(worst.leaf),
            reading.gate,
            reading.found,
            reading.allowed,
            worst.leaf.rmse(),
            worst.noise.rmse,
            worst.noise.rms_ref,
            and_others(failing.len(), judged.len())
        );
        return (Outcome::Mismatch, Some(message));
    }
    let unequal = judged.iter().filter(|judged| judged.leaf.kind == LeafKind::Exact && judged.leaf.unequal > 0);
    match unequal.max_by_key(|judged| judged.leaf.unequal) {
        None => (Outcome::Pass, None),
        Some(worst) => {
            let (outcome, reason) = judge_flip(judged, flip, policy);
            let (found, of) = (worst.leaf.unequal, elements(worst.leaf));
            (outcome, Some(format!("{}: {found} of {of} elements differ; {reason}", described(worst.leaf))))
        }
    }
}

fn judge_flip(judged: &[JudgedLeaf], flip: Option<&Flip>, policy: &Policy) -> (Outcome, String) {
    let Some(flip) = flip else {
        return (Outcome::Mismatch, "nothing says that the reference was unsure".to_owned());
    };
    let place = match flip.place {
        Some(place) => format!("the first flip, row {} step {}", place.row, place.step),
        None => format!("the choice in `{}`", shown(&flip.leaf)),
    };
    if flip.shared_with_yardstick {
        return (Outcome::InconclusiveTie, format!("{place}, is what the CPU chooses at the case's dtype too"));
    }
    let logits = judged.iter().find(|judged| judged.leaf.name == "logits" && judged.leaf.kind == LeafKind::Distance);
    match (flip.margin, logits) {
        (Some(margin), Some(logits)) => {
            let noise = policy.tie_multiple * policy.noise_multiple * logits.noise.element;
            if margin <= noise {
                (Outcome::InconclusiveTie, format!("{place}, has a margin of {margin:.3e}, within the noise of {noise:.3e}"))
            } else {
                (Outcome::Mismatch, format!("{place}, has a margin of {margin:.3e}, beyond the noise of {noise:.3e}"))
            }
        }
        _ => (Outcome::Mismatch, format!("{place}, has no margin that could excuse it")),
    }
}

fn described(leaf: &LeafStatistics) -> String {
    format!("leaf `{}` {}{:?}", shown(&leaf.name), leaf.dtype, leaf.shape)
}

/// How many elements of a leaf are judged.
fn elements(leaf: &LeafStatistics) -> u64 {
    leaf.shape.iter().product::<u64>().saturating_sub(leaf.left_out)
}

fn and_others(failing: usize, of: usize) -> String {
    if failing > 1 { format!("; {failing} of {of} leaves fail") } else { String::new() }
}

fn metrics(judged: &[JudgedLeaf]) -> Metrics {
    let distances = || judged.iter().filter(|judged| judged.leaf.kind == LeafKind::Distance && judged.leaf.count > 0);
    // Relative figures of a leaf that is all noise say nothing.
    let telling = || distances().filter(|judged| judged.informative);
    Metrics {
        rmse_ratio: largest(distances().map(|judged| ratio(judged.leaf.rmse(), judged.noise.rmse))),
        rel_l2: largest(telling().map(|judged| judged.leaf.rel_l2())),
        max_abs: largest(distances().map(|judged| judged.leaf.max_abs_error)),
        pcc: smallest(telling().filter_map(|judged| judged.leaf.pcc())),
        cosine: smallest(telling().map(|judged| judged.leaf.cosine())),
        gain_error: largest(telling().map(|judged| judged.leaf.gain_error().abs())),
        top1_agreement: smallest(distances().filter_map(|judged| judged.leaf.top1_agreement)),
        ..Metrics::default()
    }
}

fn ratio(found: f64, legitimate: f64) -> f64 {
    if found == 0.0 { 0.0 } else { found / legitimate }
}

/// Infinite figures have no form in JSON: absent.
fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max).filter(|value| value.is_finite())
}

fn smallest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::min).filter(|value| value.is_finite())
}
