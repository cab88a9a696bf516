//! Writing what a run is asked to leave: HTML, JUnit, Markdown; and printing to standard output.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use modelfarm_matrix::CAUSES_TOML;
use modelfarm_matrix::cause::Causes;
use modelfarm_matrix::outcome::Standing;
use modelfarm_reports::page::{EnvironmentFacts, Gates, ReportInput, RunHistory, write_report};
use modelfarm_reports::query::{CaseFilter, Question, ResultFilter, Rhythm};
use modelfarm_reports::rows::RunRow;
use modelfarm_reports::step_summary::Before;
use modelfarm_reports::store::{Store, StoreError, now_ms, rfc3339};
use modelfarm_reports::{compatibility, junit, step_summary};

use super::Farm;
use crate::cli::ExecutionOptions;
use crate::exit::{ExitCode, Failure};
use crate::judge::Policy;

const DAY_MS: i64 = 86_400_000;
/// So many nights back a summary says which did not come.
const NIGHTS_BACK: i64 = 14;
/// So many nights has a history strip.
const STRIP_NIGHTS: u32 = 30;
/// So many of the newest runs are listed.
const RUNS_LISTED: u64 = 100;

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

/// Whether what the options of a run ask for could be written now.
pub fn check(execution: &ExecutionOptions) -> Result<(), Failure> {
    for path in [&execution.junit, &execution.summary].into_iter().flatten() {
        let failed = |error: std::io::Error| Failure::to(format!("write {}: {error}", path.display()));
        let there = std::fs::metadata(path).ok();
        if there.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(Failure::to(format!("write {}: it is a folder; expected the name of a file", path.display())));
        }
        // A device or a pipe is opened once, at the end.
        if there.is_none_or(|there| there.is_file()) {
            let target = path.canonicalize().unwrap_or_else(|_| path.clone());
            writable_folder(target.parent()).map_err(failed)?;
        }
    }
    if let Some(folder) = &execution.report {
        let failed = |error: std::io::Error| Failure::to(format!("write the report to {}: {error}", folder.display()));
        writable_folder(Some(folder)).map_err(failed)?;
    }
    Ok(())
}

fn writable_folder(folder: Option<&Path>) -> std::io::Result<()> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    tempfile::tempfile_in(folder).map(drop)
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
    let matrix_file = matrix_file(&run).unwrap_or("smoke").to_owned();
    write_files(&store, &run, &matrix_file, files).await?;
    if let Some(path) = files.compatibility {
        let mut runs = vec![run];
        for reference in also {
            let run = store.run(reference).await?;
            if runs.iter().all(|known: &RunRow| known.run_id != run.run_id) {
                runs.push(run);
            }
        }
        write_compatibility(&store, &runs, causes, path).await?;
    }
    if let Some(out) = files.report {
        print(&format!("{}\n", out.join("index.html").display()))?;
    }
    Ok(ExitCode::Fine)
}

/// The matrix file of a run, as who ran it named it.
pub fn matrix_file(run: &RunRow) -> Option<&str> {
    let file = run.facts.get("matrix_file").or_else(|| {
        // Shards whose facts differ keep them apart, by shard.
        run.facts.as_object()?.values().find_map(|facts| facts.get("matrix_file"))
    });
    file.and_then(|file| file.as_str())
}

async fn write_files(store: &Store, run: &RunRow, matrix_file: &str, files: Files<'_>) -> Result<(), Failure> {
    let Files { report, junit: junit_file, summary, .. } = files;
    if report.is_none() && junit_file.is_none() && summary.is_none() {
        return Ok(());
    }
    let attempts = store.final_attempts(&run.run_id).await?;
    let before = before(store, run).await?;
    if let Some(out) = report {
        let causes = Causes::parse("causes.toml", CAUSES_TOML).map_err(|error| Failure::usage(error.to_string()))?;
        let of_run = ResultFilter { run: Some(run.run_id.clone()), final_only: true, ..ResultFilter::default() };
        let history = RunHistory {
            before: before.clone(),
            failures: store.failures(&of_run, false).await?,
            strips: store.strips(&run.run_id, STRIP_NIGHTS, &CaseFilter::default()).await?,
            flakes: where_there_is_one(store.flakes(Some(&run.matrix), STRIP_NIGHTS).await)?.unwrap_or_default(),
            hosts: where_there_is_one(store.host_flakes(Some(&run.matrix), STRIP_NIGHTS).await)?.unwrap_or_default(),
            runs: store.runs(Some(RUNS_LISTED)).await?,
        };
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
            history: &history,
            causes: &causes,
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
        write_whole(path, &step_summary::step_summary(run, &rows, &before))?;
    }
    Ok(())
}

/// What is known of the nights before a run. The first of its matrix has none.
async fn before(store: &Store, run: &RunRow) -> Result<Before, Failure> {
    let question = Question { run: Some(run.run_id.clone()), ..Question::default() };
    let comparison = where_there_is_one(store.comparison(&question).await)?;
    // A run of a part of the matrix is no night of it.
    let nights = match run.selection.is_empty() {
        true => {
            let now = now_ms();
            let rhythm = Rhythm { matrix: Some(run.matrix.clone()), every: DAY_MS, from: now - NIGHTS_BACK * DAY_MS, now };
            store.nights(&rhythm).await?
        }
        false => Vec::new(),
    };
    Ok(Before { comparison, nights })
}

/// An answer that needs a complete run; none where there is none yet, which is no reason to write nothing of this one.
fn where_there_is_one<T>(answer: Result<T, StoreError>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(StoreError::NoCompleteRun { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn write_compatibility(store: &Store, runs: &[RunRow], causes: Option<&Path>, path: &Path) -> Result<(), Failure> {
    let (name, text) = match causes {
        Some(file) => (file.display().to_string(), super::prepare::read_text("causes", file)?),
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

/// Writes a file whole or not at all, where it stands behind a link too; into a device or a pipe as it is.
pub fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::to(format!("write {}: {error}", path.display()));
    let there = std::fs::metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(failed);
    }
    let path = if there.is_some() { path.canonicalize().map_err(failed)? } else { path.to_owned() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    // Others may read it as far as the umask, or the file that was there, lets them.
    let mode = there.map_or(0o666, |there| there.permissions().mode() & 0o777);
    let permissions = Permissions::from_mode(mode);
    let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_where_it_stands_and_a_device_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        let plain = std::fs::File::create(at("plain")).unwrap().metadata().unwrap().permissions().mode() & 0o777;
        write_whole(&at("below/new"), "new").unwrap();
        assert_eq!((std::fs::read_to_string(at("below/new")).unwrap().as_str(), mode("below/new")), ("new", plain));

        std::fs::write(at("old"), "old").unwrap();
        std::fs::set_permissions(at("old"), Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("old", at("link")).unwrap();
        write_whole(&at("link"), "new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!((std::fs::read_to_string(at("old")).unwrap().as_str(), mode("old")), ("new", 0o640));

        let error = write_whole(Path::new("/dev/full"), "text").unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
        assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
        write_whole(Path::new("/dev/null"), "text").unwrap();
    }
}
