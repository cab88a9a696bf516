//! What changed between two runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use modelfarm_matrix::change::Change;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::query::{ChangeRow, ComparedRun, Comparison, Question as Compare};
use crate::server::Server;
use crate::server::answer::Page;
use crate::server::parameter::WINDOW;
use crate::server::question::Question;
use crate::server::refusal::Refusal;

/// Which runs were compared, and what came of it in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Compared {
    /// The matrix of the newer run.
    pub matrix: String,
    /// The baseline.
    pub before: ComparedRun,
    /// Whether the baseline is as old as was asked for; else it is the oldest that there is.
    pub is_old_enough: bool,
    /// The newer run.
    pub after: ComparedRun,
    /// Cases in both runs.
    pub in_both: u64,
    /// Cases in both that passed and pass.
    pub still_passing: u64,
    /// Cases by what became of them; what became of none is left out.
    pub changes: BTreeMap<Change, u64>,
    /// Whether something regressed or is a new failure, and nobody found that it is not so.
    pub is_bad: bool,
}

pub(in crate::server) async fn regressions(server: Arc<Server>, question: Question) -> Result<Page<ChangeRow>, Refusal> {
    let wanted: Vec<Change> = question.words("change")?;
    let mut rows = compare(&server, &question).await?.rows;
    rows.retain(|row| wanted.is_empty() || wanted.contains(&row.change));
    Page::of(rows, &question)
}

pub(in crate::server) async fn comparison(server: Arc<Server>, question: Question) -> Result<Compared, Refusal> {
    let comparison = compare(&server, &question).await?;
    let is_bad = comparison.is_bad();
    let Comparison { matrix, before, is_old_enough, after, in_both, still_passing, rows } = comparison;
    let mut changes = BTreeMap::new();
    for row in rows {
        *changes.entry(row.change).or_default() += 1;
    }
    Ok(Compared { matrix, before, is_old_enough, after, in_both, still_passing, changes, is_bad })
}

async fn compare(server: &Server, question: &Question) -> Result<Comparison, Refusal> {
    let (run, matrix) = (question.text("run"), question.text("matrix"));
    let asked = Compare {
        run: run.map(str::to_owned),
        matrix: matrix.map(str::to_owned),
        since: question.parsed("since")?,
        window: u32::try_from(question.number(WINDOW)?).ok(),
        cases: question.cases()?,
    };
    let comparison = server.store.comparison(&asked).await?;
    match matrix {
        Some(wanted) if wanted != comparison.matrix => {
            Err(Refusal::not_found(format!("run {} is of another matrix", comparison.after.run_id)))
        }
        _ => Ok(comparison),
    }
}
