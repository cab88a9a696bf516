//! The newest runs, and how far each came.

use serde::Serialize;

use super::ReportInput;
use super::frame::Frame;
use crate::figures::{count, counted, instant, milliseconds, milliseconds_between, percent};
use crate::visible_text::one_line;

/// What the page of runs shows.
#[derive(Serialize)]
pub(super) struct RunsView {
    #[serde(flatten)]
    frame: Frame,
    summary: String,
    runs: Vec<RunView>,
}

#[derive(Serialize)]
struct RunView {
    run_id: String,
    matrix: String,
    selection: String,
    state: &'static str,
    started_at: String,
    took: String,
    finished: String,
    passed: String,
    rate: String,
    inconclusive: String,
    unexpected: String,
    hosts: String,
    is_this: bool,
}

impl RunsView {
    pub(super) fn new(input: &ReportInput<'_>) -> Self {
        let runs = input.history.runs.iter().map(|run| RunView {
            run_id: one_line(&run.run_id, 60),
            matrix: one_line(&run.matrix, 60),
            selection: one_line(&run.selection, 120),
            state: run.state.as_str(),
            started_at: instant(&run.started_at),
            took: run
                .ended_at
                .as_deref()
                .and_then(|end| milliseconds_between(&run.started_at, end))
                .map_or("–".to_owned(), milliseconds),
            finished: format!("{} of {}", count(run.finished), count(run.planned)),
            passed: format!("{} of {}", count(run.pass), count(run.pass + run.fail)),
            rate: percent(run.pass, run.pass + run.fail),
            inconclusive: count(run.inconclusive),
            unexpected: count(run.unexpected),
            hosts: one_line(&run.hosts.join(", "), 200),
            is_this: run.run_id == input.run.run_id,
        });
        let runs: Vec<RunView> = runs.collect();
        Self {
            frame: Frame::new(input, "Runs", ""),
            summary: format!("The newest {}", counted(runs.len() as u64, "run")),
            runs,
        }
    }
}
