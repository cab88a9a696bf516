//! The matrix file: what a person asks to be tested.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::axes::{Dtype, Mode, Precision, Weights, Workload};
use crate::model::ModelId;
use crate::selector::{Selector, one_or_many};
use crate::target::Targets;
pub use crate::toml_error::TomlError;
use crate::word::UnknownWord;

/// A matrix, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Its name; runs of the same name are compared with each other.
    pub name: String,
    /// Where models come from.
    pub models: ModelSources,
    /// The groups of cases.
    pub cases: Vec<CaseGroup>,
    /// The limits that hold where no override says otherwise.
    pub limits: Limits,
    /// Exceptions, in the order of the file; of several that match, the last one's value counts.
    pub overrides: Vec<Override>,
}

/// Where a matrix takes its models from. Several sources add up.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSources {
    /// Fixture models that carry one of these tags, or `all`; one tag needs no list.
    #[serde(deserialize_with = "one_or_many")]
    pub fixtures: Vec<String>,
    /// Fixture models of these architectures.
    pub architectures: Vec<Spanned<String>>,
    /// A selection of the Hub's listing.
    pub hub: Option<HubSelection>,
    /// Repositories by name, `org/name` or `org/name@revision`.
    pub list: Vec<ListedModel>,
    /// A file with a column `model_id`.
    pub csv: Option<String>,
}

impl ModelSources {
    /// Whether the matrix takes every fixture model.
    pub fn all_fixtures(&self) -> bool {
        self.fixtures.iter().any(|tag| tag == "all")
    }
}

/// A selection of the Hub's listing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubSelection {
    /// The library whose models are listed.
    pub library: String,
    /// How many of the most downloaded are taken.
    pub top_by_downloads: u64,
    /// At most this many of each architecture.
    pub per_architecture: Option<u64>,
    /// Larger models are left out.
    pub max_parameters: Option<u64>,
}

/// A repository named in a matrix, with or without its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The repository.
    pub id: ModelId,
    /// The revision, if one is named.
    pub revision: Option<String>,
}

impl<'de> Deserialize<'de> for ListedModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (id, revision) = match text.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (text.as_str(), None),
        };
        let is_revision = |text: &str| {
            (1..=100).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if let Some(revision) = revision.filter(|revision| !is_revision(revision)) {
            let message = format!("`{revision}` is not a revision: expected a commit, a branch or a tag");
            return Err(serde::de::Error::custom(message));
        }
        let id = id.parse().map_err(serde::de::Error::custom)?;
        Ok(Self { id, revision: revision.map(str::to_owned) })
    }
}

/// A group of cases: the product of its axes, for the models that `only` selects.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseGroup {
    /// The models it is for; all where absent.
    #[serde(default)]
    pub only: Selector,
    /// Targets.
    pub targets: Vec<Spanned<String>>,
    /// Modes; a target takes those it knows.
    pub modes: Vec<Mode>,
    /// Workloads.
    #[serde(default = "default_workloads")]
    pub workloads: Vec<Workload>,
    /// Dtypes.
    #[serde(default = "default_dtypes")]
    pub dtypes: Vec<Dtype>,
    /// Where weights come from.
    #[serde(default = "default_weights", deserialize_with = "one_or_many")]
    pub weights: Vec<Weights>,
    /// Matmul precisions.
    #[serde(default = "default_precision", deserialize_with = "one_or_many")]
    pub precision: Vec<Precision>,
    /// The attention implementation; the target's own where absent.
    #[serde(default)]
    pub attention: Option<String>,
}

fn default_workloads() -> Vec<Workload> {
    vec![Workload::Forward]
}
fn default_dtypes() -> Vec<Dtype> {
    vec![Dtype::Float32]
}
fn default_weights() -> Vec<Weights> {
    vec![Weights::Real]
}
fn default_precision() -> Vec<Precision> {
    vec![Precision::Highest]
}

/// A number above zero.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Positive(f64);

impl Positive {
    fn new(number: f64) -> Result<Self, String> {
        match number.is_finite() && number > 0.0 && number < 1e9 {
            true => Ok(Self(number)),
            false => Err(format!("expected a number above 0 and below 1e9, found {number}")),
        }
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Positive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A share of a whole, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// The share.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(serde::de::Error::custom(format!("expected a share from 0 to 1, found {number}")))
        }
    }
}

/// The limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Deadline of an attempt, in seconds.
    pub timeout_s: Positive,
    /// Resident memory of an attempt's processes, in GiB.
    pub memory_gib: Positive,
    /// Disk that the farm's Hub files may take, in GiB.
    pub disk_gib: Positive,
    /// Largest share of undeclared inconclusive cases before the run is exit code 4.
    pub max_inconclusive: Share,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout_s: Positive(300.0), memory_gib: Positive(6.0), disk_gib: Positive(50.0), max_inconclusive: Share(0.10) }
    }
}

