//! The run's health, first on the page: how far it came, and what its figures are worth.

use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::outcome::Standing;
use serde::Serialize;

use crate::figures::{count, counted, milliseconds, percent};
use crate::rows::RunState;
use crate::run_figures::RunFigures;
use crate::visible_text::one_line;

/// A figure with its label, its denominator and a remark.
#[derive(Serialize)]
pub(super) struct Tile {
    label: &'static str,
    figure: String,
    of: String,
    remark: String,
    style: &'static str,
}

/// One part of the bar over all planned cases, in thousandths of its width.
#[derive(Serialize)]
pub(super) struct Part {
    label: &'static str,
    style: &'static str,
    number: String,
    x: f64,
    width: f64,
}

/// A word with its count and share.
#[derive(Serialize)]
pub(super) struct Share {
    word: String,
    number: String,
    share: String,
    width: f64,
}

/// A target in a mode.
#[derive(Serialize)]
pub(super) struct TargetRow {
    target: String,
    mode: &'static str,
    pass: String,
    conclusive: String,
    rate: String,
    width: f64,
    inconclusive: String,
    unexpected: String,
    has_unexpected: bool,
}

/// The run's health.
#[derive(Serialize)]
pub(super) struct HealthView {
    state: &'static str,
    state_symbol: &'static str,
    state_meaning: &'static str,
    sound: bool,
    how_far: String,
    disagreement: Option<String>,
    tiles: Vec<Tile>,
    parts: Vec<Part>,
    targets: Vec<TargetRow>,
    failures: Vec<Share>,
    failed: String,
    inconclusive: Vec<Share>,
    inconclusive_cases: String,
}

impl HealthView {
    pub(super) fn new(figures: &RunFigures<'_>) -> Self {
        let (run, tally) = (figures.run, figures.tally);
        let (state_symbol, state_meaning) = match run.state {
            RunState::Complete => ("✓", "every planned case of every shard is final"),
            RunState::Partial => ("!", "the run ended, but cases are missing"),
            RunState::Running => ("…", "the run is still going"),
            RunState::Interrupted => ("!", "a signal or a crash ended the run early"),
        };
        let disagreement = (run.finished != tally.total()).then(|| {
            format!(
                "The store counts {} of this run, this report holds {}: the two were read at different times or not of the same rows.",
                counted(run.finished, "final case"),
                count(tally.total())
            )
        });
        Self {
            state: run.state.as_str(),
            state_symbol,
            state_meaning,
            sound: run.state == RunState::Complete && figures.missing() == 0,
            how_far: figures.how_far(),
            disagreement,
            tiles: tiles(figures),
            parts: parts(figures),
            targets: targets(figures),
            failures: shares(figures, Standing::Fail, tally.fail),
            failed: counted(tally.fail, "failed case"),
            inconclusive: shares(figures, Standing::Inconclusive, tally.inconclusive),
            inconclusive_cases: counted(tally.inconclusive, "inconclusive case"),
        }
    }
}

fn tiles(figures: &RunFigures<'_>) -> Vec<Tile> {
    let tally = figures.tally;
    let conclusive = figures.conclusive();
    let of_final = format!("of {}", counted(tally.total(), "final case"));
    let kinds = figures.unexpected_kinds();
    let declared = |verdict| format!("{} as declared", count(figures.with_verdict(verdict)));
    let cost = match figures.run.farm_overhead_ms_median {
        Some(ms) => (milliseconds(ms), "a case, median".to_owned()),
        None => ("–".to_owned(), "not measured".to_owned()),
    };
    let rate = figures.run.cases_per_hour.map(|rate| format!("{} an hour", counted(rate.round().max(0.0) as u64, "case")));
    vec![
        Tile {
            label: "unexpected",
            figure: count(tally.unexpected),
            of: of_final.clone(),
            remark: if kinds.is_empty() { "everything as declared".to_owned() } else { kinds },
            style: if tally.unexpected > 0 { "alarm" } else { "calm" },
        },
        Tile {
            label: "pass rate",
            figure: percent(tally.pass, conclusive),
            of: format!("{} of {}", count(tally.pass), counted(conclusive, "conclusive case")),
            remark: format!("{} fail, {}", count(tally.fail), declared(Verdict::ExpectedFail)),
            style: "plain",
        },
        Tile {
            label: "inconclusive",
            figure: count(tally.inconclusive),
            of: format!("{of_final} ({})", percent(tally.inconclusive, tally.total())),
            remark: format!("outside the pass rate; {}", declared(Verdict::ExpectedInconclusive)),
            style: "plain",
        },
        Tile { label: "the farm's own cost", figure: cost.0, of: cost.1, remark: rate.unwrap_or_default(), style: "plain" },
    ]
}

fn parts(figures: &RunFigures<'_>) -> Vec<Part> {
    let tally = figures.tally;
    let whole = (tally.total() + figures.missing()).max(1) as f64;
    let declared = figures.with_verdict(Verdict::ExpectedFail);
    let unexpected_pass = figures.with_verdict(Verdict::UnexpectedPass);
    let numbers = [
        ("pass", "pass", tally.pass - unexpected_pass),
        ("pass, though a failure is declared", "gain", unexpected_pass),
        ("fail, undeclared", "fail", tally.fail - declared),
        ("fail, declared", "declared", declared),
        ("inconclusive", "inconclusive", tally.inconclusive),
        ("missing", "missing", figures.missing()),
    ];
    let mut x = 0.0;
    let mut parts = Vec::new();
    for (label, style, number) in numbers.into_iter().filter(|(_, _, number)| *number > 0) {
        let width = thousandths(number as f64 / whole);
        parts.push(Part { label, style, number: count(number), x, width });
        x += width;
    }
    parts
}

fn targets(figures: &RunFigures<'_>) -> Vec<TargetRow> {
    let rows = figures.by_target_and_mode().into_iter().map(|((target, mode), tally)| {
        let conclusive = tally.pass + tally.fail;
        TargetRow {
            target: one_line(target, 60),
            mode: mode.as_str(),
            pass: count(tally.pass),
            conclusive: count(conclusive),
            rate: percent(tally.pass, conclusive),
            width: thousandths(tally.pass as f64 / conclusive.max(1) as f64),
            inconclusive: count(tally.inconclusive),
            unexpected: count(tally.unexpected),
            has_unexpected: tally.unexpected > 0,
        }
    });
    rows.collect()
}

fn shares(figures: &RunFigures<'_>, standing: Standing, whole: u64) -> Vec<Share> {
    let counts = figures.by_outcome(standing).into_iter();
    let shares = counts.map(|(outcome, number)| Share {
        word: outcome.as_str().replace('_', " "),
        number: count(number),
        share: percent(number, whole),
        width: thousandths(number as f64 / whole.max(1) as f64),
    });
    shares.collect()
}

/// A share as thousandths with one decimal: what the drawings are measured in.
pub(super) fn thousandths(share: f64) -> f64 {
    (share.clamp(0.0, 1.0) * 10_000.0).round() / 10.0
}
