//! Answers of the control that passed, kept beside the reference that they were judged by.
//!
//! Reference and control are both what this software computes on a CPU: what cannot have changed the one has not changed the
//! other, and most of the control's time is spent tracing the same graph as yesterday. Kept are a child's outputs and facts, and
//! the judge reads them anew each time. What failed is never kept, so that it is seen again, or is seen to be gone.

use std::io;
use std::path::{Path, PathBuf};

use modelfarm_matrix::case::Case;
use modelfarm_matrix::target::Target;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::reference_cache::Reference;

/// The fact that marks an attempt whose outputs are an earlier attempt's.
pub const KEPT: &str = "answer_kept_from_earlier";

/// What a child of the control left, when it was run.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its outputs.
    pub outputs: PathBuf,
    /// What was observed of it.
    pub facts: Map<String, Value>,
}

/// Where an answer is kept: a name for everything that the reference's own key does not say.
fn files(reference: &Reference, case: &Case, target: &Target) -> Option<(PathBuf, PathBuf)> {
    let Target { device, compile_backend, env, .. } = target;
    let text = format!("v1/{case}/{device}/{compile_backend}/{env:?}");
    let name: String = Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let folder = reference.reference.parent()?;
    Some((folder.join(format!("control-{name}.safetensors")), folder.join(format!("control-{name}.json"))))
}

/// Whether a file of this name is part of an answer.
pub fn is_file_name(name: &str) -> bool {
    let parts = name.strip_prefix("control-").and_then(|rest| rest.split_once('.'));
    parts.is_some_and(|(hash, end)| {
        hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) && ["safetensors", "json"].contains(&end)
    })
}

/// The answer to this case, where one is kept and whole.
pub fn kept(reference: &Reference, case: &Case, target: &Target) -> Option<Answer> {
    let (outputs, card) = files(reference, case, target)?;
    let mut facts: Map<String, Value> = serde_json::from_slice(&std::fs::read(card).ok()?).ok()?;
    facts.insert(KEPT.to_owned(), true.into());
    outputs.is_file().then_some(Answer { outputs, facts })
}

/// Keeps the answer to this case. The facts are written last, and at once: without them there is no answer.
pub fn keep(reference: &Reference, case: &Case, target: &Target, outputs: &Path, facts: &Map<String, Value>) -> io::Result<()> {
    let Some((kept, card)) = files(reference, case, target) else { return Ok(()) };
    let folder = kept.parent().unwrap_or(Path::new("."));
    // Copied and not renamed: the worker may still hold the file open for writing.
    let copy = tempfile::NamedTempFile::new_in(folder)?;
    std::fs::copy(outputs, copy.path())?;
    let mut text = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut text, facts).map_err(io::Error::other)?;
    copy.persist(kept)?;
    text.persist(card)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use modelfarm_matrix::target::Targets;

    use super::*;

    #[test]
    fn an_answer_is_kept_for_its_case_and_target_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let reference = Reference {
            key: "k".into(),
            inputs: file("inputs.safetensors"),
            reference: file("reference.safetensors"),
            yardstick: file("yardstick.safetensors"),
            inputs_hash: "h".into(),
            facts: Map::new(),
        };
        let targets = Targets::parse("targets.toml", include_str!("../../../matrix/targets.toml")).unwrap();
        let control = targets.control().unwrap();
        let case = |mode: &str| -> Case {
            format!("v1/a/b/C/transformers/real/forward/default/float32/highest/eager/cpu/{mode}").parse().unwrap()
        };
        let outputs = file("outputs");
        std::fs::write(&outputs, "outputs").unwrap();
        assert_eq!(kept(&reference, &case("compiled"), control), None);
        let facts = Map::from_iter([("graph_count".to_owned(), Value::from(1))]);
        keep(&reference, &case("compiled"), control, &outputs, &facts).unwrap();

        let answer = kept(&reference, &case("compiled"), control).unwrap();
        assert_eq!(std::fs::read(&answer.outputs).unwrap(), b"outputs");
        assert_eq!((answer.facts["graph_count"].as_u64(), answer.facts[KEPT].as_bool()), (Some(1), Some(true)));
        assert_eq!(kept(&reference, &case("strict-eager"), control), None);
        let other = Target { compile_backend: "inductor".into(), ..control.clone() };
        assert_eq!(kept(&reference, &case("compiled"), &other), None);

        std::fs::remove_file(&answer.outputs).unwrap();
        assert_eq!(kept(&reference, &case("compiled"), control), None);
    }
}
