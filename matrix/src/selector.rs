//! Which cases a rule of a TOML file speaks of.

use std::fmt;

use serde::{Deserialize, Deserializer};

use crate::axes::{Dtype, Mode, Workload};
use crate::case::Case;
use crate::model::Model;
use crate::target::Targets;
use crate::word::UnknownWord;

/// A selector: each field that is given must match; a list matches when any of its entries does.
///
/// `model`, `class`, `architecture` and `tag` may end in `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selector {
    /// Repositories.
    #[serde(deserialize_with = "one_or_many")]
    pub model: Vec<String>,
    /// Architectures.
    #[serde(deserialize_with = "one_or_many")]
    pub architecture: Vec<String>,
    /// Classes.
    #[serde(deserialize_with = "one_or_many")]
    pub class: Vec<String>,
    /// Tags of the repository.
    #[serde(deserialize_with = "one_or_many")]
    pub tag: Vec<String>,
    /// Targets.
    #[serde(deserialize_with = "one_or_many")]
    pub target: Vec<String>,
    /// Modes.
    #[serde(deserialize_with = "one_or_many")]
    pub mode: Vec<Mode>,
    /// Workloads.
    #[serde(deserialize_with = "one_or_many")]
    pub workload: Vec<Workload>,
    /// Dtypes.
    #[serde(deserialize_with = "one_or_many")]
    pub dtype: Vec<Dtype>,
}

impl Selector {
    /// Checks the named targets against those that there are.
    pub fn check_targets(&self, targets: &Targets) -> Result<(), UnknownWord> {
        self.target.iter().try_for_each(|name| targets.get(name).map(|_| ()))
    }

    /// The keys that are given with their words, in the order in which people write them.
    pub fn fields(&self) -> Vec<(&'static str, Vec<&str>)> {
        let Selector { model, architecture, class, tag, target, mode, workload, dtype } = self;
        let fields = [
            ("model", texts(model)),
            ("architecture", texts(architecture)),
            ("class", texts(class)),
            ("tag", texts(tag)),
            ("target", texts(target)),
            ("mode", mode.iter().map(|word| word.as_str()).collect()),
            ("workload", workload.iter().map(|word| word.as_str()).collect()),
            ("dtype", dtype.iter().map(|word| word.as_str()).collect()),
        ];
        fields.into_iter().filter(|(_, words)| !words.is_empty()).collect()
    }

    /// Whether nothing is selected by: the selector then matches everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the model's own properties match; the fields about the case are not looked at.
    pub fn matches_model(&self, model: &Model) -> bool {
        any(&self.model, |pattern| glob(pattern, model.id.as_str()))
            && any(&self.class, |pattern| glob(pattern, &model.class))
            && self.matches_repository(&model.architecture, &model.tags)
    }

    /// Whether the selector matches this case of this model.
    pub fn matches(&self, model: &Model, case: &Case) -> bool {
        self.matches_model(model) && self.matches_axes(case)
    }

    /// Whether everything that the case itself tells matches: all fields but those about the repository.
    pub fn matches_case(&self, case: &Case) -> bool {
        any(&self.model, |pattern| glob(pattern, case.model.as_str()))
            && any(&self.class, |pattern| glob(pattern, &case.class))
            && self.matches_axes(case)
    }

    /// Whether what a case does not tell of its repository matches.
    pub fn matches_repository(&self, architecture: &str, tags: &[String]) -> bool {
        any(&self.architecture, |pattern| glob(pattern, architecture))
            && any(&self.tag, |pattern| tags.iter().any(|tag| glob(pattern, tag)))
    }

    /// Whether it asks for what a case does not tell of its repository.
    pub fn asks_for_repository(&self) -> bool {
        !self.architecture.is_empty() || !self.tag.is_empty()
    }

    fn matches_axes(&self, case: &Case) -> bool {
        any(&self.target, |target| *target == case.target)
            && any(&self.mode, |mode| *mode == case.mode)
            && any(&self.workload, |workload| *workload == case.workload)
            && any(&self.dtype, |dtype| *dtype == case.dtype)
    }
}

impl fmt::Display for Selector {
    /// As the inside of a TOML table: `model = "a/b", mode = ["compiled", "strict-eager"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields();
        let shown = fields.iter().map(|(key, values)| match &values[..] {
            [one] => format!("{key} = {one:?}"),
            many => format!("{key} = {many:?}"),
        });
        f.write_str(&shown.collect::<Vec<_>>().join(", "))
    }
}

fn texts(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn any<T>(wanted: &[T], matches: impl Fn(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(matches)
}

/// Matches a text against a pattern that may end in `*`.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => pattern == text,
    }
}

/// Reads `"a"` as well as `["a", "b"]`.
pub(crate) fn one_or_many<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct OneOrMany<T>(std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for OneOrMany<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a word or a list of words")
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            T::deserialize(serde::de::value::StrDeserializer::new(text)).map(|one| vec![one])
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))
        }
    }
    deserializer.deserialize_any(OneOrMany(std::marker::PhantomData))
}
