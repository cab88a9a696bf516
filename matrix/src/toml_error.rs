//! Where in a TOML file something is wrong, and what would be right.

use crate::word::nearest;

/// Something wrong in a TOML file: file, line, what was found, what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct TomlError {
    /// The file, as the person named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl TomlError {
    /// Places an error of the TOML reader in its file, and suggests the nearest known key for an unknown one.
    pub fn from_toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        let mut message = error.message().trim().to_owned();
        if let Some(suggestion) = suggested_key(&message) {
            message.push_str(&format!(" (did you mean `{suggestion}`?)"));
        }
        Self::at(file, text, error.span().map_or(0, |span| span.start), message)
    }

    /// An error at a byte offset of the text.
    pub fn at(file: &str, text: &str, offset: usize, message: String) -> Self {
        let line = text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1;
        Self { file: file.to_owned(), line, message }
    }
}

/// Reads serde's ``unknown field `x`, expected one of `a`, `b` `` and finds the nearest of the known.
fn suggested_key(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown field `")?;
    let (found, rest) = rest.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    nearest(found, known).map(str::to_owned)
}
