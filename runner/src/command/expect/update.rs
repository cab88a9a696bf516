//! `modelfarm expect update`.

use std::collections::BTreeSet;
use std::path::Path;

use modelfarm_matrix::case::Case;
use modelfarm_matrix::expectation_text::rewrite;
use modelfarm_matrix::expectation_update::{Observed, RunSeen, Worth, propose};
use modelfarm_matrix::known_case::{KnownCase, Seen};
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::{ResultRow, RunState};
use modelfarm_reports::store::Store;
use modelfarm_reports::visible_text::one_line;
use similar::TextDiff;

use crate::cli::ExpectationsOptions;
use crate::command::expectations_file::EditableFile;
use crate::command::{Farm, outputs};
use crate::exit::{ExitCode, Failure};
use crate::progress;

/// So much of a masked message tells one failure from another.
const SIGNATURE_CHARACTERS: usize = 120;

/// Shows as a diff what a run tells of the expectations; writes it only where that is asked for.
pub async fn update(
    farm: &Farm,
    options: &ExpectationsOptions,
    reference: &str,
    inconclusive: bool,
    write: bool,
) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    let run = store.run(reference).await?;
    let matrix = options.matrix.first().cloned().or_else(|| outputs::matrix_file(&run).map(Into::into));
    let EditableFile { path, file } = EditableFile::find(options.expectations.as_deref(), matrix.as_deref())?;

    let filter = ResultFilter { run: Some(run.run_id.clone()), final_only: true, ..ResultFilter::default() };
    let seen = RunSeen {
        run_id: run.run_id.clone(),
        is_complete: run.state == RunState::Complete,
        cases: store.results(&filter).await?.into_iter().map(observed).collect(),
    };
    let known = known(&store, &run.run_id).await?;
    let worth = if inconclusive { Worth::Inconclusive } else { Worth::Failures };
    let proposal = propose(&file.declared, &known, &seen, worth);
    let text = rewrite(&file.name, &file.text, &proposal.fates, &proposal.additions)
        .map_err(|error| Failure::usage(error.to_string()))?;

    outputs::print(&diff(&file.name, &path, &file.text, &text))?;
    if !seen.is_complete {
        progress::line(&format!(
            "run {} is {}: {} of {} planned cases are final; the others keep what is declared of them",
            run.run_id, run.state, run.finished, run.planned
        ));
    }
    for remark in &proposal.remarks {
        progress::line(&format!("{}: {remark}", file.name));
    }
    if proposal.is_empty() {
        progress::line(&format!("{}: nothing to change after run {}", file.name, run.run_id));
    } else if write {
        outputs::write_whole(&path, &text)?;
        progress::line(&format!("{} is written", file.name));
    } else {
        progress::line("nothing is written; --write does");
    }
    Ok(ExitCode::Fine)
}

fn observed(row: ResultRow) -> (Case, Observed) {
    // A masked message is still a stranger's.
    let signature = row.signature.as_deref().map(|signature| one_line(signature, SIGNATURE_CHARACTERS));
    (row.case(), Observed { seen: Seen { outcome: row.outcome, fault: row.fault }, signature })
}

/// Every recorded case, and those that the run was to ask.
async fn known(store: &Store, run_id: &str) -> Result<Vec<KnownCase>, Failure> {
    let mut known = store.known_cases().await?;
    let recorded: BTreeSet<Case> = known.iter().map(|known| known.case.clone()).collect();
    let planned = store.planned_cases(run_id).await?;
    known.extend(planned.into_iter().filter(|planned| !recorded.contains(&planned.case)));
    Ok(known)
}

/// What `patch -p0` takes; empty where nothing changes.
fn diff(name: &str, path: &Path, old: &str, new: &str) -> String {
    let before = if path.exists() { name } else { "/dev/null" };
    TextDiff::from_lines(old, new).unified_diff().header(before, name).to_string()
}
