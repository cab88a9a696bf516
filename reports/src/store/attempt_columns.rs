//! An attempt and its case as columns, and back.

use modelfarm_matrix::attempt::{Attempt, Metrics};
use modelfarm_matrix::case::Case;

use super::cell::{Cell, Kind, values};
use super::database::Row;
use super::detail_blob::{Output, pack_leaves, pack_output, unpack_leaves, unpack_output};
use super::error::StoreError;
use super::time::rfc3339;
use crate::rows::{AttemptDetail, ResultRow};

/// Every column of a result, for `FROM attempts a JOIN cases c ... JOIN runs r ...`.
///
/// A macro because a statement's text is put together by the compiler.
macro_rules! result_columns {
    () => {
        "r.run_id, c.case_id, c.canonical, c.model, c.class, c.harness, c.weights, c.workload, c.inputs, c.dtype, \
         c.precision_word, c.attention, c.target, c.mode, a.attempt_key, a.attempt, a.architecture, a.revision, \
         a.check_word, a.outcome, a.stage, a.fault, a.verdict, a.signature, a.message, a.started_at, a.duration_ms, \
         a.farm_overhead_ms, a.host, a.environment_id, a.inputs_hash, a.reference_key, a.rmse_ratio, a.rel_l2, a.max_abs, \
         a.pcc, a.cosine, a.gain_error, a.top1_agreement, a.graph_count, a.graph_break_count, a.recompile_count, \
         a.compile_count, a.compile_ms, a.execute_count, a.h2d_bytes, a.d2h_bytes, a.peak_device_bytes, a.tokens_per_s"
    };
}
pub(crate) use result_columns;

/// A case, in the order of `CASES`.
pub(crate) fn case_values(case: &Case) -> Vec<Cell> {
    let Case { model, class, harness, weights, workload, inputs, dtype, precision, attention, target, mode } = case;
    values![
        case.id().as_str(),
        case.canonical(),
        model.as_str(),
        class,
        harness.as_str(),
        weights.as_str(),
        workload.as_str(),
        inputs,
        dtype.as_str(),
        precision.as_str(),
        attention,
        target,
        mode.as_str(),
    ]
}

/// Where an attempt belongs in one database, and whether it counts there.
pub(crate) struct Place {
    pub(crate) run_key: i64,
    pub(crate) case_key: i64,
    pub(crate) is_final: bool,
}

/// An attempt, in the order of `ATTEMPTS`.
pub(crate) fn attempt_values(place: &Place, attempt_id: &str, is_retried: bool, attempt: &Attempt) -> Vec<Cell> {
    let Metrics {
        rmse_ratio,
        rel_l2,
        max_abs,
        pcc,
        cosine,
        gain_error,
        top1_agreement,
        graph_count,
        graph_break_count,
        recompile_count,
        compile_count,
        compile_ms,
        execute_count,
        h2d_bytes,
        d2h_bytes,
        peak_device_bytes,
        tokens_per_s,
    } = attempt.metrics;
    values![
        place.run_key,
        place.case_key,
        place.is_final,
        attempt_id,
        attempt.attempt,
        is_retried,
        &attempt.architecture,
        &attempt.revision,
        attempt.check.as_str(),
        attempt.outcome.as_str(),
        attempt.stage.as_str(),
        attempt.fault.map(|fault| fault.as_str()),
        attempt.verdict.as_str(),
        &attempt.signature,
        &attempt.message,
        attempt.started_at,
        attempt.duration_ms,
        attempt.farm_overhead_ms,
        &attempt.host,
        &attempt.environment_id,
        &attempt.inputs_hash,
        &attempt.reference_key,
        rmse_ratio,
        rel_l2,
        max_abs,
        pcc,
        cosine,
        gain_error,
        top1_agreement,
        graph_count,
        graph_break_count,
        recompile_count,
        compile_count,
        compile_ms,
        execute_count,
        h2d_bytes,
        d2h_bytes,
        peak_device_bytes,
        tokens_per_s,
    ]
}

