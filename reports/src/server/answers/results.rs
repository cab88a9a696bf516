//! Attempts: their rows, and everything that is known of some.

use std::sync::Arc;

use crate::query::{AttemptPlace, ResultFilter};
use crate::rows::{AttemptDetail, ResultRow};
use crate::server::Server;
use crate::server::answer::Page;
use crate::server::parameter::{DETAILS, LIMIT};
use crate::server::question::Question;
use crate::server::refusal::Refusal;

pub(in crate::server) async fn results(server: Arc<Server>, question: Question) -> Result<Page<ResultRow>, Refusal> {
    let limit = question.number(LIMIT)?;
    let filter = ResultFilter {
        final_only: !question.truth("all_attempts")?,
        limit: Some(limit + 1),
        after: question.parsed("cursor")?,
        ..question.results(question.text("run"))?
    };
    let mut rows = server.store.results(&filter).await?;
    let is_more = rows.len() as u64 > limit;
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let next = rows.last().filter(|_| is_more).map(|last| ("cursor", AttemptPlace::of(last).to_string()));
    Ok(Page::new(rows, next))
}

pub(in crate::server) async fn attempts_of_case(
    server: Arc<Server>,
    question: Question,
) -> Result<Page<AttemptDetail>, Refusal> {
    let limit = question.number(DETAILS)?;
    let case = word(&question, "case")?;
    Ok(Page::whole(server.store.attempts_of(case, Some(limit)).await?))
}

pub(in crate::server) async fn attempt(server: Arc<Server>, question: Question) -> Result<AttemptDetail, Refusal> {
    let (run, case, number) = (word(&question, "run")?, word(&question, "case")?, word(&question, "attempt")?);
    let found = server.store.attempts_of(&format!("{run}/{case}/{number}"), Some(1)).await?;
    found.into_iter().next().ok_or_else(|| Refusal::not_found("there is no such attempt"))
}

/// A value of the path that is no part of another reference.
fn word<'a>(question: &'a Question, name: &'static str) -> Result<&'a str, Refusal> {
    let value = question.in_path(name);
    let is_word = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-~".contains(&byte));
    is_word.then_some(value).ok_or_else(|| Refusal::not_found(format!("there is no such {name}")))
}
