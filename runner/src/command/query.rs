//! `modelfarm query`.

use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::store::Store;

use super::Farm;
use super::printing::print_rows;
use crate::cli::{Query, Selection};
use crate::exit::{ExitCode, Failure};

/// Asks the store; never creates or migrates it.
pub async fn query(farm: &Farm, what: Query) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    match what {
        Query::Results { run, outcomes, all_attempts, selection, output } => {
            let filter = ResultFilter { limit: output.limit, final_only: !all_attempts, ..filter(run, outcomes, selection) };
            print_rows(&store.results(&filter).await?, &output)?;
        }
        Query::Failures { run, inconclusive, outcomes, selection, output } => {
            let groups = store.failures(&filter(Some(run), outcomes, selection), inconclusive).await?;
            print_rows(&groups, &output)?;
        }
        Query::Architectures { run, selection, output } => {
            let rows = store.architectures(&filter(Some(run), Vec::new(), selection)).await?;
            print_rows(&rows, &output)?;
        }
        Query::Runs { output } => print_rows(&store.runs(output.limit).await?, &output)?,
        Query::Environments { output } => print_rows(&store.environments(output.limit).await?, &output)?,
    }
    Ok(ExitCode::Fine)
}

fn filter(run: Option<String>, outcomes: Vec<Outcome>, selection: Selection) -> ResultFilter {
    ResultFilter {
        run,
        cases: selection.cases,
        targets: selection.targets,
        modes: selection.modes,
        architectures: selection.architectures,
        models: selection.models,
        harnesses: selection.harnesses,
        workloads: selection.workloads,
        outcomes,
        limit: None,
        final_only: true,
    }
}
