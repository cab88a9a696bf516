//! `modelfarm expect check`.

use modelfarm_matrix::expectation_check;
use modelfarm_reports::terminal_text::terminal_text;

use super::known;
use crate::cli::ExpectationsOptions;
use crate::command::expectations_file::{ExpectationsFile, today};
use crate::command::{Farm, outputs, prepare};
use crate::exit::{ExitCode, Failure};
use crate::progress;

/// Says what is wrong with the expectations, a line each.
pub async fn check(farm: &Farm, options: &ExpectationsOptions, only_planned: bool) -> Result<ExitCode, Failure> {
    let file = ExpectationsFile::find(options.expectations.as_deref(), options.matrix.first().map(AsRef::as_ref))?;
    let targets = prepare::targets(options.targets_file.as_deref())?;
    let (recorded, planned) = known::recorded_and_planned(farm, options).await?;
    let known = if only_planned { recorded.narrowed_to(planned) } else { recorded.with(planned) };
    if known.cases.is_empty() {
        return Err(Failure::usage(
            "nothing to check against: no case is recorded here and no matrix plans one; run a matrix, merge the databases of \
             others with `modelfarm db merge`, or name a matrix with --matrix FILE",
        ));
    }
    let findings = expectation_check::check(&file.declared, &known, &targets, today()?);
    let lines = findings.iter().map(|finding| {
        let text = format!("{}:{}: {}", file.name, finding.line, finding.problem);
        format!("{}\n", terminal_text(&text))
    });
    outputs::print(&lines.collect::<String>())?;
    let entries = file.declared.entries().len();
    progress::line(&format!(
        "{}: {entries} expectations against {} known cases: {}",
        file.name,
        known.cases.len(),
        match findings.len() {
            0 => "nothing wrong".to_owned(),
            1 => "1 error".to_owned(),
            count => format!("{count} errors"),
        }
    ));
    Ok(if findings.is_empty() { ExitCode::Fine } else { ExitCode::Unexpected })
}
