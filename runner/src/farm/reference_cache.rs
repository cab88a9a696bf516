//! References, inputs and yardsticks, kept by everything that can change them.

use std::io;
use std::path::{Path, PathBuf};

use modelfarm_matrix::case::Case;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::control_cache;

use crate::judge::Padding;
use crate::last_use;

/// Everything that can change a reference.
#[derive(Debug, Clone)]
pub struct ReferenceQuestion<'a> {
    /// The case that asks; its target, mode and attention do not count.
    pub case: &'a Case,
    /// The model's commit.
    pub commit: &'a str,
    /// Whether its own code may run.
    pub trusted: bool,
    /// The environment that computes it.
    pub environment_id: &'a str,
    /// The worker's source, by hash.
    pub worker: &'a str,
    /// The seed.
    pub seed: u64,
    /// The processor's kind: other instructions round otherwise.
    pub machine: &'a str,
}

impl ReferenceQuestion<'_> {
    /// The key: 32 hex digits.
    pub fn key(&self) -> String {
        let Case { model, class, harness, weights, workload, inputs, dtype, precision, attention: _, target: _, mode: _ } =
            self.case;
        let Self { case: _, commit, trusted, environment_id, worker, seed, machine } = self;
        let text = format!(
            "v1/{model}/{commit}/{class}/{harness}/{weights}/{workload}/{inputs}/{dtype}/{precision}/{trusted}/{environment_id}/{worker}/{seed}/{machine}"
        );
        Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A healthy reference on this host.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Its key.
    pub key: String,
    /// What the model is called with.
    pub inputs: PathBuf,
    /// What the CPU computes.
    pub reference: PathBuf,
    /// The same at the case's dtype and precision.
    pub yardstick: PathBuf,
    /// SHA-256 of the inputs file.
    pub inputs_hash: String,
    /// What the worker reported.
    pub facts: Map<String, Value>,
}

impl Reference {
    /// What of its inputs is padded, by what the worker reported.
    pub fn padding(&self) -> Option<Padding> {
        Padding::of(&self.inputs, &self.facts)
    }
}

#[derive(Serialize, Deserialize)]
struct Card {
    inputs_hash: String,
    facts: Map<String, Value>,
}

/// The folder of references.
#[derive(Debug, Clone)]
pub struct ReferenceCache {
    root: PathBuf,
}

/// The file that is written last of a reference; its time is the reference's last use.
pub const CARD: &str = "card.json";

const FILES: [&str; 3] = ["inputs.safetensors", "reference.safetensors", "yardstick.safetensors"];

impl ReferenceCache {
    /// The cache in this folder.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn folder(&self, key: &str) -> PathBuf {
        self.root.join(&key[..2]).join(key)
    }

    /// The reference of this key, where it is here and whole.
    pub fn get(&self, key: &str) -> Option<Reference> {
        let folder = self.folder(key);
        let card: Card = serde_json::from_slice(&std::fs::read(folder.join(CARD)).ok()?).ok()?;
        let [inputs, reference, yardstick] = FILES.map(|name| folder.join(name));
        let complete = [&inputs, &reference, &yardstick].into_iter().all(|path| path.is_file());
        if !complete {
            return None;
        }
        last_use::mark(&folder.join(CARD));
        Some(Reference { key: key.to_owned(), inputs, reference, yardstick, inputs_hash: card.inputs_hash, facts: card.facts })
    }

    /// Keeps a reference: moves its files here, whole or not at all.
    pub fn put(&self, key: &str, files: &ReferenceFiles, facts: &Map<String, Value>) -> io::Result<Reference> {
        let folder = self.folder(key);
        let parent = folder.parent().unwrap_or(&self.root).to_owned();
        std::fs::create_dir_all(&parent)?;
        let temporary = tempfile::tempdir_in(&parent)?;
        for (from, name) in [&files.inputs, &files.reference, &files.yardstick].into_iter().zip(FILES) {
            // Copied and not renamed: the worker may still hold the file open for writing.
            std::fs::copy(from, temporary.path().join(name))?;
        }
        let inputs_hash = hash(&temporary.path().join(FILES[0]))?;
        let card = Card { inputs_hash, facts: facts.clone() };
        std::fs::write(temporary.path().join(CARD), serde_json::to_vec(&card).map_err(io::Error::other)?)?;
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::rename(temporary.keep(), &folder)?;
        self.get(key).ok_or_else(|| io::Error::other("the reference is not readable after it was written"))
    }
}

/// Whether a file of this name is part of a reference, or of the control's answers beside it.
pub fn is_file_name(name: &str) -> bool {
    name == CARD || FILES.contains(&name) || control_cache::is_file_name(name)
}

/// Where a reference job left its files.
#[derive(Debug, Clone)]
pub struct ReferenceFiles {
    /// What the model is called with.
    pub inputs: PathBuf,
    /// What the CPU computes.
    pub reference: PathBuf,
    /// The same at the case's dtype and precision.
    pub yardstick: PathBuf,
}

fn hash(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(std::fs::read(path)?);
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(case: &Case) -> ReferenceQuestion<'_> {
        ReferenceQuestion { case, commit: "c", trusted: false, environment_id: "e", worker: "w", seed: 0, machine: "x86_64" }
    }

    #[test]
    fn modes_and_targets_share_a_reference_and_nothing_else_does() {
        let text = "v1/a/b/C/transformers/real/forward/default/float32/highest/eager/tpu-emulated/strict-eager";
        let case: Case = text.parse().unwrap();
        let key = question(&case).key();
        for same in ["tpu-emulated/compiled", "cpu/strict-eager"] {
            let other: Case = text.replace("tpu-emulated/strict-eager", same).parse().unwrap();
            assert_eq!(question(&other).key(), key);
        }
        for (from, to) in [
            ("a/b", "a/c"),
            ("/C/", "/D/"),
            ("real", "random"),
            ("forward", "generate"),
            ("float32", "bfloat16"),
            ("highest", "medium"),
        ] {
            let other: Case = text.replace(from, to).parse().unwrap();
            assert_ne!(question(&other).key(), key, "{to}");
        }
        assert_ne!(ReferenceQuestion { commit: "d", ..question(&case) }.key(), key);
        assert_ne!(ReferenceQuestion { trusted: true, ..question(&case) }.key(), key);
        assert_ne!(ReferenceQuestion { environment_id: "f", ..question(&case) }.key(), key);
        assert_ne!(ReferenceQuestion { worker: "v", ..question(&case) }.key(), key);
        assert_ne!(ReferenceQuestion { seed: 1, ..question(&case) }.key(), key);
    }

    #[test]
    fn half_a_reference_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ReferenceCache::new(folder.path().join("references"));
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            path
        };
        let files = ReferenceFiles { inputs: file("i"), reference: file("r"), yardstick: file("y") };
        assert!(cache.get("abcd").is_none());
        let kept = cache.put("abcd", &files, &Map::new()).unwrap();
        assert_eq!(cache.get("abcd").unwrap(), kept);
        assert_eq!(cache.put("abcd", &files, &Map::new()).unwrap(), kept, "a second put replaces the first");
        std::fs::remove_file(&kept.yardstick).unwrap();
        assert!(cache.get("abcd").is_none());
    }
}
