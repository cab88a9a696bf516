//! What changed for a case between two runs, and whether it may be chance.
//!
//! A case that sometimes fails by itself (a *flake*) passes on a second try of the same run, or goes back to what it was the
//! run after without anything having changed. For such a case a failing run is no news until chance no longer explains it:
//! a try that fails with the probability `p` fails `n` times in a row with `p^n`, and only below [`CHANCE`] is that a
//! regression. How probable each `p` is follows from what came before the row of failures: its posterior under Jeffreys' prior.
//! To take the mean of it for `p` would call a case wrongly that failed less often, so far, than it does.
//! A case without any sign of flaking is believed at once.

use crate::outcome::{Outcome, Standing};

crate::words! {
    /// What became of a case from one run to another.
    pub enum Change ("change") {
        /// Passed before, fails now.
        Regressed => "regressed",
        /// Failed before, passes now.
        Fixed => "fixed",
        /// Was not there before, fails now.
        NewFailure => "new_failure",
        /// Was not there before, passes now.
        NewPass => "new_pass",
        /// Failed before, fails now.
        StillFailing => "still_failing",
        /// Passes and fails by chance.
        Flaky => "flaky",
        /// Was there before, is not now.
        Vanished => "vanished",
        /// Passed or failed before; now nothing can be said of the target.
        Undecided => "undecided",
    }
}

impl Change {
    /// Whether a nightly job should fail for it.
    pub fn is_bad(self) -> bool {
        matches!(self, Change::Regressed | Change::NewFailure)
    }
}

/// So improbable must a row of failures be before a case that is known to flake counts as regressed.
///
/// There is a comparison each night: what is so improbable that it befalls one night in a hundred thousand befalls a case in a
/// year with four thousandths.
pub const CHANCE: f64 = 1e-5;

/// The share of failing tries from which on a case counts as failing, and no longer as one that flakes. Without it a row of failures
/// that fills the window would be explained by a case that always failed by chance.
const MOST: f64 = 0.8;

/// What one run saw of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Night {
    /// The outcomes of its tries, in their order.
    pub outcomes: Vec<Outcome>,
    /// What the tries ran on: whatever, changing, may change an outcome (environment, model revision, host, the farm's policy).
    pub ground: u64,
}

/// What a night's tries say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Every try that says something passed.
    Passed,
    /// Every try that says something failed.
    Failed,
    /// Some passed and some failed.
    Mixed,
    /// None says anything about the target.
    Silent,
}

impl Night {
    /// What its tries say together.
    pub fn reading(&self) -> Reading {
        let (mut passed, mut failed) = (0, 0);
        for try_passed in self.standings() {
            match try_passed {
                true => passed += 1,
                false => failed += 1,
            }
        }
        match (passed, failed) {
            (0, 0) => Reading::Silent,
            (_, 0) => Reading::Passed,
            (0, _) => Reading::Failed,
            _ => Reading::Mixed,
        }
    }

    /// Whether each try that says something passed.
    fn standings(&self) -> impl Iterator<Item = bool> {
        self.outcomes.iter().filter_map(|outcome| match outcome.standing() {
            Standing::Pass => Some(true),
            Standing::Fail => Some(false),
            Standing::Inconclusive => None,
        })
    }
}

/// What a history says of a case that passes and fails by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlakeRate {
    /// Tries that failed.
    pub failed: u64,
    /// Tries that passed or failed.
    pub tries: u64,
}

impl FlakeRate {
    /// Of tries, each of which passed or did not.
    pub fn of(tries: impl IntoIterator<Item = bool>) -> Self {
        tries.into_iter().fold(Self { failed: 0, tries: 0 }, |rate, passed| Self {
            failed: rate.failed + u64::from(!passed),
            tries: rate.tries + 1,
        })
    }

    /// The probability that a try fails: the mean of the posterior under Jeffreys' prior, `(failed + 1/2) / (tries + 1)`.
    pub fn of_failing(self) -> f64 {
        (self.failed as f64 + 0.5) / (self.tries as f64 + 1.0)
    }

    /// The probability that the next `length` tries all pass, or all fail: `p^length` over the posterior of `p`. That is the product
    /// of what is expected of each try after those before it. A case that fails more often than [`MOST`] does not flake.
    fn of_a_row(self, passed: bool, length: usize) -> f64 {
        let (alike, most) = if passed { (self.tries - self.failed, 1.0) } else { (self.failed, MOST) };
        let next = |more: usize| (alike as f64 + 0.5 + more as f64) / (self.tries as f64 + 1.0 + more as f64);
        (0..length).map(|more| next(more).min(most)).product()
    }
}

