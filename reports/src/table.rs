//! Rows as a table for people, as JSON for programs, or as CSV for spreadsheets.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Row, Table};
use serde::Serialize;
use serde_json::Value;

use crate::query::{
    ArchitectureRow, ChangeRow, FailureGroup, FlakeRow, HostRow, NightRow, PassRateRow, PassingVersionsRow, RepairRow,
    StandingRow,
};
use crate::rows::{ResultRow, RunRow};
use crate::store::Environment;
use crate::terminal_text::terminal_text_up_to;
use crate::visible_text::visible;

modelfarm_matrix::words! {
    /// How rows are written.
    pub enum Format ("format") {
        /// For people.
        Table => "table",
        /// An array, one object a line; absent is null.
        Json => "json",
        /// With a header; nested names are joined by a dot.
        Csv => "csv",
    }
}

impl Format {
    /// A table on a terminal, else JSON.
    pub fn for_standard_output() -> Self {
        if io::stdout().is_terminal() { Format::Table } else { Format::Json }
    }
}

/// The most characters of a cell of a table: a hostile text may be a megabyte long.
const CELL: usize = 160;

/// A row that can be written in every format.
///
/// Columns are names of JSON fields; a dot leads into a nested object.
pub trait TableRow: Serialize {
    /// Every column, for CSV.
    const COLUMNS: &'static [&'static str];
    /// The columns that a person needs first, for a table.
    const SHOWN: &'static [&'static str];
}

impl TableRow for ResultRow {
    const COLUMNS: &'static [&'static str] = &[
        "case_id",
        "run_id",
        "attempt",
        "model",
        "revision",
        "architecture",
        "class",
        "harness",
        "weights",
        "workload",
        "inputs",
        "dtype",
        "precision",
        "attention",
        "target",
        "mode",
        "check",
        "outcome",
        "stage",
        "fault",
        "verdict",
        "signature",
        "message",
        "duration_ms",
        "started_at",
        "host",
        "metrics.rmse_ratio",
        "metrics.rel_l2",
        "metrics.max_abs",
        "metrics.pcc",
        "metrics.cosine",
        "metrics.gain_error",
        "metrics.top1_agreement",
        "metrics.graph_count",
        "metrics.graph_break_count",
        "metrics.recompile_count",
        "metrics.compile_count",
        "metrics.compile_ms",
        "metrics.execute_count",
        "metrics.h2d_bytes",
        "metrics.d2h_bytes",
        "metrics.peak_device_bytes",
        "metrics.tokens_per_s",
        "environment_id",
    ];
    const SHOWN: &'static [&'static str] =
        &["case_id", "model", "target", "mode", "workload", "dtype", "outcome", "stage", "fault", "verdict", "signature"];
}

impl TableRow for RunRow {
    const COLUMNS: &'static [&'static str] = &[
        "run_id",
        "matrix",
        "selection",
        "plan_id",
        "state",
        "started_at",
        "ended_at",
        "planned",
        "finished",
        "pass",
        "fail",
        "inconclusive",
        "unexpected",
        "farm_overhead_ms_median",
        "cases_per_hour",
        "shards",
        "hosts",
        "environments",
        "facts",
    ];
    const SHOWN: &'static [&'static str] = &[
        "run_id",
        "matrix",
        "selection",
        "state",
        "started_at",
        "planned",
        "finished",
        "pass",
        "fail",
        "inconclusive",
        "unexpected",
        "farm_overhead_ms_median",
        "cases_per_hour",
        "shards",
    ];
}

impl TableRow for FailureGroup {
    const COLUMNS: &'static [&'static str] = &[
        "signature",
        "outcome",
        "fault",
        "cases",
        "architectures",
        "models",
        "downloads",
        "unexpected",
        "targets",
        "modes",
        "first_seen",
        "last_seen",
        "sample_architectures",
        "sample_cases",
        "predicate",
    ];
    const SHOWN: &'static [&'static str] =
        &["architectures", "downloads", "cases", "unexpected", "outcome", "fault", "modes", "signature", "sample_cases"];
}

impl TableRow for ArchitectureRow {
    const COLUMNS: &'static [&'static str] = &[
        "architecture",
        "class",
        "harness",
        "models",
        "healthy",
        "excluded_reason",
        "excluded_needs",
        "pass",
        "fail",
        "inconclusive",
        "results",
    ];
    const SHOWN: &'static [&'static str] =
        &["architecture", "class", "models", "healthy", "pass", "fail", "inconclusive", "excluded_reason", "excluded_needs"];
}

impl TableRow for ChangeRow {
    const COLUMNS: &'static [&'static str] = &[
        "case_id",
        "architecture",
        "model",
        "target",
        "mode",
        "workload",
        "dtype",
        "change",
        "before.run_id",
        "before.outcome",
        "before.started_at",
        "after.run_id",
        "after.outcome",
        "after.started_at",
        "first.run_id",
        "first.started_at",
        "signature",
        "environment_changes",
        "model_changed",
        "host_changed",
        "confirmed",
        "flake_rate",
    ];
    const SHOWN: &'static [&'static str] = &[
        "change",
        "case_id",
        "model",
        "target",
        "mode",
        "workload",
        "before.outcome",
        "after.outcome",
        "first.started_at",
        "environment_changes",
        "model_changed",
        "confirmed",
        "signature",
    ];
}

impl TableRow for StandingRow {
    const COLUMNS: &'static [&'static str] = &[
        "case_id",
        "architecture",
        "model",
        "target",
        "mode",
        "workload",
        "dtype",
        "standing",
        "outcome",
        "since",
        "since_run",
        "runs",
        "before_run",
        "environment_changes",
    ];
    const SHOWN: &'static [&'static str] =
        &["case_id", "model", "target", "mode", "workload", "standing", "outcome", "since", "runs", "environment_changes"];
}

