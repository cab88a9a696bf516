//! The order in which a run takes its models.

use std::collections::BTreeMap;
use std::time::Duration;

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::plan::PlannedModel;

/// The models whose cases took longest before come first, so that a run does not end with all cores but one idle. Of a case that
/// was never run the mean is expected; where nothing was run, or models are equal, the plan's order stays.
pub fn longest_first<'a>(models: &'a [PlannedModel], earlier: &BTreeMap<CaseId, Duration>) -> Vec<&'a PlannedModel> {
    let mut order: Vec<&PlannedModel> = models.iter().collect();
    let known = u32::try_from(earlier.len()).unwrap_or(u32::MAX);
    if known > 0 {
        let mean = earlier.values().sum::<Duration>() / known;
        let expected = |case: CaseId| earlier.get(&case).copied().unwrap_or(mean);
        order.sort_by_cached_key(|model| {
            std::cmp::Reverse(model.cases.iter().map(|planned| expected(planned.case.id())).sum::<Duration>())
        });
    }
    order
}

#[cfg(test)]
mod tests {
    use modelfarm_matrix::axes::Harness;
    use modelfarm_matrix::matrix_file::Matrix;
    use modelfarm_matrix::model::{Model, ModelSource};
    use modelfarm_matrix::plan::{Filters, Plan, Shard, plan};
    use modelfarm_matrix::target::Targets;

    use super::*;

    fn model(name: &str) -> Model {
        Model {
            id: name.parse().unwrap(),
            revision: None,
            source: ModelSource::Fixtures,
            architecture: "llama".to_owned(),
            class: "LlamaForCausalLM".to_owned(),
            harness: Harness::Transformers,
            tags: Vec::new(),
            downloads: 0,
        }
    }

    fn planned(names: &[&str]) -> Plan {
        let targets = Targets::parse("targets.toml", include_str!("../../../matrix/targets.toml")).unwrap();
        let text = "name = \"m\"\n[models]\nfixtures = \"all\"\n[cases]\ntargets = [\"cpu\"]\nmodes = [\"strict-eager\"]\n";
        let matrix = Matrix::parse("m.toml", text, &targets).unwrap();
        let models: Vec<Model> = names.iter().map(|name| model(name)).collect();
        plan(&matrix, &targets, &models, &Filters::default(), Shard::WHOLE)
    }

    fn names(order: &[&PlannedModel]) -> Vec<String> {
        order.iter().map(|planned| planned.model.id.to_string()).collect()
    }

    #[test]
    fn what_took_longest_comes_first_and_the_unknown_in_the_middle() {
        let plan = planned(&["a/quick", "b/unknown", "c/slow"]);
        let case = |index: usize| plan.models[index].cases[0].case.id();
        let earlier = BTreeMap::from([(case(0), Duration::from_secs(1)), (case(2), Duration::from_secs(9))]);
        assert_eq!(names(&longest_first(&plan.models, &earlier)), ["c/slow", "b/unknown", "a/quick"]);
    }

    #[test]
    fn without_an_earlier_run_the_plan_decides() {
        let plan = planned(&["b/two", "a/one", "c/three"]);
        assert_eq!(names(&longest_first(&plan.models, &BTreeMap::new())), names(&plan.models.iter().collect::<Vec<_>>()));
    }
}
