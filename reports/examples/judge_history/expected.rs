//! What a comparison of two nights should say of a case whose outcome only the night decides.

use modelfarm_matrix::change::Change;

use super::known_truth::KnownHistory;

/// What should be told, and against which night.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    pub change: Change,
    /// The newest night up to the baseline that said something; none where none did.
    pub before: Option<usize>,
}

/// The truth about night `after` against the complete nights up to the baseline, oldest first; none where nothing is to be told.
pub fn expected(history: &KnownHistory<'_>, up_to_baseline: &[usize], after: usize) -> Option<Expected> {
    let before = up_to_baseline.iter().copied().rfind(|night| history.is_told(*night));
    let told = |change| Some(Expected { change, before });
    if !history.is_planned(after) {
        return if up_to_baseline.last().is_some_and(|night| history.is_tried(*night)) { told(Change::Vanished) } else { None };
    }
    if !history.is_tried(after) {
        return None; // its shard did not come
    }
    match (before.map(|night| history.fails(night)), history.is_told(after).then(|| history.fails(after))) {
        (None, None) | (Some(false), Some(false)) => None,
        (Some(_), None) => told(Change::Undecided),
        (None, Some(true)) => told(Change::NewFailure),
        (None, Some(false)) => told(Change::NewPass),
        (Some(false), Some(true)) => told(Change::Regressed),
        (Some(true), Some(false)) => told(Change::Fixed),
        (Some(true), Some(true)) => told(Change::StillFailing),
    }
}
