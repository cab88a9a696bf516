//! What changed since the complete run before, and which nights did not come.

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::change::Change;
use modelfarm_matrix::model::ModelId;
use serde::Serialize;

use super::links::Links;
use crate::fair_cut::cut_fairly;
use crate::figures::{count, counted, instant};
use crate::query::{ChangeRow, Comparison, NightRow, Side};
use crate::visible_text::one_line;

/// Rows of the table.
const MOST_LISTED: usize = 300;

/// How a change looks: a symbol beside the word, so that colour never carries the meaning alone.
#[derive(Debug, Clone, Copy, Serialize)]
struct ChangeMark {
    symbol: &'static str,
    word: &'static str,
    /// The style of the verdict that asks for as much attention.
    style: &'static str,
}

fn mark(change: Change) -> ChangeMark {
    let (symbol, style) = match change {
        Change::Regressed => ("✗", "unexpected_fail"),
        Change::NewFailure => ("✗", "unexpected_fail"),
        Change::Fixed => ("▲", "unexpected_pass"),
        Change::NewPass => ("+", "expected_pass"),
        Change::StillFailing => ("⊗", "expected_fail"),
        Change::Flaky => ("≈", "unexpected_inconclusive"),
        Change::Vanished => ("−", "expected_inconclusive"),
        Change::Undecided => ("?", "unexpected_inconclusive"),
    };
    ChangeMark { symbol, word: change.as_str(), style }
}

/// What changed.
#[derive(Debug, Serialize)]
pub(super) struct ChangesView {
    before_run: String,
    before_at: String,
    /// How many cases were compared; not told of a single architecture.
    totals: Option<Totals>,
    is_partial: bool,
    counts: Vec<Counted>,
    rows: Vec<Changed>,
    left_out: Option<String>,
}

#[derive(Debug, Serialize)]
struct Totals {
    in_both: String,
    still_passing: String,
}

#[derive(Debug, Serialize)]
struct Counted {
    mark: ChangeMark,
    number: String,
}

#[derive(Debug, Serialize)]
struct Changed {
    mark: ChangeMark,
    confirmed: &'static str,
    architecture: String,
    model: String,
    /// Empty where the newer run has no page of the model.
    link: String,
    what: String,
    target: String,
    mode: &'static str,
    before: String,
    after: String,
    since: String,
    causes: String,
    signature: String,
}

impl ChangesView {
    /// What changed for the cases of an architecture, or for all.
    pub(super) fn new(comparison: &Comparison, links: &Links, of: Option<&str>) -> Self {
        let wanted = |row: &&ChangeRow| of.is_none_or(|architecture| row.architecture == architecture);
        let all: Vec<&ChangeRow> = comparison.rows.iter().filter(wanted).collect();
        let counts = Change::ALL.iter().filter_map(|change| {
            let number = all.iter().filter(|row| row.change == *change).count() as u64;
            (number > 0).then(|| Counted { mark: mark(*change), number: count(number) })
        });
        let counts = counts.collect();
        // What failed before and fails now is no change: it is counted, and stands among the results.
        let all: Vec<&ChangeRow> = all.into_iter().filter(|row| row.change != Change::StillFailing).collect();
        let total = all.len();
        let rows: Vec<Changed> =
            cut_fairly(all, MOST_LISTED, |row| row.change).into_iter().map(|row| changed(row, links)).collect();
        let left_out = total - rows.len();
        Self {
            before_run: one_line(&comparison.before.run_id, 60),
            before_at: instant(&comparison.before.started_at),
            totals: of.is_none().then(|| Totals {
                in_both: counted(comparison.in_both, "case"),
                still_passing: count(comparison.still_passing),
            }),
            is_partial: !comparison.after.is_complete,
            counts,
            rows,
            left_out: (left_out > 0).then(|| counted(left_out as u64, "more change")),
        }
    }
}

fn changed(row: &ChangeRow, links: &Links) -> Changed {
    let outcome =
        |side: &Option<Side>| side.as_ref().map_or("–".to_owned(), |side| side.outcome.to_string().replace('_', " "));
    Changed {
        mark: mark(row.change),
        confirmed: match (row.change, row.confirmed) {
            (Change::Regressed, Some(true)) => "confirmed",
            (Change::Regressed, Some(false)) => "could not be seen again",
            (Change::Regressed, None) => "not tried again",
            _ => "",
        },
        architecture: one_line(&row.architecture, 96),
        model: row.model.to_string(),
        link: case_link(links, &row.model, &row.case_id, row.after.is_some()),
        what: format!("{} · {}", row.workload, row.dtype),
        target: one_line(&row.target, 60),
        mode: row.mode.as_str(),
        before: outcome(&row.before),
        after: outcome(&row.after),
        since: row.first.as_ref().map_or("–".to_owned(), |side| one_line(side.started_at.get(..10).unwrap_or_default(), 20)),
        causes: causes(row),
        signature: row.signature.as_ref().map_or(String::new(), |text| one_line(text, 200)),
    }
}

fn case_link(links: &Links, model: &ModelId, case: &CaseId, is_there: bool) -> String {
    if is_there { links.case(model, case) } else { String::new() }
}

fn causes(row: &ChangeRow) -> String {
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".to_owned());
    let packages = row.environment_changes.iter().take(4);
    let mut told: Vec<String> = packages
        .map(|change| one_line(&format!("{} {} → {}", change.package, version(&change.from), version(&change.to)), 80))
        .collect();
    if row.environment_changes.len() > 4 {
        told.push(format!("{} more packages", count((row.environment_changes.len() - 4) as u64)));
    }
    let also = [(row.model_changed, "the model's revision"), (row.host_changed, "the host")];
    told.extend(also.into_iter().filter(|(changed, _)| *changed == Some(true)).map(|(_, what)| what.to_owned()));
    if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
}

/// A night that is not whole.
#[derive(Debug, Serialize)]
pub(super) struct UnsoundNight {
    day: String,
    state: &'static str,
    came: String,
}

/// The nights that are not whole, newest first.
pub(super) fn unsound_nights(nights: &[NightRow]) -> Vec<UnsoundNight> {
    let unsound = nights.iter().filter(|night| !night.state.is_sound()).take(14);
    let told = unsound.map(|night| UnsoundNight {
        day: one_line(night.due_at.get(..10).unwrap_or_default(), 20),
        state: night.state.as_str(),
        came: match (night.finished, night.planned) {
            (Some(finished), Some(planned)) => format!("{} of {}", count(finished), counted(planned, "planned case")),
            _ => "nothing ran".to_owned(),
        },
    });
    told.collect()
}