/// An exception for what its selector matches.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// What it is for.
    pub select: Selector,
    /// Deadline, in seconds.
    pub timeout_s: Option<Positive>,
    /// Memory, in GiB.
    pub memory_gib: Option<Positive>,
    /// The commit whose remote code is trusted.
    pub trust: Option<String>,
    /// The attention implementation.
    pub attention: Option<String>,
    /// Only these dtypes.
    pub dtypes: Option<Vec<Dtype>>,
    /// Only these precisions.
    pub precision: Option<Vec<Precision>>,
    /// Why the cases are not to run; they are listed as left out with it.
    pub skip: Option<String>,
}

/// An override as it stands in the file: selector and values in one table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverride {
    #[serde(default, deserialize_with = "one_or_many")]
    model: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    architecture: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    class: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    tag: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    target: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    mode: Vec<Mode>,
    #[serde(default, deserialize_with = "one_or_many")]
    workload: Vec<Workload>,
    #[serde(default, deserialize_with = "one_or_many")]
    dtype: Vec<Dtype>,
    timeout_s: Option<Positive>,
    memory_gib: Option<Positive>,
    trust: Option<String>,
    attention: Option<String>,
    dtypes: Option<Vec<Dtype>>,
    precision: Option<Vec<Precision>>,
    skip: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMatrix {
    name: Spanned<String>,
    models: Spanned<ModelSources>,
    cases: OneOrManyGroups,
    #[serde(default)]
    limits: Limits,
    #[serde(default, rename = "override")]
    overrides: Vec<Spanned<RawOverride>>,
}

/// `[cases]` or `[[cases]]`, without the loss of line numbers that serde's untagged enums bring.
struct OneOrManyGroups(Vec<CaseGroup>);

impl<'de> Deserialize<'de> for OneOrManyGroups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Groups;
        impl<'de> serde::de::Visitor<'de> for Groups {
            type Value = Vec<CaseGroup>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table [cases] or a list of tables [[cases]]")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                CaseGroup::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(|group| vec![group])
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))
            }
        }
        deserializer.deserialize_any(Groups).map(Self)
    }
}

impl Matrix {
    /// Reads a matrix file and checks what can be checked without a catalogue; `file` is named in errors.
    pub fn parse(file: &str, text: &str, targets: &Targets) -> Result<Self, TomlError> {
        let raw: RawMatrix = toml::from_str(text).map_err(|error| TomlError::from_toml(file, text, &error))?;
        let at = |offset: usize, message: String| TomlError::at(file, text, offset, message);

        let name = raw.name.get_ref();
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            let message = "the matrix's name must be 1 to 64 letters, digits, `-`, `_` or `.`".to_owned();
            return Err(at(raw.name.span().start, message));
        }
        let models = raw.models.get_ref();
        if *models == ModelSources::default() {
            let message =
                "[models] names no source; expected at least one of: fixtures, architectures, hub, list, csv".to_owned();
            return Err(at(raw.models.span().start, message));
        }
        for group in &raw.cases.0 {
            for target in &group.targets {
                targets.get(target.get_ref()).map_err(|unknown| at(target.span().start, unknown.to_string()))?;
            }
            let offset = group.targets.first().map_or(raw.models.span().end, |target| target.span().start);
            group.only.check_targets(targets).map_err(|unknown| at(offset, format!("`only` of this group: {unknown}")))?;
        }
        let mut overrides = Vec::new();
        for spanned in raw.overrides {
            let offset = spanned.span().start;
            let checked = check_override(spanned.into_inner()).map_err(|message| at(offset, message))?;
            checked.select.check_targets(targets).map_err(|unknown| at(offset, unknown.to_string()))?;
            overrides.push(checked);
        }
        Ok(Self {
            name: raw.name.into_inner(),
            models: raw.models.into_inner(),
            cases: raw.cases.0,
            limits: raw.limits,
            overrides,
        })
    }

    /// Puts one deadline in the place of all others.
    ///
    /// # Errors
    /// The number is not one that a matrix file could hold.
    pub fn replace_timeouts(&mut self, seconds: f64) -> Result<(), String> {
        let timeout = Positive::new(seconds)?;
        self.limits.timeout_s = timeout;
        self.overrides.iter_mut().for_each(|rule| rule.timeout_s = None);
        Ok(())
    }

    /// Checks the named architectures against those that exist.
    pub fn check_architectures(&self, file: &str, text: &str, known: &BTreeSet<String>) -> Result<(), TomlError> {
        for architecture in &self.models.architectures {
            if !known.contains(architecture.get_ref()) {
                let unknown = UnknownWord::new("architecture", architecture.get_ref(), known.iter().map(String::as_str));
                return Err(TomlError::at(file, text, architecture.span().start, unknown.to_string()));
            }
        }
        Ok(())
    }
}

