//! From what was observed of a try to the attempt that is recorded: pure.

use modelfarm_matrix::attempt::{Attempt, Metrics};
use modelfarm_matrix::case::Case;
use modelfarm_matrix::expectation::{Expectation, verdict};
use modelfarm_matrix::fault::{Evidence, fault};
use modelfarm_matrix::leaf::LeafStatistics;
use modelfarm_matrix::outcome::{Check, Outcome, Stage};
use serde_json::{Map, Value, json};

use super::classify::Observation;
use super::signature::{self, Names, signature};
use crate::judge::Judgement;

/// Texts beyond this are cut: a hostile message may be a megabyte, and is kept for ever.
const MAX_MESSAGE: usize = 16 * 1024;
const MAX_TRACEBACK: usize = 64 * 1024;

/// What came of a try.
#[derive(Debug, Clone, PartialEq)]
pub enum Result {
    /// The outputs were judged.
    Judged(Box<Judgement>),
    /// It did not come so far.
    Observed(Observation),
}

/// A try and all that belongs to it.
#[derive(Debug, Clone)]
pub struct Tried<'a> {
    /// What was asked.
    pub case: &'a Case,
    /// Number of the try.
    pub attempt: u32,
    /// `config.model_type`.
    pub architecture: &'a str,
    /// The commit, once known.
    pub revision: Option<&'a str>,
    /// The expectation that counts.
    pub expectation: Option<&'a Expectation>,
    /// Whether the target is the control.
    pub is_control: bool,
    /// What the control observed.
    pub control: Option<Outcome>,
    /// Start, UTC milliseconds.
    pub started_at: i64,
    /// The host.
    pub host: &'a str,
    /// The environment, once known.
    pub environment_id: Option<&'a str>,
    /// The inputs' hash.
    pub inputs_hash: Option<&'a str>,
    /// The reference's key.
    pub reference_key: Option<&'a str>,
    /// What the worker reported.
    pub facts: Map<String, Value>,
    /// The end of what it wrote.
    pub output_tail: &'a str,
}

/// Puts the attempt together. `now` is UTC milliseconds; the farm's own time is added when the row is committed.
pub fn assemble(tried: Tried<'_>, result: Result, now: i64) -> Attempt {
    let mut facts = tried.facts;
    let mut metrics = metrics_of_facts(&facts);
    let (outcome, stage, message, traceback, leaves, lacks, kept_on_cpu) = match result {
        Result::Judged(judgement) => {
            facts.insert("policy_version".into(), judgement.policy_version.into());
            if let Some(flip) = &judgement.flip {
                facts.insert("flip".into(), json!(flip));
            }
            metrics = with_judged(metrics, &judgement.metrics);
            (judgement.outcome, Stage::Compare, judgement.message, None, judgement.leaves, Vec::new(), false)
        }
        Result::Observed(seen) => (
            seen.outcome,
            seen.stage,
            Some(seen.message),
            seen.traceback,
            Vec::<LeafStatistics>::new(),
            seen.emulator_lacks,
            seen.kept_on_cpu,
        ),
    };
    let names = || Names::of(tried.case, tried.architecture);
    let signature = message.as_deref().filter(|_| outcome != Outcome::Pass).and_then(|message| signature(message, &names()));
    if signature.is_some() {
        facts.insert("signature_version".into(), signature::VERSION.into());
    }
    let mut emulator_lacks = lacks;
    emulator_lacks.sort();
    emulator_lacks.dedup();
    let evidence = Evidence { is_control: tried.is_control, control: tried.control, emulator_lacks, kept_on_cpu };
    let fault = fault(outcome, stage, &evidence);
    let keeps_output = outcome != Outcome::Pass && !tried.output_tail.is_empty();
    Attempt {
        case: tried.case.clone(),
        attempt: tried.attempt,
        architecture: tried.architecture.to_owned(),
        revision: tried.revision.map(str::to_owned),
        check: Check::Execute,
        outcome,
        stage,
        fault,
        evidence,
        verdict: verdict(outcome, fault, tried.expectation),
        expectation_reason: tried.expectation.map(Expectation::told),
        signature,
        message: message.map(|text| bounded(text, MAX_MESSAGE)),
        traceback: traceback.map(|text| bounded(text, MAX_TRACEBACK)),
        output_tail: keeps_output.then(|| tried.output_tail.to_owned()),
        started_at: tried.started_at,
        duration_ms: (now - tried.started_at).max(0),
        farm_overhead_ms: None,
        host: tried.host.to_owned(),
        environment_id: tried.environment_id.map(str::to_owned),
        inputs_hash: tried.inputs_hash.map(str::to_owned),
        reference_key: tried.reference_key.map(str::to_owned),
        metrics,
        leaves,
        facts: Value::Object(facts),
    }
}

