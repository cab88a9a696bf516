//! What a terminal shows when a run has ended.

use std::fmt::Write as _;

use modelfarm_matrix::expectation::Verdict;

use crate::fair_cut::cut_fairly;
use crate::figures::{count, counted, instant, milliseconds, percent};
use crate::rows::{ResultRow, RunRow};
use crate::run_figures::RunFigures;
use crate::verdict_mark::verdict_mark;
use crate::visible_text::one_line;

/// Unexpected results that are listed one by one.
const MOST_LISTED: usize = 20;

/// The final text summary of a run, without colours, ending in a line feed.
///
/// Every number names its unit and its denominator; `rows` may hold earlier tries too.
pub fn final_summary(run: &RunRow, rows: &[ResultRow]) -> String {
    let figures = RunFigures::new(run, rows);
    let tally = figures.tally;
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {label:<14}{value}");
    };
    line(
        "run",
        format!("{} · {} · started {}", one_line(&run.run_id, 40), one_line(&run.matrix, 60), instant(&run.started_at)),
    );
    line("state", format!("{}: {}", run.state, figures.how_far()));
    let conclusive = figures.conclusive();
    let of_conclusive =
        |part| format!("{} of {} ({})", count(part), counted(conclusive, "conclusive case"), percent(part, conclusive));
    line("pass", of_conclusive(tally.pass));
    line(
        "fail",
        format!("{}, {} of them as declared", of_conclusive(tally.fail), count(figures.with_verdict(Verdict::ExpectedFail))),
    );
    let mut inconclusive = format!("{} of {}", count(tally.inconclusive), counted(tally.total(), "final case"));
    if tally.inconclusive > 0 {
        let declared = count(figures.with_verdict(Verdict::ExpectedInconclusive));
        inconclusive.push_str(&format!(", {declared} of them as declared: {}", figures.inconclusive_causes()));
    }
    line("inconclusive", inconclusive);
    let mut unexpected = format!("{} of {}", count(tally.unexpected), counted(tally.total(), "final case"));
    if tally.unexpected > 0 {
        unexpected.push_str(&format!(": {}", figures.unexpected_kinds()));
    }
    line("unexpected", unexpected);
    if figures.retried > 0 {
        line("retried", format!("{} of {}", count(figures.retried), counted(tally.total(), "final case")));
    }
    if let Some(overhead) = run.farm_overhead_ms_median {
        line("farm's cost", format!("{} a case (median)", milliseconds(overhead)));
    }
    if let Some(rate) = run.cases_per_hour {
        line("rate", format!("{} an hour of wall time", counted(rate.round().max(0.0) as u64, "case")));
    }
    write_targets(&mut text, &figures);
    write_unexpected(&mut text, &figures);
    text
}

fn write_targets(text: &mut String, figures: &RunFigures<'_>) {
    let tallies = figures.by_target_and_mode();
    if tallies.is_empty() {
        return;
    }
    let width = tallies.keys().map(|(target, mode)| target.len() + mode.as_str().len() + 3).max().unwrap_or(0).min(60);
    text.push_str("\n  passed of conclusive cases, by target and mode\n");
    for ((target, mode), tally) in tallies {
        let name = format!("{} · {mode}", one_line(target, 40));
        let conclusive = tally.pass + tally.fail;
        let _ = write!(
            text,
            "    {name:<width$}  {:>7} of {:<7} {:>7}",
            count(tally.pass),
            count(conclusive),
            percent(tally.pass, conclusive)
        );
        if tally.inconclusive > 0 {
            let _ = write!(text, "  + {} inconclusive", count(tally.inconclusive));
        }
        text.push('\n');
    }
}

fn write_unexpected(text: &mut String, figures: &RunFigures<'_>) {
    let unexpected = figures.unexpected();
    if unexpected.is_empty() {
        return;
    }
    text.push_str("\n  unexpected results\n");
    let all = unexpected.len();
    for row in cut_fairly(unexpected, MOST_LISTED, |row| row.verdict) {
        let mark = verdict_mark(row.verdict);
        let _ = writeln!(
            text,
            "    {} {} {} {} {} {} {}: {} in {}",
            mark.symbol,
            row.case_id,
            row.model,
            row.workload,
            row.dtype,
            one_line(&row.target, 40),
            row.mode,
            row.outcome,
            row.stage
        );
        match row.message.as_ref().or(row.signature.as_ref()) {
            Some(message) => {
                let _ = writeln!(text, "      {}", one_line(message, 160));
            }
            None => {
                let _ = writeln!(text, "      {}", mark.meaning);
            }
        }
    }
    if all > MOST_LISTED {
        let more = count((all - MOST_LISTED) as u64);
        let _ = writeln!(text, "    and {more} more: `modelfarm query results` lists them all");
    }
}
