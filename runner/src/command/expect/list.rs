//! `modelfarm expect list`.

use modelfarm_matrix::coverage::Coverage;
use modelfarm_matrix::date::Date;
use modelfarm_matrix::expectation::verdict;
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::known_case::Known;
use modelfarm_matrix::link::Link;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::known;
use crate::cli::{ExpectationsOptions, Output};
use crate::command::Farm;
use crate::command::expectations_file::{ExpectationsFile, today};
use crate::command::printing::print_rows;
use crate::exit::{ExitCode, Failure};
use crate::progress;

#[derive(Serialize)]
struct ExpectationRow {
    line: usize,
    select: String,
    outcome: Outcome,
    fault: Option<Fault>,
    issue: Option<Link>,
    owner: Option<String>,
    expires: Option<Date>,
    /// Whether its last day is over.
    expired: bool,
    /// Cases whose newest recorded result it counts for; none where nothing is recorded.
    cases: Option<usize>,
    /// How many of them ended as it declares.
    as_declared: Option<usize>,
    reason: String,
}

impl TableRow for ExpectationRow {
    const COLUMNS: &'static [&'static str] =
        &["line", "select", "outcome", "fault", "issue", "owner", "expires", "expired", "cases", "as_declared", "reason"];
    const SHOWN: &'static [&'static str] =
        &["line", "select", "outcome", "fault", "cases", "as_declared", "issue", "owner", "expires", "reason"];
}

/// Lists every entry, and for how many cases of the newest recorded results it counts.
pub async fn list(farm: &Farm, options: &ExpectationsOptions, output: &Output) -> Result<ExitCode, Failure> {
    let file = ExpectationsFile::find(options.expectations.as_deref(), options.matrix.first().map(AsRef::as_ref))?;
    let known = known::recorded(farm).await?;
    let rows = rows(&file, &known, today()?);
    print_rows(&rows, output)?;
    progress::line(&format!("{}: {} expectations, {} recorded cases", file.name, rows.len(), known.cases.len()));
    Ok(ExitCode::Fine)
}

fn rows(file: &ExpectationsFile, known: &Known, today: Date) -> Vec<ExpectationRow> {
    // A case of which every try is to be tried again has no result yet.
    let with_result: Vec<_> = known.cases.iter().filter(|known| known.newest.is_some()).cloned().collect();
    let coverage = Coverage::of(&file.declared, &with_result);
    let counted = !known.cases.is_empty();
    let entries = file.declared.entries().iter().enumerate();
    let row = entries.map(|(entry, declared)| {
        let expectation = &declared.expectation;
        let as_declared = coverage.taken(entry).filter(|case| {
            let seen = with_result[*case].newest;
            seen.is_some_and(|seen| !verdict(seen.outcome, seen.fault, Some(expectation)).is_unexpected())
        });
        ExpectationRow {
            line: declared.line,
            select: expectation.select.to_string(),
            outcome: expectation.outcome,
            fault: expectation.fault,
            issue: expectation.issue.clone(),
            owner: expectation.owner.clone(),
            expires: expectation.expires,
            expired: expectation.is_expired(today),
            cases: counted.then(|| coverage.taken(entry).count()),
            as_declared: counted.then(|| as_declared.count()),
            reason: expectation.reason.clone(),
        }
    });
    row.collect()
}