/// Cuts a text in its middle: both its beginning and its end tell something.
fn bounded(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let (mut head, mut tail) = (limit / 2, text.len() - limit / 2);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n[{} bytes cut here]\n{}", &text[..head], tail - head, &text[tail..])
}

fn metrics_of_facts(facts: &Map<String, Value>) -> Metrics {
    let integer = |name: &str| facts.get(name).and_then(Value::as_i64);
    let pjrt = |name: &str| facts.get("pjrt").and_then(|pjrt| pjrt.get(name));
    let breaks = facts.get("graph_breaks").and_then(Value::as_array);
    let break_count = |breaks: &Vec<Value>| breaks.iter().filter_map(|one| one.get("count").and_then(Value::as_i64)).sum();
    Metrics {
        graph_count: integer("graph_count"),
        graph_break_count: breaks.map(break_count),
        recompile_count: integer("recompile_count"),
        // What the model needs, whether it was compiled now or before: else a second night would seem to need nothing.
        compile_count: sum_of_integers(pjrt("compile_count"), pjrt("deserialize_count")),
        compile_ms: pjrt("compile_ms").and_then(Value::as_f64),
        execute_count: pjrt("execute_count").and_then(Value::as_i64),
        h2d_bytes: pjrt("host_to_device_bytes").and_then(Value::as_i64),
        d2h_bytes: pjrt("device_to_host_bytes").and_then(Value::as_i64),
        peak_device_bytes: pjrt("device_peak_bytes").and_then(Value::as_i64),
        tokens_per_s: facts.get("tokens_per_s").and_then(Value::as_f64),
        ..Metrics::default()
    }
}

fn sum_of_integers(one: Option<&Value>, other: Option<&Value>) -> Option<i64> {
    Some(one?.as_i64()? + other.and_then(Value::as_i64).unwrap_or(0))
}

fn with_judged(measured: Metrics, judged: &Metrics) -> Metrics {
    Metrics {
        rmse_ratio: judged.rmse_ratio,
        rel_l2: judged.rel_l2,
        max_abs: judged.max_abs,
        pcc: judged.pcc,
        cosine: judged.cosine,
        gain_error: judged.gain_error,
        top1_agreement: judged.top1_agreement,
        ..measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tried(case: &Case) -> Tried<'_> {
        Tried {
            case,
            attempt: 1,
            architecture: "llama",
            revision: None,
            expectation: None,
            is_control: false,
            control: Some(Outcome::Pass),
            started_at: 1000,
            host: "h",
            environment_id: None,
            inputs_hash: None,
            reference_key: None,
            facts: serde_json::from_str(
                r#"{"graph_breaks":[{"reason":"x","count":2},{"reason":"y","count":1}],"pjrt":{"compile_count":7}}"#,
            )
            .unwrap(),
            output_tail: "the end",
        }
    }

    #[test]
    fn what_was_observed_becomes_an_attempt() {
        let case: Case = "v1/a/b/C/transformers/real/forward/default/float32/highest/eager/t/compiled".parse().unwrap();
        let observation = Observation::new(Outcome::Crash, Stage::Execute, "died by SIGSEGV at 0x12");
        let attempt = assemble(tried(&case), Result::Observed(observation), 1500);
        assert_eq!(attempt.fault, Some(modelfarm_matrix::fault::Fault::Backend));
        assert_eq!(attempt.signature.as_deref(), Some("died by SIGSEGV at <address>"));
        assert_eq!(
            (attempt.duration_ms, attempt.metrics.graph_break_count, attempt.metrics.compile_count),
            (500, Some(3), Some(7))
        );
        assert_eq!(attempt.output_tail.as_deref(), Some("the end"));
    }

    proptest! {
        #[test]
        fn a_cut_text_is_short_and_keeps_both_ends(text in "\\PC{0,300}") {
            let cut = bounded(text.clone(), 64);
            prop_assert!(cut.len() <= 64 + 40);
            let head: String = text.chars().take(4).collect();
            prop_assert!(cut.starts_with(&head));
        }
    }
}
