//! Files that a child made to harm the farm: an error each, and never a panic, a hang or a pass.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use safetensors::Dtype as Stored;

use modelfarm_matrix::axes::{Dtype, Precision};
use modelfarm_matrix::outcome::Outcome;

use super::{Leaves, forward};
use crate::judge::{JudgeError, JudgeFiles, Judgement, Policy, Problem, Role, judge};

fn leaves(dtype: Stored) -> Leaves {
    Leaves::default().with("a", dtype, &[3, 4], (0..12).map(f64::from).collect()).with("b", Stored::I64, &[2], vec![1.0, 2.0])
}

/// Judges what `make` leaves at the path of the outputs.
fn judged(make: impl FnOnce(&Path)) -> Result<Judgement, JudgeError> {
    let folder = tempfile::tempdir().unwrap();
    let files = JudgeFiles {
        reference: leaves(Stored::F64).write(folder.path(), "reference"),
        yardstick: leaves(Stored::F32).write(folder.path(), "yardstick"),
        repeat: None,
        outputs: folder.path().join("outputs.safetensors"),
        padding: None,
    };
    make(&files.outputs);
    judge(&files, &forward(Dtype::Float32, Precision::Highest), &Policy::current())
}

fn refused(make: impl FnOnce(&Path)) -> Problem {
    let error = judged(make).unwrap_err();
    assert_eq!(error.role, Role::Outputs);
    assert!(error.to_string().starts_with("read the outputs file `"), "{error}");
    error.problem
}

fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn the_untouched_file_passes() {
    let judgement = judged(|path| fs::write(path, leaves(Stored::F32).bytes()).unwrap()).unwrap();
    assert_eq!(judgement.outcome, Outcome::Pass);
}

#[test]
fn what_is_no_regular_file_is_refused() {
    assert!(matches!(refused(|_| {}), Problem::Io(_)));
    assert!(matches!(refused(|path| fs::create_dir(path).unwrap()), Problem::NotRegular("a folder")));
    assert!(matches!(refused(|path| symlink("/dev/zero", path).unwrap()), Problem::NotRegular("a symbolic link")));
    let link_to_reference = |path: &Path| symlink(path.with_file_name("yardstick.safetensors"), path).unwrap();
    assert!(matches!(refused(link_to_reference), Problem::NotRegular("a symbolic link")));
    let pipe = |path: &Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    assert!(matches!(refused(pipe), Problem::NotRegular("a pipe")));
    let socket = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    assert!(matches!(refused(socket), Problem::NotRegular("a socket")));
}

#[test]
fn what_is_no_safetensors_is_refused() {
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let overlapping =
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#;
    for (bytes, why) in [
        (vec![], "empty"),
        (vec![1, 2, 3], "shorter than a length"),
        (with_header("", 0), "no header"),
        (with_header("[1, 2]", 0), "no object"),
        (with_header("{\"a\": \u{7f}", 0), "no JSON"),
        (with_header(&entry("F32", "[12]", "[0,48]"), 47), "data too short"),
        (with_header(&entry("F32", "[12]", "[0,48]"), 49), "data too long"),
        (with_header(&entry("F32", "[13]", "[0,48]"), 48), "shape beyond its bytes"),
        (with_header(&entry("F32", "[4611686018427387904,4]", "[0,48]"), 48), "overflowing shape"),
        (with_header(&entry("F32", "[-1]", "[0,48]"), 48), "negative shape"),
        (with_header(&entry("F32", "[12]", "[48,0]"), 48), "offsets the wrong way round"),
        (with_header(&entry("F32", "[12]", "[18446744073709551608,48]"), 48), "offset that overflows"),
        (with_header(&entry("F99", "[12]", "[0,48]"), 48), "unknown dtype"),
        (with_header(overlapping, 6), "overlapping leaves"),
        (with_header(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)), 0), "deep nesting"),
    ] {
        let problem = refused(|path| fs::write(path, bytes).unwrap());
        assert!(matches!(problem, Problem::Malformed(_)), "{why}: {problem:?}");
        assert!(problem.to_string().len() < 1000, "{why}");
    }
}

#[test]
fn huge_claims_are_refused_before_anything_is_read() {
    let header = |path: &Path| fs::write(path, u64::MAX.to_le_bytes()).unwrap();
    assert!(matches!(refused(header), Problem::TooLarge { found: u64::MAX, .. }));
    let sparse = |path: &Path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(refused(sparse), Problem::TooLarge { found: 1_099_511_627_776, .. }));
}

#[test]
fn an_unsupported_dtype_is_refused() {
    let header = r#"{"a":{"dtype":"C64","shape":[2],"data_offsets":[0,16]}}"#;
    let problem = refused(|path| fs::write(path, with_header(header, 16)).unwrap());
    assert!(matches!(problem, Problem::UnsupportedDtype { .. }));
}

#[test]
fn a_hostile_leaf_name_is_bounded_and_escaped_in_messages() {
    let name = format!("\u{1b}[31m\u{202e}`{}", "x".repeat(100_000));
    let bytes = leaves(Stored::F32).with(&name, Stored::F32, &[1], vec![0.0]).bytes();
    let message = judged(|path| fs::write(path, bytes).unwrap()).unwrap().message.unwrap();
    assert!(message.len() < 1000 && !message.contains('\u{1b}') && !message.contains('\u{202e}'), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let outcome = judged(|path| fs::write(path, bytes).unwrap());
        prop_assert!(outcome.is_err());
    }

    #[test]
    fn no_corruption_makes_it_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let original = leaves(Stored::F32).bytes();
        let mut bytes = original.clone();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(original.len()));
        }
        let judgement = judged(|path| fs::write(path, &bytes).unwrap());
        // Only harmless changes may pass: of padding, or of the last bits of a number.
        if let Ok(Judgement { outcome: Outcome::Pass, .. }) = judgement {
            prop_assert_eq!(bytes.len(), original.len());
        }
    }
}