/// An attempt's details, in the order of `ATTEMPT_DETAILS`.
pub(crate) fn detail_values(attempt_key: i64, attempt: &Attempt) -> Vec<Cell> {
    let output = Output { traceback: attempt.traceback.clone(), output_tail: attempt.output_tail.clone() };
    values![
        attempt_key,
        &attempt.expectation_reason,
        json_text(&attempt.evidence),
        json_text(&attempt.facts),
        pack_output(&output),
        pack_leaves(&attempt.leaves),
    ]
}

/// A value as JSON text. Values with text keys alone come here, and those always are JSON.
pub(crate) fn json_text<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_string(value) {
        Ok(text) => text,
        Err(error) => unreachable!("a fact is always JSON: {error}"),
    }
}

/// Reads `result_columns!()`.
pub(crate) fn result_row(row: &Row) -> Result<ResultRow, StoreError> {
    let attempt = row.int("attempt")?;
    Ok(ResultRow {
        case_id: row.word("case_id")?,
        run_id: row.text("run_id")?,
        attempt: u32::try_from(attempt)
            .map_err(|_| StoreError::Value { column: "attempt", detail: format!("{attempt} is no number of a try") })?,
        model: row.word("model")?,
        revision: row.optional_text("revision")?,
        architecture: row.text("architecture")?,
        class: row.text("class")?,
        harness: row.word("harness")?,
        weights: row.word("weights")?,
        workload: row.word("workload")?,
        inputs: row.text("inputs")?,
        dtype: row.word("dtype")?,
        precision: row.word("precision_word")?,
        attention: row.text("attention")?,
        target: row.text("target")?,
        mode: row.word("mode")?,
        check: row.word("check_word")?,
        outcome: row.word("outcome")?,
        stage: row.word("stage")?,
        fault: row.optional_word("fault")?,
        verdict: row.word("verdict")?,
        signature: row.optional_text("signature")?,
        message: row.optional_text("message")?,
        duration_ms: row.int("duration_ms")?,
        started_at: rfc3339(row.int("started_at")?),
        host: row.text("host")?,
        metrics: Metrics {
            rmse_ratio: row.optional_real("rmse_ratio")?,
            rel_l2: row.optional_real("rel_l2")?,
            max_abs: row.optional_real("max_abs")?,
            pcc: row.optional_real("pcc")?,
            cosine: row.optional_real("cosine")?,
            gain_error: row.optional_real("gain_error")?,
            top1_agreement: row.optional_real("top1_agreement")?,
            graph_count: row.optional_int("graph_count")?,
            graph_break_count: row.optional_int("graph_break_count")?,
            recompile_count: row.optional_int("recompile_count")?,
            compile_count: row.optional_int("compile_count")?,
            compile_ms: row.optional_real("compile_ms")?,
            execute_count: row.optional_int("execute_count")?,
            h2d_bytes: row.optional_int("h2d_bytes")?,
            d2h_bytes: row.optional_int("d2h_bytes")?,
            peak_device_bytes: row.optional_int("peak_device_bytes")?,
            tokens_per_s: row.optional_real("tokens_per_s")?,
        },
        environment_id: row.optional_text("environment_id")?,
    })
}

/// Reads `result_columns!()` and the columns of `attempt_details`.
pub(crate) fn attempt_detail(row: &Row) -> Result<AttemptDetail, StoreError> {
    let output = unpack_output(&row.bytes("output")?)?;
    Ok(AttemptDetail {
        row: result_row(row)?,
        expectation_reason: row.optional_text("expectation_reason")?,
        traceback: output.traceback,
        output_tail: output.output_tail,
        farm_overhead_ms: row.optional_real("farm_overhead_ms")?,
        inputs_hash: row.optional_text("inputs_hash")?,
        reference_key: row.optional_text("reference_key")?,
        leaves: unpack_leaves(&row.bytes("leaves")?)?,
        facts: row.json("facts")?,
        evidence: row.json("evidence")?,
    })
}

/// The values of columns as they stand in a row, to be bound again elsewhere.
pub(crate) fn cells(row: &Row, columns: &[(&'static str, Kind)]) -> impl Iterator<Item = Result<Cell, StoreError>> {
    columns.iter().map(|(column, kind)| row.cell(column, *kind))
}
