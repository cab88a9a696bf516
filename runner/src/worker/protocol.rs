//! The messages of `docs/worker-protocol.md`, version 1.

use std::collections::BTreeMap;
use std::path::PathBuf;

use modelfarm_matrix::axes::{Dtype, Harness, Mode, Precision, Weights, Workload};
use modelfarm_matrix::outcome::Stage;
use modelfarm_matrix::target::Backend;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version that both sides must speak.
pub const PROTOCOL: u32 = 1;
/// A longer line from a worker is an error: nothing that a model brings may fill the farm's memory.
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// From the farm, on the control socket.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToZygote<'a> {
    /// Import and pre-warm.
    Start {
        /// [`PROTOCOL`].
        protocol: u32,
        /// What to start.
        backend: Backend,
        /// Architectures whose code to import now, so that no child has to.
        preload: &'a [String],
        /// Harnesses whose library to import now, besides transformers.
        harnesses: &'a [Harness],
    },
    /// Fork a child; the channel and the output pipe come along.
    Spawn {
        /// The job's number, unique within the zygote.
        job: u64,
        /// What to do.
        request: &'a Request,
    },
    /// SIGKILL to the job's process group.
    Kill {
        /// The job.
        job: u64,
    },
}

/// From the zygote, on the control socket.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromZygote {
    /// It may fork now.
    Ready {
        /// The version it speaks.
        protocol: u32,
        /// Versions of the imported packages.
        packages: BTreeMap<String, String>,
        /// Milliseconds of imports and pre-warming.
        import_ms: f64,
    },
    /// A child runs.
    Spawned {
        /// The job.
        job: u64,
        /// Its pid in the zygote's pid namespace.
        pid: i32,
    },
    /// A child is gone.
    Exited {
        /// The job.
        job: u64,
        /// Its exit code, if it exited.
        code: Option<i32>,
        /// The signal that ended it, if one did.
        signal: Option<i32>,
        /// The largest resident memory it had.
        max_rss_bytes: u64,
    },
}

/// From a child, on its job channel.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum FromChild {
    /// Its first instruction.
    Started,
    /// A stage begins.
    Stage {
        /// Which.
        stage: Stage,
    },
    /// It waits for a device.
    NeedDevice,
    /// It has read its last byte from the device.
    DeviceDone,
    /// What it observed; later keys win.
    Facts {
        /// By name.
        facts: Map<String, Value>,
    },
    /// An exception ended the job.
    Failed(Failure),
    /// The job ended well.
    Done {
        /// File name inside `out`, by role.
        files: BTreeMap<String, String>,
    },
}

/// An exception in a child.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Failure {
    /// The qualified class.
    pub exception: String,
    /// The qualified names of the classes it derives from.
    #[serde(default)]
    pub bases: Vec<String>,
    /// Its message.
    pub message: String,
    /// The traceback.
    #[serde(default)]
    pub traceback: String,
}

impl Failure {
    /// Whether the exception is, or derives from, this qualified class.
    pub fn is(&self, class: &str) -> bool {
        self.exception == class || self.bases.iter().any(|base| base == class)
    }
}

/// To a child, on its job channel.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToChild<'a> {
    /// A device slot is granted.
    Device {
        /// Variables to set before the device client exists.
        env: &'a BTreeMap<String, String>,
    },
}

/// What a child is to do.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The only folder it writes results to.
    pub out: PathBuf,
    /// What is run.
    pub workload: Workload,
    /// Seed of everything random.
    pub seed: u64,
    /// The compute dtype.
    pub dtype: Dtype,
    /// The matmul precision.
    pub precision: Precision,
    /// The model.
    pub model: RequestedModel,
    /// Reference or case.
    #[serde(flatten)]
    pub kind: RequestKind,
}

/// The model of a request.
#[derive(Debug, Clone, Serialize)]
pub struct RequestedModel {
    /// The folder with its files.
    pub path: PathBuf,
    /// The library that loads it.
    pub harness: Harness,
    /// `config.model_type`.
    pub architecture: String,
    /// The class.
    pub class: String,
    /// Where weights come from.
    pub weights: Weights,
    /// Whether its own code may run.
    pub trust_remote_code: bool,
}

/// What kind of job a request is.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RequestKind {
    /// Inputs, reference, its repetition and the yardstick.
    Reference {
        /// The input profile.
        inputs: String,
    },
    /// The outputs of a target.
    Case {
        /// The attention implementation.
        attention: String,
        /// How the backend executes.
        mode: Mode,
        /// The stored inputs.
        inputs_file: PathBuf,
        /// The PyTorch device type.
        device: String,
        /// The `torch.compile` backend.
        compile_backend: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_documented_form() {
        let start = serde_json::to_value(ToZygote::Start {
            protocol: 1,
            backend: Backend::TorchTpu,
            preload: &["llama".into()],
            harnesses: &[Harness::Timm],
        })
        .unwrap();
        let expected = serde_json::json!(
            {"type": "start", "protocol": 1, "backend": "torchtpu", "preload": ["llama"], "harnesses": ["timm"]}
        );
        assert_eq!(start, expected);
        let device = serde_json::to_value(ToChild::Device { env: &BTreeMap::from([("A".into(), "0".into())]) }).unwrap();
        assert_eq!(device, serde_json::json!({"device": {"env": {"A": "0"}}}));
        let stage: FromChild = serde_json::from_str(r#"{"event":"stage","stage":"place"}"#).unwrap();
        assert!(matches!(stage, FromChild::Stage { stage: Stage::Place }));
        assert!(serde_json::from_str::<FromChild>(r#"{"event":"pass"}"#).is_err());
    }
}
