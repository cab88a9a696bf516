//! `modelfarm db`.

use modelfarm_reports::store::Store;

use super::{Farm, outputs};
use crate::cli::Db;
use crate::exit::{ExitCode, Failure};

/// Migrates the database, or takes the results of others in.
pub async fn database(farm: &Farm, what: Db) -> Result<ExitCode, Failure> {
    farm.create_state()?;
    match what {
        Db::Migrate => {
            let applied = Store::migrate(&farm.database).await?;
            outputs::print(&match applied.len() {
                0 => "the schema is up to date\n".to_owned(),
                count => format!("{count} migrations applied\n"),
            })?;
        }
        Db::Merge { files } => {
            let store = Store::create_or_migrate(&farm.database).await?;
            for file in files {
                let report =
                    store.merge(&file).await.map_err(|error| Failure::to(format!("merge {}: {error}", file.display())))?;
                outputs::print(&format!(
                    "{}: {} runs new, {} known; {} attempts new, {} known, {} in conflict; {} events new, {} known\n",
                    file.display(),
                    report.runs_new,
                    report.runs_present,
                    report.attempts_new,
                    report.attempts_present,
                    report.attempts_conflicting,
                    report.events_new,
                    report.events_present
                ))?;
            }
        }
    }
    Ok(ExitCode::Fine)
}
