//! The Markdown summary of a CI job, in GitHub's flavour.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::event::Tally;
use modelfarm_matrix::expectation::Verdict;

use crate::change_summary::{write_changes, write_nights};
use crate::fair_cut::cut_fairly;
use crate::figures::{count, counted, milliseconds, percent};
use crate::markdown_text::{code, plain};
use crate::query::{Comparison, NightRow};
use crate::rows::{ResultRow, RunRow};
use crate::run_figures::RunFigures;
use crate::verdict_mark::verdict_mark;

/// Unexpected results in the table.
const MOST_UNEXPECTED: usize = 50;
/// Rows of the architecture matrix: a step's summary may hold 1 MiB.
const MOST_ARCHITECTURES: usize = 1000;
/// Columns of the architecture matrix.
const MOST_COLUMNS: usize = 24;

/// What is known of the nights before a run.
#[derive(Debug, Clone, Default)]
pub struct Before {
    /// What changed since the complete run before it; none where there is none.
    pub comparison: Option<Comparison>,
    /// The nights of its matrix, newest first.
    pub nights: Vec<NightRow>,
}

/// The Markdown summary of a run; `rows` may hold earlier tries too.
///
/// Whatever a model can influence stands in `<code>` with every punctuation mark as a character reference: there it can be no
/// markup, no link, no mention and no reference to an issue.
pub fn step_summary(run: &RunRow, rows: &[ResultRow], before: &Before) -> String {
    let figures = RunFigures::new(run, rows);
    let mut text = String::new();
    write_headline(&mut text, &figures);
    write_nights(&mut text, &before.nights);
    if let Some(comparison) = &before.comparison {
        write_changes(&mut text, comparison);
    }
    write_unexpected(&mut text, &figures);
    write_matrix(&mut text, &figures);
    text
}

fn write_headline(text: &mut String, figures: &RunFigures<'_>) {
    let (run, tally) = (figures.run, figures.tally);
    let verdict = match (tally.unexpected, figures.missing()) {
        (0, 0) => "✓ nothing unexpected".to_owned(),
        (0, missing) => format!("nothing unexpected so far, {} missing", counted(missing, "case")),
        (unexpected, _) => format!("✗ {}: {}", counted(unexpected, "unexpected result"), figures.unexpected_kinds()),
    };
    let _ = writeln!(text, "## modelfarm {}: {verdict}\n", code(&run.matrix, 60));
    let _ = writeln!(text, "Run {}: **{}**, {}.\n", code(&run.run_id, 40), run.state, figures.how_far());
    let conclusive = figures.conclusive();
    let total = counted(tally.total(), "final case");
    text.push_str("| | cases | of | |\n|:--|--:|:--|--:|\n");
    for (label, part) in [("pass", tally.pass), ("fail", tally.fail)] {
        let whole = counted(conclusive, "conclusive case");
        let _ = writeln!(text, "| {label} | {} | {whole} | {} |", count(part), percent(part, conclusive));
    }
    let declared = count(figures.with_verdict(Verdict::ExpectedFail));
    let _ = writeln!(text, "| … as declared | {declared} | {} | |", counted(tally.fail, "failed case"));
    let share = percent(tally.inconclusive, tally.total());
    let _ = writeln!(text, "| inconclusive | {} | {total} | {share} |", count(tally.inconclusive));
    let share = percent(tally.unexpected, tally.total());
    let _ = writeln!(text, "| unexpected | {} | {total} | {share} |", count(tally.unexpected));
    for (label, verdict) in [
        ("fail, undeclared", Verdict::UnexpectedFail),
        ("pass, though a failure is declared", Verdict::UnexpectedPass),
        ("inconclusive, undeclared", Verdict::UnexpectedInconclusive),
    ] {
        let number = figures.with_verdict(verdict);
        if number > 0 {
            let _ = writeln!(text, "| … {label} | {} | {} | |", count(number), counted(tally.unexpected, "unexpected case"));
        }
    }
    text.push('\n');
    if tally.inconclusive > 0 {
        let _ = writeln!(text, "Inconclusive by cause, in cases: {}.\n", plain(&figures.inconclusive_causes()));
    }
    let mut rates = Vec::new();
    rates.extend(run.farm_overhead_ms_median.map(|ms| format!("the farm's own cost {} a case (median)", milliseconds(ms))));
    rates.extend(run.cases_per_hour.map(|rate| format!("{} an hour", counted(rate.round().max(0.0) as u64, "case"))));
    if !rates.is_empty() {
        let _ = writeln!(text, "Speed: {}.\n", rates.join(", "));
    }
}

