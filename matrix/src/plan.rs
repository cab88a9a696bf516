//! From matrix and models to the ordered cases of a run: pure and deterministic.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::case::{Case, CaseId};
use crate::case_filter::CaseFilter;
use crate::matrix_file::{CaseGroup, Matrix};
use crate::model::{Model, ModelId};
use crate::sample::Sample;
use crate::target::Targets;

/// One of `count` shards; shards split a plan by model, so that a model is downloaded and referenced once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// The whole plan.
    pub const WHOLE: Shard = Shard { index: 1, count: 1 };

    /// Whether a model belongs to this shard. It depends on the model's name alone, so a new model moves no other.
    pub fn holds(self, model: &Model) -> bool {
        hash_of_name(&model.id)[0] % u64::from(self.count) == u64::from(self.index - 1)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// A text that is no shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a shard: expected I/N with 1 <= I <= N <= 10000, such as 2/3")]
pub struct InvalidShard(String);

impl FromStr for Shard {
    type Err = InvalidShard;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (index, count) = part_and_count(text).ok_or_else(|| InvalidShard(text.chars().take(80).collect()))?;
        Ok(Self { index, count })
    }
}

/// Reads `I/N`, where 1 <= I <= N <= 10000.
pub(crate) fn part_and_count(text: &str) -> Option<(u32, u32)> {
    let (index, count) = text.split_once('/')?;
    let (index, count) = (index.parse().ok()?, count.parse().ok()?);
    (1 <= index && index <= count && count <= 10_000).then_some((index, count))
}

/// Two independent numbers of a model's name: the first 16 bytes of its SHA-256.
pub(crate) fn hash_of_name(model: &ModelId) -> [u64; 2] {
    let digest = Sha256::digest(model.as_str().as_bytes());
    let number = |from: usize| digest.iter().skip(from).take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte));
    [number(0), number(8)]
}

/// What a person narrows a plan to.
#[derive(Debug, Clone, Default)]
pub struct Filters {
    /// Which cases.
    pub cases: CaseFilter,
    /// A part of the models.
    pub sample: Option<Sample>,
}

impl Filters {
    fn reason_against(&self, model: &Model, case: &Case) -> Option<&'static str> {
        self.cases.reason_against(model, case).or_else(|| {
            let is_left_out = self.sample.is_some_and(|sample| !sample.holds(&model.id));
            is_left_out.then_some("not in this --sample")
        })
    }
}

/// The same text for the same selection, in whatever order it was given: runs of one selection are compared with each other.
/// Empty where nothing is narrowed.
impl fmt::Display for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sample = self.sample.map(|sample| format!("sample {sample}"));
        let cases = Some(self.cases.to_string()).filter(|cases| !cases.is_empty());
        f.write_str(&cases.into_iter().chain(sample).collect::<Vec<_>>().join("; "))
    }
}

/// A case with what holds for it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCase {
    /// The case.
    pub case: Case,
    /// Deadline, in seconds.
    pub timeout_s: f64,
    /// Memory, in GiB.
    pub memory_gib: f64,
}

/// A model with the cases that are to run, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedModel {
    /// The model.
    pub model: Model,
    /// The commit whose remote code is trusted, if any.
    pub trust: Option<String>,
    /// Its cases: the control's first, so that their outcomes are known as evidence for the others.
    pub cases: Vec<PlannedCase>,
}

/// A case that a plan leaves out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The case.
    pub case: Case,
    /// Why.
    pub reason: String,
}

/// The cases of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// A hash of all shards' cases: the same question has the same id.
    pub id: String,
    /// The cases of all shards.
    pub all_cases: Vec<Case>,
    /// The models of this shard, in order: most downloaded first.
    pub models: Vec<PlannedModel>,
    /// What is left out, and why.
    pub left_out: Vec<LeftOut>,
}

impl Plan {
    /// Number of cases in this shard.
    pub fn case_count(&self) -> usize {
        self.models.iter().map(|model| model.cases.len()).sum()
    }

    /// Every case of this shard, in order.
    pub fn cases(&self) -> impl Iterator<Item = (&PlannedModel, &PlannedCase)> {
        self.models.iter().flat_map(|model| model.cases.iter().map(move |case| (model, case)))
    }
}

