//! The architectures of the fixtures: what is built, what is healthy, what is left out; and the same beside those of a run.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_fixtures::Built;
use modelfarm_matrix::axes::Harness;
use modelfarm_matrix::exclusion::Exclusions;
use modelfarm_reports::query::ArchitectureRow;

use crate::catalogue;

/// A row for each architecture and harness of the fixtures that are built, and one for each architecture that is left out; by name.
pub fn architectures(fixtures: &[Built], exclusions: &Exclusions) -> Vec<ArchitectureRow> {
    let mut groups: BTreeMap<(String, Harness), Group> = BTreeMap::new();
    for fixture in fixtures {
        let Some(model) = catalogue::fixture(&fixture.card) else { continue };
        let group = groups.entry((model.architecture, model.harness)).or_default();
        group.classes.insert(model.class);
        group.models += 1;
        group.healthy.push(fixture.healthy);
    }
    for name in exclusions.architectures.keys() {
        groups.entry((name.clone(), Harness::Transformers)).or_default();
    }
    let rows = groups.into_iter().map(|((architecture, harness), group)| {
        let mut row = ArchitectureRow {
            class: group.classes.into_iter().collect(),
            models: group.models,
            healthy: all_healthy(group.healthy),
            ..ArchitectureRow::new(&architecture, harness)
        };
        let exclusion = exclusions.architectures.get(&architecture).filter(|_| harness == Harness::Transformers);
        if let Some(exclusion) = exclusion {
            // An older version may have built it.
            row.exclude(exclusion);
        }
        row
    });
    rows.collect()
}

#[derive(Default)]
struct Group {
    classes: BTreeSet<String>,
    models: u64,
    healthy: Vec<Option<bool>>,
}

/// Whether all are healthy of which it is asked; none where it is asked of none.
fn all_healthy(each: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    each.into_iter().flatten().reduce(|left, right| left && right)
}

/// Adds to the architectures of a run what the fixtures say of them. What is left out and has no case in the run becomes a row of
/// its own where `wanted` says so.
pub fn beside_fixtures(
    mut of_run: Vec<ArchitectureRow>,
    fixtures: Vec<ArchitectureRow>,
    wanted: impl Fn(&ArchitectureRow) -> bool,
) -> Vec<ArchitectureRow> {
    let same = |row: &ArchitectureRow, fixture: &ArchitectureRow| {
        row.architecture == fixture.architecture && fixture.harness.iter().all(|harness| row.harness.contains(harness))
    };
    for row in &mut of_run {
        let known: Vec<&ArchitectureRow> = fixtures.iter().filter(|fixture| same(row, fixture)).collect();
        row.healthy = all_healthy(known.iter().map(|fixture| fixture.healthy));
        row.excluded_reason = known.iter().find_map(|fixture| fixture.excluded_reason.clone());
        row.excluded_needs = known.iter().find_map(|fixture| fixture.excluded_needs.clone());
    }
    let left_out = fixtures.into_iter().filter(|fixture| fixture.excluded_reason.is_some());
    let alone: Vec<ArchitectureRow> = left_out
        .filter(|fixture| wanted(fixture) && !of_run.iter().any(|row| same(row, fixture)))
        .map(|fixture| ArchitectureRow {
            class: Vec::new(),
            models: 0,
            pass: Some(0),
            fail: Some(0),
            inconclusive: Some(0),
            ..fixture
        })
        .collect();
    of_run.extend(alone);
    of_run.sort_by(|left, right| left.architecture.cmp(&right.architecture));
    of_run
}

