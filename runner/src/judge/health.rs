//! Whether a reference can be judged against at all: asked once for each reference, before any target is.

use modelfarm_matrix::leaf::LeafStatistics;
use modelfarm_matrix::outcome::Outcome;

use super::error::{JudgeError, Role};
use super::measure;
use super::noise::{Noise, Scales};
use super::padding::{PaddedLeaves, Padding};
use super::policy::Policy;
use super::question::Question;
use super::statistics::{Files, shown};
use super::structure::{self, Unlike};
use super::tensors::TensorFile;
use super::verdict;
use std::path::Path;

/// What is wrong with a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unhealthy {
    /// `nondeterministic` or `reference_error`.
    pub outcome: Outcome,
    /// Which leaf, and why.
    pub message: String,
}

/// Checks a reference against its repetition and its yardstick. None is healthy.
///
/// It is `nondeterministic` where the repetition differs by more than a share of the legitimate noise, and a `reference_error`
/// where it does not fit the yardstick or no leaf could tell right from wrong. Neither is asked of padded positions.
///
/// # Errors
/// Where a file cannot be read.
pub fn reference_health(
    reference: &Path,
    repeat: &Path,
    yardstick: &Path,
    padding: Option<&Padding>,
    question: &Question,
    policy: &Policy,
) -> Result<Option<Unhealthy>, JudgeError> {
    let padded = PaddedLeaves::read(padding)?;
    // What could not pass if the target did exactly what the CPU does at its dtype could never pass.
    let mut files = open(reference, yardstick, Role::Yardstick, yardstick)?;
    let leaves = match structure::same_leaves(&files) {
        Ok(leaves) => leaves,
        Err(Unlike::Reference(message) | Unlike::Outputs(message)) => {
            return Ok(Some(Unhealthy { outcome: Outcome::ReferenceError, message }));
        }
    };
    let (statistics, flip) = measure(&mut files, &leaves, &padded)?;
    let decision = verdict::decide(&statistics, flip.as_ref(), question, policy);
    if !matches!(decision.outcome, Outcome::Pass | Outcome::InconclusiveTie) {
        let message = decision.message.unwrap_or_default();
        return Ok(Some(Unhealthy { outcome: Outcome::ReferenceError, message }));
    }

    let mut files = open(reference, yardstick, Role::Repeat, repeat)?;
    let nondeterministic = |message| Ok(Some(Unhealthy { outcome: Outcome::Nondeterministic, message }));
    let leaves = match structure::repeated_leaves(&files) {
        Ok(leaves) => leaves,
        Err(message) => return nondeterministic(message),
    };
    let (statistics, _) = measure(&mut files, &leaves, &padded)?;
    let scales = Scales::of(&statistics, question);
    let differing = statistics.iter().find_map(|leaf| difference(leaf, &scales, question, policy));
    differing.map_or(Ok(None), nondeterministic)
}

fn open(reference: &Path, yardstick: &Path, role: Role, outputs: &Path) -> Result<Files, JudgeError> {
    Ok(Files {
        reference: TensorFile::open(Role::Reference, reference)?,
        yardstick: TensorFile::open(Role::Yardstick, yardstick)?,
        outputs: TensorFile::open(role, outputs)?,
    })
}

fn difference(leaf: &LeafStatistics, scales: &Scales, question: &Question, policy: &Policy) -> Option<String> {
    let name = shown(&leaf.name);
    if leaf.unequal > 0 {
        return Some(format!("leaf `{name}`: {} elements of two reference runs differ", leaf.unequal));
    }
    if leaf.nonfinite_mismatches > 0 {
        let count = leaf.nonfinite_mismatches;
        return Some(format!("leaf `{name}`: {count} elements are not finite in one of two reference runs"));
    }
    let allowed = policy.repeat_share * Noise::of(leaf, scales, question, policy).rmse;
    let found = leaf.rmse();
    (found > allowed)
        .then(|| format!("leaf `{name}`: two reference runs differ by a RMSE of {found:.3e}; {allowed:.3e} would not matter"))
}
