//! `modelfarm db`.

use std::path::{Path, PathBuf};

use modelfarm_reports::store::{DatabaseUrl, MergeReport, Store};

use super::{Farm, outputs};
use crate::cli::Db;
use crate::exit::{ExitCode, Failure};

/// Migrates the database, takes the results of others in, or copies it into another.
pub async fn database(farm: &Farm, what: Db) -> Result<ExitCode, Failure> {
    match what {
        Db::Migrate => migrate(farm).await?,
        Db::Merge { files } => merge(farm, &files).await?,
        Db::Copy { into } => copy(farm, &into).await?,
    }
    Ok(ExitCode::Fine)
}

async fn migrate(farm: &Farm) -> Result<(), Failure> {
    let _in_use = farm.create_state()?;
    let applied = Store::migrate(&farm.database).await?;
    outputs::print(&match applied.len() {
        0 => "the schema is up to date\n".to_owned(),
        count => format!("{count} migrations applied\n"),
    })
}

async fn merge(farm: &Farm, files: &[PathBuf]) -> Result<(), Failure> {
    let _in_use = farm.create_state()?;
    let store = Store::create_or_migrate(&farm.database).await?;
    for file in files {
        let name = file.display();
        let report = store.merge(file).await.map_err(|error| Failure::to(format!("merge {name}: {error}")))?;
        outputs::print(&taken_over(&name.to_string(), &report))?;
    }
    Ok(())
}

async fn copy(farm: &Farm, into: &str) -> Result<(), Failure> {
    let url: DatabaseUrl = into.parse()?;
    if is_the_same(&farm.database.parse()?, &url) {
        let advice = "it is the database itself; name another, or choose the source with --database";
        return Err(Failure::to(format!("copy the database to {url}: {advice}")));
    }
    // The source is read alone: a copy of nothing must not begin by making it.
    let source = Store::open_read_only(&farm.database).await?;
    let target = Store::create_or_migrate(into).await?;
    let report = target
        .merge_store(&source)
        .await
        .map_err(|error| Failure::to(format!("copy {} to {}: {error}", source.name(), target.name())))?;
    let name = source.name().to_owned();
    source.close().await;
    target.close().await;
    outputs::print(&taken_over(&name, &report))
}

/// Whether two URLs mean one database: the same file under two names too.
fn is_the_same(one: &DatabaseUrl, other: &DatabaseUrl) -> bool {
    let file = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match (one, other) {
        (DatabaseUrl::Sqlite(one), DatabaseUrl::Sqlite(other)) => file(one) == file(other),
        _ => one == other,
    }
}

fn taken_over(from: &str, report: &MergeReport) -> String {
    format!(
        "{from}: {} runs new, {} known; {} attempts new, {} known, {} in conflict; {} events new, {} known; \
         {} confirmations new, {} known\n",
        report.runs_new,
        report.runs_present,
        report.attempts_new,
        report.attempts_present,
        report.attempts_conflicting,
        report.events_new,
        report.events_present,
        report.confirmations_new,
        report.confirmations_present
    )
}
