//! One model of a run: download once, reference once for each question, then every case.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::Case;
use modelfarm_matrix::event::Event;
use modelfarm_matrix::model::{Model, ModelSource};
use modelfarm_matrix::outcome::{Outcome, Stage, Standing};
use modelfarm_matrix::plan::{PlannedCase, PlannedModel};
use modelfarm_matrix::target::{Target, control_mode};
use modelfarm_reports::query::{CaseFilter, ResultFilter};
use modelfarm_reports::store::now_ms;
use serde_json::{Map, Value};

use super::assemble::{Result as TryResult, Tried, assemble};
use super::classify::{Asked, Observation, classify};
use super::context::Context;
use super::control_cache;
use super::reference_cache::{Reference, ReferenceFiles, ReferenceQuestion};
use super::worker_pool::{Code, Worker};
use crate::hub::{Snapshot, download_snapshot};
use crate::judge::{self, JudgeFiles, Padding, Question, Role};
use crate::worker::job::{self, JobLimits, JobReport};
use crate::worker::protocol::{PROTOCOL, Request, RequestKind, RequestedModel};

/// A reference may take longer than its cases' short deadlines: it runs in double precision, and several times.
const REFERENCE_AT_LEAST: Duration = Duration::from_secs(120);

/// How often a job is tried whose process was ended from outside: by the kernel for want of memory, by a person, or together with
/// its zygote by another case.
const TRIES_FROM_OUTSIDE: u32 = 5;

/// What the control observed, by everything of a case but target, mode and attention, with the control's mode.
type ControlOutcomes = HashMap<(String, Mode), Outcome>;

fn control_key(case: &Case, mode: Mode) -> (String, Mode) {
    let Case { class, weights, workload, inputs, dtype, precision, .. } = case;
    (format!("{class}/{weights}/{workload}/{inputs}/{dtype}/{precision}"), mode)
}

/// What the control observed for the question of a case: at its dtype, else in single precision, whose graph is the same.
fn control_of(case: &Case, controls: &ControlOutcomes) -> Option<Outcome> {
    let mode = control_mode(case.mode);
    let in_single = Case { dtype: Dtype::Float32, ..case.clone() };
    controls.get(&control_key(case, mode)).or_else(|| controls.get(&control_key(&in_single, mode))).copied()
}

/// Runs what is left to run of one model.
pub async fn run_model(context: &Arc<Context>, planned: &PlannedModel) {
    let remaining: Vec<&PlannedCase> =
        planned.cases.iter().filter(|planned| !context.already_final.contains(&planned.case.id())).collect();
    if remaining.is_empty() || context.stopping() {
        return;
    }
    let run = ModelRun { context, model: &planned.model, trust: planned.trust.as_deref() };
    let mut controls = run.recorded_controls(planned, &remaining).await;
    run.model_stage(Stage::Download);
    let snapshot = match run.snapshot().await {
        Ok(snapshot) => snapshot,
        Err(observation) => return run.record_all(&remaining, None, &observation, &mut controls).await,
    };
    let mut rest = &remaining[..];
    while let Some(first) = rest.first() {
        let shares = |planned: &&PlannedCase| question_of(&planned.case) == question_of(&first.case);
        let (group, others) = rest.split_at(rest.iter().take_while(|planned| shares(planned)).count());
        rest = others;
        if context.stopping() {
            return;
        }
        match run.reference_with_tries(&snapshot, group).await {
            Ok(reference) => {
                for planned in group {
                    if context.stopping() {
                        return;
                    }
                    run.case(planned, &snapshot, &reference, &mut controls).await;
                }
            }
            Err(observation) if observation.outcome == Outcome::Skipped => return,
            Err(observation) => run.record_all(group, Some(&snapshot), &observation, &mut controls).await,
        }
    }
}

fn outcome_of(result: &TryResult) -> Outcome {
    match result {
        TryResult::Judged(judgement) => judgement.outcome,
        TryResult::Observed(observation) => observation.outcome,
    }
}