/// Plans a run. `models` may come in any order.
pub fn plan(matrix: &Matrix, targets: &Targets, models: &[Model], filters: &Filters, shard: Shard) -> Plan {
    let mut models: Vec<&Model> = models.iter().collect();
    models.sort_by(|a, b| b.downloads.cmp(&a.downloads).then_with(|| a.id.cmp(&b.id)));
    models.dedup_by(|a, b| a.id == b.id);

    let mut planned_models = Vec::new();
    let mut left_out = Vec::new();
    let mut seen: BTreeSet<CaseId> = BTreeSet::new();
    for model in models {
        let mut cases: Vec<PlannedCase> = Vec::new();
        for group in matrix.cases.iter().filter(|group| group.only.matches_model(model)) {
            for case in product(group, targets, model, &mut left_out) {
                let matching = || matrix.overrides.iter().filter(|rule| rule.select.matches(model, &case));
                // The attention form is part of the case's identity, so an override changes the case itself.
                let attention = matching().filter_map(|rule| rule.attention.clone()).next_back();
                let case = Case { attention: attention.unwrap_or(case.attention.clone()), ..case.clone() };
                let reason = matching()
                    .find_map(|rule| rule.skip.clone())
                    .or_else(|| {
                        let excluded =
                            matching().any(|rule| rule.dtypes.as_ref().is_some_and(|dtypes| !dtypes.contains(&case.dtype)));
                        excluded.then(|| "an override names other dtypes".to_owned())
                    })
                    .or_else(|| {
                        let excluded =
                            matching().any(|rule| rule.precision.as_ref().is_some_and(|all| !all.contains(&case.precision)));
                        excluded.then(|| "an override names other precisions".to_owned())
                    })
                    .or_else(|| filters.reason_against(model, &case).map(str::to_owned));
                if let Some(reason) = reason {
                    left_out.push(LeftOut { case, reason });
                    continue;
                }
                let timeout = matching().filter_map(|rule| rule.timeout_s).next_back().unwrap_or(matrix.limits.timeout_s);
                let memory = matching().filter_map(|rule| rule.memory_gib).next_back().unwrap_or(matrix.limits.memory_gib);
                if seen.insert(case.id()) {
                    cases.push(PlannedCase { case, timeout_s: timeout.get(), memory_gib: memory.get() });
                }
            }
        }
        let is_control = |case: &Case| targets.get(&case.target).is_ok_and(|target| target.control);
        cases.sort_by_cached_key(|planned| {
            let case = &planned.case;
            // Cases that share a reference stand together; within it the control comes first.
            (case.workload, case.dtype, case.precision, !is_control(case), case.target.clone(), case.mode, case.canonical())
        });
        if !cases.is_empty() {
            let matching = matrix.overrides.iter().filter(|rule| rule.select.matches_model(model));
            let trust = matching.filter_map(|rule| rule.trust.clone()).next_back();
            planned_models.push(PlannedModel { model: model.clone(), trust, cases });
        }
    }
    let all_cases: Vec<Case> =
        planned_models.iter().flat_map(|model| model.cases.iter()).map(|planned| planned.case.clone()).collect();
    let mut ids: Vec<String> = all_cases.iter().map(|case| case.id().to_string()).collect();
    ids.sort();
    let digest = Sha256::digest(ids.join("\n").as_bytes());
    let id = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();

    let (models, others): (Vec<_>, Vec<_>) = planned_models.into_iter().partition(|planned| shard.holds(&planned.model));
    for other in others {
        let reason = format!("in another shard than {shard}");
        left_out.extend(other.cases.into_iter().map(|planned| LeftOut { case: planned.case, reason: reason.clone() }));
    }
    Plan { id, all_cases, models, left_out }
}

