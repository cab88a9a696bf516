//! A run as the farm could have made it: many architectures, every outcome, retries, and text as frameworks write it.

#![allow(dead_code, reason = "each test binary uses a part of it")]

mod history;

use std::collections::BTreeMap;

use modelfarm_matrix::attempt::Metrics;
use modelfarm_matrix::axes::{Dtype, Harness, Mode, Precision, Weights, Workload};
use modelfarm_matrix::case::Case;
use modelfarm_matrix::cause::Causes;
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};
use modelfarm_matrix::outcome::{Check, Outcome, Stage, Standing};
use modelfarm_reports::page::{EnvironmentFacts, Gates, ReportInput, RunHistory};
use modelfarm_reports::rows::{AttemptDetail, ResultRow, RunRow, RunState};
use serde_json::json;

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub use history::{before, history_of};

const ARCHITECTURES: [(&str, &str); 40] = [
    ("albert", "AlbertForMaskedLM"),
    ("bart", "BartForConditionalGeneration"),
    ("bert", "BertModel"),
    ("bloom", "BloomForCausalLM"),
    ("clip", "CLIPModel"),
    ("convnext", "ConvNextForImageClassification"),
    ("deberta-v2", "DebertaV2Model"),
    ("detr", "DetrForObjectDetection"),
    ("dinov2", "Dinov2Model"),
    ("electra", "ElectraForPreTraining"),
    ("falcon", "FalconForCausalLM"),
    ("falcon_mamba", "FalconMambaForCausalLM"),
    ("gemma3_text", "Gemma3ForCausalLM"),
    ("gpt2", "GPT2LMHeadModel"),
    ("gpt_neox", "GPTNeoXForCausalLM"),
    ("llama", "LlamaForCausalLM"),
    ("llava", "LlavaForConditionalGeneration"),
    ("mamba", "MambaForCausalLM"),
    ("marian", "MarianMTModel"),
    ("mistral", "MistralForCausalLM"),
    ("mixtral", "MixtralForCausalLM"),
    ("modernbert", "ModernBertForMaskedLM"),
    ("olmo2", "Olmo2ForCausalLM"),
    ("opt", "OPTForCausalLM"),
    ("phi3", "Phi3ForCausalLM"),
    ("qwen2_vl", "Qwen2VLForConditionalGeneration"),
    ("qwen3", "Qwen3ForCausalLM"),
    ("qwen3_moe", "Qwen3MoeForCausalLM"),
    ("resnet", "ResNetForImageClassification"),
    ("roberta", "RobertaForMaskedLM"),
    ("segformer", "SegformerForSemanticSegmentation"),
    ("siglip", "SiglipModel"),
    ("smollm3", "SmolLM3ForCausalLM"),
    ("stablelm", "StableLmForCausalLM"),
    ("swin", "SwinForImageClassification"),
    ("t5", "T5ForConditionalGeneration"),
    ("vit", "ViTForImageClassification"),
    ("wav2vec2", "Wav2Vec2ForCTC"),
    ("whisper", "WhisperForConditionalGeneration"),
    ("xlnet", "XLNetLMHeadModel"),
];

/// A run with its attempts and environments.
pub struct Sample {
    /// The run.
    pub run: RunRow,
    /// Its attempts.
    pub attempts: Vec<AttemptDetail>,
    /// Their environments.
    pub environments: Vec<EnvironmentFacts>,
    gates: Gates,
    /// What is known beside it.
    pub history: RunHistory,
    /// Explanations.
    pub causes: Causes,
}

impl Sample {
    /// As the report takes it.
    pub fn input(&self) -> ReportInput<'_> {
        ReportInput {
            run: &self.run,
            attempts: &self.attempts,
            environments: &self.environments,
            history: &self.history,
            causes: &self.causes,
            matrix_file: "matrix/smoke.toml",
            gates: &self.gates,
            generated_at: "2026-12-01T02:31:07Z",
            farm_version: "0.1.0",
        }
    }

    /// The rows without their details.
    pub fn rows(&self) -> Vec<ResultRow> {
        self.attempts.iter().map(|attempt| attempt.row.clone()).collect()
    }
}