/// Whether nights show a case flaking: a night that is mixed, or one that differs from both neighbours, which agree and all of
/// which ran on the same ground. Silent nights are passed over.
pub fn flakes(nights: &[Night]) -> bool {
    let told: Vec<(Reading, u64)> =
        nights.iter().map(|night| (night.reading(), night.ground)).filter(|(reading, _)| *reading != Reading::Silent).collect();
    told.iter().any(|(reading, _)| *reading == Reading::Mixed)
        || told.windows(3).any(|three| {
            let [(before, a), (between, b), (after, c)] = [three[0], three[1], three[2]];
            before == after && before != between && a == b && b == c
        })
}

/// What became of a case. `nights` are what the runs saw of it from the oldest to the newest; the one at index `since` is the
/// baseline, and the last is now. Those from index `recent` on are as many runs back from now as the first is from the baseline,
/// or fewer where there are no more. `is_planned` says whether the newest run asked the case at all, whose night is the last
/// then. None where there is nothing to tell: it passes as before, or never said anything.
///
/// A baseline that says nothing is replaced by the newest night before it that does.
///
/// Whether a night's failing is more than chance depends on that night and what came before it, as far back for the baseline as for
/// now. So of nights that are each compared with the one before, the first whose failing is more than chance is called
/// regressed: if what is known of a case were looked at from now alone, a night could be passed over that was chance
/// yesterday and is none today.
pub fn change(nights: &[Night], since: usize, recent: usize, is_planned: bool) -> Option<Change> {
    if !is_planned {
        return (!nights.is_empty()).then_some(Change::Vanished);
    }
    let (now, past) = nights.split_last()?;
    let up_to_baseline = &past[..past.len().min(since + 1)];
    let known = up_to_baseline.iter().map(Night::reading).rfind(|reading| *reading != Reading::Silent);
    let Some(known) = known else {
        return match now.reading() {
            Reading::Passed => Some(Change::NewPass),
            Reading::Failed => Some(Change::NewFailure),
            Reading::Mixed => Some(Change::Flaky),
            Reading::Silent => None,
        };
    };
    let may_be_chance = Row::at_the_end_of(&nights[recent..]).may_be_chance();
    match (known, now.reading()) {
        (_, Reading::Silent) => Some(Change::Undecided),
        (_, Reading::Mixed) => Some(Change::Flaky),
        (Reading::Failed, Reading::Failed) if !Row::at_the_end_of(up_to_baseline).may_be_chance() => Some(Change::StillFailing),
        (_, Reading::Failed) if may_be_chance => Some(Change::Flaky),
        (_, Reading::Failed) => Some(Change::Regressed),
        (Reading::Failed, Reading::Passed) if may_be_chance => Some(Change::Flaky),
        (Reading::Failed, Reading::Passed) => Some(Change::Fixed),
        (_, Reading::Passed) => None,
    }
}

/// The row of tries at the end of a history that all passed, or all failed.
struct Row {
    passed: bool,
    /// How many there are.
    length: usize,
    /// Whether the history shows the case flaking.
    flakes: bool,
    /// How often the tries before the row failed.
    rate: FlakeRate,
}

impl Row {
    fn at_the_end_of(nights: &[Night]) -> Self {
        let tries: Vec<bool> = nights.iter().flat_map(Night::standings).collect();
        let passed = tries.last().copied().unwrap_or_default();
        let length = tries.iter().rev().take_while(|try_passed| **try_passed == passed).count();
        let before = tries[..tries.len() - length].iter().copied();
        Self { passed, length, flakes: flakes(nights), rate: FlakeRate::of(before) }
    }

