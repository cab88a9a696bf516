//! `modelfarm demo`: the main job from nothing.

use super::Farm;
use super::prepare::MatrixText;
use super::run::run_matrix;
use crate::cli::{ExecutionOptions, Selection};
use crate::exit::{ExitCode, Failure};
use crate::progress;

/// Runs the smoke matrix over the fixture models and writes the report.
pub async fn demo(farm: &Farm, mut execution: ExecutionOptions) -> Result<ExitCode, Failure> {
    let report = execution.report.get_or_insert_with(|| farm.state.report()).clone();
    let code = run_matrix(farm, MatrixText::smoke(), &Selection::default(), &execution).await?;
    let index = report.join("index.html");
    progress::line(&format!("the report: {}", index.display()));
    Ok(code)
}
