//! How a verdict looks in every view: a symbol beside the word, so that colour never carries the meaning alone.

use modelfarm_matrix::expectation::Verdict;
use serde::Serialize;

/// The look of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VerdictMark {
    /// One character.
    pub symbol: &'static str,
    /// What it means, for legends.
    pub meaning: &'static str,
    /// The name of its style: the verdict's own word.
    pub style: &'static str,
    /// How much attention it asks for; larger is more.
    #[serde(skip)]
    pub urgency: u8,
}

/// The look of a verdict.
pub fn verdict_mark(verdict: Verdict) -> VerdictMark {
    let (symbol, meaning, urgency) = match verdict {
        Verdict::ExpectedPass => ("✓", "passes", 0),
        Verdict::ExpectedInconclusive => ("○", "inconclusive, as declared", 1),
        Verdict::ExpectedFail => ("⊗", "fails, as declared", 2),
        Verdict::UnexpectedInconclusive => ("?", "inconclusive, undeclared", 3),
        // News about the target, as an undeclared failure is: nothing that says nothing about it may hide that.
        Verdict::UnexpectedPass => ("▲", "passes, though a failure is declared", 4),
        Verdict::UnexpectedFail => ("✗", "fails, undeclared", 5),
    };
    VerdictMark { symbol, meaning, style: verdict.as_str(), urgency }
}

/// Every verdict's look, most urgent first.
pub fn legend() -> Vec<VerdictMark> {
    let mut marks: Vec<VerdictMark> = Verdict::ALL.iter().map(|verdict| verdict_mark(*verdict)).collect();
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.urgency));
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_verdict_looks_different_and_the_unexpected_ask_for_more() {
        let marks = legend();
        assert_eq!(marks.iter().map(|mark| mark.symbol).collect::<BTreeSet<_>>().len(), Verdict::ALL.len());
        assert_eq!(marks.iter().map(|mark| mark.urgency).collect::<BTreeSet<_>>().len(), Verdict::ALL.len());
        for verdict in Verdict::ALL {
            assert_eq!(verdict_mark(*verdict).urgency > 2, verdict.is_unexpected());
        }
    }
}
