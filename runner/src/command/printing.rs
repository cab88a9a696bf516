//! Printing rows and details to standard output.

use std::fmt::Write;

use modelfarm_reports::rows::AttemptDetail;
use modelfarm_reports::table::{Format, TableRow, harmless_json, terminal_width, write_rows};
use modelfarm_reports::terminal_text::{terminal_text, terminal_text_up_to};
use serde::Serialize;

use super::outputs::print;
use crate::cli::Output;
use crate::exit::Failure;
use crate::farm::control_cache;

/// The format to print in.
pub fn format(output: &Output) -> Result<Format, Failure> {
    match &output.format {
        Some(text) => text.parse().map_err(|unknown| Failure::usage(format!("--format: {unknown}"))),
        None => Ok(Format::for_standard_output()),
    }
}

/// Prints rows.
pub fn print_rows<R: TableRow>(rows: &[R], output: &Output) -> Result<(), Failure> {
    let limit = output.limit.map_or(rows.len(), |limit| usize::try_from(limit).unwrap_or(usize::MAX)).min(rows.len());
    let mut text = Vec::new();
    write_rows(&mut text, format(output)?, terminal_width(), &rows[..limit])
        .map_err(|error| Failure::to(format!("write the rows: {error}")))?;
    print(&String::from_utf8_lossy(&text))
}

/// Prints values that are no rows as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::to(format!("write JSON: {error}")))?;
    print(&format!("{}\n", harmless_json(&json)))
}

/// Prints everything known of some attempts, for people.
pub fn print_details(attempts: &[AttemptDetail]) -> Result<(), Failure> {
    let mut text = String::new();
    for (number, attempt) in attempts.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        details(&mut text, attempt);
    }
    print(&text)
}

fn details(text: &mut String, attempt: &AttemptDetail) {
    let row = &attempt.row;
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:<18}{}", terminal_text_up_to(&value.to_string(), 2000));
    };
    line("case", &row.case_id);
    line("", &row.case().canonical());
    line("attempt", &format!("{} of run {}", row.attempt, row.run_id));
    line("architecture", &row.architecture);
    line("revision", &row.revision.as_deref().unwrap_or("-"));
    line("outcome", &format!("{} in stage {}", row.outcome, row.stage));
    line("fault", &row.fault.map_or("-", |fault| fault.as_str()));
    line("verdict", &row.verdict);
    if let Some(reason) = &attempt.expectation_reason {
        line("declared", reason);
    }
    let kept = if attempt.facts.get(control_cache::KEPT).is_some() { ", its answer kept from an earlier one" } else { "" };
    line("started", &format!("{}, took {} ms, on {}{kept}", row.started_at, row.duration_ms, row.host));
    line("environment", &row.environment_id.as_deref().unwrap_or("-"));
    if let Ok(serde_json::Value::Object(metrics)) = serde_json::to_value(&row.metrics) {
        for (name, value) in metrics.iter().filter(|(_, value)| !value.is_null()) {
            line(name, value);
        }
    }
    for (name, block) in [("message", &row.message), ("traceback", &attempt.traceback), ("output", &attempt.output_tail)] {
        if let Some(block) = block {
            let _ = writeln!(text, "{name}:");
            for one in block.lines() {
                let _ = writeln!(text, "    {}", terminal_text(one));
            }
        }
    }
}
