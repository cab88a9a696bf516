//! A row of nights as a picture: a bar a night, with its height, place and words beside its colour.

use std::collections::BTreeMap;

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::outcome::{Outcome, Standing};
use serde::Serialize;

use crate::figures::{count, counted};
use crate::query::{CaseStrip, StripNight, Strips};
use crate::visible_text::one_line;

/// From one bar to the next, in units of the picture.
const STEP: f64 = 7.0;
/// The height of the picture, in the same units; the mark of a failure stands in the uppermost three.
const HEIGHT: f64 = 18.0;
const MARK: f64 = 3.0;

/// What the cases of a row came to in one night.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NightTally {
    pub(super) pass: u64,
    pub(super) fail: u64,
    pub(super) inconclusive: u64,
}

impl NightTally {
    /// Counts one case more.
    pub(super) fn add(&mut self, outcome: Outcome) {
        match outcome.standing() {
            Standing::Pass => self.pass += 1,
            Standing::Fail => self.fail += 1,
            Standing::Inconclusive => self.inconclusive += 1,
        }
    }

    fn conclusive(self) -> u64 {
        self.pass + self.fail
    }

    fn total(self) -> u64 {
        self.conclusive() + self.inconclusive
    }
}

/// A night of the picture.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    x: f64,
    /// The share that failed, from above; the rest passed.
    fail: f64,
    fail_y: f64,
    pass: f64,
    pass_y: f64,
    /// Nothing conclusive, or nothing at all: a line at the bottom.
    quiet: bool,
    /// A mark above the bar, so that a failure shows without colour.
    is_marked: bool,
    title: String,
}

/// A row of nights.
#[derive(Debug, Serialize)]
pub(super) struct StripView {
    width: f64,
    bars: Vec<Bar>,
    /// The same in words, for who does not see the picture.
    summary: String,
}

impl StripView {
    /// The strip of tallies, one a night.
    pub(super) fn new(nights: &[StripNight], tallies: &[NightTally]) -> Self {
        let bars = nights.iter().zip(tallies).enumerate();
        let bars: Vec<Bar> = bars.map(|(place, (night, tally))| bar(place, night, *tally)).collect();
        Self { width: bars.len() as f64 * STEP, summary: summary(nights, tallies), bars }
    }

    /// The strip of one case.
    pub(super) fn of_case(nights: &[StripNight], outcomes: &[Option<Outcome>]) -> Self {
        let tally = |outcome: &Option<Outcome>| {
            let mut tally = NightTally::default();
            if let Some(outcome) = outcome {
                tally.add(*outcome);
            }
            tally
        };
        Self::new(nights, &outcomes.iter().map(tally).collect::<Vec<_>>())
    }
}

/// The strips of a report's cases.
pub(super) struct CaseStrips<'a> {
    nights: &'a [StripNight],
    of_case: BTreeMap<&'a str, &'a CaseStrip>,
}

impl<'a> CaseStrips<'a> {
    pub(super) fn new(strips: &'a Strips) -> Self {
        Self { nights: &strips.nights, of_case: strips.cases.iter().map(|strip| (strip.case_id.as_str(), strip)).collect() }
    }

    /// The nights.
    pub(super) fn nights(&self) -> &'a [StripNight] {
        self.nights
    }

    /// What a case came to in each night.
    pub(super) fn outcomes(&self, case: &CaseId) -> Option<&'a [Option<Outcome>]> {
        self.of_case.get(case.as_str()).map(|strip| strip.outcomes.as_slice())
    }

    /// The picture of a case; none where there is but one night, which is no history.
    pub(super) fn view(&self, case: &CaseId) -> Option<StripView> {
        let outcomes = self.outcomes(case).filter(|_| self.nights.len() > 1)?;
        Some(StripView::of_case(self.nights, outcomes))
    }
}

fn bar(place: usize, night: &StripNight, tally: NightTally) -> Bar {
    let room = HEIGHT - MARK;
    let fail = if tally.conclusive() == 0 { 0.0 } else { room * tally.fail as f64 / tally.conclusive() as f64 };
    let pass = if tally.conclusive() == 0 { 0.0 } else { room - fail };
    let day = one_line(night.started_at.get(..10).unwrap_or(&night.started_at), 20);
    let title = match (tally.total(), tally.conclusive()) {
        (0, _) => format!("{day}: not asked"),
        (total, 0) => format!("{day}: inconclusive, {}", counted(total, "case")),
        (_, conclusive) => format!("{day}: {} of {} pass", count(tally.pass), counted(conclusive, "conclusive case")),
    };
    Bar {
        x: place as f64 * STEP,
        fail,
        fail_y: MARK,
        pass,
        pass_y: MARK + fail,
        quiet: tally.conclusive() == 0,
        is_marked: tally.fail > 0,
        title,
    }
}

fn summary(nights: &[StripNight], tallies: &[NightTally]) -> String {
    let asked = tallies.iter().filter(|tally| tally.conclusive() > 0).count() as u64;
    let clean = tallies.iter().filter(|tally| tally.conclusive() > 0 && tally.fail == 0).count() as u64;
    if asked == 0 {
        return format!("nothing conclusive in {}", counted(nights.len() as u64, "night"));
    }
    format!("{} of {} without a failure", count(clean), counted(asked, "night"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nights(number: usize) -> Vec<StripNight> {
        let night =
            |day: usize| StripNight { run_id: format!("r{day}"), started_at: format!("2026-11-{day:02}T02:00:00.000Z") };
        (1..=number).map(night).collect()
    }

    #[test]
    fn a_night_says_what_it_was_without_colour() {
        let outcomes = [Some(Outcome::Pass), Some(Outcome::Crash), Some(Outcome::InfraError), None];
        let strip = StripView::of_case(&nights(4), &outcomes);
        let told: Vec<(&str, bool, bool)> =
            strip.bars.iter().map(|bar| (bar.title.as_str(), bar.is_marked, bar.quiet)).collect();
        assert_eq!(
            told,
            [
                ("2026-11-01: 1 of 1 conclusive case pass", false, false),
                ("2026-11-02: 0 of 1 conclusive case pass", true, false),
                ("2026-11-03: inconclusive, 1 case", false, true),
                ("2026-11-04: not asked", false, true),
            ]
        );
        assert_eq!(strip.summary, "1 of 2 nights without a failure");
    }

    #[test]
    fn the_parts_of_a_bar_fill_it() {
        let tally = NightTally { pass: 3, fail: 1, inconclusive: 7 };
        let strip = StripView::new(&nights(1), &[tally]);
        let bar = &strip.bars[0];
        assert!((bar.pass + bar.fail + MARK - HEIGHT).abs() < 1e-9 && bar.pass > bar.fail);
        assert!((bar.pass_y - bar.fail_y - bar.fail).abs() < 1e-9);
    }
}
