//! The answers of a store held against the truth, night for night.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;

use modelfarm_matrix::change::Change;
use modelfarm_reports::query::{ChangeRow, Question};
use modelfarm_reports::store::Store;

use super::expected::{Expected, expected};
use super::known_truth::{Ground, KnownHistory, KnownTruth};

/// So many nights must have told something of a case before anybody can know that it flakes.
pub const LEAST_NIGHTS: usize = 7;

/// What the truth says of a case in one comparison: a row of the confusion table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TruthClass {
    /// Only the night decides; this is to be told, or nothing.
    Certain(Option<Change>),
    /// Passes and fails by chance.
    Flaking,
    /// Passed and failed by chance, and always fails now.
    FlakedAndFails,
    /// Fails on one host.
    FailsOnHost,
}

impl std::fmt::Display for TruthClass {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            TruthClass::Certain(Some(change)) => change.as_str(),
            TruthClass::Certain(None) => "nothing to tell",
            TruthClass::Flaking => "(flaking)",
            TruthClass::FlakedAndFails => "(flaked, fails for good)",
            TruthClass::FailsOnHost => "(fails on one host)",
        })
    }
}

/// How a flaking case was told of over all nights.
#[derive(Default)]
struct FlakingCase {
    called: bool,
    /// Called after `LEAST_NIGHTS` nights that told something of it.
    called_when_known: bool,
}

/// Everything that was counted.
#[derive(Default)]
pub struct Score {
    /// Comparisons of two nights by truth and by what was told.
    pub table: BTreeMap<(TruthClass, Option<Change>), u64>,
    /// Comparisons with a row of a case that only the night decides whose baseline, packages or revision are not the true ones.
    pub wrong_causes: u64,
    /// What was told wrongly of cases that only the night decides: the first few.
    pub examples: Vec<String>,
    /// Cases that flake, with those that fail for good later.
    pub flaking_cases: u64,
    /// Of these, how many were called `regressed` while they only flaked.
    pub called: u64,
    /// The same after `LEAST_NIGHTS` nights that told something of the case.
    pub called_when_known: u64,
    /// Comparisons of flaking cases after so many nights, and how many of them called one `regressed`.
    pub known_comparisons: u64,
    pub known_comparisons_called: u64,
    /// Flaking cases that fail for good from a night on.
    pub failing_for_good: u64,
    /// For each of them that was called `regressed` then: after how many more complete nights.
    pub delays: Vec<usize>,
    /// Hosts that stood out at the end, and those that should have.
    pub hosts_found: u64,
    pub hosts_true: u64,
    pub hosts_wrong: u64,
}

impl Score {
    /// Comparisons of cases that only the night decides: how many there are, and of how many the right thing is told.
    pub fn certain(&self) -> (u64, u64) {
        self.table.iter().fold((0, 0), |(all, right), ((truth, told), count)| match truth {
            TruthClass::Certain(change) => (all + count, right + if change == told { *count } else { 0 }),
            _ => (all, right),
        })
    }

    /// Whether everything is as it was promised.
    pub fn is_fine(&self) -> bool {
        let (all, right) = self.certain();
        all == right
            && self.wrong_causes == 0
            && self.delays.len() as u64 == self.failing_for_good
            && self.called_when_known * 100 <= self.flaking_cases
    }