fn write_unexpected(text: &mut String, figures: &RunFigures<'_>) {
    let unexpected = figures.unexpected();
    if unexpected.is_empty() {
        return;
    }
    text.push_str("### Unexpected results\n\n");
    text.push_str("| | outcome | model | workload | target | mode | in | fault | case | message |\n");
    text.push_str("|:-:|:--|:--|:--|:--|:--|:--|:--|:--|:--|\n");
    let all = unexpected.len();
    for row in cut_fairly(unexpected, MOST_UNEXPECTED, |row| row.verdict) {
        let mark = verdict_mark(row.verdict);
        let message = row.message.as_ref().or(row.signature.as_ref()).map(|message| code(message, 160));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} {} | {} | {} | {} | {} | `{}` | {} |",
            mark.symbol,
            plain(row.outcome.as_str()),
            code(row.model.as_str(), 200),
            row.workload,
            row.dtype,
            code(&row.target, 60),
            row.mode,
            row.stage,
            row.fault.map_or("–", |fault| fault.as_str()),
            row.case_id,
            message.unwrap_or_else(|| mark.meaning.to_owned())
        );
    }
    if all > MOST_UNEXPECTED {
        let more = counted((all - MOST_UNEXPECTED) as u64, "more unexpected result");
        let _ = writeln!(text, "\nand {more}: the HTML report lists them.");
    }
    text.push('\n');
}

fn write_matrix(text: &mut String, figures: &RunFigures<'_>) {
    let mut columns: BTreeSet<(&str, Mode)> = BTreeSet::new();
    let mut cells: BTreeMap<&str, BTreeMap<(&str, Mode), Tally>> = BTreeMap::new();
    for row in &figures.final_rows {
        let column = (row.target.as_str(), row.mode);
        columns.insert(column);
        let tally = cells.entry(row.architecture.as_str()).or_default().entry(column).or_default();
        tally.add(row.outcome, row.verdict.is_unexpected());
    }
    if cells.is_empty() {
        return;
    }
    let architectures = counted(cells.len() as u64, "architecture");
    let _ = writeln!(text, "<details><summary>{architectures}: passed of conclusive cases by target and mode</summary>\n");
    text.push_str("| architecture |");
    let shown_columns: Vec<(&str, Mode)> = columns.iter().copied().take(MOST_COLUMNS).collect();
    for (target, mode) in &shown_columns {
        let _ = write!(text, " {}<br>{mode} |", code(target, 60));
    }
    let _ = writeln!(text, "\n|:--|{}", ":--|".repeat(shown_columns.len()));
    for (architecture, row) in cells.iter().take(MOST_ARCHITECTURES) {
        let _ = write!(text, "| {} |", code(architecture, 96));
        for column in &shown_columns {
            let _ = write!(text, " {} |", row.get(column).map_or("–".to_owned(), cell));
        }
        text.push('\n');
    }
    let left_out = cells.len().saturating_sub(MOST_ARCHITECTURES);
    if left_out > 0 {
        let _ = writeln!(text, "\nand {}.", counted(left_out as u64, "more architecture"));
    }
    let left_out = columns.len().saturating_sub(MOST_COLUMNS);
    if left_out > 0 {
        let _ = writeln!(text, "\nLeft out: {}.", counted(left_out as u64, "more column"));
    }
    text.push_str("\n✓ all conclusive cases pass · ✗ something unexpected · ⊗ failures, all as declared · ○ nothing conclusive; `+2?` counts inconclusive cases.\n\n</details>\n");
}

fn cell(tally: &Tally) -> String {
    let conclusive = tally.pass + tally.fail;
    let symbol = match tally {
        Tally { unexpected: 1.., .. } => "✗",
        Tally { fail: 1.., .. } => "⊗",
        Tally { pass: 1.., .. } => "✓",
        _ => "○",
    };
    let mut cell = format!("{symbol} {}/{}", count(tally.pass), count(conclusive));
    if tally.inconclusive > 0 {
        let _ = write!(cell, " +{}?", count(tally.inconclusive));
    }
    cell
}