fn check_override(raw: RawOverride) -> Result<Override, String> {
    let RawOverride {
        model,
        architecture,
        class,
        tag,
        target,
        mode,
        workload,
        dtype,
        timeout_s,
        memory_gib,
        trust,
        attention,
        dtypes,
        precision,
        skip,
    } = raw;
    let select = Selector { model, architecture, class, tag, target, mode, workload, dtype };
    if select.is_empty() {
        return Err(
            "an [[override]] needs at least one of: model, architecture, class, tag, target, mode, workload, dtype".to_owned()
        );
    }
    if let Some(commit) = &trust {
        // A branch can move to other code; a wildcard can name code that nobody has read.
        let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !is_commit {
            return Err("`trust` must be the full commit (40 hexadecimal digits) whose code was read".to_owned());
        }
        let [model] = &select.model[..] else { return Err("`trust` needs exactly one `model`".to_owned()) };
        if model.parse::<ModelId>().is_err() {
            return Err("`trust` needs a `model` without wildcard".to_owned());
        }
    }
    Ok(Override { select, timeout_s, memory_gib, trust, attention, dtypes, precision, skip })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"m\"\n[models]\nfixtures = \"smoke\"\n[cases]\ntargets = [\"cpu\"]\nmodes = [\"compiled\"]\n";

    fn error_of(text: &str) -> TomlError {
        Matrix::parse("m.toml", text, &Targets::built_in()).unwrap_err()
    }

    #[test]
    fn a_table_and_a_list_of_tables_are_both_cases() {
        let one = Matrix::parse("m.toml", GOOD, &Targets::built_in()).unwrap();
        assert_eq!(one.cases.len(), 1);
        let many = GOOD.replace("[cases]", "[[cases]]\nonly = { tag = \"x\" }");
        assert_eq!(Matrix::parse("m.toml", &many, &Targets::built_in()).unwrap().cases.len(), 1);
    }

    #[test]
    fn one_tag_and_a_list_of_tags_are_both_fixtures() {
        let tags = |text: &str| Matrix::parse("m.toml", text, &Targets::built_in()).unwrap().models.fixtures;
        assert_eq!(tags(GOOD), ["smoke"]);
        assert_eq!(tags(&GOOD.replace("\"smoke\"", "[\"zoo\", \"heads\"]")), ["zoo", "heads"]);
    }

    #[test]
    fn the_built_in_smoke_matrix_is_sound() {
        Matrix::parse("matrix/smoke.toml", crate::SMOKE_TOML, &Targets::built_in()).unwrap();
        crate::expectation::Expectations::parse("matrix/expectations.toml", crate::EXPECTATIONS_TOML).unwrap();
    }

    #[test]
    fn wrong_files_name_the_line_and_the_nearest_right_word() {
        for (bad, line, part) in [
            (GOOD.replace("modes", "mode"), 6, "did you mean `modes`"),
            (GOOD.replace("compiled", "compild"), 6, "did you mean `compiled`"),
            (GOOD.replace("\"cpu\"", "\"cpus\""), 5, "did you mean `cpu`"),
            (format!("{GOOD}workloads = [\"forwards\"]\n"), 7, "did you mean `forward`"),
            (format!("{GOOD}[limits]\ntimeout_s = -5\n"), 8, "above 0"),
            (format!("{GOOD}[limits]\nmax_inconclusive = 1.5\n"), 8, "from 0 to 1"),
            (format!("{GOOD}[[override]]\ntimeout_s = 5\n"), 7, "needs at least one of"),
            (format!("{GOOD}[[override]]\nmodel = \"a/b\"\ntrust = \"main\"\n"), 7, "full commit"),
            (format!("{GOOD}[[override]]\nmodel = \"a/*\"\ntrust = \"{}\"\n", "0".repeat(40)), 7, "without wildcard"),
            (GOOD.replace("fixtures = \"smoke\"", "list = [\"a/b/c\"]"), 3, "not a model id"),
            (GOOD.replace("fixtures = \"smoke\"", ""), 2, "names no source"),
            (GOOD.replace("fixtures = \"smoke\"", "fixtures = []"), 2, "names no source"),
            (GOOD.replace("targets", "only = { target = \"cpus\" }\ntargets"), 6, "did you mean `cpu`"),
            (format!("{GOOD}[[override]]\ntarget = \"cpus\"\nskip = \"x\"\n"), 7, "did you mean `cpu`"),
            (GOOD.replace("fixtures = \"smoke\"", "fixtures = 5"), 3, "a word or a list of words"),
            ("name = \"m\n".to_owned(), 1, ""),
        ] {
            let error = error_of(&bad);
            assert_eq!(error.line, line, "{bad}\n{error}");
            assert!(error.message.contains(part), "{error}");
        }
    }

    #[test]
    fn an_unknown_architecture_names_its_line() {
        let text = GOOD.replace("fixtures = \"smoke\"", "architectures = [\"lama\"]");
        let matrix = Matrix::parse("m.toml", &text, &Targets::built_in()).unwrap();
        let error = matrix.check_architectures("m.toml", &text, &BTreeSet::from(["llama".to_owned()])).unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.message.contains("did you mean `llama`"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
            let _ = Matrix::parse("m.toml", &text, &Targets::built_in());
        }
    }
}