/// What cases must share to share a reference.
fn question_of(case: &Case) -> (Workload, String) {
    let Case { class, weights, inputs, dtype, precision, harness, .. } = case;
    (case.workload, format!("{class}/{weights}/{inputs}/{dtype}/{precision}/{harness}"))
}

/// What came of one try.
struct Attempted {
    result: TryResult,
    facts: Map<String, Value>,
    /// The end of what the child wrote.
    output_tail: String,
    /// None where no child ran.
    timing: Option<Timing>,
}

/// What tells the farm's own cost of a child.
struct Timing {
    first_instruction_ms: Option<f64>,
    ended: Instant,
}

impl Attempted {
    fn without_child(observation: Observation) -> Self {
        Self { result: TryResult::Observed(observation), facts: Map::new(), output_tail: String::new(), timing: None }
    }

    fn by_child(result: TryResult, report: JobReport) -> Self {
        let timing = Timing { first_instruction_ms: report.first_instruction_ms, ended: report.ended };
        Self { result, facts: facts_of(&report), output_tail: report.output_tail, timing: Some(timing) }
    }
}

struct ModelRun<'a> {
    context: &'a Arc<Context>,
    model: &'a Model,
    trust: Option<&'a str>,
}

impl ModelRun<'_> {
    fn model_stage(&self, stage: Stage) {
        self.context.recorder.event(Event::ModelStage { model: self.model.id.to_string(), stage });
    }

    /// What the control observed before this start of the run.
    async fn recorded_controls(&self, planned: &PlannedModel, remaining: &[&PlannedCase]) -> ControlOutcomes {
        let Some(control) = self.context.targets.control() else { return HashMap::new() };
        if remaining.len() == planned.cases.len() {
            return HashMap::new();
        }
        let filter = ResultFilter {
            run: Some(self.context.run_id.clone()),
            cases: CaseFilter {
                targets: vec![control.name.clone()],
                models: vec![self.model.id.to_string()],
                ..CaseFilter::default()
            },
            final_only: true,
            ..ResultFilter::default()
        };
        // Without it a fault may name the backend where the control failed too; the store's own failure ends the run anyway.
        let rows = self.context.store.results(&filter).await.unwrap_or_default();
        rows.into_iter().map(|row| (control_key(&row.case(), row.mode), row.outcome)).collect()
    }

    async fn snapshot(&self) -> Result<Snapshot, Observation> {
        let context = self.context;
        let (hub, limits) = match self.model.source {
            ModelSource::Fixtures => (context.fixture_hub.as_ref(), &context.fixture_limits),
            ModelSource::Hub => (context.hub.as_ref(), &context.hub_limits),
        };
        let Some(hub) = hub else {
            return Err(Observation::new(Outcome::InfraError, Stage::Resolve, "no Hub was set up for this model"));
        };
        let revision = self.model.revision.as_deref().unwrap_or("main");
        let mut stop = context.stop.clone();
        let download = download_snapshot(hub, self.model.id.as_str(), revision, &context.files, limits);
        let downloaded = tokio::select! {
            downloaded = download => downloaded,
            () = job::raised(&mut stop) => {
                return Err(Observation::new(Outcome::Skipped, Stage::Download, "the run was interrupted"));
            }
        };
        downloaded.map_err(|error| {
            let outcome = error.outcome();
            let stage = if matches!(outcome, Outcome::Gated | Outcome::NotFound) { Stage::Resolve } else { Stage::Download };
            Observation::new(outcome, stage, format!("failed to {error}"))
        })
    }

    fn trusted(&self, snapshot: &Snapshot) -> bool {
        self.trust == Some(snapshot.commit.as_str())
    }

    /// Whose code a child would run. What is not trusted does not run; but a trusted model's files can run whatever they like.
    fn code(&self, snapshot: &Snapshot) -> Code {
        if self.trusted(snapshot) { Code::Own } else { Code::Library }
    }

    fn requested_model(&self, case: &Case, snapshot: &Snapshot) -> RequestedModel {
        RequestedModel {
            path: snapshot.path.clone(),
            harness: case.harness,
            architecture: self.model.architecture.clone(),
            class: case.class.clone(),
            weights: case.weights,
            trust_remote_code: self.trusted(snapshot),
        }
    }

    async fn reference_with_tries(&self, snapshot: &Snapshot, group: &[&PlannedCase]) -> Result<Reference, Observation> {
        let mut tries = 1;
        loop {
            match self.reference(snapshot, group).await {
                Err(observation) if observation.interrupted_from_outside && tries < TRIES_FROM_OUTSIDE => tries += 1,
                result => return result,
            }
        }
    }

    /// The reference that a group of cases shares: kept from before, or computed now.
    async fn reference(&self, snapshot: &Snapshot, group: &[&PlannedCase]) -> Result<Reference, Observation> {
        let infra = |stage: Stage, message: String| Observation::new(Outcome::InfraError, stage, message);
        let Some(first) = group.first() else {
            return Err(infra(Stage::Reference, "a reference was asked for no case".into()));
        };
        let case = &first.case;
        let context = self.context;
        let control = context.targets.control().ok_or_else(|| infra(Stage::Load, "no control target is declared".into()))?;
        let environment_id = context.pool.environment(control).map(|environment| environment.id.as_str()).unwrap_or_default();
        let key = ReferenceQuestion {
            case,
            commit: &snapshot.commit,
            trusted: self.trusted(snapshot),
            environment_id,
            worker: &context.worker_hash,
            seed: context.seed,
            machine: std::env::consts::ARCH,
        }
        .key();
        if let Some(reference) = context.references.get(&key) {
            return Ok(reference);
        }
        self.model_stage(Stage::Reference);
        let worker =
            context.pool.worker(control, self.code(snapshot)).await.map_err(|error| no_worker(format!("failed to {error}")))?;
        let out = JobFolder::new(&worker).map_err(|error| infra(Stage::Load, error))?;
        let request = Request {
            protocol: PROTOCOL,
            out: out.path.clone(),
            workload: case.workload,
            seed: context.seed,
            dtype: case.dtype,
            precision: case.precision,
            model: self.requested_model(case, snapshot),
            kind: RequestKind::Reference { inputs: case.inputs.clone() },
        };
        let timeout = group.iter().map(|planned| planned.timeout_s).fold(REFERENCE_AT_LEAST.as_secs_f64(), f64::max);
        let memory = group.iter().map(|planned| planned.memory_gib).fold(0.0, f64::max);
        let limits = job_limits(timeout, memory);
        let report = job::run(&worker.zygote, &request, limits, None, context.stop.clone(), |_| {})
            .await
            .map_err(|error| no_worker(format!("failed to {error}")))?;
        let files = classify(&report, Asked::Reference).map_err(|mut observation| {
            append_output(&mut observation, &report);
            observation
        })?;
        let path = |role: &str| out.file(&files, role).map_err(|error| infra(Stage::Reference, error));
        let (kept, repeat) = (
            ReferenceFiles { inputs: path("inputs")?, reference: path("reference")?, yardstick: path("yardstick")? },
            path("repeat")?,
        );
        let (question, policy, judged) = (Question::from(case), context.policy.clone(), kept.clone());
        let padding = Padding::of(&kept.inputs, &report.facts);
        let health = tokio::task::spawn_blocking(move || {
            judge::reference_health(&judged.reference, &repeat, &judged.yardstick, padding.as_ref(), &question, &policy)
        })
        .await;
        match health {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(unhealthy))) => return Err(Observation::new(unhealthy.outcome, Stage::Reference, unhealthy.message)),
            Ok(Err(error)) => {
                return Err(Observation::new(Outcome::ReferenceError, Stage::Reference, format!("failed to {error}")));
            }
            Err(error) => return Err(infra(Stage::Reference, format!("the judge ended: {error}"))),
        }
        context
            .references
            .put(&key, &kept, &report.facts)
            .map_err(|error| infra(Stage::Reference, format!("failed to keep the reference: {error}")))
    }

    /// Runs a case, again where its outcome is unexpected and as often as the run asks whatever the outcome.
    async fn case(&self, planned: &PlannedCase, snapshot: &Snapshot, reference: &Reference, controls: &mut ControlOutcomes) {
        let context = self.context;
        let case = &planned.case;
        let first = context.last_attempts.get(&case.id()).copied().unwrap_or(0) + 1;
        let Ok(target) = context.targets.get(&case.target) else { return };
        for attempt in first.. {
            let started_at = now_ms();
            context.recorder.event(Event::AttemptStarted { case_id: case.id(), attempt });
            let Attempted { result, facts, output_tail, timing } =
                self.attempt(planned, target, Some(attempt), snapshot, reference).await;
            if matches!(&result, TryResult::Observed(observation) if observation.outcome == Outcome::Skipped) {
                // Interrupted: the case is not final, and a resumed run takes it again.
                return;
            }
            if !target.control && outcome_of(&result).standing() == Standing::Fail {
                self.ask_control(planned, snapshot, reference, controls).await;
            }
            let from_outside = matches!(&result, TryResult::Observed(observation) if observation.interrupted_from_outside);
            let expectation = context.expectations.of(self.model, case);
            let tried = Tried {
                case,
                attempt,
                architecture: &self.model.architecture,
                revision: Some(&snapshot.commit),
                expectation,
                is_control: target.control,
                control: control_of(case, controls).filter(|_| !target.control),
                started_at,
                host: &context.host,
                environment_id: context.pool.environment(target).map(|environment| environment.id.as_str()),
                inputs_hash: Some(&reference.inputs_hash),
                reference_key: Some(&reference.key),
                facts,
                output_tail: &output_tail,
            };
            let mut row = assemble(tried, result, now_ms());
            if let Some(Timing { first_instruction_ms, ended }) = timing {
                let after = ended.elapsed().as_secs_f64() * 1e3;
                row.farm_overhead_ms = first_instruction_ms.map(|before| before + after);
            }
            let asked_for = row.verdict.is_unexpected() && row.outcome != Outcome::Pass && attempt - first < context.retries;
            let tries = attempt - first + 1;
            let retried = asked_for || tries < context.repeat || (from_outside && tries < TRIES_FROM_OUTSIDE);
            if target.control {
                controls.insert(control_key(case, case.mode), row.outcome);
            }
            if context.recorder.attempt(row, retried).await.is_none() || !retried {
                return;
            }
        }
    }

    /// Lets the control answer the question of a case that failed, where the plan does not: a failure that it shares is not the
    /// backend's. Its answer is evidence and no result of its own.
    async fn ask_control(
        &self,
        planned: &PlannedCase,
        snapshot: &Snapshot,
        reference: &Reference,
        controls: &mut ControlOutcomes,
    ) {
        let Some(control) = self.context.targets.control() else { return };
        if control_of(&planned.case, controls).is_some() {
            return;
        }
        let mode = control_mode(planned.case.mode);
        let case = Case { target: control.name.clone(), mode, attention: control.attention.clone(), ..planned.case.clone() };
        let asked = PlannedCase { case, ..planned.clone() };
        let attempted = self.attempt(&asked, control, None, snapshot, reference).await;
        let outcome = outcome_of(&attempted.result);
        if outcome.standing() != Standing::Inconclusive {
            controls.insert(control_key(&asked.case, mode), outcome);
        }
    }

    /// One try in a child, judged; of the control, what an earlier child left where nothing has changed since and one try is
    /// asked for. `announced` is its
    /// number, where it is a try of the plan.
    async fn attempt(
        &self,
        planned: &PlannedCase,
        target: &Target,
        announced: Option<u32>,
        snapshot: &Snapshot,
        reference: &Reference,
    ) -> Attempted {
        let infra = |message: String| Attempted::without_child(Observation::new(Outcome::InfraError, Stage::Load, message));
        let case = &planned.case;
        let context = self.context;
        // Who asks for several tries wants to see whether they differ.
        let may_be_kept = announced.is_none() || context.repeat == 1;
        if target.control
            && may_be_kept
            && let Some(answer) = control_cache::kept(reference, case, target)
        {
            let result = self.judged(case, reference, answer.outputs).await;
            return Attempted { result, facts: answer.facts, output_tail: String::new(), timing: None };
        }
        let worker = match context.pool.worker(target, self.code(snapshot)).await {
            Ok(worker) => worker,
            Err(error) => return Attempted::without_child(no_worker(format!("failed to {error}"))),
        };
        let out = match JobFolder::new(&worker) {
            Ok(out) => out,
            Err(error) => return infra(error),
        };
        let request = Request {
            protocol: PROTOCOL,
            out: out.path.clone(),
            workload: case.workload,
            seed: context.seed,
            dtype: case.dtype,
            precision: case.precision,
            model: self.requested_model(case, snapshot),
            kind: RequestKind::Case {
                attention: case.attention.clone(),
                mode: case.mode,
                inputs_file: reference.inputs.clone(),
                device: target.device.clone(),
                compile_backend: target.compile_backend.clone(),
            },
        };
        let on_stage = |stage| {
            if let Some(attempt) = announced {
                context.recorder.event(Event::StageEntered { case_id: case.id(), attempt, stage });
            }
        };
        let limits = job_limits(planned.timeout_s, planned.memory_gib);
        let ran =
            job::run(&worker.zygote, &request, limits, context.pool.devices(target), context.stop.clone(), on_stage).await;
        let report = match ran {
            Ok(report) => report,
            Err(error) => return Attempted::without_child(no_worker(format!("failed to {error}"))),
        };
        let asked = Asked::Case { device: &target.device, compiled: case.mode == Mode::Compiled, emulated: target.emulated };
        let files = match classify(&report, asked) {
            Ok(files) => files,
            Err(observation) => return Attempted::by_child(TryResult::Observed(observation), report),
        };
        let outputs = match out.file(&files, "outputs") {
            Ok(outputs) => outputs,
            Err(error) => {
                let observation = Observation::new(Outcome::InfraError, Stage::Compare, error);
                return Attempted::by_child(TryResult::Observed(observation), report);
            }
        };
        let result = self.judged(case, reference, outputs.clone()).await;
        let attempted = Attempted::by_child(result, report);
        if target.control && outcome_of(&attempted.result) == Outcome::Pass {
            // What cannot be kept costs time in the next run, and nothing else.
            if let Err(error) = control_cache::keep(reference, case, target, &outputs, &attempted.facts) {
                tracing::warn!(%error, case = %case.id(), "the control's answer could not be kept");
            }
        }
        attempted
    }

    /// The judge's word on the outputs of a case.
    async fn judged(&self, case: &Case, reference: &Reference, outputs: PathBuf) -> TryResult {
        let judged = JudgeFiles {
            reference: reference.reference.clone(),
            yardstick: reference.yardstick.clone(),
            repeat: None,
            outputs,
            padding: reference.padding(),
        };
        let (question, policy) = (Question::from(case), self.context.policy.clone());
        match tokio::task::spawn_blocking(move || judge::judge(&judged, &question, &policy)).await {
            Ok(Ok(judgement)) => TryResult::Judged(Box::new(judgement)),
            Ok(Err(error)) => {
                // The reference was judged when it was kept: what is wrong now is wrong with this host's files.
                let outcome = if error.role == Role::Outputs { Outcome::RuntimeError } else { Outcome::InfraError };
                TryResult::Observed(Observation::new(outcome, Stage::Compare, format!("failed to {error}")))
            }
            Err(error) => {
                TryResult::Observed(Observation::new(Outcome::InfraError, Stage::Compare, format!("the judge ended: {error}")))
            }
        }
    }

    /// Records the same observation for cases that share what failed.
    async fn record_all(
        &self,
        cases: &[&PlannedCase],
        snapshot: Option<&Snapshot>,
        observation: &Observation,
        controls: &mut ControlOutcomes,
    ) {
        if observation.outcome == Outcome::Skipped {
            return;
        }
        let context = self.context;
        for planned in cases {
            let case = &planned.case;
            let attempt = context.last_attempts.get(&case.id()).copied().unwrap_or(0) + 1;
            let target = context.targets.get(&case.target).ok();
            let is_control = target.is_some_and(|target| target.control);
            context.recorder.event(Event::AttemptStarted { case_id: case.id(), attempt });
            let tried = Tried {
                case,
                attempt,
                architecture: &self.model.architecture,
                revision: snapshot.map(|snapshot| snapshot.commit.as_str()),
                expectation: context.expectations.of(self.model, case),
                is_control,
                control: control_of(case, controls).filter(|_| !is_control),
                started_at: now_ms(),
                host: &context.host,
                environment_id: target
                    .and_then(|target| context.pool.environment(target))
                    .map(|environment| environment.id.as_str()),
                inputs_hash: None,
                reference_key: None,
                facts: Map::new(),
                output_tail: "",
            };
            let row = assemble(tried, TryResult::Observed(observation.clone()), now_ms());
            if is_control {
                controls.insert(control_key(case, case.mode), row.outcome);
            }
            if context.recorder.attempt(row, false).await.is_none() {
                return;
            }
        }
    }
}

