//! What befell every case, for whoever judges a classifier. The classifier reads the store alone.

use std::collections::BTreeMap;

use modelfarm_matrix::change::Change;
use modelfarm_reports::store::rfc3339;
use serde_json::{Value, json};

use crate::calendar::{Night, SHARDS, host};
use crate::cases::{HistoryCase, HistoryModel};
use crate::pattern::{Cause, Pattern};

/// The whole truth. Nights are numbered from 1; `silent` holds the nights on which a case said nothing, by its id.
pub fn truth(seed: u64, nights: &[Night], models: &[HistoryModel], silent: &BTreeMap<String, Vec<usize>>) -> Value {
    json!({
        "seed": seed,
        "nights": nights.iter().enumerate().map(|(number, night)| told_night(number, night)).collect::<Vec<_>>(),
        "models": models.iter().map(told_model).collect::<Vec<_>>(),
        "cases": models.iter().flat_map(|model| model.cases.iter().map(|case| told_case(model, case, nights, silent))).collect::<Vec<_>>(),
    })
}

pub fn file_name(number: usize) -> String {
    format!("night-{:04}.db", number + 1)
}

fn told_night(number: usize, night: &Night) -> Value {
    json!({
        "night": number + 1,
        "file": file_name(number),
        "run_id": night.run_id,
        "started_at": rfc3339(night.started_at),
        "environment_id": night.environment.environment_id,
        "package_change": night.package_change.as_ref().map(|change| json!({"package": change.package, "from": change.from, "to": change.to})),
        "missing_shard": night.missing_shard.map(shard_name),
        "silent_share": night.silent_share,
    })
}

pub fn shard_name(shard: usize) -> String {
    format!("{}/{SHARDS}", shard + 1)
}

fn told_model(model: &HistoryModel) -> Value {
    json!({
        "model": model.name,
        "architecture": model.architecture,
        "shard": shard_name(model.shard),
        "first_night": model.nights.start + 1,
        "last_night": model.nights.end,
        "revisions": model.revisions.iter().map(|(night, revision)| json!({"night": night + 1, "revision": revision})).collect::<Vec<_>>(),
    })
}

fn told_case(model: &HistoryModel, case: &HistoryCase, nights: &[Night], silent: &BTreeMap<String, Vec<usize>>) -> Value {
    let id = case.case.id();
    let mut changes: Vec<Value> = Vec::new();
    if model.nights.start > 0 {
        let change = if matches!(case.pattern, Pattern::Fails) { Change::NewFailure } else { Change::NewPass };
        changes.push(json!({"night": model.nights.start + 1, "change": change}));
    }
    for (turn, change) in case.pattern.turns() {
        let (cause, package) = match turn.cause {
            Cause::Package(package) => ("package", Some(package)),
            Cause::Revision => ("revision", None),
            Cause::Nothing => ("nothing", None),
        };
        changes.push(json!({"night": turn.night + 1, "change": change, "cause": cause, "package": package}));
    }
    if model.nights.end < nights.len() {
        changes.push(json!({"night": model.nights.end + 1, "change": Change::Vanished}));
    }
    let (p, bad_host) = match case.pattern {
        Pattern::Flakes(p) | Pattern::FlakesThenRegresses(p, _) => (Some(p), None),
        Pattern::FailsOnHost(number) => (None, Some(host(number))),
        _ => (None, None),
    };
    json!({
        "case_id": id,
        "canonical": case.case.canonical(),
        "model": model.name,
        "architecture": model.architecture,
        "mode": case.case.mode,
        "pattern": case.pattern.word(),
        "p": p,
        "host": bad_host,
        "changes": changes,
        "silent_nights": silent.get(id.as_str()).map(|nights| nights.iter().map(|night| night + 1).collect::<Vec<_>>()).unwrap_or_default(),
    })
}
