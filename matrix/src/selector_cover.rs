//! The widest selectors that cover some cases and not others.

use std::collections::{BTreeMap, BTreeSet};

use crate::axes::{Dtype, Mode, Workload};
use crate::case::Case;
use crate::selector::{Selector, glob};

/// An axis of cases that a selector can be narrowed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Model,
    Mode,
    Target,
    Workload,
    Dtype,
}

impl Axis {
    /// In the order in which people would rather narrow a rule: by what it is about, and then by how that is run.
    const ALL: [Axis; 5] = [Axis::Model, Axis::Mode, Axis::Target, Axis::Workload, Axis::Dtype];

    /// In the order in which a rule falls apart that is no product of its axes.
    const TO_SPLIT: [Axis; 5] = [Axis::Model, Axis::Target, Axis::Workload, Axis::Dtype, Axis::Mode];
}

/// Where a case lies as far as selectors can tell: cases of one place differ in axes that no selector names, such as the
/// precision.
pub(crate) type Place<'a> = (&'a str, &'a str, Mode, Workload, Dtype);

/// The place of a case.
pub(crate) fn place(case: &Case) -> Place<'_> {
    (case.model.as_str(), &case.target, case.mode, case.workload, case.dtype)
}

/// Narrows `from`, which matches all these cases, until it matches all of `wanted` and none of `unwanted` but those that lie in
/// the place of a wanted one.
///
/// One selector with the fewest changed keys where one is enough, else several. A word of `from` that matches no case stays:
/// nothing is known against it. Nothing is wanted: no selector.
pub(crate) fn cover(from: &Selector, wanted: &[&Case], unwanted: &[&Case]) -> Vec<Selector> {
    let places: BTreeSet<_> = wanted.iter().map(|case| place(case)).collect();
    let unwanted: Vec<&Case> = unwanted.iter().copied().filter(|case| !places.contains(&place(case))).collect();
    if wanted.is_empty() { Vec::new() } else { cover_all(from, wanted, &unwanted) }
}

fn cover_all(from: &Selector, wanted: &[&Case], unwanted: &[&Case]) -> Vec<Selector> {
    // Every set of axes, the smaller ones first.
    let mut sets: Vec<Vec<Axis>> = (0u32..1 << Axis::ALL.len())
        .map(|bits| (0..Axis::ALL.len()).filter(|axis| bits & (1 << axis) != 0).map(|axis| Axis::ALL[axis]).collect())
        .collect();
    sets.sort_by_key(Vec::len);
    for axes in sets {
        let narrower = narrowed(from, &axes, wanted, unwanted);
        if !unwanted.iter().any(|case| narrower.matches_case(case)) {
            return vec![narrower];
        }
    }
    // No product of axes. Each word of one axis by itself, and together again where they come out alike.
    let Some((axis, words)) =
        Axis::TO_SPLIT.into_iter().map(|axis| (axis, words(axis, wanted))).find(|(_, words)| words.len() > 1)
    else {
        // All wanted lie in one place, and no unwanted there: the set of all axes was enough above.
        return vec![narrowed(from, &Axis::ALL, wanted, unwanted)];
    };
    let mut pieces: Vec<(Selector, Selector)> = Vec::new();
    for word in words {
        let piece = with(from, axis, &word);
        for narrower in cover_all(&piece, &matched(&word, wanted), &matched(&word, unwanted)) {
            let rest = with(&narrower, axis, &Selector::default());
            match pieces.iter_mut().find(|(known, _)| *known == rest) {
                Some((_, words)) => extend(words, axis, &word),
                None => pieces.push((rest, word.clone())),
            }
        }
    }
    let cases: Vec<&Case> = wanted.iter().chain(unwanted).copied().collect();
    if let Some((_, words)) = pieces.first_mut() {
        extend(words, axis, &narrowed(from, &[axis], &[], &cases));
    }
    let joined = pieces.into_iter().map(|(rest, words)| {
        let piece = with(&rest, axis, &words);
        // What was listed before stays where it harms nobody, and is not said twice.
        let as_before = with(&rest, axis, from);
        let adds = cases.iter().any(|case| as_before.matches_case(case) && !piece.matches_case(case));
        if adds { in_order(piece, from) } else { as_before }
    });
    joined.collect()
}

