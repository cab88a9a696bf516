//! The figures of a run that every summary shows, counted once from the same rows. The unit is cases, not attempts.

use std::collections::BTreeMap;

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::event::Tally;
use modelfarm_matrix::expectation::Verdict;
use modelfarm_matrix::outcome::{Outcome, Standing};

use crate::figures::{count, counted, percent};
use crate::rows::{ResultRow, RunRow, RunState};
use crate::verdict_mark::verdict_mark;

/// The figures of a run.
#[derive(Debug, Clone)]
pub struct RunFigures<'a> {
    /// The run.
    pub run: &'a RunRow,
    /// The last attempt of every case, by case.
    pub final_rows: Vec<&'a ResultRow>,
    /// Counts of them.
    pub tally: Tally,
    /// Cases that were tried more than once.
    pub retried: u64,
}

impl<'a> RunFigures<'a> {
    /// Counts the last attempt of every case; `rows` may hold earlier tries too, in any order.
    pub fn new(run: &'a RunRow, rows: impl IntoIterator<Item = &'a ResultRow>) -> Self {
        let mut last: BTreeMap<&CaseId, &ResultRow> = BTreeMap::new();
        for row in rows {
            let kept = last.entry(&row.case_id).or_insert(row);
            if row.attempt > kept.attempt {
                *kept = row;
            }
        }
        let mut final_rows: Vec<&ResultRow> = last.into_values().collect();
        final_rows.sort_by_key(|row| in_reading_order(row));
        let mut tally = Tally::default();
        for row in &final_rows {
            tally.add(row.outcome, row.verdict.is_unexpected());
        }
        let retried = final_rows.iter().filter(|row| row.attempt > 1).count() as u64;
        Self { run, final_rows, tally, retried }
    }

    /// Cases that say something about their target: the denominator of the pass rate.
    pub fn conclusive(&self) -> u64 {
        self.tally.pass + self.tally.fail
    }

    /// Planned cases that are not final.
    pub fn missing(&self) -> u64 {
        self.run.planned.saturating_sub(self.tally.total())
    }

    /// Final cases with this verdict.
    pub fn with_verdict(&self, verdict: Verdict) -> u64 {
        self.final_rows.iter().filter(|row| row.verdict == verdict).count() as u64
    }

    /// Final cases whose outcome was not the declared one, by what they are: `2 fail, 1 pass, 1 inconclusive`; empty where there
    /// are none.
    pub fn unexpected_kinds(&self) -> String {
        let kinds = [
            (Verdict::UnexpectedFail, "fail"),
            (Verdict::UnexpectedPass, "pass"),
            (Verdict::UnexpectedInconclusive, "inconclusive"),
        ];
        let counted = kinds.iter().map(|(verdict, word)| (self.with_verdict(*verdict), word)).filter(|(number, _)| *number > 0);
        counted.map(|(number, word)| format!("{} {word}", count(number))).collect::<Vec<_>>().join(", ")
    }

    /// Final cases whose outcome was not the declared one, most urgent first.
    pub fn unexpected(&self) -> Vec<&'a ResultRow> {
        let mut rows: Vec<&ResultRow> = self.final_rows.iter().copied().filter(|row| row.verdict.is_unexpected()).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(verdict_mark(row.verdict).urgency));
        rows
    }

    /// Final cases of one standing by outcome, most frequent first.
    pub fn by_outcome(&self, standing: Standing) -> Vec<(Outcome, u64)> {
        let mut counts: BTreeMap<Outcome, u64> = BTreeMap::new();
        for row in self.final_rows.iter().filter(|row| row.outcome.standing() == standing) {
            *counts.entry(row.outcome).or_default() += 1;
        }
        let mut counts: Vec<(Outcome, u64)> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }

    /// Counts by target and mode.
    pub fn by_target_and_mode(&self) -> BTreeMap<(&'a str, Mode), Tally> {
        let mut tallies: BTreeMap<(&str, Mode), Tally> = BTreeMap::new();
        for row in &self.final_rows {
            tallies.entry((row.target.as_str(), row.mode)).or_default().add(row.outcome, row.verdict.is_unexpected());
        }
        tallies
    }

    /// How far the run came, as a sentence with its denominator.
    pub fn how_far(&self) -> String {
        let final_cases = format!(
            "{} of {} final ({})",
            count(self.tally.total()),
            counted(self.run.planned, "planned case"),
            percent(self.tally.total(), self.run.planned)
        );
        match (self.run.state, self.missing()) {
            (_, 0) => final_cases,
            (RunState::Running, missing) => format!("{final_cases}; {} to come", count(missing)),
            (_, missing) => format!("{final_cases}; {} missing, and nothing below counts them", count(missing)),
        }
    }

    /// Inconclusive cases by cause: `load_error 5, gated 3`; empty where there are none.
    pub fn inconclusive_causes(&self) -> String {
        let causes = self.by_outcome(Standing::Inconclusive);
        causes.iter().map(|(outcome, number)| format!("{outcome} {}", count(*number))).collect::<Vec<_>>().join(", ")
    }
}

/// A tally of final cases in one sentence, each number with its denominator.
pub(crate) fn tally_summary(tally: &Tally) -> String {
    let conclusive = tally.pass + tally.fail;
    format!(
        "{} of {} pass ({}); {} inconclusive; {} unexpected of {}.",
        count(tally.pass),
        counted(conclusive, "conclusive case"),
        percent(tally.pass, conclusive),
        count(tally.inconclusive),
        count(tally.unexpected),
        counted(tally.total(), "final case")
    )
}

/// The order in which people look for a case.
pub(crate) fn in_reading_order(row: &ResultRow) -> impl Ord + use<> {
    let axes = (row.workload, row.dtype, row.target.clone(), row.mode);
    (row.architecture.clone(), row.model.clone(), axes, row.case_id.clone())
}
