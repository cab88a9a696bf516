//! What is left out of the models that the farm is tested on: the reason, and what would bring it in.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::toml_error::TomlError;

/// Why something is left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// Why it is left out.
    pub reason: String,
    /// What would bring it in.
    pub needs: String,
}

/// Everything that is left out. All of it is of the library transformers: what the zoo has of the others is a list of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Architectures that are left out whole, by `config.model_type`.
    pub architectures: BTreeMap<String, Exclusion>,
    /// Classes with a task head that are left out while their architecture is not, by name.
    pub heads: BTreeMap<String, Exclusion>,
    /// Classes that are made and do not generate, although they could, by name.
    pub generate: BTreeMap<String, Exclusion>,
}

type Entries = BTreeMap<String, toml::Spanned<Exclusion>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExclusionsFile {
    #[serde(default)]
    architecture: Entries,
    #[serde(default)]
    head: Entries,
    #[serde(default)]
    generate: Entries,
}

impl Exclusions {
    /// Reads a file of exclusions; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, TomlError> {
        let parsed: ExclusionsFile = toml::from_str(text).map_err(|error| TomlError::from_toml(file, text, &error))?;
        let told = |entries: Entries| -> Result<BTreeMap<String, Exclusion>, TomlError> {
            entries
                .into_iter()
                .map(|(name, spanned)| {
                    let offset = spanned.span().start;
                    let exclusion = spanned.into_inner();
                    if exclusion.reason.trim().is_empty() || exclusion.needs.trim().is_empty() {
                        let problem = format!("`{name}` is left out without a word; say `reason` and `needs`");
                        return Err(TomlError::at(file, text, offset, problem));
                    }
                    Ok((name, exclusion))
                })
                .collect()
        };
        Ok(Self { architectures: told(parsed.architecture)?, heads: told(parsed.head)?, generate: told(parsed.generate)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_and_heads_are_read_apart() {
        let text = "[architecture.bark]\nreason = \"r\"\nneeds = \"n\"\n[head.BertForX]\nreason = \"s\"\nneeds = \"m\"\n";
        let exclusions = Exclusions::parse("e.toml", text).unwrap();
        assert_eq!(exclusions.architectures["bark"], Exclusion { reason: "r".into(), needs: "n".into() });
        assert_eq!(exclusions.heads["BertForX"], Exclusion { reason: "s".into(), needs: "m".into() });
        assert_eq!((exclusions.architectures.len(), exclusions.heads.len()), (1, 1));
    }

    #[test]
    fn an_exclusion_says_why_and_what_is_missing() {
        let error = Exclusions::parse("e.toml", "\n[architecture.bark]\nreason = \"r\"\nneeds = \" \"\n").unwrap_err();
        assert!(error.line == 2 && error.message.contains("bark"), "{error}");
        assert!(Exclusions::parse("e.toml", "[architecture.bark]\nreason = \"r\"\n").is_err());
        let error = Exclusions::parse("e.toml", "[architectures.bark]\nreason = \"r\"\nneeds = \"n\"\n").unwrap_err();
        assert!(error.message.contains("did you mean `architecture`"), "{error}");
    }
}
