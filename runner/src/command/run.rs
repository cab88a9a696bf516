//! `modelfarm run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use modelfarm_matrix::axes::Harness;
use modelfarm_matrix::expectation::{Expectations, Verdict};
use modelfarm_matrix::outcome::Outcome;
use modelfarm_matrix::plan::{Plan, Shard};
use modelfarm_reports::query::ResultFilter;
use modelfarm_reports::rows::{ResultRow, RunRow, RunState};
use modelfarm_reports::store::{self, NewRun, Store, this_host};
use tokio::sync::watch;

use super::prepare::{MatrixText, Prepared, expectations, prepare, targets};
use super::{Farm, outputs};
use crate::cli::{ExecutionOptions, Only, Selection};
use crate::exit::{ExitCode, Failure};
use crate::farm::context::Context;
use crate::farm::recorder::Recorder;
use crate::farm::reference_cache::ReferenceCache;
use crate::farm::worker_pool::{WorkerPool, WorkerSettings};
use crate::farm::{RunEnd, run_plan};
use crate::hub::{DownloadLimits, FileStore};
use crate::interposer;
use crate::judge::Policy;
use crate::progress;
use crate::worker::sandbox::Sandbox;

/// Runs a matrix.
pub async fn run(
    farm: &Farm,
    matrix: Option<PathBuf>,
    selection: &Selection,
    execution: &ExecutionOptions,
) -> Result<ExitCode, Failure> {
    let Some(matrix) = matrix else {
        return Err(Failure::usage("--resume needs the same --matrix and selection as the run that it goes on with"));
    };
    let text = MatrixText::read(&matrix)?;
    run_matrix(farm, text, selection, execution).await
}

/// Runs a matrix whose text is known, and writes what was asked for.
pub async fn run_matrix(
    farm: &Farm,
    matrix: MatrixText,
    selection: &Selection,
    execution: &ExecutionOptions,
) -> Result<ExitCode, Failure> {
    let _in_use = farm.create_state()?;
    // Before hours of work, and not after them.
    outputs::check(execution)?;
    // Opened first: a database that cannot be used should not cost a download.
    let store = Arc::new(Store::create_or_migrate(&farm.database).await?);
    let new_id = || execution.run_id.clone().unwrap_or_else(NewRun::new_id);
    let (run_id, only_cases) = match (&execution.resume, &execution.rerun) {
        (Some(reference), _) => (store.resolve_run(reference).await?, None),
        (None, Some(reference)) => (new_id(), Some(cases_of(&store, reference, execution.only).await?)),
        (None, None) => (new_id(), None),
    };
    let targets = targets(execution.targets_file.as_deref())?;
    let expectations = expectations(execution.expectations.as_deref(), &matrix, &targets)?;
    let prepared = prepare(farm, matrix, selection, execution, only_cases).await?;
    if prepared.plan.all_cases.is_empty() {
        let left_out = prepared.plan.left_out.len();
        return Err(Failure::nothing(format!(
            "nothing to run: all {left_out} cases of the matrix are left out; `modelfarm plan --left-out` says why"
        )));
    }
    let end = execute(farm, &store, &prepared, expectations, &run_id, selection, execution).await?;
    let run = store.run(&run_id).await?;
    let filter = ResultFilter { run: Some(run_id.clone()), final_only: true, ..ResultFilter::default() };
    let rows = store.results(&filter).await?;
    // First what a person waits for: a file that cannot be written must not hide it.
    outputs::print(&modelfarm_reports::final_summary::final_summary(&run, &rows))?;
    let written = outputs::write(&store, &run, execution, &prepared.matrix_text.file).await;
    // All of it is in the one file then, for who copies that.
    Store::clone(&store).close().await;
    written?;
    if let Some(hub) = prepared.fixture_hub {
        hub.shutdown().await;
    }
    Ok(match end {
        RunEnd::Interrupted => ExitCode::Interrupted,
        RunEnd::Done => exit_code(&run, &rows, prepared.matrix.limits.max_inconclusive.get(), execution.strict),
    })
}