impl TableRow for NightRow {
    const COLUMNS: &'static [&'static str] = &["due_at", "state", "matrix", "run_id", "finished", "planned"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

impl TableRow for RepairRow {
    const COLUMNS: &'static [&'static str] =
        &["architecture", "target", "mode", "broke", "repaired", "open", "median_days", "longest_days"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

impl TableRow for PassRateRow {
    const COLUMNS: &'static [&'static str] =
        &["run_id", "started_at", "target", "mode", "pass", "fail", "inconclusive", "pass_rate"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

impl TableRow for PassingVersionsRow {
    const COLUMNS: &'static [&'static str] =
        &["architecture", "target", "mode", "is_newest", "cases", "started_at", "run_id", "environment_id", "packages"];
    const SHOWN: &'static [&'static str] =
        &["architecture", "target", "mode", "is_newest", "cases", "started_at", "environment_id", "packages"];
}

impl TableRow for FlakeRow {
    const COLUMNS: &'static [&'static str] = &[
        "case_id",
        "architecture",
        "model",
        "target",
        "mode",
        "workload",
        "runs",
        "tries",
        "failed",
        "rate",
        "failed_on",
        "last_failed_at",
    ];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

impl TableRow for HostRow {
    const COLUMNS: &'static [&'static str] = &["host", "tries", "failed", "expected", "excess", "stands_out"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

impl TableRow for Environment {
    const COLUMNS: &'static [&'static str] = &["environment_id", "name", "packages", "requirements", "created_at"];
    const SHOWN: &'static [&'static str] = &["environment_id", "name", "packages"];
}

/// Writes rows; `width` is that of the terminal in columns, none where there is none and lines may be as long as they like.
///
/// # Errors
/// The output cannot be written to.
pub fn write_rows<R: TableRow>(out: &mut dyn Write, format: Format, width: Option<u16>, rows: &[R]) -> io::Result<()> {
    match format {
        Format::Table => write_table(out, width, rows),
        Format::Json => write_json(out, rows),
        Format::Csv => write_csv(out, rows),
    }
}

/// The width of the terminal that standard output is, in columns.
pub fn terminal_width() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// An array of objects, one a line, without a character that drives a terminal or hides: JSON's own escape stands for it.
fn write_json<R: Serialize>(out: &mut dyn Write, rows: &[R]) -> io::Result<()> {
    out.write_all(b"[")?;
    for (number, row) in rows.iter().enumerate() {
        out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
        let json = serde_json::to_string(row).map_err(io::Error::other)?;
        out.write_all(harmless_json(&json).as_bytes())?;
    }
    out.write_all(if rows.is_empty() { b"]\n" } else { b"\n]\n" })
}

/// The same JSON value in a text that is safe to show.
///
/// What is not plain can stand inside strings alone, where its escape means the same.
pub fn harmless_json(json: &str) -> Cow<'_, str> {
    if matches!(visible(json), Cow::Borrowed(_)) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 64);
    let mut bytes = [0; 4];
    for character in json.chars() {
        if matches!(visible(character.encode_utf8(&mut bytes)), Cow::Borrowed(_)) {
            safe.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Cow::Owned(safe)
}

fn write_csv<R: TableRow>(out: &mut dyn Write, rows: &[R]) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(R::COLUMNS).map_err(io::Error::other)?;
    for row in rows {
        let row = serde_json::to_value(row).map_err(io::Error::other)?;
        let cells = R::COLUMNS.iter().map(|column| csv_cell(field(&row, column)));
        writer.write_record(cells).map_err(io::Error::other)?;
    }
    writer.flush()
}

/// The field that a column names.
fn field<'a>(row: &'a Value, column: &str) -> &'a Value {
    column.split('.').try_fold(row, |value, name| value.get(name)).unwrap_or(&Value::Null)
}

fn csv_cell(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => plain(value),
        // A text of numbers and words of our own needs no apostrophe; which is ours is not known here.
        _ => without_formula(&plain(value)),
    }
}

/// What a spreadsheet would take for a formula gets an apostrophe before it; what drives a terminal is made visible.
pub fn without_formula(text: &str) -> String {
    let starts_formula =
        |text: &str| text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}']);
    let shown = visible(text);
    if starts_formula(text) || starts_formula(&shown) { format!("'{shown}") } else { shown.into_owned() }
}

/// A value as text: lists of words are joined, objects stay JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.iter().all(Value::is_string) => {
            values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

fn write_table<R: TableRow>(out: &mut dyn Write, width: Option<u16>, rows: &[R]) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.set_header(R::SHOWN.iter().map(|column| column.replace('_', " ").to_uppercase()));
    for row in rows {
        let row = serde_json::to_value(row).map_err(io::Error::other)?;
        let mut line = Row::from(R::SHOWN.iter().map(|column| table_cell(field(&row, column))).collect::<Vec<_>>());
        line.max_height(4);
        table.add_row(line);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn table_cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::new("-"),
        Value::Number(number) => Cell::new(figure(number)).set_alignment(CellAlignment::Right),
        other => Cell::new(terminal_text_up_to(&plain(other), CELL)),
    }
}

/// A number with as many digits as a person reads.
fn figure(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() => match value.abs() {
            0.0 => "0".to_owned(),
            0.001..1000.0 => format!("{value:.3}"),
            1000.0..1e9 => format!("{value:.0}"),
            _ => format!("{value:.2e}"),
        },
        _ => number.to_string(),
    }
}
