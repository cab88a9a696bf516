//! Names that come from the Hub, checked before a path, an address or a line of output is made of them.

/// Longest file name with its folders, in bytes.
const LONGEST_PATH: usize = 512;
/// Longest part of a file name, in bytes: what common file systems hold, with room for a suffix.
const LONGEST_PART: usize = 200;
const DEEPEST: usize = 12;

/// Why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing between two slashes, at an end, or at all.
    #[error("has an empty part")]
    Empty,
    /// `.` or `..`.
    #[error("has a part that leads elsewhere (`.` or `..`)")]
    Relative,
    /// Starts at the root, a drive or a home.
    #[error("is absolute")]
    Absolute,
    /// `\`, `:` and other characters that mean something in a path or a shell pattern on some system.
    #[error("has a character that file names must not have")]
    Character,
    /// NUL, line breaks, escapes, and the invisible characters that turn text around.
    #[error("has a control character")]
    Control,
    /// `CON`, `nul.json`, `com1`: devices on Windows, wherever they stand.
    #[error("is the name of a device")]
    Device,
    /// A part that ends in a dot or a space, or starts with a space: other systems take it for another name.
    #[error("has a part with a dot or a space at its edge")]
    Edge,
    /// More bytes or folders than can be stored everywhere.
    #[error("is too long or too deep")]
    Long,
}

/// Checks the name of a file in a repository: a relative path with `/` between its parts that names the same file, inside
/// the folder it is joined to, on every system.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_file_name(name: &str) -> Result<(), NameFault> {
    if name.chars().any(is_control) {
        return Err(NameFault::Control);
    }
    if name.starts_with('/') || name.starts_with('\\') || name.starts_with('~') || has_drive(name) {
        return Err(NameFault::Absolute);
    }
    if name.chars().any(|character| "\\:<>\"|?*".contains(character)) {
        return Err(NameFault::Character);
    }
    if name.len() > LONGEST_PATH || name.split('/').count() > DEEPEST {
        return Err(NameFault::Long);
    }
    name.split('/').try_for_each(check_part)
}

fn check_part(part: &str) -> Result<(), NameFault> {
    if part.is_empty() {
        return Err(NameFault::Empty);
    }
    if part == "." || part == ".." {
        return Err(NameFault::Relative);
    }
    if part.len() > LONGEST_PART {
        return Err(NameFault::Long);
    }
    if part.ends_with(['.', ' ']) || part.starts_with(' ') {
        return Err(NameFault::Edge);
    }
    if is_device(part) { Err(NameFault::Device) } else { Ok(()) }
}

fn has_drive(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && characters.next() == Some(':')
}

fn is_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    if ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"].contains(&stem.as_str()) {
        return true;
    }
    let port = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    port.is_some_and(|number| {
        let mut digits = number.chars();
        digits.next().is_some_and(|digit| digit.is_ascii_digit() || "¹²³".contains(digit)) && digits.next().is_none()
    })
}

/// Control characters, and the format characters that hide or reorder the text around them.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Checks `org/name` (or an old model's bare `name`) as the Hub spells it: letters, digits, `-`, `_` and `.`.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_model_id(id: &str) -> Result<(), NameFault> {
    if id.split('/').count() > 2 {
        return Err(NameFault::Long);
    }
    for part in id.split('/') {
        check_part(part)?;
        if part.len() > 96 {
            return Err(NameFault::Long);
        }
        if !part.chars().all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character)) {
            return Err(NameFault::Character);
        }
        if part.starts_with(['.', '-']) || part.contains("..") {
            return Err(NameFault::Edge);
        }
    }
    Ok(())
}

/// Whether a revision is a full commit hash, which never means anything else tomorrow.
#[must_use]
pub fn is_commit(revision: &str) -> bool {
    is_hex(revision, 40)
}

pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Foreign text made fit for a message: one line, no control characters, not endless.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut shown: String = text.chars().map(|c| if is_control(c) { '\u{fffd}' } else { c }).take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    #[test]
    fn ordinary_names_pass() {
        for name in [
            "config.json",
            "model-00001-of-00002.safetensors",
            "1_Pooling/config.json",
            "text_encoder/model.fp16.safetensors",
            ".gitattributes",
            "vocab #1 (new).txt",
            "模型/配置.json",
            "console.json",
            "com10.txt",
        ] {
            assert_eq!(check_file_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn hostile_names_do_not() {
        use NameFault::*;
        for (name, fault) in [
            ("", Empty),
            ("a//b", Empty),
            ("a/", Empty),
            ("../config.json", Relative),
            ("a/../../config.json", Relative),
            ("./config.json", Relative),
            ("/etc/config.json", Absolute),
            ("\\\\host\\config.json", Absolute),
            ("C:config.json", Absolute),
            ("~/config.json", Absolute),
            ("a\\..\\config.json", Character),
            ("config.json:stream", Character),
            ("a*.json", Character),
            ("a\0.json", Control),
            ("a\n.json", Control),
            ("\u{1b}[2Jconfig.json", Control),
            ("a\u{202e}nosj.py", Control),
            ("NUL", Device),
            ("sub/nul.json", Device),
            ("com1.json", Device),
            ("LPT².txt", Device),
            ("config.json.", Edge),
            ("sub /config.json", Edge),
            (" config.json", Edge),
        ] {
            assert_eq!(check_file_name(name), Err(fault), "{name:?}");
        }
        assert_eq!(check_file_name(&"a".repeat(201)), Err(Long));
        assert_eq!(check_file_name(&["a"; 13].join("/")), Err(Long));
        assert_eq!(check_file_name(&vec!["abcdefghij".repeat(15); 4].join("/")), Err(Long));
    }

    #[test]
    fn model_ids() {
        for id in ["gpt2", "zoo/tiny-llama", "sentence-transformers/all-MiniLM-L6-v2", "a/b.c_d"] {
            assert_eq!(check_model_id(id), Ok(()), "{id}");
        }
        for id in ["", "/", "a/", "a/b/c", "../b", "a/..", "a/b..c", "a/.b", "-a/b", "a/b c", "a/b%2e", "a/con", "a?b/c"] {
            assert!(check_model_id(id).is_err(), "{id}");
        }
        assert!(is_commit("0123456789abcdef0123456789abcdef01234567"));
        assert!(!is_commit("0123456789ABCDEF0123456789abcdef01234567") && !is_commit("main"));
    }

    #[test]
    fn foreign_text_is_one_line_without_escapes() {
        assert_eq!(shown("a\u{1b}[31m\nb\u{202e}"), "a\u{fffd}[31m\u{fffd}b\u{fffd}");
        assert_eq!(shown(&"x".repeat(400)).chars().count(), 301);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Made of the characters that matter, so that separators, dots and devices meet often.
        #[test]
        fn what_passes_stays_inside(name in r#"([a-zA-Z./\\:~ \x00\n]|\.\.|/|con|NUL|com1|é|\u{202e}){0,12}"#) {
            if check_file_name(&name).is_ok() {
                let path = Path::new(&name);
                prop_assert!(path.components().all(|component| matches!(component, Component::Normal(_))));
                // The path says the same as the text: no part was dropped or joined.
                let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
                prop_assert_eq!(parts.join("/"), name.clone());
                prop_assert!(Path::new("/store").join(path).starts_with("/store/"));
                let hidden = name.contains(['\\', ':', '\0', '\n', '\u{202e}']);
                prop_assert!(!hidden);
            }
        }

        #[test]
        fn any_text_is_answered(name in ".*") {
            let accepted = check_file_name(&name).is_ok();
            prop_assert!(!accepted || name.split('/').all(|part| !part.is_empty() && part != ".." && part != "."));
        }

        #[test]
        fn plain_names_pass(name in "[a-z_][a-z0-9_-]{3,20}(/[a-z_][a-z0-9_-]{4,20}){0,3}\\.(json|txt|py|safetensors)") {
            prop_assert_eq!(check_file_name(&name), Ok(()));
        }

        #[test]
        fn an_id_that_passes_is_two_plain_parts(id in r"[a-zA-Z0-9._/ %\\-]{0,20}") {
            if check_model_id(&id).is_ok() {
                prop_assert!(Path::new("/s").join(&id).components().skip(2).all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }
}
