//! The farm: takes a plan, runs it, judges it and records it.

pub mod assemble;
pub mod classify;
pub mod compile_cache;
pub mod context;
pub mod control_cache;
mod last_words;
pub mod model_run;
pub mod recorder;
pub mod reference_cache;
pub mod schedule;
pub mod signature;
pub mod worker_pool;

use std::sync::Arc;

use modelfarm_matrix::event::Event;
use modelfarm_matrix::plan::Plan;
use modelfarm_reports::store::StoreError;

use context::Context;

/// How a run, or a shard of it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// Every case of the shard was taken.
    Done,
    /// It was stopped before.
    Interrupted,
}

/// Runs the cases of a plan, `jobs` models at a time, until all are taken or the run is stopped. Models that took longest in the
/// run before are taken first.
///
/// A model's pipeline is a CPU slot: within it cases run one after the other, and each asks for a device slot of its own.
pub async fn run_plan(context: Arc<Context>, plan: &Plan, jobs: usize) -> Result<RunEnd, StoreError> {
    let already = plan.cases().filter(|(_, planned)| context.already_final.contains(&planned.case.id())).count();
    context.recorder.event(Event::RunStarted { planned: plan.case_count() as u64, already_final: already as u64 });
    let slots = Arc::new(tokio::sync::Semaphore::new(jobs.max(1)));
    let mut pipelines = tokio::task::JoinSet::new();
    for planned in schedule::longest_first(&plan.models, &context.earlier_durations) {
        let mut stop = context.stop.clone();
        let permit = tokio::select! {
            permit = slots.clone().acquire_owned() => permit,
            () = crate::worker::job::raised(&mut stop) => break,
        };
        let (context, planned) = (context.clone(), planned.clone());
        pipelines.spawn(async move {
            model_run::run_model(&context, &planned).await;
            drop(permit);
        });
        while pipelines.try_join_next().is_some() {}
    }
    while let Some(ended) = pipelines.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a model's pipeline ended by a defect of the farm; its cases stay open, and --resume takes them again");
        }
    }
    let interrupted = context.stopping();
    context.recorder.event(Event::RunFinished { interrupted });
    context.pool.shut_down().await;
    let context = Arc::into_inner(context);
    if let Some(context) = context {
        context.recorder.finish().await?;
    }
    Ok(if interrupted { RunEnd::Interrupted } else { RunEnd::Done })
}
