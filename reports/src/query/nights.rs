//! The nights of a matrix: which came, how far, and which did not.

use modelfarm_matrix::rhythm::{NightState, due_nights};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::runs::run_state;
use crate::rows::RunState;
use crate::store::statement::sql;
use crate::store::{Row, Store, StoreError, rfc3339};

/// A night in which a matrix was due: the JSON of `query nights`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NightRow {
    /// When it began or should have, RFC 3339 in UTC.
    pub due_at: String,
    /// How it stands.
    pub state: NightState,
    /// The matrix.
    pub matrix: String,
    /// The run: of several in a night the newest complete one, or the newest.
    pub run_id: Option<String>,
    /// Its planned cases.
    pub planned: Option<u64>,
    /// Its cases that are final.
    pub finished: Option<u64>,
}

/// Which nights are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rhythm {
    /// The matrix; that of the newest run of a whole matrix where none is named.
    pub matrix: Option<String>,
    /// Milliseconds from one to the next.
    pub every: i64,
    /// From this time on, UTC milliseconds.
    pub from: i64,
    /// Until this time.
    pub now: i64,
}

impl Store {
    /// The nights of a matrix, newest first, with those in which nothing ran. Only runs of the whole matrix count.
    pub async fn nights(&self, rhythm: &Rhythm) -> Result<Vec<NightRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let matrix = match &rhythm.matrix {
            Some(matrix) => matrix.clone(),
            None => {
                let newest = sql("SELECT matrix FROM runs WHERE selection = '' ORDER BY started_at DESC, run_id DESC LIMIT 1");
                match transaction.optional(newest).await? {
                    Some(row) => row.text("matrix")?,
                    None => return Ok(Vec::new()),
                }
            }
        };
        let runs = sql("SELECT run_key, run_id, planned, finished, started_at FROM runs \
                        WHERE matrix = $1 AND selection = '' AND started_at >= $2 AND started_at <= $3 ORDER BY started_at, run_id");
        let runs: Vec<Row> = transaction.all(runs.bind(&matrix).bind(rhythm.from).bind(rhythm.now)).await?;
        let starts = runs.iter().map(|row| row.int("started_at")).collect::<Result<Vec<_>, _>>()?;
        let mut rows = Vec::new();
        for night in due_nights(&starts, rhythm.every, rhythm.now).into_iter().rev() {
            let mut told = NightRow {
                due_at: rfc3339(night.due_at),
                state: if rows.is_empty() { NightState::Late } else { NightState::Missing },
                matrix: matrix.clone(),
                run_id: None,
                planned: None,
                finished: None,
            };
            for run in runs[night.runs].iter().rev() {
                let state = match run_state(&mut transaction, run).await? {
                    RunState::Complete => NightState::Complete,
                    RunState::Partial => NightState::Partial,
                    RunState::Running => NightState::Running,
                    RunState::Interrupted => NightState::Interrupted,
                };
                if told.run_id.is_none() || state == NightState::Complete {
                    told.state = state;
                    told.run_id = Some(run.text("run_id")?);
                    told.planned = Some(run.unsigned("planned")?);
                    told.finished = Some(run.unsigned("finished")?);
                }
                if state == NightState::Complete {
                    break;
                }
            }
            rows.push(told);
        }
        Ok(rows)
    }
}