/// There is no worker: it was ended while it started, or when the job was to begin. The next one may live.
fn no_worker(message: String) -> Observation {
    Observation::from_outside(Outcome::InfraError, Stage::Load, message)
}

fn job_limits(timeout_s: f64, memory_gib: f64) -> JobLimits {
    JobLimits { timeout: Duration::from_secs_f64(timeout_s), memory_bytes: (memory_gib * (1u64 << 30) as f64) as u64 }
}

/// What the worker reported, with what the farm itself measured of the job.
fn facts_of(report: &JobReport) -> Map<String, Value> {
    let mut facts = report.facts.clone();
    facts.insert("max_rss_bytes".into(), report.max_rss_bytes.into());
    let stages: Vec<Value> =
        report.stages.iter().map(|(stage, at)| serde_json::json!({ "stage": stage, "at_ms": at })).collect();
    facts.insert("stages".into(), stages.into());
    facts
}

/// Puts the end of the output behind a message that has no traceback to explain it.
fn append_output(observation: &mut Observation, report: &JobReport) {
    if observation.traceback.is_none() && !report.output_tail.trim().is_empty() {
        observation.traceback = Some(report.output_tail.clone());
    }
}

/// The folder that one job writes to; removed when dropped.
struct JobFolder {
    path: PathBuf,
}

impl JobFolder {
    fn new(worker: &Worker) -> Result<Self, String> {
        let path = worker.scratch.join(format!("job-{}", uuid::Uuid::now_v7().simple()));
        let created = std::fs::create_dir(&path);
        created.map_err(|error| format!("failed to create {}: {error}", path.display()))?;
        Ok(Self { path })
    }

    /// A result file by role. The name is the child's word: only a plain name inside the folder is accepted.
    fn file(&self, files: &std::collections::BTreeMap<String, String>, role: &str) -> Result<PathBuf, String> {
        let name = files.get(role).ok_or_else(|| format!("the worker's child reported no file `{role}`"))?;
        let plain = Path::new(name).components().count() == 1
            && matches!(Path::new(name).components().next(), Some(std::path::Component::Normal(_)))
            && name.len() <= 100;
        if plain {
            Ok(self.path.join(name))
        } else {
            Err(format!("the worker's child named a file outside its folder for `{role}`"))
        }
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        let begun = Instant::now();
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(folder = %self.path.display(), %error, elapsed = ?begun.elapsed(), "a job's folder could not be removed");
        }
    }
}
