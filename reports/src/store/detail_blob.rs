//! The compressed part of an attempt: what its process wrote, and the statistics of every leaf.
//!
//! A blob is one version byte and then zstd. Version 1 holds JSON in which a figure that is not finite is the text `inf`,
//! `-inf` or `nan`: a leaf's overflow must still be an overflow when it is judged again.

use modelfarm_matrix::leaf::{LeafKind, LeafStatistics};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::error::StoreError;

const VERSION: u8 = 1;
/// More than any bounded output or any model's leaves need; less than would hurt.
const MAX_BYTES: u64 = 256 << 20;

/// What the process wrote.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Output {
    pub(crate) traceback: Option<String>,
    pub(crate) output_tail: Option<String>,
}

/// Names every field again, so that a new one cannot be forgotten here: the compiler asks for it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "LeafStatistics")]
struct StoredLeaf {
    name: String,
    shape: Vec<u64>,
    dtype: String,
    kind: LeafKind,
    count: u64,
    // Blobs of before know no such thing.
    #[serde(default)]
    left_out: u64,
    #[serde(with = "any_real")]
    sum_ref_squared: f64,
    #[serde(with = "any_real")]
    sum_device_squared: f64,
    #[serde(with = "any_real")]
    sum_ref: f64,
    #[serde(with = "any_real")]
    sum_device: f64,
    #[serde(with = "any_real")]
    sum_error_squared: f64,
    #[serde(with = "any_real")]
    sum_device_ref: f64,
    #[serde(with = "any_real")]
    max_abs_error: f64,
    nonfinite_mismatches: u64,
    #[serde(with = "any_real")]
    sum_yardstick_error_squared: f64,
    #[serde(with = "any_real")]
    yardstick_max_abs_error: f64,
    #[serde(with = "any_real")]
    yardstick_gain_error: f64,
    #[serde(with = "any_real")]
    yardstick_mean_error: f64,
    #[serde(with = "optional_real")]
    top1_agreement: Option<f64>,
    #[serde(with = "optional_real")]
    kl_divergence: Option<f64>,
    unequal: u64,
}

#[derive(Serialize, Deserialize)]
struct Leaf(#[serde(with = "StoredLeaf")] LeafStatistics);

/// A real number in JSON, finite or not.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Real {
    Finite(f64),
    Other(String),
}

impl From<f64> for Real {
    fn from(value: f64) -> Self {
        if value.is_finite() { Real::Finite(value) } else { Real::Other(value.to_string()) }
    }
}

impl Real {
    fn value<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Real::Finite(value) => Ok(value),
            Real::Other(text) => text.parse().map_err(E::custom),
        }
    }
}

mod any_real {
    use super::{Deserialize, Real, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Real::from(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Real::deserialize(deserializer)?.value()
    }
}

mod optional_real {
    use super::{Deserialize, Real, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Real::from).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        Option::<Real>::deserialize(deserializer)?.map(Real::value).transpose()
    }
}

/// Compresses text; never fails on what is in memory.
pub(crate) fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut blob = vec![VERSION];
    // Level 3 is zstd's default: about 300 MB/s, and tracebacks shrink to a fifth.
    match zstd::bulk::compress(bytes, 3) {
        Ok(compressed) => blob.extend(compressed),
        Err(error) => tracing::error!(%error, "zstd refused to compress {} bytes", bytes.len()),
    }
    blob
}

/// The inverse of `compress`, bounded: a database may come from somebody else.
pub(crate) fn decompress(column: &'static str, blob: &[u8]) -> Result<Vec<u8>, StoreError> {
    let invalid = |detail: String| StoreError::Value { column, detail };
    let compressed = match blob {
        [VERSION, compressed @ ..] => compressed,
        [version, ..] => return Err(invalid(format!("version {version} of the blob is not known to this program"))),
        [] => return Err(invalid("the blob is empty".to_owned())),
    };
    let too_much = || invalid(format!("the blob holds more than {MAX_BYTES} bytes"));
    // Blobs of this program say how much they hold. Those of others are read until there is too much.
    if let Some(size) = zstd::bulk::Decompressor::upper_bound(compressed) {
        return match size as u64 {
            ..=MAX_BYTES => zstd::bulk::decompress(compressed, size).map_err(|error| invalid(error.to_string())),
            _ => Err(too_much()),
        };
    }
    let mut bytes = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(compressed).map_err(|error| invalid(error.to_string()))?;
    std::io::Read::read_to_end(&mut std::io::Read::take(decoder, MAX_BYTES + 1), &mut bytes)
        .map_err(|error| invalid(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_much());
    }
    Ok(bytes)
}

fn pack<T: Serialize>(value: &T) -> Vec<u8> {
    match serde_json::to_vec(value) {
        Ok(json) => compress(&json),
        // Every key is a text and every figure was made writable above.
        Err(error) => unreachable!("a detail is always JSON: {error}"),
    }
}

fn unpack<T: DeserializeOwned>(column: &'static str, blob: &[u8]) -> Result<T, StoreError> {
    let json = decompress(column, blob)?;
    serde_json::from_slice(&json).map_err(|error| StoreError::Value { column, detail: error.to_string() })
}

pub(crate) fn pack_output(output: &Output) -> Vec<u8> {
    pack(output)
}

pub(crate) fn unpack_output(blob: &[u8]) -> Result<Output, StoreError> {
    unpack("output", blob)
}

pub(crate) fn pack_leaves(leaves: &[LeafStatistics]) -> Vec<u8> {
    pack(&leaves.iter().cloned().map(Leaf).collect::<Vec<_>>())
}

pub(crate) fn unpack_leaves(blob: &[u8]) -> Result<Vec<LeafStatistics>, StoreError> {
    Ok(unpack::<Vec<Leaf>>("leaves", blob)?.into_iter().map(|leaf| leaf.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_an_unknown_version_and_garbage_are_refused() {
        let bomb = compress(&vec![0; (MAX_BYTES + 1) as usize]);
        assert!(bomb.len() < 100_000);
        for (blob, expected) in [(&bomb[..], "more than"), (&[9, 1], "version 9"), (&[], "empty"), (&[1, 2, 3], "")] {
            let error = decompress("leaves", blob).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("column leaves"), "{error}");
        }
    }
}
