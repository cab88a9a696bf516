//! Failures in groups: the same masked message across models.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::outcome::{Outcome, Standing};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ResultFilter;
use crate::rows::ResultRow;
use crate::store::statement::{built, sql};
use crate::store::{Store, StoreError, Transaction, rfc3339};

/// How many cases and architectures of a group are named.
const NAMED: usize = 5;

/// A group of failures: one outcome, fault and masked message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    /// The masked message; none where nothing was said.
    pub signature: Option<String>,
    /// What was observed.
    pub outcome: Outcome,
    /// Whose problem it is.
    pub fault: Option<Fault>,
    /// Cases of the run in this group.
    pub cases: u64,
    /// Architectures of these.
    pub architectures: u64,
    /// Models of these.
    pub models: u64,
    /// Downloads of these models together, as the Hub told them.
    pub downloads: u64,
    /// Cases of these whose outcome was not the declared one.
    pub unexpected: u64,
    /// The targets.
    pub targets: Vec<String>,
    /// The modes.
    pub modes: Vec<Mode>,
    /// When any run first saw this outcome and message, RFC 3339 in UTC.
    pub first_seen: String,
    /// When any run last did.
    pub last_seen: String,
    /// Some of the architectures, by name.
    pub sample_architectures: Vec<String>,
    /// Some of the cases.
    pub sample_cases: Vec<String>,
    /// The group as a condition on the store's table `attempts`, to paste after `WHERE`.
    pub predicate: String,
}

impl Store {
    /// The failures that a filter lets through in groups, those that block most architectures first, then most downloads.
    ///
    /// `inconclusive` asks for the outcomes that say nothing about the target too. Without outcomes in the filter passes
    /// are left out.
    pub async fn failures(&self, filter: &ResultFilter, inconclusive: bool) -> Result<Vec<FailureGroup>, StoreError> {
        let wanted: Vec<Outcome> = match filter.outcomes.is_empty() {
            false => filter.outcomes.clone(),
            true => Outcome::ALL
                .iter()
                .copied()
                .filter(|outcome| match outcome.standing() {
                    Standing::Pass => false,
                    Standing::Fail => true,
                    Standing::Inconclusive => inconclusive,
                })
                .collect(),
        };
        let filter = ResultFilter { outcomes: wanted, final_only: true, limit: None, ..filter.clone() };
        self.grouped_failures(&self.results(&filter).await?).await
    }

    /// The groups of these rows, which should be failures.
    pub async fn grouped_failures(&self, rows: &[ResultRow]) -> Result<Vec<FailureGroup>, StoreError> {
        let mut transaction = self.database.read().await?;
        let downloads = downloads(&mut transaction).await?;
        let mut groups = grouped(rows, &downloads);
        for group in &mut groups {
            (group.first_seen, group.last_seen) = seen(&mut transaction, group).await?;
        }
        Ok(groups)
    }
}

/// Groups rows; the times are filled in by the caller.
fn grouped(rows: &[ResultRow], downloads: &BTreeMap<String, u64>) -> Vec<FailureGroup> {
    let mut groups: BTreeMap<_, Vec<&ResultRow>> = BTreeMap::new();
    for row in rows {
        groups.entry((row.outcome.as_str(), row.fault.map(Fault::as_str), row.signature.clone())).or_default().push(row);
    }
    let mut groups: Vec<FailureGroup> = groups.into_values().map(|rows| group(&rows, downloads)).collect();
    groups.sort_by_key(|group| {
        let most_first = |count: u64| std::cmp::Reverse(count);
        (most_first(group.architectures), most_first(group.downloads), most_first(group.cases))
    });
    groups
}

fn group(rows: &[&ResultRow], downloads: &BTreeMap<String, u64>) -> FailureGroup {
    let first = rows[0];
    let architectures: BTreeSet<&str> = rows.iter().map(|row| row.architecture.as_str()).collect();
    let models: BTreeSet<&str> = rows.iter().map(|row| row.model.as_str()).collect();
    let targets: BTreeSet<&String> = rows.iter().map(|row| &row.target).collect();
    let cases: BTreeSet<&str> = rows.iter().map(|row| row.case_id.as_str()).collect();
    FailureGroup {
        signature: first.signature.clone(),
        outcome: first.outcome,
        fault: first.fault,
        cases: cases.len() as u64,
        architectures: architectures.len() as u64,
        models: models.len() as u64,
        downloads: models.iter().filter_map(|model| downloads.get(*model)).sum(),
        unexpected: rows.iter().filter(|row| row.verdict.is_unexpected()).count() as u64,
        targets: targets.into_iter().cloned().collect(),
        modes: Mode::ALL.iter().copied().filter(|mode| rows.iter().any(|row| row.mode == *mode)).collect(),
        first_seen: String::new(),
        last_seen: String::new(),
        sample_architectures: architectures.iter().take(NAMED).map(|name| (*name).to_owned()).collect(),
        sample_cases: cases.iter().take(NAMED).map(|id| (*id).to_owned()).collect(),
        predicate: predicate(first),
    }
}

/// `outcome = '...' AND fault ... AND signature ...`, with the quotes of a hostile message doubled.
fn predicate(row: &ResultRow) -> String {
    let equals = |column: &str, value: Option<&str>| match value {
        Some(value) => format!("{column} = '{}'", value.replace('\'', "''")),
        None => format!("{column} IS NULL"),
    };
    [
        equals("outcome", Some(row.outcome.as_str())),
        equals("fault", row.fault.map(Fault::as_str)),
        equals("signature", row.signature.as_deref()),
    ]
    .join(" AND ")
}

/// The newest known downloads of each model.
async fn downloads(transaction: &mut Transaction) -> Result<BTreeMap<String, u64>, StoreError> {
    let query = sql("SELECT model, downloads FROM models ORDER BY seen_at");
    let rows = transaction.all(query).await?;
    rows.iter().map(|row| Ok((row.text("model")?, row.unsigned("downloads")?))).collect()
}

async fn seen(transaction: &mut Transaction, group: &FailureGroup) -> Result<(String, String), StoreError> {
    let times = "SELECT MIN(started_at) AS first_seen, MAX(started_at) AS last_seen FROM attempts WHERE ";
    let query = match &group.signature {
        Some(signature) => {
            built(times).text("signature = ").bind(signature.clone()).text(" AND outcome = ").bind(group.outcome.as_str())
        }
        None => built(times).text("signature IS NULL AND outcome = ").bind(group.outcome.as_str()),
    };
    let row = transaction.one(query).await?;
    Ok((rfc3339(row.int("first_seen")?), rfc3339(row.int("last_seen")?)))
}
