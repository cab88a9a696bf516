//! `modelfarm plan`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::Farm;
use super::prepare::{MatrixText, expectations, prepare, targets};
use super::printing::print_rows;
use crate::cli::{ExecutionOptions, Output, Selection};
use crate::exit::{ExitCode, Failure};
use crate::progress;

#[derive(Serialize)]
struct PlanRow {
    case_id: String,
    model: String,
    architecture: String,
    class: String,
    workload: String,
    dtype: String,
    precision: String,
    attention: String,
    target: String,
    mode: String,
    timeout_s: f64,
    memory_gib: f64,
    left_out: Option<String>,
}

impl TableRow for PlanRow {
    const COLUMNS: &'static [&'static str] = &[
        "case_id",
        "model",
        "architecture",
        "class",
        "workload",
        "dtype",
        "precision",
        "attention",
        "target",
        "mode",
        "timeout_s",
        "memory_gib",
        "left_out",
    ];
    const SHOWN: &'static [&'static str] =
        &["case_id", "model", "workload", "dtype", "target", "mode", "timeout_s", "left_out"];
}

/// Shows the cases that a run would take, in order, and why every other one is left out.
pub async fn plan(
    farm: &Farm,
    matrix: &Path,
    selection: &Selection,
    left_out: bool,
    targets_file: Option<PathBuf>,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let matrix = MatrixText::read(matrix)?;
    // A run would refuse them too.
    expectations(None, &matrix, &targets(targets_file.as_deref())?)?;
    let execution = ExecutionOptions { targets_file, ..ExecutionOptions::default() };
    let prepared = prepare(farm, matrix, selection, &execution, None).await?;
    let plan = &prepared.plan;
    let row = |case: &modelfarm_matrix::case::Case, architecture: &str, limits: (f64, f64), reason: Option<&str>| PlanRow {
        case_id: case.id().to_string(),
        model: case.model.to_string(),
        architecture: architecture.to_owned(),
        class: case.class.clone(),
        workload: case.workload.to_string(),
        dtype: case.dtype.to_string(),
        precision: case.precision.to_string(),
        attention: case.attention.clone(),
        target: case.target.clone(),
        mode: case.mode.to_string(),
        timeout_s: limits.0,
        memory_gib: limits.1,
        left_out: reason.map(str::to_owned),
    };
    let mut rows: Vec<PlanRow> = plan
        .cases()
        .map(|(model, planned)| row(&planned.case, &model.model.architecture, (planned.timeout_s, planned.memory_gib), None))
        .collect();
    if left_out {
        rows.extend(plan.left_out.iter().map(|left| row(&left.case, "", (0.0, 0.0), Some(&left.reason))));
    }
    print_rows(&rows, output)?;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for left in &plan.left_out {
        *reasons.entry(&left.reason).or_default() += 1;
    }
    progress::line(&format!(
        "plan {}: {} cases of {} models here, {} in all shards; left out: {}",
        plan.id,
        plan.case_count(),
        plan.models.len(),
        plan.all_cases.len(),
        plan.left_out.len()
    ));
    for (reason, count) in reasons {
        progress::line(&format!("  {count} cases: {reason}"));
    }
    if plan.case_count() == 0 {
        return Err(Failure::nothing("nothing to run: the selection leaves out every case"));
    }
    Ok(ExitCode::Fine)
}
