//! Architecture × mode, one table a target, one group of columns for each workload and dtype.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use serde::Serialize;

use super::CaseTries;
use super::links::Links;
use crate::figures::{count, counted, percent};
use crate::rows::ResultRow;
use crate::verdict_mark::verdict_mark;
use crate::visible_text::one_line;

/// The table of one target.
#[derive(Serialize)]
pub(super) struct TargetMatrix {
    target: String,
    /// Place on the page.
    anchor: String,
    is_control: bool,
    summary: String,
    groups: Vec<ColumnGroup>,
    rows: Vec<MatrixRow>,
}

#[derive(Serialize)]
struct ColumnGroup {
    label: String,
    modes: Vec<&'static str>,
}

#[derive(Serialize)]
struct MatrixRow {
    architecture: String,
    /// Its page.
    link: String,
    passed: String,
    /// Everything passes, as it should.
    clean: bool,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    /// The most urgent verdict, or nothing where no case is final.
    style: Option<&'static str>,
    symbol: &'static str,
    text: String,
    link: String,
    /// Begins a group of columns.
    first: bool,
}

type Column = (Workload, Dtype, Mode);

/// The tables of all targets: controls last, others by name.
pub(super) fn matrices(cases: &[CaseTries<'_>], links: &Links) -> Vec<TargetMatrix> {
    let mut targets: BTreeMap<(bool, &str), Vec<&ResultRow>> = BTreeMap::new();
    let is_control =
        |case: &CaseTries<'_>| case.last.evidence.get("is_control").and_then(serde_json::Value::as_bool) == Some(true);
    let controls: BTreeSet<&str> =
        cases.iter().filter(|case| is_control(case)).map(|case| case.last.row.target.as_str()).collect();
    for case in cases {
        let target = case.last.row.target.as_str();
        targets.entry((controls.contains(target), target)).or_default().push(&case.last.row);
    }
    let tables = targets.into_iter().enumerate();
    tables.map(|(index, ((is_control, target), rows))| matrix(index, target, is_control, &rows, links)).collect()
}

fn matrix(index: usize, target: &str, is_control: bool, rows: &[&ResultRow], links: &Links) -> TargetMatrix {
    let mut columns: BTreeSet<Column> = BTreeSet::new();
    let mut architectures: BTreeMap<&str, BTreeMap<Column, Vec<&ResultRow>>> = BTreeMap::new();
    let (mut pass, mut conclusive) = (0, 0);
    for row in rows {
        let column = (row.workload, row.dtype, row.mode);
        columns.insert(column);
        architectures.entry(&row.architecture).or_default().entry(column).or_default().push(row);
        pass += u64::from(row.outcome.standing() == modelfarm_matrix::outcome::Standing::Pass);
        conclusive += u64::from(row.outcome.standing() != modelfarm_matrix::outcome::Standing::Inconclusive);
    }
    let mut groups: Vec<ColumnGroup> = Vec::new();
    let mut firsts = Vec::new();
    let mut group_before = None;
    for (workload, dtype, mode) in &columns {
        firsts.push(group_before != Some((workload, dtype)));
        if group_before != Some((workload, dtype)) {
            groups.push(ColumnGroup { label: format!("{workload} · {dtype}"), modes: Vec::new() });
        }
        group_before = Some((workload, dtype));
        if let Some(group) = groups.last_mut() {
            group.modes.push(mode.as_str());
        }
    }
    let rows_shown = architectures.iter().map(|(architecture, found)| {
        let cells = columns.iter().zip(&firsts);
        let cells = cells.map(|(column, first)| cell(found.get(column).map_or(&[][..], Vec::as_slice), *first, links));
        matrix_row(architecture, found, cells.collect(), links)
    });
    TargetMatrix {
        target: one_line(target, 60),
        anchor: format!("target-{index}"),
        is_control,
        summary: format!(
            "{} of {} pass ({}), {}",
            count(pass),
            counted(conclusive, "conclusive case"),
            percent(pass, conclusive),
            counted(architectures.len() as u64, "architecture")
        ),
        rows: rows_shown.collect(),
        groups,
    }
}

fn matrix_row(architecture: &str, found: &BTreeMap<Column, Vec<&ResultRow>>, cells: Vec<Cell>, links: &Links) -> MatrixRow {
    let mut tally = modelfarm_matrix::event::Tally::default();
    for row in found.values().flatten() {
        tally.add(row.outcome, row.verdict.is_unexpected());
    }
    MatrixRow {
        architecture: one_line(architecture, 96),
        link: links.architecture(architecture),
        passed: format!("{}/{}", count(tally.pass), count(tally.pass + tally.fail)),
        clean: tally.pass == tally.total() && tally.unexpected == 0,
        cells,
    }
}

fn cell(rows: &[&ResultRow], first: bool, links: &Links) -> Cell {
    let Some(worst) = rows.iter().max_by_key(|row| verdict_mark(row.verdict).urgency) else {
        return Cell { style: None, symbol: "", text: "–".to_owned(), link: String::new(), first };
    };
    let mark = verdict_mark(worst.verdict);
    let same = rows.iter().filter(|row| row.verdict == worst.verdict).count();
    let text = match (rows.len(), same) {
        (1, _) => worst.outcome.to_string(),
        (all, same) if all == same => format!("{} {}", count(all as u64), worst.outcome),
        (all, same) => format!("{} of {} {}", count(same as u64), count(all as u64), worst.outcome),
    };
    let link = links.case(&worst.model, &worst.case_id);
    Cell { style: Some(mark.style), symbol: mark.symbol, text: text.replace('_', " "), link, first }
}
