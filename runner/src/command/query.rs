//! `modelfarm query`.

use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::query::{ArchitectureRow, ResultFilter};
use modelfarm_reports::store::Store;

use super::Farm;
use super::printing::print_rows;
use crate::cli::{Query, Selection};
use crate::exit::{ExitCode, Failure};
use crate::fixture_architectures::{architectures, beside_fixtures};
use crate::{fixture_build, progress};

/// Asks the store; never creates or migrates it.
pub async fn query(farm: &Farm, what: Query) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    match what {
        Query::Results { run, outcomes, all_attempts, selection, output } => {
            let filter = ResultFilter { limit: output.limit, final_only: !all_attempts, ..filter(run, outcomes, &selection)? };
            print_rows(&store.results(&filter).await?, &output)?;
        }
        Query::Failures { run, inconclusive, outcomes, selection, output } => {
            let groups = store.failures(&filter(Some(run), outcomes, &selection)?, inconclusive).await?;
            print_rows(&groups, &output)?;
        }
        Query::Architectures { run, attempted, selection, output } => {
            let wanted = |row: &ArchitectureRow| !attempted && asks_for(&selection, row);
            let of_run = store.architectures(&filter(Some(run), Vec::new(), &selection)?).await?;
            let (cases, all) = (of_run.len(), beside_fixtures(of_run, of_fixtures(farm)?, wanted));
            print_rows(&all, &output)?;
            let left_out = all.len() - cases;
            progress::line(&format!(
                "{} architectures: {cases} with a case here, {left_out} left out of the fixtures",
                all.len()
            ));
        }
        Query::Runs { output } => print_rows(&store.runs(output.limit).await?, &output)?,
        Query::Environments { output } => print_rows(&store.environments(output.limit).await?, &output)?,
    }
    Ok(ExitCode::Fine)
}

/// Whether a selection asks for an architecture that has no case: what is left out is so for every target, mode and workload.
fn asks_for(selection: &Selection, row: &ArchitectureRow) -> bool {
    let Selection { cases, models, architectures, harnesses, targets: _, modes: _, workloads: _, shard: _, sample: _ } =
        selection;
    cases.is_empty()
        && models.is_empty()
        && (architectures.is_empty() || architectures.contains(&row.architecture))
        && (harnesses.is_empty() || row.harness.iter().any(|harness| harnesses.contains(harness)))
}

/// The architectures of the fixtures that are built here, and those that are left out of them.
fn of_fixtures(farm: &Farm) -> Result<Vec<ArchitectureRow>, Failure> {
    let folder = fixture_build::folder(&farm.state);
    let built = if folder.is_dir() { modelfarm_fixtures::built(&folder) } else { Ok(Vec::new()) };
    // Results are worth showing without the fixtures that they may be of.
    let built = built.unwrap_or_else(|error| {
        tracing::warn!(%error, "the fixtures cannot be read: nothing is known of their health");
        Vec::new()
    });
    Ok(architectures(&built, &super::fixtures::exclusions()?))
}

fn filter(run: Option<String>, outcomes: Vec<Outcome>, selection: &Selection) -> Result<ResultFilter, Failure> {
    let Selection { cases, targets, modes, architectures, models, harnesses, workloads, shard, sample } = selection.clone();
    if shard.is_some() || sample.is_some() {
        let message = "--shard and --sample say what a run takes; a query asks by --run, --model, --architecture and the like";
        return Err(Failure::usage(message));
    }
    Ok(ResultFilter {
        run,
        cases,
        targets,
        modes,
        architectures,
        models,
        harnesses,
        workloads,
        outcomes,
        limit: None,
        final_only: true,
    })
}
