//! Writing what a run is asked to leave: HTML, JUnit, Markdown; and printing to standard output.

use std::io::Write;
use std::path::Path;

use modelfarm_reports::page::{EnvironmentFacts, Gates, ReportInput, write_report};
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::RunRow;
use modelfarm_reports::store::{Store, now_ms, rfc3339};
use modelfarm_reports::{junit, step_summary};

use super::Farm;
use crate::cli::ExecutionOptions;
use crate::exit::{ExitCode, Failure};
use crate::judge::Policy;

/// Writes a text to standard output. A reader that went away is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::to(format!("write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes what the options of a run ask for.
pub async fn write(store: &Store, run: &RunRow, execution: &ExecutionOptions, matrix_file: &str) -> Result<(), Failure> {
    let ExecutionOptions { report, junit, summary, .. } = execution;
    write_files(store, run, matrix_file, report.as_deref(), junit.as_deref(), summary.as_deref()).await
}

/// `modelfarm report`.
pub async fn report(
    farm: &Farm,
    reference: &str,
    out: Option<&Path>,
    junit: Option<&Path>,
    summary: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    let run = store.run(reference).await?;
    let matrix_file = run.facts.get("matrix_file").or_else(|| {
        // Shards whose facts differ keep them apart, by shard.
        run.facts.as_object()?.values().find_map(|facts| facts.get("matrix_file"))
    });
    let matrix_file = matrix_file.and_then(|file| file.as_str()).unwrap_or("smoke").to_owned();
    write_files(&store, &run, &matrix_file, out, junit, summary).await?;
    if let Some(out) = out {
        print(&format!("{}\n", out.join("index.html").display()))?;
    }
    Ok(ExitCode::Fine)
}

async fn write_files(
    store: &Store,
    run: &RunRow,
    matrix_file: &str,
    report: Option<&Path>,
    junit_file: Option<&Path>,
    summary: Option<&Path>,
) -> Result<(), Failure> {
    if report.is_none() && junit_file.is_none() && summary.is_none() {
        return Ok(());
    }
    let attempts = store.final_attempts(&run.run_id).await?;
    if let Some(out) = report {
        let environments: Vec<EnvironmentFacts> = store
            .environments(None)
            .await?
            .into_iter()
            .filter(|environment| run.environments.contains(&environment.environment_id))
            .map(|environment| EnvironmentFacts {
                id: environment.environment_id,
                name: environment.name,
                packages: environment.packages,
                facts: serde_json::Value::Null,
            })
            .collect();
        let policy = Policy::current();
        let gates = Gates {
            policy: policy.version.to_string(),
            rmse_multiple: policy.noise_multiple,
            floor_epsilons: policy.floor_epsilons,
        };
        let input = ReportInput {
            run,
            attempts: &attempts,
            environments: &environments,
            matrix_file,
            gates: &gates,
            generated_at: &rfc3339(now_ms()),
            farm_version: env!("CARGO_PKG_VERSION"),
        };
        write_report(out, &input).map_err(Failure::to)?;
    }
    if let Some(path) = junit_file {
        let xml = junit::junit_xml(run, &attempts).map_err(Failure::to)?;
        write_whole(path, &xml)?;
    }
    if let Some(path) = summary {
        let filter = ResultFilter { run: Some(run.run_id.clone()), final_only: true, ..ResultFilter::default() };
        let rows = store.results(&filter).await?;
        write_whole(path, &step_summary::step_summary(run, &rows))?;
    }
    Ok(())
}

/// Writes a file whole or not at all.
fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::to(format!("write {}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
