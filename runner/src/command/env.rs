//! `modelfarm env`.

use modelfarm_reports::store::Store;
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::printing::print_rows;
use super::{Farm, outputs, prepare};
use crate::cli::Env;
use crate::environment::{self, EnvironmentSettings, EnvironmentState, Finding, Health};
use crate::exit::{ExitCode, Failure};
use crate::interposer;
use crate::progress::Activity;

#[derive(Serialize)]
struct EnvironmentRow {
    name: String,
    id: String,
    state: String,
    bytes: u64,
    folder: String,
}

impl TableRow for EnvironmentRow {
    const COLUMNS: &'static [&'static str] = &["name", "id", "state", "bytes", "folder"];
    const SHOWN: &'static [&'static str] = &["name", "id", "state", "bytes", "folder"];
}

#[derive(Serialize)]
#[serde(transparent)]
struct FindingRow<'a>(&'a Finding);

impl TableRow for FindingRow<'_> {
    const COLUMNS: &'static [&'static str] = &["subject", "health", "found", "advice"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

/// Makes, lists or examines environments.
pub async fn env(farm: &Farm, what: Env) -> Result<ExitCode, Failure> {
    let settings = EnvironmentSettings::load(farm.state.root()).map_err(Failure::to)?;
    match what {
        Env::Sync { name, environment: None } => {
            let _in_use = farm.create_state()?;
            let environment = prepare::environment(farm, &name, &settings).await?;
            outputs::print(&format!("{} {} {}\n", environment.name, environment.id, environment.folder.display()))?;
        }
        Env::Sync { environment: Some(id), .. } => {
            let store = Store::open_read_only(&farm.database).await?;
            let all = store.environments(None).await?;
            let Some(kept) = all.into_iter().find(|kept| kept.environment_id == id) else {
                return Err(Failure::usage(format!(
                    "no result was made in an environment `{id}`; `modelfarm query environments` lists them"
                )));
            };
            let _in_use = farm.create_state()?;
            let mut activity = Activity::begin(&format!("environment {}", kept.name));
            let made = environment::recreate(farm.state.root(), &kept.name, &kept.requirements, &settings, |event| {
                if let Some(text) = prepare::describe(&kept.name, &event) {
                    activity.say(&text);
                }
            });
            let made = made.await.map_err(Failure::to)?;
            drop(activity);
            outputs::print(&format!("{} {} {}\n", made.name, made.id, made.folder.display()))?;
        }
        Env::List { output } => {
            let rows: Vec<EnvironmentRow> = environment::list(farm.state.root())
                .map_err(Failure::to)?
                .into_iter()
                .map(|entry| EnvironmentRow {
                    name: entry.name.clone(),
                    id: entry.id.clone(),
                    state: match &entry.state {
                        EnvironmentState::Complete(_) => "complete".to_owned(),
                        EnvironmentState::HalfMade(reason) => format!("half-made: {reason}"),
                    },
                    bytes: entry.size_bytes,
                    folder: entry.folder.display().to_string(),
                })
                .collect();
            print_rows(&rows, &output)?;
        }
        Env::Doctor { name, output } => {
            let mut findings = environment::doctor(farm.state.root(), &name, &settings).await;
            findings.push(interposer::examine(&farm.state));
            let rows: Vec<FindingRow> = findings.iter().map(FindingRow).collect();
            print_rows(&rows, &output)?;
            if findings.iter().any(|finding| finding.health == Health::Problem) {
                return Ok(ExitCode::Usage);
            }
        }
    }
    Ok(ExitCode::Fine)
}
