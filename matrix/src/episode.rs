//! A case's history as rows of nights that passed or failed: since when it works, since when it is broken, how long a repair took.

use crate::outcome::{Outcome, Standing};

crate::words! {
    /// How a case stands.
    pub enum Works ("standing") {
        /// It passes.
        Works => "works",
        /// It fails.
        Broken => "broken",
    }
}

/// Nights in a row that passed, or failed. Those that say nothing of the target lie within the row that they follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Episode {
    /// How the case stood.
    pub works: Works,
    /// The first night of the row, by its place in the history.
    pub first: usize,
    /// The last night of the row that passed or failed.
    pub last: usize,
    /// Nights of the row that passed or failed.
    pub nights: usize,
}

/// The rows of a history, oldest first. A history that says nothing has none.
pub fn episodes(outcomes: impl IntoIterator<Item = Outcome>) -> Vec<Episode> {
    let mut episodes: Vec<Episode> = Vec::new();
    for (place, outcome) in outcomes.into_iter().enumerate() {
        let works = match outcome.standing() {
            Standing::Pass => Works::Works,
            Standing::Fail => Works::Broken,
            Standing::Inconclusive => continue,
        };
        match episodes.last_mut() {
            Some(episode) if episode.works == works => {
                episode.last = place;
                episode.nights += 1;
            }
            _ => episodes.push(Episode { works, first: place, last: place, nights: 1 }),
        }
    }
    episodes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_told_apart_and_silent_nights_lie_within() {
        use Outcome::{Crash, InfraError, Mismatch, Pass};
        let told = episodes([InfraError, Pass, Pass, Mismatch, InfraError, Crash, Pass]);
        let rows: Vec<_> = told.iter().map(|episode| (episode.works, episode.first, episode.last, episode.nights)).collect();
        assert_eq!(rows, [(Works::Works, 1, 2, 2), (Works::Broken, 3, 5, 2), (Works::Works, 6, 6, 1)]);
        assert_eq!(episodes([InfraError]), []);
    }

    proptest! {
        #[test]
        fn neighbours_differ_and_every_telling_night_is_in_one(
            outcomes in proptest::collection::vec(proptest::sample::select(Outcome::ALL), 0..30)
        ) {
            let told = episodes(outcomes.iter().copied());
            prop_assert!(told.windows(2).all(|pair| pair[0].works != pair[1].works && pair[0].last < pair[1].first));
            let telling = outcomes.iter().filter(|outcome| outcome.standing() != Standing::Inconclusive).count();
            prop_assert_eq!(told.iter().map(|episode| episode.nights).sum::<usize>(), telling);
        }
    }
}
