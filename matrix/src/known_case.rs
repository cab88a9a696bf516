//! Cases that somebody has heard of: what expectations are held against.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::case::Case;
use crate::fault::Fault;
use crate::model::Model;
use crate::outcome::Outcome;
use crate::selector::Selector;

/// What was observed of a case, as far as an expectation speaks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// What was observed.
    pub outcome: Outcome,
    /// Whose problem it is.
    pub fault: Option<Fault>,
}

/// What a case does not tell of its repository, and selectors ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// `config.model_type`.
    pub architecture: String,
    /// Its tags.
    pub tags: Vec<String>,
}

/// A case that was asked or is to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCase {
    /// The case.
    pub case: Case,
    /// What is known of its repository: nothing where it was planned and no shard that took it has begun.
    pub repository: Option<Repository>,
    /// What was last observed.
    pub newest: Option<Seen>,
    /// What was observed in the newest complete run that asked it.
    pub in_complete_run: Option<Seen>,
}

impl KnownCase {
    /// A case of a plan, of which nothing was observed.
    pub fn planned(model: &Model, case: &Case) -> Self {
        let repository = Repository { architecture: model.architecture.clone(), tags: model.tags.clone() };
        Self { case: case.clone(), repository: Some(repository), newest: None, in_complete_run: None }
    }

    /// Whether a selector matches it. What is not known of its repository is taken to match: a rule that may cover a case is
    /// not to be taken away from it.
    pub fn may_match(&self, select: &Selector) -> bool {
        let repository = self.repository.as_ref();
        select.matches_case(&self.case)
            && repository.is_none_or(|repository| select.matches_repository(&repository.architecture, &repository.tags))
    }
}

/// The cases that expectations are checked against, and every name that was ever heard of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The cases.
    pub cases: Vec<KnownCase>,
    /// Models, of these cases and of others.
    pub models: BTreeSet<String>,
    /// Architectures, of these cases and of others.
    pub architectures: BTreeSet<String>,
}

impl Known {
    /// These cases, and their names.
    pub fn of(cases: Vec<KnownCase>) -> Self {
        let mut known = Self { cases, ..Self::default() };
        for case in &known.cases {
            known.models.insert(case.case.model.to_string());
            known.architectures.extend(case.repository.as_ref().map(|repository| repository.architecture.clone()));
        }
        known
    }

    /// These and the cases of plans. A plan tells of a repository as it is now.
    pub fn with(self, planned: Vec<KnownCase>) -> Self {
        let mut cases: BTreeMap<Case, KnownCase> = self.cases.into_iter().map(|known| (known.case.clone(), known)).collect();
        for asked in planned {
            match cases.entry(asked.case.clone()) {
                Entry::Occupied(mut known) => known.get_mut().repository = asked.repository,
                Entry::Vacant(place) => {
                    place.insert(asked);
                }
            }
        }
        let mut known = Self::of(cases.into_values().collect());
        known.models.extend(self.models);
        known.architectures.extend(self.architectures);
        known
    }

    /// Only the cases of plans, with what was observed of them. The names of the others stay known.
    pub fn narrowed_to(self, planned: Vec<KnownCase>) -> Self {
        let asked: BTreeSet<Case> = planned.iter().map(|asked| asked.case.clone()).collect();
        let mut known = self.with(planned);
        known.cases.retain(|known| asked.contains(&known.case));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(case: &str, architecture: &str) -> KnownCase {
        let repository = Repository { architecture: architecture.into(), tags: vec!["smoke".into()] };
        let seen = Some(Seen { outcome: Outcome::Pass, fault: None });
        KnownCase { case: case.parse().unwrap(), repository: Some(repository), newest: seen, in_complete_run: seen }
    }

    const CASE: &str = "v1/a/b/C/transformers/real/forward/default/float32/highest/eager/cpu/compiled";

    #[test]
    fn what_is_not_known_of_a_repository_may_match() {
        let select = |text: &str| toml::from_str::<Selector>(text).unwrap();
        let case = known(CASE, "llama");
        assert!(case.may_match(&select("architecture = \"llama\"\ntag = \"smo*\"\nmode = \"compiled\"")));
        assert!(!case.may_match(&select("architecture = \"bert\"")));
        let unknown = KnownCase { repository: None, ..case };
        assert!(unknown.may_match(&select("architecture = \"bert\"")));
        assert!(!unknown.may_match(&select("architecture = \"bert\"\nmodel = \"a/c\"")));
        assert!(!unknown.may_match(&select("class = \"D\"")));
    }

    #[test]
    fn a_plan_says_which_cases_there_are_and_the_store_what_became_of_them() {
        let other = CASE.replace("a/b", "a/new");
        let gone = CASE.replace("a/b", "a/gone");
        let planned = |text: &str| KnownCase { newest: None, in_complete_run: None, ..known(text, "llama") };
        let recorded = Known::of(vec![known(CASE, "unknown"), known(&gone, "bert")]);
        let both = recorded.clone().with(vec![planned(CASE), planned(&other)]);
        assert_eq!(both.cases, [known(CASE, "llama"), known(&gone, "bert"), planned(&other)]);
        let only_planned = recorded.narrowed_to(vec![planned(CASE), planned(&other)]);
        assert_eq!(only_planned.cases, [known(CASE, "llama"), planned(&other)]);
        let names = ["a/b", "a/gone", "a/new"].map(str::to_owned);
        assert_eq!((&both.models, &only_planned.models), (&BTreeSet::from(names.clone()), &BTreeSet::from(names)));
        assert!(only_planned.architectures.contains("bert"));
    }
}
