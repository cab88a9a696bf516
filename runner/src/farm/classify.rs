//! From what became of a job to an outcome: pure.
//!
//! The worker reports exceptions and facts; what they mean is decided here, and nowhere else.

use std::collections::BTreeMap;

use modelfarm_matrix::outcome::{Outcome, Stage};
use serde_json::Value;

use super::last_words::last_words;
use crate::worker::job::{Ending, JobReport, Killed};
use crate::worker::protocol::Failure;

/// What was observed of a job that did not end well, or of one whose own facts speak against it.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The outcome.
    pub outcome: Outcome,
    /// Where it ended.
    pub stage: Stage,
    /// What a person reads.
    pub message: String,
    /// The Python traceback, if there is one.
    pub traceback: Option<String>,
    /// What the emulated device lacks, from the programs it refused.
    pub emulator_lacks: Vec<String>,
    /// The model's own code kept something on the CPU.
    pub kept_on_cpu: bool,
    /// Somebody else ended the process: the same try may go otherwise, and says nothing until it does not.
    pub interrupted_from_outside: bool,
}

impl Observation {
    /// An outcome of the farm's own making.
    pub fn new(outcome: Outcome, stage: Stage, message: impl Into<String>) -> Self {
        Self {
            outcome,
            stage,
            message: message.into(),
            traceback: None,
            emulator_lacks: Vec::new(),
            kept_on_cpu: false,
            interrupted_from_outside: false,
        }
    }

    /// What ended because a process was ended from outside.
    pub fn from_outside(outcome: Outcome, stage: Stage, message: impl Into<String>) -> Self {
        Self { interrupted_from_outside: true, ..Self::new(outcome, stage, message) }
    }
}

/// A job as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A reference job.
    Reference,
    /// A case on a device of this type; `compiled` where its mode is that.
    Case {
        /// The PyTorch device type.
        device: &'a str,
        /// Whether the mode is `compiled`.
        compiled: bool,
        /// Whether the device is emulated.
        emulated: bool,
    },
}

/// The result files of a job that ended well, or what was observed instead.
pub fn classify(report: &JobReport, asked: Asked<'_>) -> Result<BTreeMap<String, String>, Observation> {
    if let Some(observation) = failed(report, asked) {
        return Err(observation);
    }
    let Some(files) = &report.files else {
        let message = "the worker's child ended with exit code 0 but reported no result";
        return Err(ended_early(report.last_stage(), Outcome::Crash, message.to_owned()));
    };
    match asked {
        Asked::Case { device, compiled, .. } => match contradicted(report, device, compiled) {
            Some(observation) => Err(observation),
            None => Ok(files.clone()),
        },
        Asked::Reference => Ok(files.clone()),
    }
}

/// What ended the job, if it did not end well.
fn failed(report: &JobReport, asked: Asked<'_>) -> Option<Observation> {
    let stage = report.last_stage();
    match &report.killed {
        Some(Killed::Deadline) => {
            return Some(ended_early(stage, Outcome::Timeout, format!("the deadline passed in stage {stage}")));
        }
        Some(Killed::Memory { resident_bytes }) => {
            let message = format!("killed in stage {stage}: its processes held {} MiB of host memory", resident_bytes >> 20);
            return Some(Observation::new(Outcome::HostOom, stage, message));
        }
        Some(Killed::Protocol { what }) => {
            return Some(Observation::new(Outcome::InfraError, stage, format!("the worker's child said {what}")));
        }
        Some(Killed::Interrupted) => return Some(Observation::new(Outcome::Skipped, stage, "the run was interrupted")),
        None => {}
    }
    match report.ending {
        Ending::ZygoteLost => {
            Some(Observation::from_outside(Outcome::InfraError, stage, "the worker process ended under the job"))
        }
        // The farm did not send it: the kernel's out-of-memory killer, or a person.
        Ending::Signal(9) => {
            let message = "killed by SIGKILL from outside, most likely for want of host memory";
            Some(Observation::from_outside(Outcome::HostOom, stage, message))
        }
        Ending::Signal(signal) => {
            let mut message = format!("died by {} in stage {stage}", signal_name(signal));
            if let Some(words) = last_words(&report.output_tail) {
                message.push_str(": ");
                message.push_str(&words);
            }
            Some(ended_early(stage, Outcome::Crash, message))
        }
        Ending::Exited(code) => match &report.failure {
            Some(failure) => Some(exception(report, failure, stage, asked)),
            None if code != 0 => Some(ended_early(stage, Outcome::Crash, format!("exited with code {code} in stage {stage}"))),
            None => None,
        },
    }
}

