//! Models: a Hub repository, its revision, and what is known of it before it runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::axes::Harness;

/// A text that is no model id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a model id: expected `org/name` of letters, digits, `-`, `_` and `.`, each part 1 to 96 long, \
     not beginning or ending with `.` or `-` and without `--` or `..`",
    .0.chars().take(80).collect::<String>().escape_debug()
)]
pub struct InvalidModelId(pub String);

/// A Hub repository, `org/name`.
///
/// Its text is safe as part of a path, a URL and a case's canonical string: only such names are accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(String);

impl ModelId {
    /// The whole id, `org/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The organisation or user.
    pub fn organisation(&self) -> &str {
        self.0.split_once('/').map_or("", |(organisation, _)| organisation)
    }

    /// The repository's name within its organisation.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

fn is_valid_part(part: &str) -> bool {
    (1..=96).contains(&part.len())
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !part.starts_with(['.', '-'])
        && !part.ends_with(['.', '-'])
        && !part.contains("--")
        && !part.contains("..")
}

impl FromStr for ModelId {
    type Err = InvalidModelId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((organisation, name)) if is_valid_part(organisation) && is_valid_part(name) => Ok(Self(text.to_owned())),
            _ => Err(InvalidModelId(text.to_owned())),
        }
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PartialSchema for ModelId {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[A-Za-z0-9_.-]{1,96}/[A-Za-z0-9_.-]{1,96}$"))
            .description(Some("A Hub repository, org/name"))
            .build()
            .into()
    }
}

impl ToSchema for ModelId {}

impl Serialize for ModelId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ModelId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Which Hub serves a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelSource {
    /// The farm's own fixture Hub.
    Fixtures,
    /// The Hub of `HF_ENDPOINT`.
    Hub,
}

/// What is known of a model before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Its repository.
    pub id: ModelId,
    /// The commit to test; none means the newest at the time of the run.
    pub revision: Option<String>,
    /// Which Hub serves it.
    pub source: ModelSource,
    /// `config.model_type`, or `unknown` where no listing tells it.
    pub architecture: String,
    /// The class that is run, such as `LlamaForCausalLM`, or `unknown`.
    pub class: String,
    /// The library that runs it.
    pub harness: Harness,
    /// The repository's tags.
    pub tags: Vec<String>,
    /// Downloads in the last 30 days, as the Hub counts them.
    pub downloads: u64,
}

/// Turns a name of the Hub (an architecture, a class) into one that is safe everywhere, or `unknown`.
///
/// Architectures and classes come from configuration files that strangers wrote, and end up in canonical case strings,
/// file names and pages.
pub fn safe_name(name: &str) -> String {
    let safe = (1..=96).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if safe && !name.starts_with('.') { name.to_owned() } else { "unknown".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_ids_are_accepted() {
        for id in ["sentence-transformers/all-MiniLM-L6-v2", "a/b", "zoo/tiny-llama", "Qwen/Qwen2.5-0.5B", "x_y/z_"] {
            assert_eq!(id.parse::<ModelId>().unwrap().as_str(), id);
        }
    }

    #[test]
    fn ids_that_could_escape_a_folder_are_refused() {
        for id in ["../x", "a/..", "a/b/c", "a", "/a", "a/", "a/.git", "a\\b/c", "a/b c", "a/b\n", "a--b/c", "-a/b", "é/b", ""]
        {
            assert!(id.parse::<ModelId>().is_err(), "{id:?}");
        }
        assert!(format!("a/{}", "b".repeat(97)).parse::<ModelId>().is_err());
    }

    proptest! {
        #[test]
        fn any_accepted_id_is_two_plain_path_components(text in "\\PC{0,12}/?\\PC{0,12}") {
            if let Ok(id) = text.parse::<ModelId>() {
                let parts: Vec<_> = std::path::Path::new(id.as_str()).components().collect();
                prop_assert_eq!(parts.len(), 2);
                prop_assert!(parts.iter().all(|p| matches!(p, std::path::Component::Normal(_))));
                prop_assert_eq!(format!("{}/{}", id.organisation(), id.name()), text);
            }
        }

        #[test]
        fn a_safe_name_has_no_separator(name in "\\PC{0,40}") {
            let safe = safe_name(&name);
            prop_assert!(!safe.is_empty() && !safe.contains('/') && !safe.contains('\\') && !safe.starts_with('.'));
        }
    }
}
