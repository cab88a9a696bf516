//! Runs, their events, and the environments that they ran in.

use std::sync::Arc;

use crate::query::StoredEvent;
use crate::rows::RunRow;
use crate::server::Server;
use crate::server::answer::{Page, passed_over};
use crate::server::parameter::{AFTER, LIMIT};
use crate::server::question::Question;
use crate::server::refusal::Refusal;
use crate::store::Environment;

pub(in crate::server) async fn runs(server: Arc<Server>, question: Question) -> Result<Page<RunRow>, Refusal> {
    let (from, limit) = (passed_over(&question)?, question.number(LIMIT)?);
    Ok(Page::beginning(server.store.runs_behind(from, Some(limit + 1)).await?, from, limit))
}

pub(in crate::server) async fn run(server: Arc<Server>, question: Question) -> Result<RunRow, Refusal> {
    Ok(server.store.run(question.in_path("run")).await?)
}

pub(in crate::server) async fn events(server: Arc<Server>, question: Question) -> Result<Page<StoredEvent>, Refusal> {
    let (after, limit) = (question.number(AFTER)?, question.number(LIMIT)?);
    let events = server.store.events(question.in_path("run"), after, limit).await?;
    // A page that is not full is the end for now: who follows asks for it again.
    let is_full = events.len() as u64 == limit;
    let next = events.last().filter(|_| is_full).map(|last| ("after", last.sequence.to_string()));
    Ok(Page::new(events, next))
}

pub(in crate::server) async fn environments(server: Arc<Server>, question: Question) -> Result<Page<Environment>, Refusal> {
    Page::of(server.store.environments(None).await?, &question)
}