/// The cases of one group for one model; what a target cannot do goes to `left_out`.
fn product(group: &CaseGroup, targets: &Targets, model: &Model, left_out: &mut Vec<LeftOut>) -> Vec<Case> {
    let mut cases = Vec::new();
    for target in group.targets.iter().filter_map(|name| targets.get(name.get_ref()).ok()) {
        for (&mode, &workload) in
            group.modes.iter().flat_map(|mode| group.workloads.iter().map(move |workload| (mode, workload)))
        {
            for (&dtype, &weights) in
                group.dtypes.iter().flat_map(|dtype| group.weights.iter().map(move |weights| (dtype, weights)))
            {
                for &precision in &group.precision {
                    let case = Case {
                        model: model.id.clone(),
                        class: model.class.clone(),
                        harness: model.harness,
                        weights,
                        workload,
                        inputs: "default".to_owned(),
                        dtype,
                        precision,
                        attention: group.attention.clone().unwrap_or_else(|| target.attention.clone()),
                        target: target.name.clone(),
                        mode,
                    };
                    let unsupported = weights.unsupported().map(str::to_owned);
                    let no_mode = (!target.modes.contains(&mode)).then(|| format!("target {} has no mode {mode}", target.name));
                    match unsupported.or(no_mode) {
                        None => cases.push(case),
                        Some(reason) => left_out.push(LeftOut { case, reason }),
                    }
                }
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axes::{Harness, Mode};
    use crate::model::ModelSource;
    use proptest::prelude::*;

    #[test]
    fn a_selection_has_one_text_whatever_its_order() {
        assert_eq!(Filters::default().to_string(), "");
        let filters = Filters {
            cases: CaseFilter {
                architectures: vec!["llama".into(), "bert".into()],
                modes: vec![Mode::Compiled],
                ..CaseFilter::default()
            },
            sample: Some("3/14".parse().unwrap()),
        };
        assert_eq!(filters.to_string(), "mode compiled; architecture bert, llama; sample 3/14");
    }

    const MATRIX: &str = r#"
name = "m"
[models]
fixtures = "all"
[[cases]]
targets = ["tpu-emulated", "cpu"]
modes = ["strict-eager", "defer-and-fuse", "compiled"]
dtypes = ["float32", "bfloat16"]
[[cases]]
only = { tag = "generate" }
targets = ["tpu-emulated"]
modes = ["compiled", "strict-eager"]
workloads = ["generate", "forward"]
[[override]]
model = "zoo/m3"
timeout_s = 7
dtypes = ["float32"]
"#;

    fn model(number: u32) -> Model {
        Model {
            id: format!("zoo/m{number}").parse().unwrap(),
            revision: None,
            source: ModelSource::Fixtures,
            architecture: format!("arch{}", number % 3),
            class: "C".into(),
            harness: Harness::Transformers,
            tags: if number.is_multiple_of(2) { vec!["generate".into()] } else { vec![] },
            downloads: u64::from(number / 2),
        }
    }

    fn planned(models: &[Model], filters: &Filters, shard: Shard) -> Plan {
        let targets = Targets::built_in();
        plan(&Matrix::parse("m.toml", MATRIX, &targets).unwrap(), &targets, models, filters, shard)
    }

    #[test]
    fn the_control_comes_first_and_overrides_hold() {
        let plan = planned(&[model(3)], &Filters::default(), Shard::WHOLE);
        let cases: Vec<_> = plan.cases().map(|(_, planned)| (planned.case.target.as_str(), planned.case.mode)).collect();
        assert_eq!(
            cases.iter().map(|(target, _)| *target).collect::<Vec<_>>(),
            ["cpu", "cpu", "tpu-emulated", "tpu-emulated", "tpu-emulated"]
        );
        assert!(plan.cases().all(|(_, planned)| planned.timeout_s == 7.0));
        let reasons: BTreeSet<_> = plan.left_out.iter().map(|left| left.reason.as_str()).collect();
        assert_eq!(reasons, BTreeSet::from(["target cpu has no mode defer-and-fuse", "an override names other dtypes"]));
    }

    #[test]
    fn a_filter_leaves_out_with_its_reason() {
        let only = CaseFilter { modes: vec![Mode::Compiled], ..CaseFilter::default() };
        let filters = Filters { cases: only, ..Filters::default() };
        let plan = planned(&[model(1)], &filters, Shard::WHOLE);
        assert!(plan.cases().all(|(_, planned)| planned.case.mode == Mode::Compiled));
        assert!(plan.left_out.iter().any(|left| left.reason == "not selected by --mode"));
    }

    #[test]
    fn samples_are_plans_of_their_own_that_together_hold_everything() {
        let models: Vec<Model> = (0..40).map(model).collect();
        let whole = planned(&models, &Filters::default(), Shard::WHOLE);
        let mut cases = Vec::new();
        for night in 1..=14 {
            let filters = Filters { sample: Some(format!("{night}/14").parse().unwrap()), ..Filters::default() };
            let plan = planned(&models, &filters, Shard::WHOLE);
            assert_ne!(plan.id, whole.id);
            // What a sample leaves out is not planned: its run is complete without.
            assert_eq!(plan.all_cases.len(), plan.case_count());
            assert!(plan.left_out.iter().any(|left| left.reason == "not in this --sample"));
            cases.extend(plan.cases().map(|(_, planned)| planned.case.id()));
        }
        let mut all: Vec<CaseId> = whole.cases().map(|(_, planned)| planned.case.id()).collect();
        all.sort();
        cases.sort();
        assert_eq!(cases, all);
    }

    proptest! {
        #[test]
        fn the_order_of_models_does_not_matter(mut numbers in prop::collection::vec(0u32..30, 1..12)) {
            let models: Vec<Model> = numbers.iter().map(|n| model(*n)).collect();
            let forward = planned(&models, &Filters::default(), Shard::WHOLE);
            numbers.reverse();
            let models: Vec<Model> = numbers.iter().map(|n| model(*n)).collect();
            prop_assert_eq!(forward, planned(&models, &Filters::default(), Shard::WHOLE));
        }

        #[test]
        fn shards_split_a_plan_without_loss_or_overlap(count in 1u32..6, numbers in prop::collection::btree_set(0u32..40, 1..20)) {
            let models: Vec<Model> = numbers.iter().map(|n| model(*n)).collect();
            let whole = planned(&models, &Filters::default(), Shard::WHOLE);
            let mut ids = Vec::new();
            for index in 1..=count {
                let part = planned(&models, &Filters::default(), Shard { index, count });
                prop_assert_eq!(&part.id, &whole.id);
                prop_assert_eq!(part.all_cases.len(), whole.case_count());
                ids.extend(part.cases().map(|(_, planned)| planned.case.id()));
            }
            ids.sort();
            let mut all: Vec<_> = whole.cases().map(|(_, planned)| planned.case.id()).collect();
            all.sort();
            prop_assert_eq!(&ids, &all);
            all.dedup();
            prop_assert_eq!(ids.len(), all.len());
        }
    }
}