/// A crash or a timeout before the target was reached is never the target's.
fn ended_early(stage: Stage, at_target: Outcome, message: String) -> Observation {
    let outcome = match stage {
        Stage::Resolve | Stage::Download | Stage::Load => Outcome::LoadError,
        Stage::Reference => Outcome::ReferenceError,
        Stage::Place | Stage::Compile | Stage::Execute | Stage::Compare => at_target,
    };
    Observation::new(outcome, stage, message)
}

fn exception(report: &JobReport, failure: &Failure, stage: Stage, asked: Asked<'_>) -> Observation {
    let refusals = compile_refusals(&report.facts);
    let (outcome, hidden) = match stage {
        Stage::Resolve | Stage::Download | Stage::Load => (load_outcome(failure), None),
        Stage::Reference if failure.is("builtins.MemoryError") => (Outcome::HostOom, None),
        Stage::Reference => (Outcome::ReferenceError, None),
        Stage::Place | Stage::Compile | Stage::Execute | Stage::Compare => device_outcome(failure, &refusals),
    };
    let class = failure.exception.strip_prefix("builtins.").unwrap_or(&failure.exception);
    let mut message = format!("{class}: {}", failure.message);
    if let Some(hidden) = hidden {
        message.push_str("\nThe device's own error: ");
        message.push_str(&hidden);
    }
    let emulated = matches!(asked, Asked::Case { emulated: true, .. });
    let lacks = if emulated { refusals.into_iter().flat_map(|refusal| refusal.lacks).collect() } else { Vec::new() };
    Observation {
        traceback: (!failure.traceback.is_empty()).then(|| failure.traceback.clone()),
        emulator_lacks: lacks,
        ..Observation::new(outcome, stage, message)
    }
}

fn load_outcome(failure: &Failure) -> Outcome {
    let message = failure.message.as_str();
    if failure.is("builtins.MemoryError") {
        Outcome::HostOom
    } else if failure.is("builtins.ImportError") {
        Outcome::MissingDependency
    } else if failure.is("modelfarm_worker.model.UntrustedCodeError")
        || message.contains("trust_remote_code")
        || message.contains("weights_only")
    {
        Outcome::Refused
    } else if message.contains("requires the following packages that were not found") {
        Outcome::MissingDependency
    } else {
        Outcome::LoadError
    }
}

/// The outcome of an exception at the device, and the device's own error where the exception hides it.
fn device_outcome(failure: &Failure, refusals: &[CompileRefusal]) -> (Outcome, Option<String>) {
    // In deferred modes an exception may only say that an earlier program failed; the PJRT layer knows why.
    let says_little = failure.message.contains("failed state") || failure.message.trim().is_empty();
    let hidden =
        refusals.last().filter(|refusal| says_little && !failure.message.contains(&refusal.message)).map(|r| r.message.clone());
    let text = format!("{}\n{}", failure.message, hidden.as_deref().unwrap_or_default());
    let has = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    let outcome = if failure.is("builtins.MemoryError") || has(&["DefaultCPUAllocator"]) {
        Outcome::HostOom
    } else if failure.is("torch.OutOfMemoryError")
        || has(&["RESOURCE_EXHAUSTED", "CompileTimeHbmOom", "out of memory", "Out of memory"])
    {
        Outcome::DeviceOom
    } else if failure.is("builtins.NotImplementedError")
        || has(&[
            "UNIMPLEMENTED",
            "NotImplementedError",
            "Could not run 'aten::",
            "not implemented for",
            "is not currently implemented",
        ])
    {
        Outcome::UnsupportedOp
    } else if failure.is("torch._dynamo.exc.TorchDynamoException")
        || failure.is("torch._dynamo.exc.BackendCompilerFailed")
        || failure.exception.starts_with("torch._dynamo.")
        || failure.exception.starts_with("torch._inductor.")
        || hidden.is_some()
        || (!refusals.is_empty() && has(&["failed to compile"]))
        || refusals.iter().any(|refusal| !refusal.message.is_empty() && failure.message.contains(&refusal.message))
    {
        Outcome::CompileError
    } else {
        Outcome::RuntimeError
    };
    (outcome, hidden)
}

/// A program that the PJRT plugin refused to compile.
struct CompileRefusal {
    message: String,
    lacks: Vec<String>,
}

fn compile_refusals(facts: &serde_json::Map<String, Value>) -> Vec<CompileRefusal> {
    let errors = facts.get("pjrt").and_then(|pjrt| pjrt.get("compile_failures")).and_then(Value::as_array);
    let names = |error: &Value, key: &str| -> Vec<String> {
        error
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    };
    errors
        .into_iter()
        .flatten()
        .map(|error| CompileRefusal {
            message: error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
            lacks: names(error, "custom_calls"),
        })
        .collect()
}

