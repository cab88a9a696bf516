//! A case: what is asked, as a canonical string, and the id that follows from it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::axes::{Dtype, Harness, Mode, Precision, Weights, Workload};
use crate::model::ModelId;

/// What is asked. Two cases are the same when their canonical strings are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Case {
    /// The repository.
    pub model: ModelId,
    /// The class that is run.
    pub class: String,
    /// The library that runs it.
    pub harness: Harness,
    /// Where the weights come from.
    pub weights: Weights,
    /// What is run.
    pub workload: Workload,
    /// The input profile.
    pub inputs: String,
    /// The compute dtype.
    pub dtype: Dtype,
    /// The matrix multiplication precision.
    pub precision: Precision,
    /// The attention implementation, or `default`.
    pub attention: String,
    /// The target's name.
    pub target: String,
    /// How the backend executes.
    pub mode: Mode,
}

impl Case {
    /// The canonical string, version 1.
    pub fn canonical(&self) -> String {
        let Case { model, class, harness, weights, workload, inputs, dtype, precision, attention, target, mode } = self;
        format!("v1/{model}/{class}/{harness}/{weights}/{workload}/{inputs}/{dtype}/{precision}/{attention}/{target}/{mode}")
    }

    /// The first 16 hex digits of the SHA-256 of the canonical string.
    pub fn id(&self) -> CaseId {
        let digest = Sha256::digest(self.canonical().as_bytes());
        CaseId(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

/// A text that is no canonical case string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a case: expected `v1/org/name/class/harness/weights/workload/inputs/dtype/precision/attention/target/mode`"
)]
pub struct InvalidCase(pub String);

impl FromStr for Case {
    type Err = InvalidCase;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidCase(text.chars().take(200).collect());
        let parts: Vec<&str> = text.split('/').collect();
        let ["v1", organisation, name, class, harness, weights, workload, inputs, dtype, precision, attention, target, mode] =
            parts[..]
        else {
            return Err(invalid());
        };
        let case = Case {
            model: format!("{organisation}/{name}").parse().map_err(|_| invalid())?,
            class: class.to_owned(),
            harness: harness.parse().map_err(|_| invalid())?,
            weights: weights.parse().map_err(|_| invalid())?,
            workload: workload.parse().map_err(|_| invalid())?,
            inputs: inputs.to_owned(),
            dtype: dtype.parse().map_err(|_| invalid())?,
            precision: precision.parse().map_err(|_| invalid())?,
            attention: attention.to_owned(),
            target: target.to_owned(),
            mode: mode.parse().map_err(|_| invalid())?,
        };
        Ok(case)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical())
    }
}

/// The id of a case: 16 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CaseId(String);

impl CaseId {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A text that is no case id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a case id: expected 16 hexadecimal digits, as `modelfarm plan` shows them")]
pub struct InvalidCaseId(String);

impl FromStr for CaseId {
    type Err = InvalidCaseId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidCaseId(text.chars().take(80).collect()))
        }
    }
}

impl PartialSchema for CaseId {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9a-f]{16}$"))
            .description(Some("The id of a case"))
            .build()
            .into()
    }
}

impl ToSchema for CaseId {}

impl<'de> Deserialize<'de> for CaseId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also the golden case of the id's test: its id may never change.
    fn golden() -> Case {
        Case {
            model: "zoo/tiny-llama".parse().unwrap(),
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

    #[test]
    fn canonical_string_and_id_stay_as_they_are() {
        let case = golden();
        assert_eq!(
            case.canonical(),
            "v1/zoo/tiny-llama/LlamaForCausalLM/transformers/real/forward/default/float32/highest/eager/tpu-emulated/strict-eager"
        );
        assert_eq!(case.id().as_str(), "5a7a03e9860d573d");
    }

    #[test]
    fn the_canonical_string_parses_back() {
        let case = golden();
        assert_eq!(case.canonical().parse::<Case>().unwrap(), case);
        assert!("v1/a/b".parse::<Case>().is_err());
        assert!(case.id().as_str().parse::<CaseId>().is_ok());
        assert!("ABCDEF0123456789".parse::<CaseId>().is_err());
    }
}
