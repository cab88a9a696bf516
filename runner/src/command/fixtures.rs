//! `modelfarm fixtures`.

use std::path::PathBuf;

use modelfarm_fixtures::{Built, FixtureHub};
use modelfarm_matrix::axes::Workload;
use modelfarm_matrix::exclusion::{Exclusion, Exclusions};
use modelfarm_reports::query::ArchitectureRow;
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::printing::print_rows;
use super::{Farm, outputs, prepare};
use crate::cli::{Fixtures, Output};
use crate::environment::EnvironmentSettings;
use crate::exit::{ExitCode, Failure};
use crate::fixture_architectures;
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
    healthy: Option<bool>,
}

impl TableRow for FixtureRow {
    const COLUMNS: &'static [&'static str] = &["model", "revision", "architecture", "class", "harness", "tags", "healthy"];
    const SHOWN: &'static [&'static str] = &["model", "architecture", "class", "tags", "healthy", "revision"];
}

/// An architecture, in a table without the columns that only a run fills.
#[derive(Serialize)]
#[serde(transparent)]
struct FixtureArchitectureRow(ArchitectureRow);

impl TableRow for FixtureArchitectureRow {
    const COLUMNS: &'static [&'static str] = ArchitectureRow::COLUMNS;
    const SHOWN: &'static [&'static str] =
        &["architecture", "harness", "class", "models", "healthy", "excluded_reason", "excluded_needs"];
}

#[derive(Serialize)]
struct LeftOutRow {
    architecture: Option<String>,
    class: Option<String>,
    /// The workload that alone is left out; none where everything is.
    workload: Option<Workload>,
    reason: String,
    needs: String,
}

impl LeftOutRow {
    fn architecture((name, exclusion): (String, Exclusion)) -> Self {
        Self { architecture: Some(name), class: None, workload: None, reason: exclusion.reason, needs: exclusion.needs }
    }

    fn class(workload: Option<Workload>, (name, exclusion): (String, Exclusion)) -> Self {
        Self { architecture: None, class: Some(name), workload, reason: exclusion.reason, needs: exclusion.needs }
    }
}

impl TableRow for LeftOutRow {
    const COLUMNS: &'static [&'static str] = &["architecture", "class", "workload", "reason", "needs"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

/// Builds, lists or serves the fixture models.
pub async fn fixtures(farm: &Farm, what: Fixtures) -> Result<ExitCode, Failure> {
    match what {
        Fixtures::Build { all, only, tags, jobs } => {
            let wanted = match (all, only.is_empty() && tags.is_empty()) {
                (true, _) => Wanted::All,
                (false, true) => Wanted::smoke(),
                (false, false) => Wanted::Some { ids: only, tags, architectures: Vec::new(), within: Vec::new() },
            };
            let _in_use = farm.create_state()?;
            let settings = EnvironmentSettings::load(farm.state.root()).map_err(Failure::to)?;
            let environment = prepare::environment(farm, "torchtpu", &settings).await?;
            let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
            let mut activity = Activity::begin("building fixture models");
            let built =
                fixture_build::build(&farm.state, &environment, &settings, &wanted, jobs, |text| activity.say(text)).await;
            drop(activity);
            outputs::print(&format!("{}\n", built.map_err(Failure::to)?.display()))?;
        }
        Fixtures::List { models: true, left_out: _, output } => list_models(farm, &output)?,
        Fixtures::List { left_out: true, models: _, output } => list_left_out(&output)?,
        Fixtures::List { models: false, left_out: false, output } => list_architectures(farm, &output)?,
        Fixtures::Serve { listen } => {
            let hub = FixtureHub::serve(existing_folder(farm)?, listen).await.map_err(Failure::to)?;
            progress::line(&format!("serving the fixtures; use them with HF_ENDPOINT={} (Ctrl-C ends it)", hub.url()));
            // Without a handler the signal ends the program, which is what is wanted too.
            let _ = tokio::signal::ctrl_c().await;
            hub.shutdown().await;
        }
    }
    Ok(ExitCode::Fine)
}

fn list_models(farm: &Farm, output: &Output) -> Result<(), Failure> {
    let rows: Vec<FixtureRow> = built(farm)?
        .into_iter()
        .map(|Built { card, healthy }| FixtureRow {
            model: card.id,
            revision: card.commit,
            architecture: card.architecture,
            class: card.class,
            harness: card.library_name,
            tags: card.tags,
            healthy,
        })
        .collect();
    print_rows(&rows, output)
}

fn list_architectures(farm: &Farm, output: &Output) -> Result<(), Failure> {
    let exclusions = exclusions()?;
    let rows = fixture_architectures::architectures(&built(farm)?, &exclusions);
    let mut summary = fixture_architectures::summary(&rows);
    if !exclusions.heads.is_empty() {
        let heads = exclusions.heads.len();
        summary.push(format!("classes with a task head left out besides: {heads}; `fixtures list --left-out` lists them"));
    }
    print_rows(&rows.into_iter().map(FixtureArchitectureRow).collect::<Vec<_>>(), output)?;
    for line in summary {
        progress::line(&line);
    }
    Ok(())
}

fn list_left_out(output: &Output) -> Result<(), Failure> {
    let Exclusions { architectures, heads, generate } = exclusions()?;
    let mut rows: Vec<LeftOutRow> = architectures.into_iter().map(LeftOutRow::architecture).collect();
    rows.extend(heads.into_iter().map(|head| LeftOutRow::class(None, head)));
    rows.extend(generate.into_iter().map(|class| LeftOutRow::class(Some(Workload::Generate), class)));
    print_rows(&rows, output)
}

/// What the fixtures leave out.
pub fn exclusions() -> Result<Exclusions, Failure> {
    modelfarm_fixtures::exclusions().map_err(|error| Failure::to(format!("read what the zoo leaves out: {error}")))
}

fn built(farm: &Farm) -> Result<Vec<Built>, Failure> {
    let folder = existing_folder(farm)?;
    modelfarm_fixtures::built(&folder).map_err(Failure::to)
}

fn existing_folder(farm: &Farm) -> Result<PathBuf, Failure> {
    let folder = fixture_build::folder(&farm.state);
    if !folder.is_dir() {
        return Err(Failure::usage(format!("no fixtures in {}; build them with `modelfarm fixtures build`", folder.display())));
    }
    Ok(folder)
}
