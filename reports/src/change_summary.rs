//! What changed since the run before, and which nights did not come, in the Markdown of a CI job's summary.

use std::fmt::Write as _;

use modelfarm_matrix::change::Change;
use modelfarm_matrix::rhythm::NightState;

use crate::fair_cut::cut_fairly;
use crate::figures::{count, counted};
use crate::markdown_text::{code, plain};
use crate::query::{ChangeRow, Comparison, NightRow, Side};

/// Changes in the table.
const MOST_CHANGES: usize = 50;
/// Nights that are named.
const MOST_NIGHTS: usize = 14;

/// The nights that are not sound, if any.
pub(crate) fn write_nights(text: &mut String, nights: &[NightRow]) {
    let unsound: Vec<&NightRow> = nights.iter().filter(|night| !night.state.is_sound()).collect();
    if unsound.is_empty() {
        return;
    }
    let _ = writeln!(text, "**Nights that are not whole**, of the last {}:\n", count(nights.len() as u64));
    for night in unsound.iter().take(MOST_NIGHTS) {
        let how = match (night.state, night.finished, night.planned) {
            (NightState::Missing | NightState::Late, ..) | (_, None, _) | (_, _, None) => "nothing ran".to_owned(),
            (_, Some(finished), Some(planned)) => format!("{} of {}", count(finished), counted(planned, "planned case")),
        };
        let _ = writeln!(text, "- {}: **{}**, {how}", code(day(&night.due_at), 10), night.state);
    }
    if unsound.len() > MOST_NIGHTS {
        let _ = writeln!(text, "- and {} more", count((unsound.len() - MOST_NIGHTS) as u64));
    }
    text.push('\n');
}

/// What became of the cases that did not pass both times.
pub(crate) fn write_changes(text: &mut String, comparison: &Comparison) {
    let Comparison { before, after, in_both, still_passing, rows, is_old_enough: _, matrix: _ } = comparison;
    let _ = writeln!(text, "### Changes since run {} of {}\n", code(&before.run_id, 40), code(day(&before.started_at), 10));
    let counts: Vec<String> = Change::ALL
        .iter()
        .map(|change| (change, comparison.count(*change)))
        .filter(|(_, number)| *number > 0)
        .map(|(change, number)| format!("{} {}", count(number as u64), plain(change.as_str())))
        .collect();
    let counts = if counts.is_empty() { "nothing changed".to_owned() } else { counts.join(", ") };
    let partial = if after.is_complete { "" } else { " The newer run is not complete: only what it came to is compared." };
    let _ = writeln!(
        text,
        "{} in both runs, {} pass as before; {counts}.{partial}\n",
        counted(*in_both, "case"),
        count(*still_passing)
    );
    let told = |row: &&ChangeRow| !matches!(row.change, Change::StillFailing | Change::NewPass | Change::Vanished);
    let told: Vec<&ChangeRow> = rows.iter().filter(told).collect();
    if told.is_empty() {
        return;
    }
    let all = told.len();
    text.push_str(
        "| change | confirmed | model | workload | target | mode | before | now | since | what else changed | case |\n",
    );
    text.push_str("|:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|:--|\n");
    for row in cut_fairly(told, MOST_CHANGES, |row| row.change) {
        let outcome = |side: &Option<Side>| side.as_ref().map_or("–".to_owned(), |side| plain(side.outcome.as_str()));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} {} | {} | {} | {} | {} | {} | {} | `{}` |",
            plain(row.change.as_str()),
            confirmed(row),
            code(row.model.as_str(), 200),
            row.workload,
            row.dtype,
            code(&row.target, 60),
            row.mode,
            outcome(&row.before),
            outcome(&row.after),
            row.first.as_ref().map_or("–".to_owned(), |side| code(day(&side.started_at), 10)),
            what_else_changed(row),
            row.case_id
        );
    }
    if all > MOST_CHANGES {
        let more = counted((all - MOST_CHANGES) as u64, "more change");
        let _ = writeln!(text, "\nand {more}: `modelfarm query regressions --run {}` lists them.", plain(&after.run_id));
    }
    text.push('\n');
}

fn confirmed(row: &ChangeRow) -> &'static str {
    match (row.change, row.confirmed) {
        (Change::Regressed, Some(true)) => "✗ yes",
        (Change::Regressed, Some(false)) => "no: it could not be seen again",
        (Change::Regressed, None) => "? open",
        _ => "–",
    }
}

fn what_else_changed(row: &ChangeRow) -> String {
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".to_owned());
    let mut told: Vec<String> = row
        .environment_changes
        .iter()
        .take(5)
        .map(|change| code(&format!("{} {} → {}", change.package, version(&change.from), version(&change.to)), 80))
        .collect();
    if row.environment_changes.len() > 5 {
        told.push(format!("{} more packages", count((row.environment_changes.len() - 5) as u64)));
    }
    if row.model_changed == Some(true) {
        told.push("the model's revision".to_owned());
    }
    if row.host_changed == Some(true) {
        told.push("the host".to_owned());
    }
    if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
}

/// The day of a time in RFC 3339.
fn day(time: &str) -> &str {
    time.get(..10).unwrap_or(time)
}
