//! Enumerations whose one text form serves the database, JSON, TOML, the command line and pages.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

/// A text that is none of an enumeration's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{found}`{}; expected one of: {}", suggestion(.nearest), .known.join(", "))]
pub struct UnknownWord {
    /// What the word should have been, such as `mode`.
    pub kind: &'static str,
    /// What was found.
    pub found: String,
    /// The nearest right word, where one is near.
    pub nearest: Option<String>,
    /// Every right word.
    pub known: Vec<String>,
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|word| format!(" (did you mean `{word}`?)")).unwrap_or_default()
}

impl UnknownWord {
    /// Describes `found`, which is none of `known`.
    pub fn new<'a>(kind: &'static str, found: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<String> = known.into_iter().map(str::to_owned).collect();
        // A hostile word may be a megabyte: a message shows its beginning.
        let shown: String = found.chars().take(80).collect();
        let nearest = nearest(&shown, known.iter().map(String::as_str)).map(str::to_owned);
        Self { kind, found: shown, nearest, known }
    }
}

/// The word of `known` that a person most likely meant by `found`, if any is near.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|word| (strsim::jaro_winkler(found, word), word))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

/// For the macro: whoever defines words need not name this crate.
#[doc(hidden)]
pub use utoipa;

/// The schema of an enumeration: its words.
pub fn schema_of<'a>(kind: &'static str, words: impl IntoIterator<Item = &'a str>) -> RefOr<Schema> {
    let words = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).title(Some(kind));
    words.build().into()
}

/// Defines an enumeration with one text form a variant, from which `Display`, `FromStr`, serde, its schema and `ALL` follow.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident ($kind:literal) { $($(#[$vmeta:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The one text form.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::word::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => Err($crate::word::UnknownWord::new($kind, text, $name::ALL.iter().map(|v| v.as_str()))),
                }
            }
        }

        impl $crate::word::utoipa::PartialSchema for $name {
            fn schema() -> $crate::word::utoipa::openapi::RefOr<$crate::word::utoipa::openapi::schema::Schema> {
                $crate::word::schema_of($kind, $name::ALL.iter().map(|word| word.as_str()))
            }
        }

        impl $crate::word::utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed(stringify!($name))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::axes::*;
    use crate::expectation::Verdict;
    use crate::fault::Fault;
    use crate::outcome::*;

    fn round_trip<T>(all: &[T])
    where
        T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display + std::str::FromStr + serde::Serialize,
        T: serde::de::DeserializeOwned,
        T::Err: std::fmt::Debug,
    {
        for variant in all {
            let text = variant.to_string();
            assert_eq!(text.parse::<T>().unwrap(), *variant);
            let json = serde_json::to_string(variant).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), *variant);
            assert!(text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c)), "{text}");
        }
    }

    #[test]
    fn every_variant_round_trips_through_text_and_json() {
        round_trip(Mode::ALL);
        round_trip(Workload::ALL);
        round_trip(Dtype::ALL);
        round_trip(Precision::ALL);
        round_trip(Weights::ALL);
        round_trip(Harness::ALL);
        round_trip(Outcome::ALL);
        round_trip(Stage::ALL);
        round_trip(Check::ALL);
        round_trip(Fault::ALL);
        round_trip(Verdict::ALL);
    }

    #[test]
    fn an_unknown_word_names_the_nearest_right_one() {
        let error = "strict_eager".parse::<Mode>().unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("strict-eager"));
        assert!(error.to_string().contains("did you mean `strict-eager`?"));
        assert_eq!("zzzz".parse::<Mode>().unwrap_err().nearest, None);
    }
}