/// A run over `architectures` architectures; those beyond the known forty are numbered.
pub fn sample(architectures: usize) -> Sample {
    let mut attempts = Vec::new();
    for index in 0..architectures {
        let (architecture, class) = ARCHITECTURES[index % ARCHITECTURES.len()];
        let round = index / ARCHITECTURES.len();
        let architecture = if round == 0 { architecture.to_owned() } else { format!("{architecture}_{round}") };
        let model = format!("zoo/tiny-{}", architecture.replace('_', "-"));
        add_model(&mut attempts, index, &model, &architecture, class);
    }
    add_toys(&mut attempts);
    let run = run_of(&attempts, RunState::Complete, 0);
    let rows: Vec<ResultRow> = attempts.iter().map(|attempt| attempt.row.clone()).collect();
    let history = RunHistory { runs: vec![run.clone()], ..history_of(&rows, None) };
    Sample { run, attempts, environments: vec![environment()], gates: Gates::default(), history, causes: Causes::default() }
}

/// A run row that agrees with its attempts, with `missing` planned cases that are not final.
pub fn run_of(attempts: &[AttemptDetail], state: RunState, missing: u64) -> RunRow {
    let mut last: BTreeMap<_, &AttemptDetail> = BTreeMap::new();
    for attempt in attempts {
        let kept = last.entry(&attempt.row.case_id).or_insert(attempt);
        if attempt.row.attempt > kept.row.attempt {
            *kept = attempt;
        }
    }
    let standing = |wanted| last.values().filter(|attempt| attempt.row.outcome.standing() == wanted).count() as u64;
    let finished = last.len() as u64;
    RunRow {
        run_id: "019ad6a2-7c11-7f3e-9d0b-5a7a03e9860d".into(),
        matrix: "smoke".into(),
        selection: String::new(),
        plan_id: "9f1d6b0c2a54e871".into(),
        state,
        started_at: "2026-12-01T02:00:14.221Z".into(),
        ended_at: Some("2026-12-01T02:30:55.902Z".into()),
        planned: finished + missing,
        finished,
        pass: standing(Standing::Pass),
        fail: standing(Standing::Fail),
        inconclusive: standing(Standing::Inconclusive),
        unexpected: last.values().filter(|attempt| attempt.row.verdict.is_unexpected()).count() as u64,
        farm_overhead_ms_median: Some(61.4),
        cases_per_hour: Some(2_140.0),
        shards: vec!["1/1".into()],
        hosts: vec!["ci-runner-7".into()],
        environments: vec!["torchtpu-4c1f9e".into()],
        facts: json!({
            "sandbox": {"network": "own namespace, no interface", "root": "read-only", "tmp": "private", "environment": "clean",
                        "user_namespace": true, "memory_limit": "resident memory of the process group, sampled"},
            "cores": 8, "memory_gib": 31.2, "kernel": "6.12.57", "python": "3.11.14", "farm_version": "0.1.0",
            "uv": "0.9.13", "jobs": 8
        }),
    }
}

fn environment() -> EnvironmentFacts {
    let packages = [
        ("torch", "2.15.0"),
        ("torch_tpu", "0.2.0"),
        ("libtpu", "0.0.52"),
        ("transformers", "5.24.0"),
        ("jaxlib", "0.11.2"),
        ("safetensors", "0.8.0"),
        ("numpy", "2.4.1"),
        ("lammps-jax-pjrt-cpu", "0.11.2"),
    ];
    EnvironmentFacts {
        id: "torchtpu-4c1f9e".into(),
        name: "torchtpu".into(),
        packages: packages.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect(),
        facts: json!({"fingerprint": "4c1f9e0b77d2", "python": "3.11.14", "plugin": "pjrt_c_api_cpu_plugin.so", "pjrt_api": "0.115"}),
    }
}

