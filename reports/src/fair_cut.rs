//! Showing a part of many rows so that no kind crowds another out.

use std::collections::{BTreeMap, BTreeSet};

/// At most `most` of some results, in their order, cut so that no kind crowds another out: a hundred failures leave room for
/// the one pass that nobody expected.
pub fn cut_fairly<T, K: Ord>(results: Vec<T>, most: usize, kind: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen: BTreeMap<K, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(results.len());
    for (place, result) in results.iter().enumerate() {
        let rank = seen.entry(kind(result)).or_default();
        ranked.push((*rank, place));
        *rank += 1;
    }
    ranked.sort_unstable();
    let kept: BTreeSet<usize> = ranked.into_iter().take(most).map(|(_, place)| place).collect();
    results.into_iter().enumerate().filter(|(place, _)| kept.contains(place)).map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use modelfarm_matrix::expectation::Verdict;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cut_keeps_order_and_each_verdict_its_share(
            verdicts in prop::collection::vec(proptest::sample::select(Verdict::ALL), 0..60),
            most in 0usize..30,
        ) {
            let results: Vec<(usize, Verdict)> = verdicts.into_iter().enumerate().collect();
            let cut = cut_fairly(results.clone(), most, |(_, verdict)| *verdict);
            prop_assert_eq!(cut.len(), most.min(results.len()));
            prop_assert!(cut.is_sorted());
            let number = |results: &[(usize, Verdict)], verdict| results.iter().filter(|(_, one)| *one == verdict).count();
            let kinds = Verdict::ALL.iter().filter(|verdict| number(&results, **verdict) > 0).count();
            for verdict in Verdict::ALL {
                let share = (most / kinds.max(1)).min(number(&results, *verdict));
                prop_assert!(number(&cut, *verdict) >= share, "{verdict}");
            }
        }
    }
}
