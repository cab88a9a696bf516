//! What befalls a case over the nights.

use std::collections::BTreeSet;

use modelfarm_matrix::change::Change;

use crate::calendar::{Night, SHARDS, host};
use crate::random::Random;

/// Why a case changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The package that changed that night.
    Package(&'static str),
    /// The model's new revision of that night.
    Revision,
    /// Nothing that the farm records.
    Nothing,
}

/// From this night on (0 is the first) a case is another.
#[derive(Clone, Copy)]
pub struct Turn {
    pub night: usize,
    pub cause: Cause,
}

/// What befalls a case while its model is there.
#[derive(Clone, Copy)]
pub enum Pattern {
    Passes,
    Fails,
    Regresses(Turn),
    IsFixed(Turn),
    RegressesAndIsFixed(Turn, Turn),
    /// Fails with this probability a try.
    Flakes(f64),
    /// The same, and from a night on it always fails.
    FlakesThenRegresses(f64, Turn),
    /// Fails on this host alone, of 0 to below `SHARDS`.
    FailsOnHost(usize),
    /// Says nothing in this share of the nights, and passes in the others.
    IsOftenSilent(f64),
}

impl Pattern {
    /// Its word in the truth.
    pub fn word(self) -> &'static str {
        match self {
            Pattern::Passes => "passes",
            Pattern::Fails => "fails",
            Pattern::Regresses(_) => "regresses",
            Pattern::IsFixed(_) => "is_fixed",
            Pattern::RegressesAndIsFixed(..) => "regresses_and_is_fixed",
            Pattern::Flakes(_) => "flakes",
            Pattern::FlakesThenRegresses(..) => "flakes_then_regresses",
            Pattern::FailsOnHost(_) => "fails_on_host",
            Pattern::IsOftenSilent(_) => "is_often_silent",
        }
    }

    /// The probability that a try fails.
    pub fn failing(self, night: usize, on_host: &str) -> f64 {
        let always = |fails: bool| f64::from(u8::from(fails));
        match self {
            Pattern::Passes | Pattern::IsOftenSilent(_) => 0.0,
            Pattern::Fails => 1.0,
            Pattern::Regresses(turn) => always(night >= turn.night),
            Pattern::IsFixed(turn) => always(night < turn.night),
            Pattern::RegressesAndIsFixed(regressed, fixed) => always((regressed.night..fixed.night).contains(&night)),
            Pattern::Flakes(p) => p,
            Pattern::FlakesThenRegresses(p, turn) => {
                if night >= turn.night {
                    1.0
                } else {
                    p
                }
            }
            Pattern::FailsOnHost(bad) => always(host(bad) == on_host),
        }
    }

    /// When it becomes another, and what that is called.
    pub fn turns(self) -> Vec<(Turn, Change)> {
        match self {
            Pattern::Regresses(turn) | Pattern::FlakesThenRegresses(_, turn) => vec![(turn, Change::Regressed)],
            Pattern::IsFixed(turn) => vec![(turn, Change::Fixed)],
            Pattern::RegressesAndIsFixed(one, other) => vec![(one, Change::Regressed), (other, Change::Fixed)],
            Pattern::Passes | Pattern::Fails | Pattern::Flakes(_) | Pattern::FailsOnHost(_) | Pattern::IsOftenSilent(_) => {
                Vec::new()
            }
        }
    }
}

/// Draws patterns for the cases of one model, so that each turn has the one cause that the truth names.
pub struct Patterns<'a> {
    pub nights: &'a [Night],
    /// The shard of the model, of 0 to below `SHARDS`.
    pub shard: usize,
    /// Nights of new revisions of the model: those that a turn needs are added.
    pub revisions: BTreeSet<usize>,
    /// Nights on which a case of the model turned.
    pub turned: BTreeSet<usize>,
}

impl Patterns<'_> {
    /// The pattern of the next case; one that finds no night for its turns passes.
    pub fn draw(&mut self, random: &mut Random) -> Pattern {
        let last = self.nights.len();
        let share = random.share();
        let drawn = match share {
            ..0.010 => Some(Pattern::Fails),
            ..0.030 => self.turn(random, 2..last).map(Pattern::Regresses),
            ..0.045 => self.turn(random, 2..last).map(Pattern::IsFixed),
            ..0.055 => self.turn(random, 2..last * 2 / 3).and_then(|regressed| {
                let fixed = self.turn(random, regressed.night + 2..last)?;
                Some(Pattern::RegressesAndIsFixed(regressed, fixed))
            }),
            ..0.095 => Some(Pattern::Flakes(flaking(random))),
            // There must be time to see that it flakes, and time to see that it is more than that.
            ..0.105 => {
                self.turn(random, last / 3..last * 9 / 10).map(|turn| Pattern::FlakesThenRegresses(flaking(random), turn))
            }
            ..0.110 => Some(Pattern::FailsOnHost(SHARDS - 1)),
            ..0.120 => Some(Pattern::IsOftenSilent(0.05 + 0.25 * random.share())),
            _ => None,
        };
        drawn.unwrap_or(Pattern::Passes)
    }

    fn turn(&mut self, random: &mut Random, nights: std::ops::Range<usize>) -> Option<Turn> {
        let wanted = random.share();
        let fits = |night: usize| {
            let change = self.nights[night].package_change.as_ref().map(|change| change.package);
            let is_there = self.nights[night].missing_shard != Some(self.shard);
            let has_revision = self.revisions.contains(&night);
            let cause = match wanted {
                ..0.5 => change.filter(|_| !has_revision).map(Cause::Package),
                ..0.75 => (change.is_none() && (has_revision || !self.turned.contains(&night))).then_some(Cause::Revision),
                _ => (change.is_none() && !has_revision).then_some(Cause::Nothing),
            };
            cause.filter(|_| is_there).map(|cause| Turn { night, cause })
        };
        let fitting: Vec<Turn> = nights.filter_map(fits).collect();
        if fitting.is_empty() {
            return None;
        }
        let turn = *random.one_of(&fitting);
        self.turned.insert(turn.night);
        if turn.cause == Cause::Revision {
            self.revisions.insert(turn.night);
        }
        Some(turn)
    }
}

/// The probability of a failing try: from 2 to 50 %.
fn flaking(random: &mut Random) -> f64 {
    0.02 + 0.48 * random.share()
}
