//! How things stand: failures in groups, architectures, and the server itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::query::{ArchitectureRow, FailureGroup};
use crate::server::Server;
use crate::server::answer::{Answer, Page};
use crate::server::question::Question;
use crate::server::refusal::Refusal;

pub(in crate::server) async fn failures(server: Arc<Server>, question: Question) -> Result<Page<FailureGroup>, Refusal> {
    let filter = question.results(Some(question.text("run").unwrap_or("latest")))?;
    Page::of(server.store.failures(&filter, question.truth("inconclusive")?).await?, &question)
}

pub(in crate::server) async fn architectures(
    server: Arc<Server>,
    question: Question,
) -> Result<Page<ArchitectureRow>, Refusal> {
    let filter = question.results(Some(question.text("run").unwrap_or("latest")))?;
    Page::of(server.store.architectures(&filter).await?, &question)
}

/// Whether the server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`: the store answers.
    pub status: String,
    /// The farm's version.
    pub version: String,
}

pub(in crate::server) async fn health(server: Arc<Server>, _question: Question) -> Result<Answer, Refusal> {
    server.store.revision().await?;
    Answer::json(&Health { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}