    /// Asks a store about every night and counts. The store sees run ids and nothing else of the truth.
    pub async fn judge(&mut self, store: &Store, truth: &KnownTruth) -> Result<(), Box<dyn Error>> {
        let histories = truth.histories();
        let mut flaking: HashMap<&str, FlakingCase> = HashMap::new();
        let mut called_for_good: HashMap<&str, usize> = HashMap::new();
        let mut complete = Vec::new();
        for (place, night) in truth.nights.iter().enumerate() {
            let number = place + 1;
            if !complete.is_empty() {
                let question = Question { run: Some(night.run_id.clone()), ..Question::default() };
                let comparison = store.comparison(&question).await?;
                let rows: HashMap<&str, &ChangeRow> = comparison.rows.iter().map(|row| (row.case_id.as_str(), row)).collect();
                for history in &histories {
                    let row = rows.get(history.case.case_id.as_str()).copied();
                    match history.ground() {
                        Ground::Certain => self.certain_case(truth, history, &complete, number, row),
                        ground => {
                            let Some(class) = uncertain(history, ground, &complete, number) else { continue };
                            *self.table.entry((class, row.map(|row| row.change))).or_default() += 1;
                            let is_called = row.is_some_and(|row| row.change == Change::Regressed);
                            let known = complete.iter().filter(|night| history.is_told(**night)).count() >= LEAST_NIGHTS;
                            let id = history.case.case_id.as_str();
                            match class {
                                TruthClass::Flaking => {
                                    let case = flaking.entry(id).or_default();
                                    case.called |= is_called;
                                    case.called_when_known |= is_called && known;
                                    self.known_comparisons += u64::from(known);
                                    self.known_comparisons_called += u64::from(is_called && known);
                                }
                                TruthClass::FlakedAndFails if is_called => {
                                    let Ground::Chance { fails_from: Some(from) } = ground else { continue };
                                    let after = complete.iter().filter(|night| **night >= from).count();
                                    called_for_good.entry(id).or_insert(after);
                                }
                                _ => {}
                            }
                        }
                    }
                }
            }
            if night.is_complete() {
                complete.push(number);
            }
        }
        let fails_for_good = |history: &&KnownHistory<'_>| matches!(history.ground(), Ground::Chance { fails_from: Some(_) });
        self.failing_for_good += histories.iter().filter(fails_for_good).count() as u64;
        self.delays.extend(called_for_good.into_values());
        self.flaking_cases += flaking.len() as u64;
        self.called += flaking.values().filter(|case| case.called).count() as u64;
        self.called_when_known += flaking.values().filter(|case| case.called_when_known).count() as u64;
        self.judge_hosts(store, truth).await
    }

    fn certain_case(
        &mut self,
        truth: &KnownTruth,
        history: &KnownHistory<'_>,
        complete: &[usize],
        number: usize,
        row: Option<&ChangeRow>,
    ) {
        let should = expected(history, complete, number);
        let told = row.map(|row| row.change);
        *self.table.entry((TruthClass::Certain(should.map(|should| should.change)), told)).or_default() += 1;
        let is_right = told == should.map(|should| should.change);
        let has_cause =
            !is_right || row.zip(should).is_none_or(|(row, should)| has_true_cause(truth, history, row, should, number));
        self.wrong_causes += u64::from(!has_cause);
        if !(is_right && has_cause) && self.examples.len() < 10 {
            let example = format!(
                "seed {} night {number} case {} ({}): should be {should:?}, told {row:?}",
                truth.seed, history.case.case_id, history.case.pattern
            );
            self.examples.push(example);
        }
    }

    async fn judge_hosts(&mut self, store: &Store, truth: &KnownTruth) -> Result<(), Box<dyn Error>> {
        let bad: std::collections::BTreeSet<&str> = truth.cases.iter().filter_map(|case| case.host.as_deref()).collect();
        let found = store.host_flakes(None, modelfarm_reports::query::WINDOW).await?;
        self.hosts_true += bad.len() as u64;
        for host in found.iter().filter(|host| host.stands_out) {
            match bad.contains(host.host.as_str()) {
                true => self.hosts_found += 1,
                false => self.hosts_wrong += 1,
            }
        }
        Ok(())
    }
}

/// The class of a case that more than the night decides; none where it was not tried, or said nothing.
fn uncertain(history: &KnownHistory<'_>, ground: Ground, complete: &[usize], number: usize) -> Option<TruthClass> {
    let was_told = complete.iter().any(|night| history.is_told(*night));
    if !(was_told && history.is_told(number)) {
        return None;
    }
    Some(match ground {
        Ground::Host => TruthClass::FailsOnHost,
        Ground::Chance { fails_from: Some(night) } if number >= night => TruthClass::FlakedAndFails,
        _ => TruthClass::Flaking,
    })
}

/// Whether a row names the true baseline, the packages that differ from it, and whether the model's revision does.
fn has_true_cause(truth: &KnownTruth, history: &KnownHistory<'_>, row: &ChangeRow, should: Expected, number: usize) -> bool {
    let Some(before) = should.before else { return true };
    let is_true_baseline = row.before.as_ref().is_some_and(|side| side.run_id == truth.nights[before - 1].run_id);
    if should.change == Change::Vanished {
        return is_true_baseline && row.after.is_none();
    }
    is_true_baseline
        && row.environment_changes == history.package_changes(before, number)
        && row.model_changed == Some(history.model_changed(before, number))
}
