//! What a model's page shows.

use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::Stage;
use serde::Serialize;
use serde_json::Value;

use super::frame::Frame;
use super::leaf_view::LeavesView;
use super::links::{Links, anchor};
use super::nested_facts::{Fact, nested_facts};
use super::strip_view::{CaseStrips, StripView};
use super::{CaseTries, ReportInput};
use crate::figures::{bytes, count, instant, measured, milliseconds, percent};
use crate::rows::{AttemptDetail, ResultRow};
use crate::run_figures::tally_summary;
use crate::verdict_mark::{VerdictMark, verdict_mark};
use crate::visible_text::{beginning, ending, one_line};

/// What a model's page shows.
#[derive(Serialize)]
pub(super) struct ModelView {
    #[serde(flatten)]
    frame: Frame,
    model: String,
    facts: Vec<Fact>,
    summary: String,
    architecture_link: Option<String>,
    cases: Vec<CaseView>,
}

#[derive(Serialize)]
struct CaseView {
    anchor: String,
    mark: VerdictMark,
    outcome: String,
    open: bool,
    strip: Option<StripView>,
    workload: &'static str,
    dtype: &'static str,
    target: String,
    mode: &'static str,
    stage: &'static str,
    fault: &'static str,
    duration: String,
    ratio: String,
    graphs: String,
    reason: Option<String>,
    facts: Vec<Fact>,
    metrics: Vec<Fact>,
    stages: Vec<StageBar>,
    leaves: Option<LeavesView>,
    graph_breaks: Vec<GraphBreak>,
    message: Option<String>,
    signature: Option<String>,
    traceback: Option<String>,
    output_tail: Option<String>,
    worker_facts: Vec<Fact>,
    evidence: Vec<Fact>,
    command: String,
    canonical: String,
    earlier: Vec<EarlierTry>,
}

#[derive(Serialize)]
struct StageBar {
    stage: &'static str,
    time: String,
    share: String,
    x: f64,
    width: f64,
    /// The attempt ended in this stage without passing.
    ended_here: bool,
}

#[derive(Serialize)]
struct GraphBreak {
    count: String,
    reason: String,
}

#[derive(Serialize)]
struct EarlierTry {
    attempt: u32,
    mark: VerdictMark,
    outcome: String,
    stage: &'static str,
    started_at: String,
    duration: String,
    host: String,
    message: String,
}

