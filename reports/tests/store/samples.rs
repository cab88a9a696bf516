//! Runs, cases and attempts to write.

use modelfarm_matrix::attempt::{Attempt, Metrics};
use modelfarm_matrix::axes::{Dtype, Harness, Mode, Precision, Weights, Workload};
use modelfarm_matrix::case::Case;
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::fault::{Evidence, Fault};
use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};
use modelfarm_matrix::outcome::{Check, Outcome, Stage};
use modelfarm_reports::store::{NewRun, PastRun, PastTry, this_host};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

pub fn new_run(cases: &[Case]) -> NewRun {
    NewRun {
        run_id: NewRun::new_id(),
        matrix: "smoke".into(),
        selection: String::new(),
        plan_id: "0123456789abcdef".into(),
        planned_cases: cases.iter().map(Case::canonical).collect(),
        shard: "1/1".into(),
        host: this_host(),
        pid: std::process::id(),
        facts: json!({"cores": 2}),
    }
}

pub fn case(number: usize) -> Case {
    Case {
        model: format!("zoo/tiny-{number}").parse().unwrap(),
        class: "LlamaForCausalLM".into(),
        harness: Harness::Transformers,
        weights: Weights::Real,
        workload: Workload::Forward,
        inputs: "default".into(),
        dtype: Dtype::Float32,
        precision: Precision::Highest,
        attention: "eager".into(),
        target: "tpu-emulated".into(),
        mode: Mode::StrictEager,
    }
}

pub fn cases(count: usize) -> Vec<Case> {
    (0..count).map(case).collect()
}

pub fn passed(case: &Case) -> Attempt {
    Attempt {
        case: case.clone(),
        attempt: 1,
        architecture: "llama".into(),
        revision: Some("c9745ed1d9f207416be6d2e6f8de32d1f16199bf".into()),
        check: Check::Execute,
        outcome: Outcome::Pass,
        stage: Stage::Compare,
        fault: None,
        evidence: Evidence::default(),
        verdict: Verdict::ExpectedPass,
        expectation_reason: None,
        signature: None,
        message: None,
        traceback: None,
        output_tail: Some("loading\n".repeat(20)),
        started_at: 1_796_064_258_123,
        duration_ms: 812,
        farm_overhead_ms: Some(41.5),
        host: "host-a".into(),
        environment_id: Some("e1".into()),
        inputs_hash: Some("ab".repeat(32)),
        reference_key: Some("cd".repeat(32)),
        metrics: Metrics { rmse_ratio: Some(0.7), graph_count: Some(1), ..Metrics::default() },
        leaves: vec![leaf(); 3],
        facts: json!({"stage_ms": {"load": 100, "execute": 12.5}, "parameter_devices": ["tpu:0"]}),
    }
}

/// A shard of a run that is over.
pub fn past_run(run: NewRun, tries: Vec<PastTry>) -> PastRun {
    PastRun {
        run,
        started_at: 1_796_064_000_000,
        ended_at: 1_796_067_600_000,
        is_interrupted: false,
        environments: Vec::new(),
        models: Vec::new(),
        tries,
    }
}

pub fn failed(case: &Case) -> Attempt {
    Attempt {
        outcome: Outcome::RuntimeError,
        stage: Stage::Execute,
        fault: Some(Fault::Backend),
        verdict: Verdict::UnexpectedFail,
        signature: Some("RuntimeError: op <N>".into()),
        message: Some("RuntimeError: op 7".into()),
        ..passed(case)
    }
}

pub fn leaf() -> LeafStatistics {
    LeafStatistics {
        name: "logits".into(),
        shape: vec![1, 8, 32],
        dtype: "F32".into(),
        kind: LeafKind::Distance,
        count: 256,
        left_out: 0,
        sum_ref_squared: 120.25,
        sum_device_squared: 120.5,
        sum_ref: 1.5,
        sum_device: 1.25,
        sum_error_squared: 1e-9,
        sum_device_ref: 120.375,
        max_abs_error: 1e-5,
        nonfinite_mismatches: 0,
        sum_yardstick_error_squared: 1e-9,
        yardstick_max_abs_error: 1e-5,
        yardstick_gain_error: 1e-7,
        yardstick_mean_error: 1e-8,
        top1_agreement: Some(1.0),
        kl_divergence: None,
        unequal: 0,
    }
}

/// Any text without NUL: the store replaces NUL, which a test of its own shows.
fn text() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| text.replace('\0', ""))
}

/// Any number that equals itself, infinities included.
fn real() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("NaN is unlike itself", |value| !value.is_nan())
}