fn add_model(attempts: &mut Vec<AttemptDetail>, index: usize, model: &str, architecture: &str, class: &str) {
    let causal = class.ends_with("CausalLM") || class.contains("ConditionalGeneration");
    let mut questions = vec![(Workload::Forward, Dtype::Float32), (Workload::Forward, Dtype::Bfloat16)];
    if causal {
        questions.push((Workload::Generate, Dtype::Float32));
    }
    if index.is_multiple_of(4) {
        questions.push((Workload::TrainStep, Dtype::Float32));
    }
    let places = [
        ("cpu", Mode::StrictEager),
        ("cpu", Mode::Compiled),
        ("tpu-emulated", Mode::StrictEager),
        ("tpu-emulated", Mode::DeferAndFuse),
        ("tpu-emulated", Mode::Compiled),
    ];
    for (workload, dtype) in questions {
        for (target, mode) in places {
            let case = Case {
                model: model.parse().unwrap(),
                class: class.into(),
                harness: Harness::Transformers,
                weights: Weights::Real,
                workload,
                inputs: "default".into(),
                dtype,
                precision: Precision::Highest,
                attention: "eager".into(),
                target: target.into(),
                mode,
            };
            let mut attempt = passing(&case, architecture, index);
            let emulated = target == "tpu-emulated";
            match (architecture, workload, dtype, mode) {
                ("qwen3_moe", Workload::Forward, Dtype::Bfloat16, Mode::DeferAndFuse) if emulated => {
                    fail(
                        &mut attempt,
                        Outcome::Mismatch,
                        Stage::Compare,
                        Fault::Backend,
                        "leaf `logits`: RMSE 0.0412 is 5.1 times the yardstick's 0.0081 (at most 3 are allowed)",
                    );
                    spoil(&mut attempt.leaves[0], 5.1);
                }
                ("deberta-v2", Workload::Forward, Dtype::Float32, Mode::Compiled) if emulated => {
                    fail(
                        &mut attempt,
                        Outcome::CompileError,
                        Stage::Compile,
                        Fault::Backend,
                        "torch._dynamo.exc.BackendCompilerFailed: backend='tpu' raised:\nRuntimeError: failed to legalize operation 'stablehlo.dynamic_gather' that was explicitly marked illegal",
                    );
                }
                ("falcon_mamba", Workload::Generate, _, Mode::Compiled) if emulated => {
                    fail(
                        &mut attempt,
                        Outcome::Timeout,
                        Stage::Execute,
                        Fault::Backend,
                        "no result after 300 s; 14 recompilations so far",
                    );
                    attempt.row.duration_ms = 300_412;
                }
                ("swin", Workload::Forward, Dtype::Bfloat16, Mode::StrictEager) if emulated => {
                    fail(
                        &mut attempt,
                        Outcome::NonFinite,
                        Stage::Compare,
                        Fault::Backend,
                        "leaf `logits`: 12 of 20 elements are NaN where the reference is finite",
                    );
                    attempt.leaves[0].nonfinite_mismatches = 12;
                }
                ("llava", _, _, Mode::StrictEager | Mode::DeferAndFuse) if emulated => {
                    declare(
                        &mut attempt,
                        Outcome::UnsupportedOp,
                        Stage::Execute,
                        Some(Fault::Backend),
                        "NotImplementedError: Could not run 'aten::masked_scatter' with arguments from the 'tpu' backend",
                        "torch_tpu 0.2 has no aten::masked_scatter",
                    );
                }
                ("xlnet", _, _, _) => {
                    declare(
                        &mut attempt,
                        Outcome::Nondeterministic,
                        Stage::Reference,
                        Some(Fault::Model),
                        "two reference runs differ by up to 0.31 in `logits`",
                        "its permutation mask is drawn anew for each call",
                    );
                }
                ("phi3", Workload::Forward, Dtype::Float32, Mode::Compiled) if emulated => {
                    attempt.row.verdict = Verdict::UnexpectedPass;
                    attempt.expectation_reason = Some("recompiled for ever with torch_tpu 0.1".into());
                }
                ("wav2vec2", Workload::Forward, Dtype::Float32, Mode::StrictEager) if emulated => {
                    let mut first = attempt.clone();
                    fail(
                        &mut first,
                        Outcome::InfraError,
                        Stage::Place,
                        Fault::Infra,
                        "the zygote ended while the child waited for a device slot",
                    );
                    first.row.verdict = Verdict::UnexpectedInconclusive;
                    attempts.push(first);
                    attempt.row.attempt = 2;
                }
                ("mixtral", Workload::Forward, Dtype::Bfloat16, _) if emulated => {
                    fail(
                        &mut attempt,
                        Outcome::InconclusiveTie,
                        Stage::Compare,
                        Fault::Model,
                        "expert choice flips within the reference's own noise in 2 of 64 rows",
                    );
                    attempt.row.verdict = Verdict::UnexpectedInconclusive;
                }
                _ => {}
            }
            attempts.push(attempt);
        }
    }
}

