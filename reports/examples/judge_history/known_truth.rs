//! The truth about a generated history, read.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::change::Change;
use modelfarm_reports::query::PackageChange;
use serde::Deserialize;
use serde_json::Value;

/// The truth, as `generate_history` wrote it. Nights count from 1.
#[derive(Deserialize)]
pub struct KnownTruth {
    pub seed: u64,
    pub nights: Vec<KnownNight>,
    models: Vec<KnownModel>,
    pub cases: Vec<KnownCase>,
}

#[derive(Deserialize)]
pub struct KnownNight {
    pub run_id: String,
    missing_shard: Option<String>,
    package_change: Option<NightsPackage>,
}

#[derive(Deserialize)]
struct NightsPackage {
    package: String,
    from: String,
    to: String,
}

#[derive(Deserialize)]
struct KnownModel {
    model: String,
    shard: String,
    first_night: usize,
    last_night: usize,
    revisions: Vec<Revision>,
}

#[derive(Deserialize)]
struct Revision {
    night: usize,
}

#[derive(Deserialize)]
pub struct KnownCase {
    pub case_id: String,
    model: String,
    pub pattern: String,
    pub host: Option<String>,
    changes: Vec<KnownChange>,
    silent_nights: BTreeSet<usize>,
}

#[derive(Deserialize)]
struct KnownChange {
    night: usize,
    change: Change,
    cause: Option<String>,
}

/// What decides how a case ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Nothing but the night.
    Certain,
    /// Chance, until from a night on it always fails, where it does.
    Chance { fails_from: Option<usize> },
    /// The host.
    Host,
}

/// A case with all that bears on it.
pub struct KnownHistory<'a> {
    pub case: &'a KnownCase,
    nights: &'a [KnownNight],
    model: &'a KnownModel,
}

impl KnownTruth {
    pub fn of(value: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(value)
    }

    /// Every case with its history.
    pub fn histories(&self) -> Vec<KnownHistory<'_>> {
        let models: BTreeMap<&str, &KnownModel> = self.models.iter().map(|model| (model.model.as_str(), model)).collect();
        self.cases.iter().map(|case| KnownHistory { case, nights: &self.nights, model: models[case.model.as_str()] }).collect()
    }
}

impl KnownNight {
    /// Whether all shards came.
    pub fn is_complete(&self) -> bool {
        self.missing_shard.is_none()
    }
}

impl KnownHistory<'_> {
    pub fn ground(&self) -> Ground {
        let turn = self.case.changes.iter().find(|change| change.cause.is_some()).map(|change| change.night);
        match self.case.pattern.as_str() {
            "flakes" => Ground::Chance { fails_from: None },
            "flakes_then_regresses" => Ground::Chance { fails_from: turn },
            "fails_on_host" => Ground::Host,
            _ => Ground::Certain,
        }
    }

    /// Whether the night's plan had the case.
    pub fn is_planned(&self, night: usize) -> bool {
        (self.model.first_night..=self.model.last_night).contains(&night)
    }

    /// Whether the case was tried.
    pub fn is_tried(&self, night: usize) -> bool {
        self.is_planned(night) && self.nights[night - 1].missing_shard.as_ref() != Some(&self.model.shard)
    }

    /// Whether the case was tried and said something of the target.
    pub fn is_told(&self, night: usize) -> bool {
        self.is_tried(night) && !self.case.silent_nights.contains(&night)
    }

    /// Whether the case, which is certain, fails.
    pub fn fails(&self, night: usize) -> bool {
        let mut turned = self.case.changes.iter().filter(|change| change.cause.is_some() && change.night <= night);
        match turned.next_back().map(|change| change.change) {
            Some(change) => change == Change::Regressed,
            None => matches!(self.case.pattern.as_str(), "fails" | "is_fixed"),
        }
    }

    /// The packages that differ between two nights, by name.
    pub fn package_changes(&self, before: usize, after: usize) -> Vec<PackageChange> {
        let mut changes: BTreeMap<&str, PackageChange> = BTreeMap::new();
        for change in self.nights[before..after].iter().filter_map(|night| night.package_change.as_ref()) {
            let (package, from) = (change.package.clone(), Some(change.from.clone()));
            let first = changes.entry(&change.package).or_insert(PackageChange { package, from, to: None });
            first.to = Some(change.to.clone());
        }
        changes.into_values().collect()
    }

    /// Whether the model's revision differs between two nights.
    pub fn model_changed(&self, before: usize, after: usize) -> bool {
        self.model.revisions.iter().any(|revision| revision.night > before && revision.night <= after)
    }
}
