//! `modelfarm show`: everything known about a case or an attempt.

use modelfarm_reports::store::Store;

use super::Farm;
use super::printing::{Shape, print_details, shape};
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
    match shape(output)? {
        Shape::Table => print_details(&attempts)?,
        Shape::Json | Shape::Csv => super::printing::print_rows(&attempts, output)?,
    }
    Ok(ExitCode::Fine)
}
