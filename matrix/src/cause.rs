//! Explanations of failure groups that a person has checked.

use serde::Deserialize;

use crate::toml_error::TomlError;

/// What is behind a group of failures.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The masked message of the group, whole or its beginning.
    pub signature: String,
    /// What happens, and how that was found out.
    pub explanation: String,
    /// Where it is discussed.
    pub issue: Option<String>,
}

/// The explanations, in the order of their file: the first that matches a group counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Causes(Vec<Cause>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CausesFile {
    #[serde(default)]
    cause: Vec<toml::Spanned<Cause>>,
}

impl Causes {
    /// Reads a file of explanations; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, TomlError> {
        let parsed: CausesFile = toml::from_str(text).map_err(|error| TomlError::from_toml(file, text, &error))?;
        let mut causes = Vec::new();
        for spanned in parsed.cause {
            let offset = spanned.span().start;
            let cause = spanned.into_inner();
            if cause.signature.trim().is_empty() || cause.explanation.trim().is_empty() {
                let problem = "a cause needs a `signature` and an `explanation`".to_owned();
                return Err(TomlError::at(file, text, offset, problem));
            }
            causes.push(cause);
        }
        Ok(Self(causes))
    }

    /// The explanation of a group, by its masked message.
    pub fn of(&self, signature: &str) -> Option<&Cause> {
        self.0.iter().find(|cause| signature.starts_with(&cause.signature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_of_this_version_are_sound() {
        Causes::parse("causes.toml", crate::CAUSES_TOML).unwrap();
    }

    #[test]
    fn a_group_is_found_by_the_beginning_of_its_message() {
        let text = "[[cause]]\nsignature = \"view(): cannot\"\nexplanation = \"e\"\n";
        let causes = Causes::parse("c.toml", text).unwrap();
        assert_eq!(causes.of("view(): cannot create").map(|cause| cause.explanation.as_str()), Some("e"));
        assert_eq!(causes.of("RuntimeError: view(): cannot create"), None);
        let error = Causes::parse("c.toml", "\n[[cause]]\nsignature = \"\"\nexplanation = \"e\"\n").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(Causes::parse("c.toml", "[[cause]]\nsign = \"\"\n").is_err());
    }
}