/// The cases of an earlier run that are to run again.
async fn cases_of(store: &Store, reference: &str, only: Option<Only>) -> Result<Vec<modelfarm_matrix::case::CaseId>, Failure> {
    let filter = ResultFilter { run: Some(reference.to_owned()), final_only: true, ..ResultFilter::default() };
    let rows = store.results(&filter).await?;
    let wanted = |row: &&ResultRow| only != Some(Only::Failed) || row.outcome != Outcome::Pass;
    let cases: Vec<_> = rows.iter().filter(wanted).map(|row| row.case_id.clone()).collect();
    if cases.is_empty() {
        return Err(Failure::nothing(format!("nothing to run: no case of run {reference} is to run again")));
    }
    Ok(cases)
}

/// The exit code of a run that came to its end.
fn exit_code(run: &RunRow, rows: &[ResultRow], max_inconclusive: f64, strict: bool) -> ExitCode {
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let undeclared = count(Verdict::UnexpectedInconclusive);
    if count(Verdict::UnexpectedFail) > 0 || (strict && count(Verdict::UnexpectedPass) > 0) {
        ExitCode::Unexpected
    } else if undeclared as f64 > max_inconclusive * run.planned.max(1) as f64 {
        ExitCode::TooInconclusive
    } else {
        ExitCode::Fine
    }
}

/// Runs a plan in the environments that it was prepared with.
pub(super) async fn execute(
    farm: &Farm,
    store: &Arc<Store>,
    prepared: &Prepared,
    expectations: Expectations,
    run_id: &str,
    selection: &Selection,
    execution: &ExecutionOptions,
) -> Result<RunEnd, Failure> {
    let Prepared { plan, targets, environments, matrix, .. } = prepared;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let sandbox = Sandbox::detect().await;
    if sandbox != Sandbox::Bubblewrap {
        progress::line(&format!("sandbox: {}", sandbox.description()));
    }
    let worker_source = crate::environment::worker_source::unpack_worker(farm.state.root()).map_err(Failure::to)?;
    let worker_hash = worker_source.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let interposer = interposer::unpack(&farm.state)
        .map_err(|error| Failure::to(format!("write the PJRT interposer to {}: {error}", farm.state.programs().display())))?;
    let plugins = plugins(&execution.plugins, targets)?;
    let shard = selection.shard.unwrap_or(Shard::WHOLE);
    let policy = Policy::current();
    for environment in environments.values() {
        store
            .record_environment(&store::Environment {
                environment_id: environment.id.clone(),
                name: environment.name.clone(),
                packages: environment.packages.clone(),
                requirements: environment.requirements.clone(),
                created_at: store::now_ms(),
            })
            .await?;
    }
    let models: Vec<_> = plan.models.iter().map(|planned| planned.model.clone()).collect();
    store.record_models(&models).await?;
    let facts = serde_json::json!({
        "farm_version": env!("CARGO_PKG_VERSION"),
        "sandbox": sandbox,
        "sandbox_description": sandbox.description(),
        "cores": cores,
        "jobs": execution.jobs.unwrap_or(cores),
        "policy": policy,
        "matrix_file": prepared.matrix_text.file,
        "plugins": plugins.iter().map(|(target, path)| (target.clone(), path.display().to_string())).collect::<BTreeMap<_, _>>(),
        "emulated_targets": targets.iter().filter(|target| target.emulated).map(|target| target.name.as_str()).collect::<Vec<_>>(),
        "worker": worker_hash,
    });
    let new = NewRun {
        run_id: run_id.to_owned(),
        matrix: matrix.name.clone(),
        selection: prepared.selection.clone(),
        plan_id: plan.id.clone(),
        planned_cases: plan.all_cases.iter().map(ToString::to_string).collect(),
        shard: shard.to_string(),
        host: this_host(),
        pid: std::process::id(),
        facts,
    };
    let handle = store.begin_run(&new).await?;
    progress::line(&format!("run {run_id}: {} cases of {} models", plan.case_count(), plan.models.len()));

    let (raise, stop) = watch::channel(false);
    let signals = tokio::spawn(stop_on_signals(raise.clone()));
    let scratch = farm.state.scratch().join(format!("{run_id}-{}", std::process::id()));
    let recorder = Recorder::start(store.clone(), handle.clone(), raise);
    let shown = tokio::spawn(progress::show(recorder.subscribe()));
    let settings = WorkerSettings {
        state: farm.state.clone(),
        scratch: scratch.clone(),
        sandbox,
        worker_source,
        interposer,
        plugins,
        preload: preload(plan),
        harnesses: other_harnesses(plan),
        threads: 1,
    };
    let all_targets: Vec<_> = targets.iter().cloned().collect();
    let context = Arc::new(Context {
        run_id: run_id.to_owned(),
        store: store.clone(),
        recorder,
        pool: WorkerPool::new(settings, environments.clone(), &all_targets, cores),
        references: ReferenceCache::new(farm.state.references()),
        files: FileStore::open(&farm.state.hub()).map_err(Failure::to)?,
        hub: prepared.hubs.hub.clone(),
        fixture_hub: prepared.hubs.fixtures.clone(),
        hub_limits: DownloadLimits::default(),
        fixture_limits: super::prepare::fixture_limits(),
        targets: targets.clone(),
        expectations,
        policy,
        host: this_host(),
        worker_hash,
        retries: execution.retries,
        repeat: execution.repeat,
        seed: 0,
        already_final: store.final_cases(&handle).await?,
        last_attempts: store.last_attempts(&handle).await?,
        earlier_durations: store.earlier_durations(&handle).await?,
        stop,
    });
    let ended = run_plan(context, plan, execution.jobs.unwrap_or(cores)).await;
    signals.abort();
    let _ = shown.await;
    let _ = std::fs::remove_dir_all(&scratch);
    let end = ended?;
    // The run may hold other shards' cases too.
    let all_final = store.final_cases(&handle).await?;
    let finished = plan.cases().filter(|(_, planned)| all_final.contains(&planned.case.id())).count();
    let state = match end {
        RunEnd::Interrupted => RunState::Interrupted,
        RunEnd::Done if finished >= plan.case_count() => RunState::Complete,
        RunEnd::Done => RunState::Partial,
    };
    store.end_shard(&handle, state).await?;
    if end == RunEnd::Interrupted {
        progress::line(&format!("interrupted; everything finished is recorded. Go on with: --resume {run_id}"));
    }
    Ok(end)
}

