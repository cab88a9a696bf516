//! `modelfarm gc`: removes what was not used for long and can be made or fetched again.

use std::collections::BTreeMap;
use std::path::Path;

use modelfarm_fixtures::ZOO;
use modelfarm_reports::store::{Store, StoreError, now_ms, rfc3339};
use modelfarm_reports::table::TableRow;
use serde::Serialize;

use super::Farm;
use super::printing::print_rows;
use crate::cli::Output;
use crate::environment::{self, EnvironmentSettings, Requirements, folder_name_parts, worker_source};
use crate::exit::{ExitCode, Failure};
use crate::fixture_build;
use crate::interposer;
use crate::progress;
use crate::retention::inventory::{Current, Inventory, look};
use crate::retention::item::Kind;
use crate::retention::plan::{Plan, plan};
use crate::retention::policy::{OlderThan, Policy};
use crate::retention::removal::remove;
use crate::state_lock::Alone;

/// So many names of what is not the farm's are told.
const TOLD: usize = 20;

/// The things of one kind that go.
#[derive(Debug, Clone, Serialize)]
struct GcRow {
    kind: Kind,
    count: u64,
    bytes: u64,
    /// When the oldest of them was last used.
    oldest: String,
    why: String,
}

impl TableRow for GcRow {
    const COLUMNS: &'static [&'static str] = &["kind", "count", "bytes", "oldest", "why"];
    const SHOWN: &'static [&'static str] = Self::COLUMNS;
}

/// Removes, or only says what would be removed.
pub async fn gc(farm: &Farm, dry_run: bool, older_than: &[OlderThan], output: &Output) -> Result<ExitCode, Failure> {
    let root = farm.state.root();
    if !root.is_dir() {
        let folder = root.display();
        return Err(Failure::usage(format!("there is no state folder {folder}; name the one that is meant with --state-dir")));
    }
    let failed = |error: std::io::Error| Failure::to(format!("lock the state folder {}: {error}", root.display()));
    // Looking takes nothing from anybody.
    let alone = if dry_run { None } else { Some(Alone::take(root).map_err(failed)?.ok_or_else(|| in_use(root, &[]))?) };
    let policy = Policy::new(older_than);
    let now = now_ms();
    let current = current(farm, &policy, now).await?;
    let Inventory { items, unknown, at_work } = look(root, &current).map_err(Failure::to)?;
    if !at_work.is_empty() && !dry_run {
        return Err(in_use(root, &at_work));
    }
    let planned = plan(items, &policy, now);
    let (gone, failures) = if dry_run { (planned.clone(), Vec::new()) } else { removed(root, &planned) };
    drop(alone);

    print_rows(&rows(&gone, &policy), output)?;
    for path in unknown.iter().take(TOLD) {
        progress::line(&format!("left alone, as it is not the farm's: {}", root.join(path).display()));
    }
    if unknown.len() > TOLD {
        progress::line(&format!("left alone, as they are not the farm's: {} more", unknown.len() - TOLD));
    }
    for failure in &failures {
        progress::line(&format!("failed to {failure}"));
    }
    let done = if dry_run { "would free" } else { "freed" };
    let bytes = human_bytes(gone.freed_bytes());
    progress::line(&format!("{done} {bytes}: {} things; {} stay", gone.go.len(), planned.stay.len() + failures.len()));
    match failures.len() {
        0 => Ok(ExitCode::Fine),
        count => Err(Failure::to(format!("remove {count} of {} things", planned.go.len()))),
    }
}

/// Removes what goes; the part of the plan that is gone, and what could not be removed.
fn removed(root: &Path, planned: &Plan) -> (Plan, Vec<String>) {
    let (gone, failures) = remove(root, planned);
    (Plan { go: gone, stay: Vec::new() }, failures.iter().map(ToString::to_string).collect())
}

fn in_use(root: &Path, processes: &[u32]) -> Failure {
    let which: Vec<String> = processes.iter().map(ToString::to_string).collect();
    let which = if which.is_empty() { String::new() } else { format!(" (process {})", which.join(", ")) };
    Failure::usage(format!(
        "the state folder {} is in use{which}; nothing was removed. Try again when no farm is at work in it",
        root.display()
    ))
}

fn rows(gone: &Plan, policy: &Policy) -> Vec<GcRow> {
    let why = |kind: Kind| match kind {
        Kind::Leftover => format!("left by a process that was ended, more than {} ago", policy.age(kind)),
        Kind::HubContent => format!("no snapshot that stays has it, and it came more than {} ago", policy.age(kind)),
        Kind::Interposer | Kind::WorkerSource | Kind::FixtureSource | Kind::Tool => {
            format!("of another version of this program, written more than {} ago", policy.age(kind))
        }
        Kind::Reference | Kind::CompiledProgram | Kind::Environment | Kind::HubSnapshot => {
            format!("not used for {}", policy.age(kind))
        }
    };
    let row = |share: crate::retention::plan::Share| GcRow {
        kind: share.kind,
        count: share.count,
        bytes: share.bytes,
        oldest: rfc3339(share.oldest),
        why: why(share.kind),
    };
    gone.shares().into_iter().map(row).collect()
}

/// What stays because this program, its settings or a recorded run needs it.
async fn current(farm: &Farm, policy: &Policy, now: i64) -> Result<Current, Failure> {
    Ok(Current {
        interposer: interposer::file_name(),
        worker_source: worker_source::worker_version(),
        fixture_source: worker_source::version_of(&ZOO),
        tool: environment::own_folder_name(),
        environments: environments(farm, policy, now).await?,
    })
}

/// The folders of environments that stay: what the settings ask for now, and what a run used lately.
async fn environments(farm: &Farm, policy: &Policy, now: i64) -> Result<BTreeMap<String, String>, Failure> {
    let root = farm.state.root();
    let settings = EnvironmentSettings::load(root).map_err(Failure::to)?;
    let since = now.saturating_sub(policy.age(Kind::Environment).ms());
    let used = match Store::open_read_only(&farm.database).await {
        Ok(store) => {
            let used = store.environments_used_since(since).await?;
            store.close().await;
            used
        }
        // A state folder that made environments, and ran nothing yet.
        Err(StoreError::Missing(_)) => Default::default(),
        Err(error) => return Err(error.into()),
    };
    let mut kept = BTreeMap::new();
    let folders = std::fs::read_dir(root.join("environments")).into_iter().flatten().flatten();
    for folder_name in folders.filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some((name, id)) = folder_name_parts(&folder_name) else { continue };
        let asked = match name {
            fixture_build::PACKAGES => fixture_build::packages(&settings).ok(),
            name => Requirements::of(name, &settings).ok().map(|requirements| (requirements, settings.clone())),
        };
        let now_asked = asked.and_then(|(requirements, settings)| environment::find(root, name, &requirements, &settings));
        if now_asked.is_some_and(|found| found.id == id) {
            kept.insert(folder_name.clone(), "the settings ask for it".to_owned());
        } else if used.contains(id) {
            kept.insert(folder_name.clone(), "a run used it lately".to_owned());
        }
    }
    Ok(kept)
}

/// Bytes in the unit that people read.
fn human_bytes(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
