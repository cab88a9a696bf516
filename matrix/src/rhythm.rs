//! In which nights something that recurs was due, and what began in each: so that a night that never came is seen.

crate::words! {
    /// How a night stands.
    pub enum NightState ("state of a night") {
        /// Every planned case is final.
        Complete => "complete",
        /// Its run ended, but cases are missing.
        Partial => "partial",
        /// Its run is going.
        Running => "running",
        /// Its run ended early by a signal or a crash.
        Interrupted => "interrupted",
        /// The newest one, in which nothing has begun though it was due.
        Late => "late",
        /// Nothing began in it.
        Missing => "missing",
    }
}

impl NightState {
    /// Whether its results are all there, or may still come.
    pub fn is_sound(self) -> bool {
        matches!(self, NightState::Complete | NightState::Running)
    }
}

/// A night that was due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueNight {
    /// When: the start of its first run, or that of the last run before it and so many nights. Milliseconds, as the starts are.
    pub due_at: i64,
    /// The runs that began in it, as places in the row of starts.
    pub runs: std::ops::Range<usize>,
}

/// The nights from the first start until now, oldest first. `starts` are ascending, and one is due each `every`
/// milliseconds.
///
/// The rhythm is counted anew from each night that came, since schedulers start when they can: a start within half of `every` after the
/// first of a night belongs to that night, and a night is due only a quarter of `every` after its time.
pub fn due_nights(starts: &[i64], every: i64, now: i64) -> Vec<DueNight> {
    let every = every.max(1);
    let mut nights: Vec<DueNight> = Vec::new();
    for (place, &start) in starts.iter().enumerate() {
        let Some(last) = nights.last_mut() else {
            nights.push(DueNight { due_at: start, runs: place..place + 1 });
            continue;
        };
        let (since, gap) = (last.due_at, start.saturating_sub(last.due_at));
        if gap < every - every / 2 {
            last.runs.end = place + 1;
            continue;
        }
        let passed = gap.saturating_add(every / 2) / every;
        nights.extend((1..passed).map(|night| DueNight { due_at: since + night * every, runs: place..place }));
        nights.push(DueNight { due_at: start, runs: place..place + 1 });
    }
    if let Some(last) = nights.last() {
        let since = last.due_at;
        let passed = now.saturating_sub(since).saturating_sub(every / 4) / every;
        let place = starts.len();
        nights.extend((1..=passed).map(|night| DueNight { due_at: since + night * every, runs: place..place }));
    }
    nights
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: i64 = 24;

    fn runs_of(starts: &[i64], now: i64) -> Vec<usize> {
        due_nights(starts, DAY, now).into_iter().map(|night| night.runs.len()).collect()
    }

    #[test]
    fn nights_that_did_not_come_are_between_those_that_did_and_after_them() {
        assert_eq!(due_nights(&[], DAY, 1000), []);
        assert_eq!(runs_of(&[0, 24, 48], 50), [1, 1, 1]);
        assert_eq!(runs_of(&[0, 72], 72), [1, 0, 0, 1]);
        assert_eq!(runs_of(&[0], 29), [1], "a scheduler may be late");
        assert_eq!(runs_of(&[0], 30), [1, 0]);
        assert_eq!(runs_of(&[0], 54), [1, 0, 0]);
        assert_eq!(due_nights(&[5, 53], DAY, 53)[1], DueNight { due_at: 29, runs: 1..1 });
    }

    #[test]
    fn runs_that_begin_again_are_of_the_same_night() {
        assert_eq!(runs_of(&[0, 2, 11, 24], 24), [3, 1]);
        // Late by almost half a night, then in time again.
        assert_eq!(runs_of(&[0, 35, 48], 48), [1, 1, 1]);
    }

    proptest! {
        #[test]
        fn each_run_is_in_one_night_and_nights_are_in_order(
            mut starts in proptest::collection::vec(0i64..5_000, 0..60), after in 0i64..200,
        ) {
            starts.sort_unstable();
            let now = starts.last().copied().unwrap_or(0) + after;
            let nights = due_nights(&starts, DAY, now);
            let told: Vec<usize> = nights.iter().flat_map(|night| night.runs.clone()).collect();
            prop_assert_eq!(told, (0..starts.len()).collect::<Vec<_>>());
            prop_assert!(nights.windows(2).all(|pair| pair[0].due_at < pair[1].due_at));
        }

        #[test]
        fn a_rhythm_with_delays_misses_what_was_left_out(
            delays in proptest::collection::vec(0i64..6, 2..40), left_out in proptest::collection::btree_set(1usize..39, 0..10),
        ) {
            let last = delays.len() - 1;
            let came = |night: &usize| *night == last || !left_out.contains(night);
            let starts: Vec<i64> = (0..delays.len()).filter(came).map(|night| night as i64 * DAY + delays[night]).collect();
            let nights = due_nights(&starts, DAY, starts[starts.len() - 1]);
            prop_assert_eq!(nights.len(), delays.len());
            for (night, due) in nights.iter().enumerate() {
                prop_assert_eq!(due.runs.is_empty(), !came(&night), "{}", night);
            }
        }
    }
}
