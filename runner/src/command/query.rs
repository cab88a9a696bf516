//! `modelfarm query`.

use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::store::Store;

use super::Farm;
use super::printing::print_rows;
use crate::cli::Query;
use crate::exit::{ExitCode, Failure};

/// Asks the store; never creates or migrates it.
pub async fn query(farm: &Farm, what: Query) -> Result<ExitCode, Failure> {
    let store = Store::open_read_only(&farm.database).await?;
    match what {
        Query::Results { run, outcomes, all_attempts, selection, output } => {
            let filter = ResultFilter {
                run,
                cases: selection.cases,
                targets: selection.targets,
                modes: selection.modes,
                architectures: selection.architectures,
                models: selection.models,
                harnesses: selection.harnesses,
                workloads: selection.workloads,
                outcomes,
                limit: output.limit,
                final_only: !all_attempts,
            };
            print_rows(&store.results(&filter).await?, &output)?;
        }
        Query::Runs { output } => print_rows(&store.runs(output.limit).await?, &output)?,
        Query::Environments { output } => print_rows(&store.environments(output.limit).await?, &output)?,
    }
    Ok(ExitCode::Fine)
}