    /// Whether a case that flakes as this one did before would come to such a row by itself.
    fn may_be_chance(&self) -> bool {
        self.flakes && self.rate.of_a_row(self.passed, self.length) >= CHANCE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A history in letters: `P` and `F` are tries, `-` one that says nothing; a space ends a night, and `|` a ground.
    fn nights(history: &str) -> Vec<Night> {
        let outcome = |letter| match letter {
            'P' => Outcome::Pass,
            'F' => Outcome::Mismatch,
            '-' => Outcome::InfraError,
            _ => panic!("{letter}"),
        };
        let on_one_ground = |(ground, nights): (usize, &str)| -> Vec<Night> {
            let night = |tries: &str| Night { outcomes: tries.chars().map(outcome).collect(), ground: ground as u64 };
            nights.split_whitespace().map(night).collect()
        };
        history.split('|').enumerate().flat_map(on_one_ground).collect()
    }

    /// Against the run before.
    fn of(history: &str) -> Option<Change> {
        let nights = nights(history);
        let since = nights.len().saturating_sub(2);
        change(&nights, since, 0, true)
    }

    #[test]
    fn a_steady_case_is_believed_at_once() {
        assert_eq!(of("P P P F"), Some(Change::Regressed));
        assert_eq!(of("P P P FFFF"), Some(Change::Regressed));
        assert_eq!(of("F F F P"), Some(Change::Fixed));
        assert_eq!(of("F F F F"), Some(Change::StillFailing));
        assert_eq!(of("P P P P"), None);
    }

    #[test]
    fn what_was_not_there_is_new_and_what_is_gone_vanished() {
        assert_eq!(of("P"), Some(Change::NewPass));
        assert_eq!(of("F"), Some(Change::NewFailure));
        assert_eq!(of("PF"), Some(Change::Flaky));
        assert_eq!(of("-"), None);
        assert_eq!(of(""), None);
        assert_eq!(change(&nights("P P"), 1, 0, false), Some(Change::Vanished));
        assert_eq!(change(&[], 0, 0, false), None);
    }

    #[test]
    fn a_night_that_says_nothing_is_no_news_of_the_target() {
        assert_eq!(of("P -"), Some(Change::Undecided));
        assert_eq!(of("- P"), Some(Change::NewPass));
        // The newest night that says something is the baseline.
        assert_eq!(of("P - F"), Some(Change::Regressed));
        assert_eq!(of("F - P"), Some(Change::Fixed));
        assert_eq!(of("F - -"), Some(Change::Undecided));
    }

    #[test]
    fn a_fix_that_was_taken_back_is_not_flaking() {
        assert_eq!(of("P P | F F | P P | F"), Some(Change::Regressed));
        assert_eq!(of("P | F | P"), Some(Change::Fixed));
        // On one ground it is.
        assert_eq!(of("P F P"), Some(Change::Flaky));
    }

    #[test]
    fn a_flaking_case_regresses_when_chance_no_longer_explains_it() {
        let history = "P FP P P P P FP".to_owned() + &" P".repeat(25);
        assert_eq!(of(&format!("{history} F")), Some(Change::Flaky), "one failure of a case that fails one time in fourteen");
        assert_eq!(of(&format!("{history} FFFF")), Some(Change::Flaky), "four in a row are one in eight thousand");
        assert_eq!(of(&format!("{history} FFFF FFFF")), Some(Change::Regressed), "eight are one in five million");
        assert_eq!(of(&format!("{history} FFFF FFFF F")), Some(Change::StillFailing));
        assert_eq!(of("PF FP PF FFFP FP FFFF"), Some(Change::Flaky), "a case that fails more often than not");
    }

    #[test]
    fn the_baseline_may_lie_further_back() {
        let history = nights("P P | F F F");
        assert_eq!(change(&history, 3, 0, true), Some(Change::StillFailing));
        assert_eq!(change(&history, 1, 0, true), Some(Change::Regressed));
        assert_eq!(change(&nights("F | P P P"), 0, 0, true), Some(Change::Fixed));
        assert_eq!(change(&nights("P F P F P"), 0, 0, true), None, "as it was");
    }

    #[test]
    fn what_was_chance_at_the_baseline_may_be_none_now() {
        let flaking = "P FP P P P P FP".to_owned() + &" P".repeat(25);
        let history = nights(&format!("{flaking} FFFF FFFF FFFF"));
        let last = history.len() - 1;
        assert_eq!(change(&history, last - 2, 0, true), Some(Change::Regressed), "against a bad night that could be chance");
        assert_eq!(change(&history, last - 1, 0, true), Some(Change::StillFailing));
    }

    #[test]
    fn a_row_is_expected_as_often_as_its_tries_after_each_other() {
        let rate = FlakeRate { failed: 1, tries: 3 };
        assert!((rate.of_a_row(false, 2) - (1.5 / 4.0) * (2.5 / 5.0)).abs() < 1e-12);
        assert!((rate.of_a_row(true, 1) - 2.5 / 4.0).abs() < 1e-12);
        assert_eq!(rate.of_a_row(true, 0), 1.0);
    }

    fn any_night() -> impl Strategy<Value = Night> {
        let outcome = proptest::sample::select(vec![Outcome::Pass, Outcome::Crash, Outcome::Mismatch, Outcome::HostOom]);
        (proptest::collection::vec(outcome, 0..5), 0u64..3).prop_map(|(outcomes, ground)| Night { outcomes, ground })
    }

    /// Numbers from 0 to below 1, the same every time (SplitMix64).
    struct Shares(u64);

    impl Iterator for Shares {
        type Item = f64;

        fn next(&mut self) -> Option<f64> {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            Some(((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64)
        }
    }

    /// A case whose tries fail with a probability of its own, for a year of nights, and a failure is tried three times more.
    fn a_flaking_year(shares: &mut Shares) -> Vec<Night> {
        let p = 0.02 + 0.48 * shares.next().unwrap();
        let mut night = || {
            let mut outcomes = Vec::new();
            for fails in shares.by_ref().take(4).map(|share| share < p) {
                outcomes.push(if fails { Outcome::Mismatch } else { Outcome::Pass });
                if !fails {
                    break;
                }
            }
            Night { outcomes, ground: 0 }
        };
        (0..365).map(|_| night()).collect()
    }

    /// The share of flaking cases that some night of a year from `first` on calls regressed, against the night before it.
    fn wrongly_called(first: usize) -> f64 {
        const CASES: usize = 2000;
        let mut shares = Shares(1);
        let is_called = |nights: &[Night]| {
            (first..nights.len()).any(|now| {
                let from = now.saturating_sub(31);
                let seen = &nights[from..=now];
                let recent = usize::from(seen.len() == 32);
                change(seen, seen.len() - 2, recent, true) == Some(Change::Regressed)
            })
        };
        let called = (0..CASES).filter(|_| is_called(&a_flaking_year(&mut shares))).count();
        called as f64 / CASES as f64
    }

    #[test]
    fn of_a_hundred_flaking_cases_less_than_one_is_called_regressed_after_its_first_week() {
        let share = wrongly_called(7);
        assert!(share <= 0.005, "{share}");
        // Whoever has seen a case pass a few times cannot know that it flakes.
        let share = wrongly_called(1);
        assert!((0.01..0.03).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn every_change_is_what_its_name_says(nights in proptest::collection::vec(any_night(), 1..12), back in 0usize..12) {
            let since = nights.len().saturating_sub(2 + back);
            let now = nights.last().unwrap().reading();
            match change(&nights, since, 0, true) {
                Some(Change::Regressed | Change::NewFailure | Change::StillFailing) => prop_assert_eq!(now, Reading::Failed),
                Some(Change::Fixed | Change::NewPass) => prop_assert_eq!(now, Reading::Passed),
                None => prop_assert!(matches!(now, Reading::Passed | Reading::Silent)),
                Some(Change::Undecided) => prop_assert_eq!(now, Reading::Silent),
                Some(Change::Flaky) => prop_assert_ne!(now, Reading::Silent),
                Some(Change::Vanished) => prop_assert!(false, "the case is planned"),
            }
        }

        #[test]
        fn a_case_that_fails_for_good_is_called_regressed_in_time_and_then_fails_still(
            flaking in proptest::collection::vec((0usize..4, proptest::bool::weighted(0.9)), 31..60)
        ) {
            const WINDOW: usize = 30;
            let night = |(failing, passes): &(usize, bool)| {
                let mut outcomes = vec![Outcome::Crash; if *passes { *failing } else { 4 }];
                outcomes.extend(passes.then_some(Outcome::Pass));
                Night { outcomes, ground: 0 }
            };
            let mut nights: Vec<Night> = flaking.iter().map(night).collect();
            nights.push(Night { outcomes: vec![Outcome::Pass], ground: 0 });
            let good = nights.len();
            nights.extend(vec![Night { outcomes: vec![Outcome::Crash; 4], ground: 0 }; 40]);
            let told = |now: usize| {
                let first = now.saturating_sub(1 + WINDOW);
                let recent = now.saturating_sub(WINDOW) - first;
                change(&nights[first..=now], now - 1 - first, recent, true)
            };
            let called = (good..good + 14).find(|now| told(*now) == Some(Change::Regressed));
            prop_assert!(called.is_some());
            prop_assert_eq!(told(nights.len() - 1), Some(Change::StillFailing));
        }

        #[test]
        fn a_case_that_never_changes_on_one_ground_never_flakes(tries in 1usize..5, length in 1usize..40) {
            let night = |outcome| Night { outcomes: vec![outcome; tries], ground: 0 };
            let mut nights = vec![night(Outcome::Pass); length];
            prop_assert!(!flakes(&nights));
            nights.push(night(Outcome::Timeout));
            prop_assert_eq!(change(&nights, length - 1, 0, true), Some(Change::Regressed));
            nights.push(night(Outcome::Timeout));
            prop_assert_eq!(change(&nights, length, 0, true), Some(Change::StillFailing));
        }
    }
}