fn matched<'a>(select: &Selector, cases: &[&'a Case]) -> Vec<&'a Case> {
    cases.iter().copied().filter(|case| select.matches_case(case)).collect()
}

/// Each word that cases have on an axis, as a selector, in an order that does not depend on that of the cases.
fn words(axis: Axis, cases: &[&Case]) -> Vec<Selector> {
    let words: BTreeMap<String, Selector> =
        cases.iter().map(|case| only(axis, case)).map(|select| (select.to_string(), select)).collect();
    words.into_values().collect()
}

/// The words of each axis in the order in which `from` lists them.
fn in_order(mut select: Selector, from: &Selector) -> Selector {
    fn sort<T: Ord>(words: &mut [T], listed: &[T]) {
        let place = |word: &T| listed.iter().position(|one| one == word).unwrap_or(listed.len());
        words.sort_by(|one, other| place(one).cmp(&place(other)).then_with(|| one.cmp(other)));
    }
    sort(&mut select.model, &from.model);
    sort(&mut select.mode, &from.mode);
    sort(&mut select.target, &from.target);
    sort(&mut select.workload, &from.workload);
    sort(&mut select.dtype, &from.dtype);
    select
}

/// `from` without those words of some axes that unwanted cases need and no wanted one.
fn narrowed(from: &Selector, axes: &[Axis], wanted: &[&Case], unwanted: &[&Case]) -> Selector {
    fn needed<T: Ord + Clone>(listed: &[T], wanted: &[&Case], unwanted: &[&Case], of: impl Fn(&Case) -> T) -> Vec<T> {
        let wanted: BTreeSet<T> = wanted.iter().map(|case| of(case)).collect();
        if listed.is_empty() {
            return wanted.into_iter().collect();
        }
        let unwanted: BTreeSet<T> = unwanted.iter().map(|case| of(case)).collect();
        listed.iter().filter(|word| wanted.contains(word) || !unwanted.contains(word)).cloned().collect()
    }
    let mut narrower = from.clone();
    for axis in axes {
        match axis {
            Axis::Model => narrower.model = models(&from.model, wanted, unwanted),
            Axis::Mode => narrower.mode = needed(&from.mode, wanted, unwanted, |case| case.mode),
            Axis::Target => narrower.target = needed(&from.target, wanted, unwanted, |case| case.target.clone()),
            Axis::Workload => narrower.workload = needed(&from.workload, wanted, unwanted, |case| case.workload),
            Axis::Dtype => narrower.dtype = needed(&from.dtype, wanted, unwanted, |case| case.dtype),
        }
    }
    narrower
}

/// The words of `from` for models, which may be patterns: one that matches a model of unwanted cases alone gives way to the names
/// of the wanted ones.
fn models(listed: &[String], wanted: &[&Case], unwanted: &[&Case]) -> Vec<String> {
    let wanted: BTreeSet<&str> = wanted.iter().map(|case| case.model.as_str()).collect();
    if listed.is_empty() {
        return wanted.into_iter().map(str::to_owned).collect();
    }
    let unwanted: BTreeSet<&str> = unwanted.iter().map(|case| case.model.as_str()).filter(|id| !wanted.contains(id)).collect();
    let mut kept: Vec<String> = Vec::new();
    for pattern in listed {
        let words = if unwanted.iter().any(|id| glob(pattern, id)) {
            wanted.iter().filter(|id| glob(pattern, id)).map(|id| (*id).to_owned()).collect()
        } else {
            vec![pattern.clone()]
        };
        for word in words {
            if !kept.contains(&word) {
                kept.push(word);
            }
        }
    }
    kept
}

/// A selector of one word: that of a case on an axis.
fn only(axis: Axis, case: &Case) -> Selector {
    let mut select = Selector::default();
    match axis {
        Axis::Model => select.model = vec![case.model.to_string()],
        Axis::Mode => select.mode = vec![case.mode],
        Axis::Target => select.target = vec![case.target.clone()],
        Axis::Workload => select.workload = vec![case.workload],
        Axis::Dtype => select.dtype = vec![case.dtype],
    }
    select
}