/// The architectures worth importing before the first fork. A matrix of hundreds names more than a zygote should hold.
fn preload(plan: &Plan) -> Vec<String> {
    const AT_MOST: usize = 64;
    let mut architectures: Vec<String> = plan.models.iter().map(|planned| planned.model.architecture.clone()).collect();
    architectures.sort();
    architectures.dedup();
    architectures.truncate(AT_MOST);
    architectures
}

/// The harnesses of a plan whose library takes seconds to import and that not every zygote has.
fn other_harnesses(plan: &Plan) -> Vec<Harness> {
    let used = |harness: &Harness| plan.models.iter().any(|planned| planned.model.harness == *harness);
    Harness::ALL.iter().copied().filter(|harness| *harness != Harness::Transformers).filter(used).collect()
}

/// Reads `TARGET=FILE`.
fn plugins(given: &[String], targets: &modelfarm_matrix::target::Targets) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut plugins = BTreeMap::new();
    for text in given {
        let Some((target, file)) = text.split_once('=') else {
            return Err(Failure::usage(format!("--plugin: expected TARGET=FILE, found `{text}`")));
        };
        targets.get(target).map_err(|unknown| Failure::usage(format!("--plugin: {unknown}")))?;
        let path = Path::new(file).canonicalize().map_err(|error| Failure::usage(format!("--plugin: {file}: {error}")))?;
        plugins.insert(target.to_owned(), path);
    }
    Ok(plugins)
}

/// The first signal asks the run to stop; the second ends the program.
async fn stop_on_signals(stop: watch::Sender<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return;
    };
    for number in 1.. {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if number > 1 {
            std::process::exit(i32::from(ExitCode::Interrupted as u8));
        }
        progress::line("stopping; what is finished is recorded. Once more to end at once");
        let _ = stop.send(true);
    }
}
