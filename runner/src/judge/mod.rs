//! The judge: reads what the CPU and the target computed, and says whether the target did the same.
//!
//! ```text
//! tensors, decode      files of hostile origin -> numbers
//! structure            the same leaves, shapes and dtypes?
//! element, sums,       one pass over the numbers -> LeafStatistics
//!   logits, statistics
//! padding              positions that are left out
//! ties                 discrete choices that differ, and how sure the reference was of them
//! noise, gates,        LeafStatistics -> an outcome, by a versioned policy; pure
//!   verdict
//! health               the same questions to a reference before any target is judged by it
//! ```
//!
//! `docs/judging.md` has the formulas and their reasons.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod decode;
mod element;
mod error;
mod gates;
mod health;
mod logits;
mod noise;
mod padding;
mod policy;
mod question;
mod statistics;
mod structure;
mod sums;
mod tensors;
#[cfg(test)]
mod tests;
mod ties;
mod verdict;

use std::path::PathBuf;

use modelfarm_matrix::attempt::Metrics;
use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};
use modelfarm_matrix::outcome::Outcome;

pub use error::{JudgeError, Problem, Role};
pub use health::{Unhealthy, reference_health};
pub use padding::Padding;
pub use policy::Policy;
pub use question::Question;
pub use ties::{Flip, Place};
pub use verdict::Decision;

use padding::PaddedLeaves;
use statistics::{Files, RowFilter, SameLeaf};
use structure::Unlike;
use tensors::TensorFile;
use ties::Generation;

/// Where the files of a judgement are. The processes that wrote them must have ended: what is written to a file while it is
/// judged makes the judgement meaningless, though nothing worse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeFiles {
    /// The CPU's outputs in float64.
    pub reference: PathBuf,
    /// The CPU's outputs at the case's dtype and precision.
    pub yardstick: PathBuf,
    /// The reference once more, where [`reference_health`] has not been asked about this reference before.
    pub repeat: Option<PathBuf>,
    /// The target's outputs.
    pub outputs: PathBuf,
    /// What is padded in the inputs that all of them were made from, if anything.
    pub padding: Option<Padding>,
}

/// What the judge found.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// One of `pass`, `mismatch`, `non_finite`, `shape_mismatch`, `inconclusive_tie`, `reference_error`, `nondeterministic`.
    pub outcome: Outcome,
    /// For anything but a pass: the worst leaf, its figures and the gate.
    pub message: Option<String>,
    /// Every leaf's statistics, sorted by name; none where leaves, shapes or dtypes differ.
    pub leaves: Vec<LeafStatistics>,
    /// The discrete choice that differs with the least excuse; to be kept with the leaves, for [`rejudge`].
    pub flip: Option<Flip>,
    /// Figures of the worst leaf of each.
    pub metrics: Metrics,
    /// The policy that it was judged under.
    pub policy_version: u32,
}

impl Judgement {
    fn without_statistics(outcome: Outcome, message: String, policy: &Policy) -> Self {
        Self {
            outcome,
            message: Some(message),
            leaves: Vec::new(),
            flip: None,
            metrics: Metrics::default(),
            policy_version: policy.version,
        }
    }
}

/// Judges a target's outputs.
///
/// # Errors
/// Where a file is missing, is no regular file, or is no valid safetensors; [`JudgeError::role`] says whose it is.
pub fn judge(files: &JudgeFiles, question: &Question, policy: &Policy) -> Result<Judgement, JudgeError> {
    if let Some(repeat) = &files.repeat {
        let health = reference_health(&files.reference, repeat, &files.yardstick, files.padding.as_ref(), question, policy)?;
        if let Some(Unhealthy { outcome, message }) = health {
            return Ok(Judgement::without_statistics(outcome, message, policy));
        }
    }
    let padded = PaddedLeaves::read(files.padding.as_ref())?;
    let mut files = Files {
        reference: TensorFile::open(Role::Reference, &files.reference)?,
        yardstick: TensorFile::open(Role::Yardstick, &files.yardstick)?,
        outputs: TensorFile::open(Role::Outputs, &files.outputs)?,
    };
    let leaves = match structure::same_leaves(&files) {
        Ok(leaves) => leaves,
        Err(Unlike::Reference(message)) => {
            return Ok(Judgement::without_statistics(Outcome::ReferenceError, message, policy));
        }
        Err(Unlike::Outputs(message)) => {
            return Ok(Judgement::without_statistics(Outcome::ShapeMismatch, message, policy));
        }
    };
    let (leaves, flip) = measure(&mut files, &leaves, &padded)?;
    let Decision { outcome, message, metrics } = verdict::decide(&leaves, flip.as_ref(), question, policy);
    Ok(Judgement { outcome, message, leaves, flip, metrics, policy_version: policy.version })
}

/// Judges again from what was kept of a [`Judgement`], under any policy. Under the same policy it decides the same.
///
/// None where no statistics were kept: leaves, shapes or dtypes differed, which no policy changes.
pub fn rejudge(leaves: &[LeafStatistics], flip: Option<&Flip>, question: &Question, policy: &Policy) -> Option<Decision> {
    (!leaves.is_empty()).then(|| verdict::decide(leaves, flip, question, policy))
}

/// Every leaf's statistics, and the flip with the least excuse.
fn measure(
    files: &mut Files,
    leaves: &[SameLeaf],
    padded: &PaddedLeaves,
) -> Result<(Vec<LeafStatistics>, Option<Flip>), JudgeError> {
    let generation = Generation::read(files, leaves)?;
    let mut measured = Vec::with_capacity(leaves.len());
    let mut flips = Vec::new();
    for leaf in leaves {
        let rows = padded.of(leaf);
        let part = rows.as_ref().map(|rows| |row: usize| rows.part(row));
        let filter: RowFilter = part.as_ref().map(|part| part as _);
        measured.push(match (leaf.kind(), &generation) {
            (LeafKind::Distance, Some(generation)) if leaf.name == "logits" => generation.logits_statistics(files)?,
            (LeafKind::Distance, _) => statistics::distance(files, leaf, filter)?,
            // Tokens that were made have no padding, whatever stood before them.
            (LeafKind::Exact, Some(generation)) if leaf.name == "tokens" => {
                flips.extend(generation.worst_flip(files)?);
                statistics::exact(files, leaf, None)?.0
            }
            (LeafKind::Exact, _) => {
                let (statistics, shared) = statistics::exact(files, leaf, filter)?;
                flips.extend(ties::without_margin(&statistics, shared));
                statistics
            }
        });
    }
    Ok((measured, ties::worst(flips)))
}