/// What [`architectures`] counts, a line for each harness.
pub fn summary(rows: &[ArchitectureRow]) -> Vec<String> {
    let lines = Harness::ALL.iter().filter_map(|harness| {
        let rows: Vec<&ArchitectureRow> = rows.iter().filter(|row| row.harness == [*harness]).collect();
        let (left_out, built): (Vec<&ArchitectureRow>, Vec<_>) = rows.iter().partition(|row| row.excluded_reason.is_some());
        let asked = built.iter().filter(|row| row.healthy.is_some()).count();
        let healthy = built.iter().filter(|row| row.healthy == Some(true)).count();
        (!rows.is_empty()).then(|| {
            format!(
                "{harness}: {healthy} of {asked} architectures healthy; {} more of which no health is asked; {} left out",
                built.len() - asked,
                left_out.len()
            )
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use modelfarm_fixtures::Card;
    use modelfarm_matrix::exclusion::Exclusion;

    fn fixture(id: &str, library: &str, architecture: &str, class: &str, healthy: Option<bool>) -> Built {
        let some = |text: &str| Some(text.to_owned());
        let card = Card { library_name: some(library), architecture: some(architecture), class: some(class), ..Card::new(id) };
        Built { card, healthy }
    }

    fn exclusions(names: &[&str]) -> Exclusions {
        let exclusion = |name: &str| Exclusion { reason: format!("{name} is odd"), needs: format!("a rule for {name}") };
        Exclusions {
            architectures: names.iter().map(|name| ((*name).to_owned(), exclusion(name))).collect(),
            ..Exclusions::default()
        }
    }

    fn zoo() -> Vec<ArchitectureRow> {
        let fixtures = [
            fixture("zoo/tiny-bert", "transformers", "bert", "BertModel", Some(true)),
            fixture("zoo/tiny-bert-for-x", "transformers", "bert", "BertForX", Some(true)),
            fixture("toys/bert", "transformers", "bert", "BertModel", None),
            fixture("zoo/st-bert", "sentence-transformers", "bert", "SentenceTransformer", Some(false)),
            fixture("zoo/st-bert-2", "sentence-transformers", "bert", "SentenceTransformer", Some(true)),
            fixture("toys/odd", "transformers", "toy-odd", "ToyModel", None),
            fixture("zoo/tiny-bark", "transformers", "bark", "BarkModel", Some(true)),
        ];
        architectures(&fixtures, &exclusions(&["bark", "dinat"]))
    }

    /// Architecture, harness, models, healthy, whether left out.
    fn told(rows: &[ArchitectureRow]) -> Vec<(&str, Harness, u64, Option<bool>, bool)> {
        let mut told = Vec::new();
        for row in rows {
            told.push((row.architecture.as_str(), row.harness[0], row.models, row.healthy, row.excluded_reason.is_some()));
        }
        told
    }

    #[test]
    fn an_architecture_has_a_row_for_each_harness_and_is_healthy_where_all_its_models_are() {
        let rows = zoo();
        assert_eq!(
            told(&rows),
            [
                ("bark", Harness::Transformers, 1, Some(false), true),
                ("bert", Harness::Transformers, 3, Some(true), false),
                ("bert", Harness::SentenceTransformers, 2, Some(false), false),
                ("dinat", Harness::Transformers, 0, Some(false), true),
                ("toy-odd", Harness::Transformers, 1, None, false),
            ]
        );
        assert_eq!(rows[1].class, ["BertForX", "BertModel"]);
        assert!(rows.iter().all(|row| (row.pass, row.fail, row.inconclusive) == (None, None, None) && row.results.is_empty()));
        assert_eq!(rows[3].excluded_reason.as_deref(), Some("dinat is odd"));
        assert_eq!(rows[3].excluded_needs.as_deref(), Some("a rule for dinat"));
        assert_eq!(
            summary(&rows),
            [
                "transformers: 1 of 1 architectures healthy; 1 more of which no health is asked; 2 left out",
                "sentence-transformers: 0 of 1 architectures healthy; 0 more of which no health is asked; 0 left out",
            ]
        );
    }

    #[test]
    fn a_run_stands_beside_what_is_left_out() {
        let counted = |architecture: &str, harnesses: &[Harness]| ArchitectureRow {
            harness: harnesses.to_vec(),
            models: 1,
            pass: Some(4),
            ..ArchitectureRow::new(architecture, Harness::Transformers)
        };
        let of_run = || {
            vec![
                counted("bark", &[Harness::Transformers]),
                counted("bert", &[Harness::Transformers, Harness::SentenceTransformers]),
                counted("unheard-of", &[Harness::Transformers]),
            ]
        };
        let rows = beside_fixtures(of_run(), zoo(), |_| true);
        assert_eq!(
            told(&rows),
            [
                ("bark", Harness::Transformers, 1, Some(false), true),
                ("bert", Harness::Transformers, 1, Some(false), false),
                ("dinat", Harness::Transformers, 0, Some(false), true),
                ("unheard-of", Harness::Transformers, 1, None, false),
            ]
        );
        assert_eq!(rows.iter().map(|row| row.pass).collect::<Vec<_>>(), [Some(4), Some(4), Some(0), Some(4)]);
        assert_eq!((rows[2].fail, rows[2].inconclusive), (Some(0), Some(0)));
        // Without its other library, the architecture is as healthy as what this one runs.
        let rows = beside_fixtures(vec![counted("bert", &[Harness::Transformers])], zoo(), |row| row.architecture == "dinat");
        assert_eq!(
            told(&rows),
            [("bert", Harness::Transformers, 1, Some(true), false), ("dinat", Harness::Transformers, 0, Some(false), true)]
        );
        assert_eq!(beside_fixtures(of_run(), zoo(), |_| false).len(), 3);
    }
}