/// `from` with the words of `other` on an axis.
fn with(from: &Selector, axis: Axis, other: &Selector) -> Selector {
    let mut select = from.clone();
    match axis {
        Axis::Model => select.model.clone_from(&other.model),
        Axis::Mode => select.mode.clone_from(&other.mode),
        Axis::Target => select.target.clone_from(&other.target),
        Axis::Workload => select.workload.clone_from(&other.workload),
        Axis::Dtype => select.dtype.clone_from(&other.dtype),
    }
    select
}

/// Adds the words of `more` on an axis.
fn extend(select: &mut Selector, axis: Axis, more: &Selector) {
    match axis {
        Axis::Model => select.model.extend_from_slice(&more.model),
        Axis::Mode => select.mode.extend_from_slice(&more.mode),
        Axis::Target => select.target.extend_from_slice(&more.target),
        Axis::Workload => select.workload.extend_from_slice(&more.workload),
        Axis::Dtype => select.dtype.extend_from_slice(&more.dtype),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    fn case(model: &str, target: &str, mode: Mode, dtype: Dtype) -> Case {
        let text = format!("v1/{model}/C/transformers/real/forward/default/{dtype}/highest/eager/{target}/{mode}");
        text.parse().unwrap()
    }

    /// Two models in three modes and two dtypes on one target.
    fn grid() -> Vec<Case> {
        let modes = [Mode::StrictEager, Mode::DeferAndFuse, Mode::Compiled];
        let dtypes = [Dtype::Float32, Dtype::Bfloat16];
        let models = ["zoo/a", "zoo/b"];
        let cells = models.iter().flat_map(|model| modes.iter().map(move |mode| (model, mode)));
        cells.flat_map(|(model, mode)| dtypes.map(|dtype| case(model, "tpu", *mode, dtype))).collect()
    }

    fn covered(from: &str, wanted: impl Fn(&Case) -> bool) -> Vec<String> {
        let grid = grid();
        let from: Selector = toml::from_str(from).unwrap();
        let (wanted, unwanted): (Vec<&Case>, Vec<&Case>) = grid.iter().partition(|case| wanted(case));
        cover(&from, &wanted, &unwanted).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_fewest_keys_are_changed() {
        let models = "model = [\"zoo/b\", \"zoo/a\"]\ntarget = \"tpu\"";
        assert_eq!(covered(models, |_| true), ["model = [\"zoo/b\", \"zoo/a\"], target = \"tpu\""]);
        let without_a = |case: &Case| case.model.as_str() != "zoo/a";
        assert_eq!(covered(models, without_a), ["model = \"zoo/b\", target = \"tpu\""]);
        assert_eq!(covered("architecture = \"x\"", without_a), ["model = \"zoo/b\", architecture = \"x\""]);
        assert_eq!(covered("model = \"zoo/*\"", without_a), ["model = \"zoo/b\""]);
        let not_compiled = |case: &Case| case.mode != Mode::Compiled;
        assert_eq!(
            covered("model = \"zoo/*\"", not_compiled),
            ["model = \"zoo/*\", mode = [\"strict-eager\", \"defer-and-fuse\"]"]
        );
        assert_eq!(covered("model = \"zoo/*\"", |_| false), [""; 0]);
    }

    #[test]
    fn a_word_of_which_nothing_is_known_stays() {
        let listed =
            "model = [\"zoo/a\", \"zoo/never\"]\nmode = [\"debug-eager\", \"compiled\", \"strict-eager\", \"defer-and-fuse\"]";
        let compiled = |case: &Case| case.mode == Mode::Compiled;
        let grid: Vec<Case> = grid().into_iter().filter(|case| case.model.as_str() == "zoo/a").collect();
        let (wanted, unwanted): (Vec<&Case>, Vec<&Case>) = grid.iter().partition(|case| compiled(case));
        let covered = cover(&toml::from_str(listed).unwrap(), &wanted, &unwanted);
        let [one] = &covered[..] else { panic!("{covered:?}") };
        assert_eq!(one.to_string(), "model = [\"zoo/a\", \"zoo/never\"], mode = [\"debug-eager\", \"compiled\"]");

        // Also where it falls apart: then in the first part.
        let corner = |case: &Case| case.model.as_str() == "zoo/a" || case.mode == Mode::Compiled;
        let listed = "model = [\"zoo/b\", \"zoo/a\", \"zoo/never\"]";
        assert_eq!(
            self::covered(listed, corner),
            ["model = [\"zoo/a\", \"zoo/never\"]", "model = \"zoo/b\", mode = \"compiled\""]
        );
    }

    #[test]
    fn what_is_no_product_falls_apart() {
        let corner = |case: &Case| case.model.as_str() == "zoo/a" || case.mode == Mode::Compiled;
        assert_eq!(
            covered("target = \"tpu\"", corner),
            ["model = \"zoo/a\", target = \"tpu\"", "model = \"zoo/b\", target = \"tpu\", mode = \"compiled\""]
        );
        // The same for both models: they need not be named.
        let crossed = |case: &Case| (case.mode == Mode::Compiled) == (case.dtype == Dtype::Float32);
        assert_eq!(
            covered("target = \"tpu\"", crossed),
            [
                "target = \"tpu\", mode = [\"strict-eager\", \"defer-and-fuse\"], dtype = \"bfloat16\"",
                "target = \"tpu\", mode = \"compiled\", dtype = \"float32\""
            ]
        );
    }

    fn any_case() -> impl Strategy<Value = Case> {
        let words = (select(Mode::ALL), select(Workload::ALL), select(Dtype::ALL), select(vec!["tpu", "cpu"]));
        (0..4u8, words, select(vec!["highest", "medium"])).prop_map(|(model, (mode, workload, dtype, target), precision)| {
            let text = format!("v1/m/{model}/C/transformers/real/{workload}/default/{dtype}/{precision}/eager/{target}/{mode}");
            text.parse().unwrap()
        })
    }

    fn any_selector() -> impl Strategy<Value = Selector> {
        let models = prop_oneof![
            Just(Vec::new()),
            Just(vec!["m/*".to_owned()]),
            subsequence(vec!["m/0", "m/1", "m/2", "m/3"], 1..=4)
                .prop_map(|models| models.into_iter().map(str::to_owned).collect::<Vec<_>>())
        ];
        (models, subsequence(Mode::ALL, 0..=4), subsequence(Dtype::ALL, 0..=3)).prop_map(|(model, mode, dtype)| Selector {
            model,
            mode,
            dtype,
            ..Selector::default()
        })
    }

    proptest! {
        #[test]
        fn all_wanted_and_no_other_place_is_covered(
            from in any_selector(),
            cases in prop::collection::vec((any_case(), any::<bool>()), 1..40),
        ) {
            let cases: Vec<(Case, bool)> = cases.into_iter().filter(|(case, _)| from.matches_case(case)).collect();
            let of = |wish: bool| cases.iter().filter(|(_, wanted)| *wanted == wish).map(|(case, _)| case).collect::<Vec<_>>();
            let (wanted, unwanted) = (of(true), of(false));
            let selectors = cover(&from, &wanted, &unwanted);
            prop_assert_eq!(selectors.is_empty(), wanted.is_empty());
            let covers = |case: &Case| selectors.iter().any(|select| select.matches_case(case));
            for case in &wanted {
                prop_assert!(covers(case), "{case} is lost");
            }
            let places: BTreeSet<_> = wanted.iter().map(|case| place(case)).collect();
            for case in unwanted.iter().filter(|case| !places.contains(&place(case))) {
                prop_assert!(!covers(case), "{case} is covered by {selectors:?}");
            }
            // Only ever narrower.
            for (case, _) in cases.iter().filter(|(case, _)| covers(case)) {
                prop_assert!(from.matches_case(case));
            }
            let mut reversed = (wanted.clone(), unwanted.clone());
            reversed.0.reverse();
            reversed.1.reverse();
            prop_assert_eq!(cover(&from, &reversed.0, &reversed.1), selectors, "the order of cases does not matter");
        }

        #[test]
        fn covering_again_changes_nothing(
            from in any_selector(),
            cases in prop::collection::vec((any_case(), any::<bool>()), 1..40),
        ) {
            let of = |select: &Selector, wish: bool| {
                let matching = cases.iter().filter(|(case, wanted)| *wanted == wish && select.matches_case(case));
                matching.map(|(case, _)| case).collect::<Vec<_>>()
            };
            for select in cover(&from, &of(&from, true), &of(&from, false)) {
                let again = cover(&select, &of(&select, true), &of(&select, false));
                prop_assert_eq!(again, vec![select]);
            }
        }
    }
}