/// One model for each outcome, declared.
fn add_toys(attempts: &mut Vec<AttemptDetail>) {
    for outcome in Outcome::ALL.iter().filter(|outcome| **outcome != Outcome::Pass) {
        for mode in [Mode::StrictEager, Mode::DeferAndFuse, Mode::Compiled] {
            let name = outcome.as_str().replace('_', "-");
            let case = Case {
                model: format!("toys/{name}").parse().unwrap(),
                class: "ToyModel".into(),
                harness: Harness::Transformers,
                weights: Weights::Real,
                workload: Workload::Forward,
                inputs: "default".into(),
                dtype: Dtype::Float32,
                precision: Precision::Highest,
                attention: "eager".into(),
                target: "tpu-emulated".into(),
                mode,
            };
            let mut attempt = passing(&case, &format!("toy-{name}"), 1);
            let (stage, fault) = match outcome.standing() {
                Standing::Fail => (Stage::Execute, Some(Fault::Backend)),
                _ => (Stage::Load, Some(Fault::Model)),
            };
            let message = format!("RuntimeError: the toy ends in {outcome}");
            declare(&mut attempt, *outcome, stage, fault, &message, &format!("the toy for {outcome}"));
            attempts.push(attempt);
        }
    }
}

fn passing(case: &Case, architecture: &str, index: usize) -> AttemptDetail {
    let bf16 = case.dtype == Dtype::Bfloat16;
    let yardstick = if bf16 { 7.9e-3 } else { 1.9e-7 };
    let compiled = case.mode == Mode::Compiled;
    let mut leaves =
        vec![leaf("logits", &[2, 16, 1024], yardstick, 1.02), leaf("hidden_states.0", &[2, 16, 64], yardstick, 0.4)];
    if case.workload == Workload::TrainStep {
        for layer in 0..24 {
            for part in ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "mlp.up_proj.weight"] {
                leaves.push(leaf(
                    &format!("gradient.model.layers.{layer}.{part}"),
                    &[64, 64],
                    yardstick,
                    0.3 + f64::from(layer) / 20.0,
                ));
            }
        }
    }
    if case.workload == Workload::Generate {
        leaves.push(LeafStatistics { kind: LeafKind::Exact, dtype: "I64".into(), ..leaf("tokens", &[2, 8], 0.0, 0.0) });
    }
    let milliseconds = 400 + (index as i64 * 37) % 900 + if compiled { 2_300 } else { 0 };
    AttemptDetail {
        row: ResultRow {
            case_id: case.id(),
            run_id: "019ad6a2-7c11-7f3e-9d0b-5a7a03e9860d".into(),
            attempt: 1,
            model: case.model.clone(),
            revision: Some("c9745ed1d9f207416be6d2e6f8de32d1f16199bf".into()),
            architecture: architecture.into(),
            class: case.class.clone(),
            harness: case.harness,
            weights: case.weights,
            workload: case.workload,
            inputs: case.inputs.clone(),
            dtype: case.dtype,
            precision: case.precision,
            attention: case.attention.clone(),
            target: case.target.clone(),
            mode: case.mode,
            check: Check::Execute,
            outcome: Outcome::Pass,
            stage: Stage::Compare,
            fault: None,
            verdict: Verdict::ExpectedPass,
            signature: None,
            message: None,
            duration_ms: milliseconds,
            started_at: "2026-12-01T02:04:18.500Z".into(),
            host: "ci-runner-7".into(),
            metrics: Metrics {
                rmse_ratio: Some(1.02),
                rel_l2: Some(yardstick),
                max_abs: Some(yardstick * 4.0),
                pcc: Some(0.999_999),
                cosine: Some(0.999_999_4),
                gain_error: Some(yardstick / 10.0),
                graph_count: compiled.then_some(1),
                graph_break_count: compiled.then_some(i64::from(architecture == "whisper") * 2),
                recompile_count: compiled.then_some(0),
                compile_count: Some(if compiled { 1 } else { 47 }),
                compile_ms: Some(if compiled { 1_900.0 } else { 310.0 }),
                execute_count: Some(if compiled { 1 } else { 321 }),
                h2d_bytes: Some(1_482_752),
                d2h_bytes: Some(135_168),
                peak_device_bytes: Some(2_097_152),
                ..Metrics::default()
            },
            environment_id: Some("torchtpu-4c1f9e".into()),
        },
        expectation_reason: None,
        traceback: None,
        output_tail: None,
        farm_overhead_ms: Some(58.2),
        inputs_hash: Some("2f9ac0b1e7d3".into()),
        reference_key: Some("ref-b1946ac92492d234".into()),
        leaves,
        facts: json!({
            "stage_ms": {"load": 120.5, "place": 14.2, "compile": if compiled { 2_011.0 } else { 260.0 }, "execute": 96.7, "compare": 8.1},
            "parameter_devices": ["tpu:0"], "input_devices": ["tpu:0"], "output_devices": ["tpu:0"], "fallbacks": [],
            "graph_breaks": if architecture == "whisper" && compiled {
                json!([{"reason": "Unsupported: data-dependent branch in modeling_whisper.py:1021", "count": 2}])
            } else { json!([]) },
            "pjrt": {"compilations": 47, "executions": 321}, "policy": "1"
        }),
        evidence: json!({"is_control": case.target == "cpu", "control": "pass"}),
    }
}