impl ModelView {
    pub(super) fn new(
        input: &ReportInput<'_>,
        links: &Links,
        strips: &CaseStrips<'_>,
        model: &ModelId,
        cases: &[&CaseTries<'_>],
    ) -> Self {
        let mut tally = modelfarm_matrix::event::Tally::default();
        for case in cases {
            tally.add(case.last.row.outcome, case.last.row.verdict.is_unexpected());
        }
        Self {
            frame: Frame::new(input, model.as_str(), "../../"),
            model: model.to_string(),
            facts: model_facts(cases),
            summary: tally_summary(&tally),
            architecture_link: cases.first().map(|case| links.architecture(&case.last.row.architecture)),
            cases: cases.iter().map(|case| case_view(input, strips, case)).collect(),
        }
    }
}

fn model_facts(cases: &[&CaseTries<'_>]) -> Vec<Fact> {
    let distinct = |name: &str, of: &dyn Fn(&ResultRow) -> String| {
        let mut values: Vec<String> = cases.iter().map(|case| of(&case.last.row)).collect();
        values.sort();
        values.dedup();
        Fact::new(name, one_line(&values.join(", "), 300))
    };
    vec![
        distinct("architecture", &|row| row.architecture.clone()),
        distinct("class", &|row| row.class.clone()),
        distinct("harness", &|row| row.harness.to_string()),
        distinct("revision", &|row| row.revision.clone().unwrap_or_else(|| "not resolved".to_owned())),
        distinct("weights", &|row| row.weights.to_string()),
    ]
}

fn case_view(input: &ReportInput<'_>, strips: &CaseStrips<'_>, case: &CaseTries<'_>) -> CaseView {
    let attempt = case.last;
    let row = &attempt.row;
    // A page must stay readable: what passed needs less of everything.
    let passed = row.verdict == Verdict::ExpectedPass;
    let (most_leaves, most_text) = if passed { (8, 2_000) } else { (50, 16_000) };
    CaseView {
        anchor: anchor(&row.case_id),
        mark: verdict_mark(row.verdict),
        outcome: row.outcome.to_string(),
        open: row.verdict.is_unexpected(),
        strip: strips.view(&row.case_id),
        workload: row.workload.as_str(),
        dtype: row.dtype.as_str(),
        target: one_line(&row.target, 60),
        mode: row.mode.as_str(),
        stage: row.stage.as_str(),
        fault: row.fault.map_or("–", |fault| fault.as_str()),
        duration: milliseconds(row.duration_ms as f64),
        ratio: row.metrics.rmse_ratio.map_or("–".to_owned(), measured),
        graphs: graphs(row),
        reason: attempt.expectation_reason.as_ref().map(|reason| beginning(reason, 1_000)),
        facts: case_facts(attempt),
        metrics: metrics(row),
        stages: stages(attempt),
        leaves: LeavesView::new(&attempt.leaves, row.dtype, input.gates, most_leaves),
        graph_breaks: graph_breaks(&attempt.facts),
        message: row.message.as_ref().map(|message| beginning(message, 4_000)),
        signature: row.signature.as_ref().filter(|_| !passed).map(|signature| beginning(signature, 1_000)),
        traceback: attempt.traceback.as_ref().map(|traceback| ending(traceback, most_text)),
        output_tail: attempt.output_tail.as_ref().map(|tail| ending(tail, most_text)),
        worker_facts: nested_facts(&without_shown(&attempt.facts)),
        evidence: nested_facts(&attempt.evidence),
        command: command(input.matrix_file, row),
        canonical: one_line(&row.case().canonical(), 1_000),
        earlier: case.earlier.iter().map(|attempt| earlier_try(attempt)).collect(),
    }
}

/// The command that runs a case again, quoted for a POSIX shell.
fn command(matrix_file: &str, row: &ResultRow) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    let file = if !matrix_file.is_empty() && matrix_file.chars().all(plain) {
        matrix_file.to_owned()
    } else {
        format!("'{}'", matrix_file.replace('\'', r"'\''"))
    };
    format!("modelfarm run --matrix {file} --case {}", row.case_id)
}

fn graphs(row: &ResultRow) -> String {
    match (row.metrics.graph_count, row.metrics.graph_break_count) {
        (None, None) => "–".to_owned(),
        (graphs, breaks) => {
            let number = |n: Option<i64>| n.map_or("–".to_owned(), |n| count(n.max(0) as u64));
            format!("{} / {}", number(graphs), number(breaks))
        }
    }
}

fn case_facts(attempt: &AttemptDetail) -> Vec<Fact> {
    let row = &attempt.row;
    let text = |text: &Option<String>| text.as_ref().map_or("–".to_owned(), |text| one_line(text, 100));
    let mut facts = vec![
        Fact::new("case", row.case_id.as_str()),
        Fact::new("verdict", row.verdict.as_str().replace('_', " ")),
        Fact::new("checked to", row.check.as_str()),
        Fact::new("ended in", row.stage.as_str()),
        Fact::new("fault", row.fault.map_or("–", |fault| fault.as_str())),
        Fact::new("precision", row.precision.as_str()),
        Fact::new("attention", one_line(&row.attention, 96)),
        Fact::new("inputs", one_line(&row.inputs, 96)),
        Fact::new("started", instant(&row.started_at)),
        Fact::new("took", milliseconds(row.duration_ms as f64)),
        Fact::new("of it the farm's own", attempt.farm_overhead_ms.map_or("–".to_owned(), milliseconds)),
        Fact::new("host", one_line(&row.host, 100)),
        Fact::new("environment", text(&row.environment_id)),
        Fact::new("inputs' hash", text(&attempt.inputs_hash)),
        Fact::new("reference", text(&attempt.reference_key)),
    ];
    facts.retain(|fact| fact.value != "–");
    facts
}

fn metrics(row: &ResultRow) -> Vec<Fact> {
    let metrics = &row.metrics;
    let real = |name: &str, value: Option<f64>| value.map(|value| Fact::new(name, measured(value)));
    let whole = |name: &str, value: Option<i64>| value.map(|value| Fact::new(name, count(value.max(0) as u64)));
    let size = |name: &str, value: Option<i64>| value.map(|value| Fact::new(name, bytes(value.max(0) as u64)));
    [
        real("RMSE ratio", metrics.rmse_ratio),
        real("relative L2", metrics.rel_l2),
        real("max |error|", metrics.max_abs),
        metrics.pcc.map(|pcc| Fact::new("Pearson", format!("{pcc:.6}"))),
        metrics.cosine.map(|cosine| Fact::new("cosine", format!("{cosine:.6}"))),
        real("gain error", metrics.gain_error),
        metrics.top1_agreement.map(|share| Fact::new("top-1 agreement", format!("{:.1} %", share * 100.0))),
        whole("graphs", metrics.graph_count),
        whole("graph breaks", metrics.graph_break_count),
        whole("recompilations", metrics.recompile_count),
        whole("programs compiled", metrics.compile_count),
        metrics.compile_ms.map(|ms| Fact::new("compiling took", milliseconds(ms))),
        whole("programs launched", metrics.execute_count),
        size("to the device", metrics.h2d_bytes),
        size("from the device", metrics.d2h_bytes),
        size("peak on the device", metrics.peak_device_bytes),
        metrics.tokens_per_s.map(|rate| Fact::new("speed", format!("{} tokens/s", measured(rate)))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The stages that the worker timed, one after the other.
fn stages(attempt: &AttemptDetail) -> Vec<StageBar> {
    let time = |stage: &Stage| attempt.facts.get("stage_ms")?.get(stage.as_str())?.as_f64().filter(|ms| *ms >= 0.0);
    let timed: Vec<(Stage, f64)> = Stage::ALL.iter().filter_map(|stage| Some((*stage, time(stage)?))).collect();
    let whole: f64 = timed.iter().map(|(_, ms)| ms).sum();
    if !whole.is_finite() || whole <= 0.0 {
        return Vec::new();
    }
    let mut x = 0.0;
    let mut bars = Vec::new();
    for (stage, ms) in timed {
        let width = super::health_view::thousandths(ms / whole);
        bars.push(StageBar {
            stage: stage.as_str(),
            time: milliseconds(ms),
            share: percent(ms.round() as u64, (whole.round() as u64).max(1)),
            x,
            width: width.max(2.0),
            ended_here: stage == attempt.row.stage && attempt.row.outcome != modelfarm_matrix::outcome::Outcome::Pass,
        });
        x += width;
    }
    bars
}

fn graph_breaks(facts: &Value) -> Vec<GraphBreak> {
    let Some(breaks) = facts.get("graph_breaks").and_then(Value::as_array) else { return Vec::new() };
    let breaks = breaks.iter().take(30).map(|found| GraphBreak {
        count: found.get("count").and_then(Value::as_u64).map_or("–".to_owned(), count),
        reason: one_line(found.get("reason").and_then(Value::as_str).unwrap_or("no reason was reported"), 400),
    });
    breaks.collect()
}

/// The worker's facts without those that have a place of their own.
fn without_shown(facts: &Value) -> Value {
    match facts {
        Value::Object(fields) => {
            let shown = ["stage_ms", "graph_breaks"];
            let rest = fields.iter().filter(|(name, _)| !shown.contains(&name.as_str()));
            Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

fn earlier_try(attempt: &AttemptDetail) -> EarlierTry {
    let row = &attempt.row;
    EarlierTry {
        attempt: row.attempt,
        mark: verdict_mark(row.verdict),
        outcome: row.outcome.to_string(),
        stage: row.stage.as_str(),
        started_at: instant(&row.started_at),
        duration: milliseconds(row.duration_ms as f64),
        host: one_line(&row.host, 100),
        message: row.message.as_ref().or(row.signature.as_ref()).map_or(String::new(), |text| one_line(text, 400)),
    }
}