fn any_leaf() -> impl Strategy<Value = LeafStatistics> {
    let sums = prop::array::uniform11(real());
    (any::<String>(), prop::collection::vec(any::<u64>(), 0..4), any::<[u64; 4]>(), sums, option::of(real()), any::<bool>())
        .prop_map(|(name, shape, counts, sums, optional, exact)| {
            let [a, b, c, d, e, f, g, h, i, j, k] = sums;
            LeafStatistics {
                name,
                shape,
                dtype: "BF16".into(),
                kind: if exact { LeafKind::Exact } else { LeafKind::Distance },
                count: counts[0],
                left_out: counts[3],
                sum_ref_squared: a,
                sum_device_squared: b,
                sum_ref: c,
                sum_device: d,
                sum_error_squared: e,
                sum_device_ref: f,
                max_abs_error: g,
                nonfinite_mismatches: counts[1],
                sum_yardstick_error_squared: h,
                yardstick_max_abs_error: i,
                yardstick_gain_error: j,
                yardstick_mean_error: k,
                top1_agreement: optional,
                kl_divergence: optional.map(|value| -value),
                unequal: counts[2],
            }
        })
}

fn any_metrics() -> impl Strategy<Value = Metrics> {
    (prop::array::uniform9(option::of(real())), prop::array::uniform8(option::of(any::<i64>()))).prop_map(
        |(reals, integers)| {
            let [rmse_ratio, rel_l2, max_abs, pcc, cosine, gain_error, top1_agreement, compile_ms, tokens_per_s] = reals;
            let [a, b, c, d, e, f, g, h] = integers;
            Metrics {
                rmse_ratio,
                rel_l2,
                max_abs,
                pcc,
                cosine,
                gain_error,
                top1_agreement,
                graph_count: a,
                graph_break_count: b,
                recompile_count: c,
                compile_count: d,
                compile_ms,
                execute_count: e,
                h2d_bytes: f,
                d2h_bytes: g,
                peak_device_bytes: h,
                tokens_per_s,
            }
        },
    )
}

fn any_facts() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

pub fn any_case() -> impl Strategy<Value = Case> {
    let words = (select(Harness::ALL), select(Weights::ALL), select(Workload::ALL), select(Dtype::ALL));
    let more = (select(Precision::ALL), select(Mode::ALL), select(vec!["tpu", "cpu", "tpu-emulated"]));
    ("[a-z]{1,8}/[a-zA-Z0-9]{1,12}", "[A-Z][A-Za-z]{1,20}", words, more).prop_map(
        |(model, class, (harness, weights, workload, dtype), (precision, mode, target))| Case {
            model: model.parse().unwrap(),
            class,
            harness,
            weights,
            workload,
            inputs: "default".into(),
            dtype,
            precision,
            attention: "sdpa".into(),
            target: target.into(),
            mode,
        },
    )
}

pub fn any_attempt() -> impl Strategy<Value = Attempt> {
    let words = (select(Check::ALL), select(Outcome::ALL), select(Stage::ALL), select(Verdict::ALL));
    let texts = (
        prop::array::uniform7(option::of(text())),
        // Kept in a blob: NUL survives.
        prop::array::uniform2(option::of(any::<String>())),
        prop::array::uniform2(text()),
    );
    let numbers = (0i64..4_000_000_000_000, any::<i64>(), option::of(real()), 1u32..100);
    let evidence = (any::<bool>(), option::of(select(Outcome::ALL)), any::<Vec<String>>(), any::<bool>());
    let figures = (any_metrics(), prop::collection::vec(any_leaf(), 0..4), any_facts());
    (any_case(), words, option::of(select(Fault::ALL)), texts, numbers, evidence, figures).prop_map(
        |(case, (check, outcome, stage, verdict), fault, (some, kept, texts), numbers, evidence, figures)| {
            let [revision, expectation_reason, signature, message, environment_id, inputs_hash, reference_key] = some;
            let [traceback, output_tail] = kept;
            let [architecture, host] = texts;
            let (started_at, duration_ms, farm_overhead_ms, attempt) = numbers;
            let (is_control, control, emulator_lacks, kept_on_cpu) = evidence;
            let (metrics, leaves, facts) = figures;
            Attempt {
                case,
                attempt,
                architecture,
                revision,
                check,
                outcome,
                stage,
                fault,
                evidence: Evidence { is_control, control, emulator_lacks, kept_on_cpu },
                verdict,
                expectation_reason,
                signature,
                message,
                traceback,
                output_tail,
                started_at,
                duration_ms,
                farm_overhead_ms,
                host,
                environment_id,
                inputs_hash,
                reference_key,
                metrics,
                leaves,
                facts,
            }
        },
    )
}
