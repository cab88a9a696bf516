//! The pass rate of each target and mode over the nights, as lines that patterns and names tell apart, and as a table.

use std::collections::BTreeMap;

use modelfarm_matrix::axes::Mode;
use serde::Serialize;

use super::strip_view::NightTally;
use crate::figures::{count, percent};
use crate::query::Strips;
use crate::visible_text::one_line;

/// The size of the drawing area, in units of the picture.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 160.0;
/// More lines than this cannot be told apart; the table has them all.
const MOST_LINES: usize = 6;

/// The pass rates of all targets and modes.
#[derive(Debug, Serialize)]
pub(super) struct TrendView {
    lines: Vec<Line>,
    /// The rate at the bottom of the picture: it does not begin at zero where everything is near the top.
    lowest: String,
    first: String,
    last: String,
    columns: Vec<String>,
    rows: Vec<NightRates>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct Line {
    label: String,
    /// The pattern of the line: its place among them.
    pattern: usize,
    points: String,
    /// The last point, where the label's key is repeated.
    x: f64,
    y: f64,
}

#[derive(Debug, Serialize)]
struct NightRates {
    day: String,
    rates: Vec<String>,
}

impl TrendView {
    /// The rates of the nights of some strips; none for a single night, which is no trend.
    pub(super) fn new(strips: &Strips) -> Option<Self> {
        if strips.nights.len() < 2 {
            return None;
        }
        let mut tallies: BTreeMap<(&str, Mode), Vec<NightTally>> = BTreeMap::new();
        for case in &strips.cases {
            let row = tallies.entry((&case.target, case.mode));
            let row = row.or_insert_with(|| vec![NightTally::default(); strips.nights.len()]);
            for (tally, outcome) in row.iter_mut().zip(&case.outcomes) {
                if let Some(outcome) = outcome {
                    tally.add(*outcome);
                }
            }
        }
        let rate = |tally: &NightTally| match tally.pass + tally.fail {
            0 => None,
            conclusive => Some(tally.pass as f64 / conclusive as f64),
        };
        let lowest = tallies.values().flatten().filter_map(rate).fold(1.0, f64::min);
        // In whole steps of ten percent, and never without any room.
        let lowest = ((lowest * 10.0 - 1e-9).floor() / 10.0).clamp(0.0, 0.9);
        let step = WIDTH / (strips.nights.len() - 1) as f64;
        let point = |place: usize, rate: f64| (place as f64 * step, HEIGHT * (1.0 - rate) / (1.0 - lowest));
        let lines = tallies.iter().take(MOST_LINES).enumerate().filter_map(|(pattern, ((target, mode), row))| {
            let points: Vec<(f64, f64)> =
                row.iter().enumerate().filter_map(|(place, tally)| Some(point(place, rate(tally)?))).collect();
            let (x, y) = *points.last()?;
            let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
            Some(Line { label: format!("{} · {mode}", one_line(target, 60)), pattern, points, x, y })
        });
        let day = |place: usize| one_line(strips.nights[place].started_at.get(..10).unwrap_or_default(), 20);
        Some(Self {
            lines: lines.collect(),
            lowest: format!("{:.0} %", lowest * 100.0),
            first: day(0),
            last: day(strips.nights.len() - 1),
            columns: tallies.keys().map(|(target, mode)| format!("{} · {mode}", one_line(target, 60))).collect(),
            rows: (0..strips.nights.len())
                .rev()
                .map(|place| NightRates { day: day(place), rates: tallies.values().map(|row| rates(row[place])).collect() })
                .collect(),
            left_out: tallies.len().saturating_sub(MOST_LINES),
        })
    }
}

fn rates(tally: NightTally) -> String {
    let conclusive = tally.pass + tally.fail;
    match conclusive {
        0 => "–".to_owned(),
        _ => format!("{} ({} of {})", percent(tally.pass, conclusive), count(tally.pass), count(conclusive)),
    }
}