/// What the facts of a job that reported success say against it.
fn contradicted(report: &JobReport, device: &str, compiled: bool) -> Option<Observation> {
    let devices = |name: &str| -> Vec<&str> {
        report.facts.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let elsewhere = |name: &str| -> Vec<String> {
        let on = devices(name).into_iter().filter(|found| found.split(':').next() != Some(device));
        on.map(str::to_owned).collect()
    };
    if device != "cpu" {
        for (name, what) in [("parameter_devices", "parameters"), ("input_devices", "inputs"), ("output_devices", "outputs")] {
            let found = elsewhere(name);
            if !found.is_empty() {
                let message = format!("{what} are on {} instead of {device}", found.join(", "));
                let observation = Observation::new(Outcome::CpuFallback, Stage::Execute, message);
                return Some(Observation { kept_on_cpu: name != "input_devices", ..observation });
            }
        }
        if devices("output_devices").is_empty() {
            let message = "the worker did not say on which device the outputs were";
            return Some(Observation::new(Outcome::InfraError, Stage::Execute, message));
        }
        let fallbacks = devices("fallbacks");
        if !fallbacks.is_empty() {
            let message = format!("ran on the CPU instead of {device}: {}", fallbacks.join(", "));
            // They were given tensors in host memory, and only the model's code can have put these there: an operator that the
            // backend cannot do is an error.
            let observation = Observation::new(Outcome::CpuFallback, Stage::Execute, message);
            return Some(Observation { kept_on_cpu: true, ..observation });
        }
    }
    let graphs = report.facts.get("graph_count").and_then(Value::as_i64).unwrap_or(0);
    if compiled && graphs == 0 {
        let message = "no graph was compiled: the whole model ran outside torch.compile";
        return Some(Observation::new(Outcome::CompileError, Stage::Compile, message));
    }
    None
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL (illegal instruction)",
        6 => "SIGABRT (abort)",
        7 => "SIGBUS (bus error)",
        8 => "SIGFPE (arithmetic error)",
        9 => "SIGKILL",
        11 => "SIGSEGV (invalid memory reference)",
        15 => "SIGTERM",
        31 => "SIGSYS (forbidden system call)",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const DEVICE: Asked<'static> = Asked::Case { device: "tpu", compiled: false, emulated: true };

    fn report(stage: Stage) -> JobReport {
        JobReport {
            ending: Ending::Exited(0),
            killed: None,
            failure: None,
            files: Some(BTreeMap::from([("outputs".into(), "outputs.safetensors".into())])),
            facts: serde_json::from_str(
                r#"{"parameter_devices":["tpu:0"],"input_devices":["tpu:0"],"output_devices":["tpu:0"],"fallbacks":[]}"#,
            )
            .unwrap(),
            stages: vec![(stage, 1.0)],
            first_instruction_ms: Some(1.0),
            ended: Instant::now(),
            max_rss_bytes: 1,
            output_tail: String::new(),
        }
    }

    fn raised(stage: Stage, exception: &str, message: &str) -> JobReport {
        let failure =
            Failure { exception: exception.into(), bases: vec![], message: message.into(), traceback: "Traceback".into() };
        JobReport { failure: Some(failure), files: None, ..report(stage) }
    }

    fn outcome(report: &JobReport, asked: Asked<'_>) -> Outcome {
        classify(report, asked).map_or_else(|observation| observation.outcome, |_| Outcome::Pass)
    }

    #[test]
    fn a_crash_or_timeout_before_place_is_never_the_targets() {
        for (stage, crash, timeout) in [
            (Stage::Load, Outcome::LoadError, Outcome::LoadError),
            (Stage::Reference, Outcome::ReferenceError, Outcome::ReferenceError),
            (Stage::Place, Outcome::Crash, Outcome::Timeout),
            (Stage::Execute, Outcome::Crash, Outcome::Timeout),
        ] {
            assert_eq!(outcome(&JobReport { ending: Ending::Signal(11), ..report(stage) }, DEVICE), crash);
            assert_eq!(outcome(&JobReport { killed: Some(Killed::Deadline), ..report(stage) }, DEVICE), timeout);
        }
        let signal = classify(&JobReport { ending: Ending::Signal(6), ..report(Stage::Execute) }, DEVICE).unwrap_err();
        assert!(signal.message.contains("SIGABRT"));
        let told = JobReport {
            ending: Ending::Signal(6),
            output_tail: "F0000 00:00:1.5  2 a.cc:7] Check failed: x\n*** stack\n".into(),
            ..report(Stage::Compile)
        };
        let message = classify(&told, DEVICE).unwrap_err().message;
        assert_eq!(message, "died by SIGABRT (abort) in stage compile: a.cc:7] Check failed: x");
    }

    #[test]
    fn exceptions_at_the_device_are_told_apart() {
        for (exception, message, expected) in [
            ("builtins.NotImplementedError", "aten::linalg_cholesky_ex", Outcome::UnsupportedOp),
            ("builtins.RuntimeError", "UNIMPLEMENTED: Mosaic", Outcome::UnsupportedOp),
            ("builtins.RuntimeError", "RESOURCE_EXHAUSTED: Out of memory", Outcome::DeviceOom),
            ("torch._dynamo.exc.Unsupported", "call to x", Outcome::CompileError),
            ("builtins.ValueError", "boom", Outcome::RuntimeError),
            ("builtins.MemoryError", "", Outcome::HostOom),
        ] {
            assert_eq!(outcome(&raised(Stage::Execute, exception, message), DEVICE), expected, "{exception}: {message}");
        }
    }

    #[test]
    fn the_error_behind_a_failed_state_is_brought_to_light() {
        let mut hidden = raised(Stage::Execute, "builtins.RuntimeError", "a required argument is in a failed state");
        let error = serde_json::json!({"message": "UNIMPLEMENTED: no tpu_custom_call", "custom_calls": ["tpu_custom_call"]});
        hidden.facts.insert("pjrt".into(), serde_json::json!({ "compile_failures": [error] }));
        let observation = classify(&hidden, DEVICE).unwrap_err();
        assert_eq!(observation.outcome, Outcome::UnsupportedOp);
        assert!(observation.message.contains("no tpu_custom_call"));
        assert_eq!(observation.emulator_lacks, ["tpu_custom_call"]);
    }

    #[test]
    fn a_program_that_the_plugin_refused_is_a_compile_error_in_eager_modes_too() {
        let message = "failed to compile MLIR module -- no registered implementation for custom call to tpu_custom_call";
        let mut refused = raised(Stage::Execute, "builtins.RuntimeError", message);
        assert_eq!(outcome(&refused, DEVICE), Outcome::RuntimeError, "the plugin refused nothing");
        let error = serde_json::json!({"message": "no registered implementation", "custom_calls": ["tpu_custom_call"]});
        refused.facts.insert("pjrt".into(), serde_json::json!({ "compile_failures": [error] }));
        assert_eq!(outcome(&refused, DEVICE), Outcome::CompileError);
    }

    #[test]
    fn what_stayed_on_the_cpu_is_no_pass() {
        let mut kept = report(Stage::Execute);
        kept.facts.insert("parameter_devices".into(), serde_json::json!(["cpu", "tpu:0"]));
        let observation = classify(&kept, DEVICE).unwrap_err();
        assert_eq!((observation.outcome, observation.kept_on_cpu), (Outcome::CpuFallback, true));

        let mut silent = report(Stage::Execute);
        silent.facts.clear();
        assert_eq!(outcome(&silent, DEVICE), Outcome::InfraError);

        let mut fell_back = report(Stage::Execute);
        fell_back.facts.insert("fallbacks".into(), serde_json::json!(["aten::sort"]));
        let observation = classify(&fell_back, DEVICE).unwrap_err();
        assert_eq!((observation.outcome, observation.kept_on_cpu), (Outcome::CpuFallback, true));
    }

    #[test]
    fn compiled_without_a_graph_is_a_compile_error() {
        let compiled = Asked::Case { device: "tpu", compiled: true, emulated: true };
        assert_eq!(outcome(&report(Stage::Execute), compiled), Outcome::CompileError);
        let mut with_graph = report(Stage::Execute);
        with_graph.facts.insert("graph_count".into(), 1.into());
        assert_eq!(outcome(&with_graph, compiled), Outcome::Pass);
    }

    #[test]
    fn loading_failures_are_told_apart() {
        for (exception, message, expected) in [
            ("builtins.ImportError", "No module named x", Outcome::MissingDependency),
            ("modelfarm_worker.model.UntrustedCodeError", "its code", Outcome::Refused),
            ("builtins.ValueError", "requires you to execute; set trust_remote_code=True", Outcome::Refused),
            ("json.JSONDecodeError", "Expecting value", Outcome::LoadError),
        ] {
            assert_eq!(outcome(&raised(Stage::Load, exception, message), DEVICE), expected);
        }
        assert_eq!(outcome(&raised(Stage::Reference, "builtins.ImportError", "x"), Asked::Reference), Outcome::ReferenceError);
    }

    #[test]
    fn silence_is_no_success() {
        assert_eq!(outcome(&JobReport { files: None, ..report(Stage::Execute) }, DEVICE), Outcome::Crash);
        let lost = JobReport { ending: Ending::ZygoteLost, ..report(Stage::Execute) };
        assert_eq!(outcome(&lost, DEVICE), Outcome::InfraError);
    }
}
