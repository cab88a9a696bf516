//! `modelfarm show`: everything known about a case or an attempt.

use modelfarm_reports::store::Store;

use super::Farm;
use modelfarm_reports::table::Format;

use super::printing::{format, print_details, print_json, print_rows};
use crate::cli::Output;
use crate::exit::{ExitCode, Failure};

/// Shows a case or an attempt.
pub async fn show(farm: &Farm, reference: &str, output: &Output) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    let attempts = store.attempts_of(reference, output.limit).await?;
    if attempts.is_empty() {
        return Err(Failure::usage(format!(
            "no attempt of `{reference}` is recorded; `modelfarm query results` lists the case ids that are"
        )));
    }
    match format(output)? {
        Format::Table => print_details(&attempts)?,
        Format::Json => print_json(&attempts)?,
        Format::Csv => print_rows(&attempts.into_iter().map(|attempt| attempt.row).collect::<Vec<_>>(), output)?,
    }
    Ok(ExitCode::Fine)
}