fn leaf(name: &str, shape: &[u64], yardstick_rmse: f64, ratio: f64) -> LeafStatistics {
    let count: u64 = shape.iter().product();
    let n = count as f64;
    let rmse = yardstick_rmse * ratio;
    LeafStatistics {
        name: name.into(),
        shape: shape.to_vec(),
        dtype: "F32".into(),
        kind: LeafKind::Distance,
        count,
        left_out: 0,
        sum_ref_squared: n * 0.04,
        sum_device_squared: n * 0.04,
        sum_ref: 0.0,
        sum_device: 0.0,
        sum_error_squared: n * rmse * rmse,
        sum_device_ref: n * 0.04 * (1.0 + rmse / 10.0),
        max_abs_error: rmse * 4.0,
        nonfinite_mismatches: 0,
        sum_yardstick_error_squared: n * yardstick_rmse * yardstick_rmse,
        yardstick_max_abs_error: yardstick_rmse * 4.0,
        yardstick_gain_error: yardstick_rmse / 8.0,
        yardstick_mean_error: 0.0,
        top1_agreement: (name == "logits").then_some(0.984),
        kl_divergence: None,
        unequal: 0,
    }
}

fn spoil(leaf: &mut LeafStatistics, ratio: f64) {
    leaf.sum_error_squared = leaf.sum_yardstick_error_squared * ratio * ratio;
    leaf.max_abs_error = leaf.yardstick_max_abs_error * ratio;
}

fn fail(attempt: &mut AttemptDetail, outcome: Outcome, stage: Stage, fault: Fault, message: &str) {
    let row = &mut attempt.row;
    (row.outcome, row.stage, row.fault) = (outcome, stage, Some(fault));
    row.verdict = if outcome.standing() == Standing::Fail { Verdict::UnexpectedFail } else { Verdict::UnexpectedInconclusive };
    row.message = Some(message.into());
    row.signature = Some(message.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect());
    if stage < Stage::Compare {
        attempt.leaves.clear();
        row.metrics = Metrics::default();
        attempt.traceback = Some(format!(
            "Traceback (most recent call last):\n  File \"modelfarm_worker/child.py\", line 88, in run_case\n    outputs = workload(model, inputs)\n  File \"transformers/models/{0}/modeling_{0}.py\", line 612, in forward\n    attention = self.self_attn(hidden_states)\n{message}\n",
            row.architecture
        ));
        attempt.output_tail = Some(format!(
            "\u{1b}[33mwarning\u{1b}[0m: `torch_dtype` is deprecated\nLoading weights: 100%|██████████| 41/41 [00:00<00:00, 812.11it/s]\n{message}\n"
        ));
    }
}

fn declare(attempt: &mut AttemptDetail, outcome: Outcome, stage: Stage, fault: Option<Fault>, message: &str, reason: &str) {
    fail(attempt, outcome, stage, fault.unwrap_or(Fault::Model), message);
    attempt.row.fault = fault;
    let failed = outcome.standing() == Standing::Fail;
    attempt.row.verdict = if failed { Verdict::ExpectedFail } else { Verdict::ExpectedInconclusive };
    attempt.expectation_reason = Some(reason.into());
}
