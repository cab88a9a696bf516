//! `modelfarm fixtures`.

use modelfarm_fixtures::{FixtureHub, cards};
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::printing::print_rows;
use super::{Farm, outputs, prepare};
use crate::cli::Fixtures;
use crate::environment::EnvironmentSettings;
use crate::exit::{ExitCode, Failure};
use crate::fixture_build::{self, Wanted};
use crate::progress::{self, Activity};

#[derive(Serialize)]
struct FixtureRow {
    model: String,
    revision: String,
    architecture: Option<String>,
    class: Option<String>,
    harness: Option<String>,
    tags: Vec<String>,
}

impl TableRow for FixtureRow {
    const COLUMNS: &'static [&'static str] = &["model", "revision", "architecture", "class", "harness", "tags"];
    const SHOWN: &'static [&'static str] = &["model", "architecture", "class", "tags", "revision"];
}

/// Builds, lists or serves the fixture models.
pub async fn fixtures(farm: &Farm, what: Fixtures) -> Result<ExitCode, Failure> {
    match what {
        Fixtures::Build { all, only, tags, jobs } => {
            let wanted = match (all, only.is_empty() && tags.is_empty()) {
                (true, _) => Wanted::All,
                (false, true) => Wanted::smoke(),
                (false, false) => Wanted::Some { ids: only, tags, architectures: Vec::new() },
            };
            farm.create_state()?;
            let settings = EnvironmentSettings::load(farm.state.root()).map_err(Failure::to)?;
            let environment = prepare::environment(farm, "torchtpu", &settings).await?;
            let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
            let mut activity = Activity::begin("building fixture models");
            let built =
                fixture_build::build(&farm.state, &environment, &settings, &wanted, jobs, |text| activity.say(text)).await;
            drop(activity);
            outputs::print(&format!("{}\n", built.map_err(Failure::to)?.display()))?;
        }
        Fixtures::List { output } => {
            let rows: Vec<FixtureRow> = built(farm)?
                .into_iter()
                .map(|card| FixtureRow {
                    model: card.id,
                    revision: card.commit,
                    architecture: card.architecture,
                    class: card.class,
                    harness: card.library_name,
                    tags: card.tags,
                })
                .collect();
            print_rows(&rows, &output)?;
        }
        Fixtures::Serve { listen } => {
            built(farm)?;
            let hub = FixtureHub::serve(fixture_build::folder(&farm.state), listen).await.map_err(Failure::to)?;
            progress::line(&format!("serving the fixtures; use them with HF_ENDPOINT={} (Ctrl-C ends it)", hub.url()));
            // Without a handler the signal ends the program, which is what is wanted too.
            let _ = tokio::signal::ctrl_c().await;
            hub.shutdown().await;
        }
    }
    Ok(ExitCode::Fine)
}

fn built(farm: &Farm) -> Result<Vec<modelfarm_fixtures::Card>, Failure> {
    let folder = fixture_build::folder(&farm.state);
    if !folder.is_dir() {
        return Err(Failure::usage(format!("no fixtures in {}; build them with `modelfarm fixtures build`", folder.display())));
    }
    cards(&folder).map_err(Failure::to)
}
