//! A row of nights as a picture: a bar a night, with its height, place and words beside its colour.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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
/// The width of a bar, and the height of the line of a night that says nothing.
const BAR: f64 = 6.0;
const LINE: f64 = 2.0;

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
}

/// A night with a failure: the only one that is drawn apart, so that a pointer over it tells what it was.
#[derive(Debug, Serialize)]
pub(super) struct FailedNight {
    x: f64,
    height: f64,
    /// The dot above it, so that a failure shows without colour.
    dot_x: f64,
    title: String,
}

/// A row of nights.
#[derive(Debug, Serialize)]
pub(super) struct StripView {
    width: f64,
    /// What passed, from below, as the path of one shape: a page has thousands of bars.
    pass: String,
    /// Nights that say nothing: a line at the bottom.
    quiet: String,
    failed: Vec<FailedNight>,
    /// The same in words, for who does not see the picture.
    summary: String,
}

impl StripView {
    /// The strip of tallies, one a night.
    pub(super) fn new(nights: &[StripNight], tallies: &[NightTally]) -> Self {
        let mut strip = Self {
            width: nights.len() as f64 * STEP,
            pass: String::new(),
            quiet: String::new(),
            failed: Vec::new(),
            summary: summary(nights, tallies),
        };
        for (place, (night, tally)) in nights.iter().zip(tallies).enumerate() {
            strip.draw(place, night, *tally);
        }
        strip
    }

    fn draw(&mut self, place: usize, night: &StripNight, tally: NightTally) {
        let x = place as f64 * STEP;
        if tally.conclusive() == 0 {
            let _ = write!(self.quiet, "M{x} {}h{BAR}v{LINE}h-{BAR}z", HEIGHT - LINE);
            return;
        }
        let room = HEIGHT - MARK;
        let fail = (room * tally.fail as f64 / tally.conclusive() as f64 * 10.0).round() / 10.0;
        if fail < room {
            let _ = write!(self.pass, "M{x} {}h{BAR}v{}h-{BAR}z", MARK + fail, room - fail);
        }
        if tally.fail > 0 {
            let day = one_line(night.started_at.get(..10).unwrap_or(&night.started_at), 20);
            let title = format!("{day}: {} of {} pass", count(tally.pass), counted(tally.conclusive(), "conclusive case"));
            self.failed.push(FailedNight { x, height: fail.max(1.0), dot_x: x + BAR / 2.0, title });
        }
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
        let failed: Vec<(&str, f64)> = strip.failed.iter().map(|night| (night.title.as_str(), night.x)).collect();
        assert_eq!(failed, [("2026-11-02: 0 of 1 conclusive case pass", STEP)]);
        assert_eq!(strip.pass, "M0 3h6v15h-6z");
        assert_eq!(strip.quiet, "M14 16h6v2h-6zM21 16h6v2h-6z");
        assert_eq!(strip.summary, "1 of 2 nights without a failure");
    }

    #[test]
    fn the_parts_of_a_bar_fill_it() {
        let tally = NightTally { pass: 3, fail: 1, inconclusive: 7 };
        let strip = StripView::new(&nights(1), &[tally]);
        assert!((strip.failed[0].height - 3.8).abs() < 1e-9);
        assert_eq!(strip.pass, "M0 6.8h6v11.2h-6z");
    }
}
