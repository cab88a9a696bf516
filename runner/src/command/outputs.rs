//! Writing what a run is asked to leave: HTML, JUnit, Markdown; and printing to standard output.

use std::io::Write;
use std::path::Path;

use modelfarm_matrix::CAUSES_TOML;
use modelfarm_matrix::cause::Causes;
use modelfarm_matrix::outcome::Standing;
use modelfarm_reports::page::{EnvironmentFacts, Gates, ReportInput, write_report};
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::RunRow;
use modelfarm_reports::store::{Store, now_ms, rfc3339};
use modelfarm_reports::{compatibility, junit, step_summary};

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
    let files = Files { report: report.as_deref(), junit: junit.as_deref(), summary: summary.as_deref(), compatibility: None };
    write_files(store, run, matrix_file, files).await
}

/// Where to write what; nothing where nothing is named.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// The folder of the HTML report.
    pub report: Option<&'a Path>,
    /// JUnit XML.
    pub junit: Option<&'a Path>,
    /// The Markdown summary of a CI job.
    pub summary: Option<&'a Path>,
    /// COMPATIBILITY.md.
    pub compatibility: Option<&'a Path>,
}

/// `modelfarm report`.
pub async fn report(
    farm: &Farm,
    reference: &str,
    also: &[String],
    files: Files<'_>,
    causes: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    let run = store.run(reference).await?;
    let matrix_file = run.facts.get("matrix_file").or_else(|| {
        // Shards whose facts differ keep them apart, by shard.
        run.facts.as_object()?.values().find_map(|facts| facts.get("matrix_file"))
    });
    let matrix_file = matrix_file.and_then(|file| file.as_str()).unwrap_or("smoke").to_owned();
    write_files(&store, &run, &matrix_file, files).await?;
    if let Some(path) = files.compatibility {
        let mut runs = vec![run];
        for reference in also {
            runs.push(store.run(reference).await?);
        }
        write_compatibility(&store, &runs, causes, path).await?;
    }
    if let Some(out) = files.report {
        print(&format!("{}\n", out.join("index.html").display()))?;
    }
    Ok(ExitCode::Fine)
}

async fn write_files(store: &Store, run: &RunRow, matrix_file: &str, files: Files<'_>) -> Result<(), Failure> {
    let Files { report, junit: junit_file, summary, .. } = files;
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

async fn write_compatibility(store: &Store, runs: &[RunRow], causes: Option<&Path>, path: &Path) -> Result<(), Failure> {
    let (name, text) = match causes {
        Some(file) => {
            let read = std::fs::read_to_string(file);
            let text = read.map_err(|error| Failure::usage(format!("read {}: {error}", file.display())))?;
            (file.display().to_string(), text)
        }
        None => ("causes.toml".to_owned(), CAUSES_TOML.to_owned()),
    };
    let causes = Causes::parse(&name, &text).map_err(|error| Failure::usage(error.to_string()))?;
    let mut rows = Vec::new();
    for run in runs {
        let filter = ResultFilter { run: Some(run.run_id.clone()), final_only: true, ..ResultFilter::default() };
        rows.extend(store.results(&filter).await?);
    }
    let failed: Vec<_> = rows.iter().filter(|row| row.outcome.standing() == Standing::Fail).cloned().collect();
    let groups = store.grouped_failures(&failed).await?;
    let exclusions = super::fixtures::exclusions()?;
    write_whole(path, &compatibility::compatibility(runs, &rows, &groups, &causes, &exclusions))
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
