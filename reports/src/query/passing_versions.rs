//! The newest environment in which all of an architecture passed.

use std::collections::BTreeMap;

use modelfarm_matrix::axes::Mode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::case_history::{HistoryFilter, history_cases, telling};
use super::standing::run_ids;
use crate::store::statement::{Statement, built};
use crate::store::{Store, StoreError, rfc3339};

/// An architecture on a target in a mode, and where all of it last passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassingVersionsRow {
    /// `config.model_type`.
    pub architecture: String,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// The newest run in which every case of it that says something passed; none where there was none.
    pub run_id: Option<String>,
    /// Its start, RFC 3339 in UTC.
    pub started_at: Option<String>,
    /// Whether that is the newest run of all that says something of it.
    pub is_newest: bool,
    /// Cases that passed in it.
    pub cases: u64,
    /// The environment of it.
    pub environment_id: Option<String>,
    /// Version by package of that environment.
    pub packages: BTreeMap<String, String>,
}

/// Cases in one statement.
const AT_ONCE: usize = 1000;

/// Of one run: when it began, its environment, and how many cases passed and failed.
struct Night {
    started_at: i64,
    run_key: i64,
    environment_id: Option<String>,
    pass: u64,
    fail: u64,
}

impl Store {
    /// For each architecture, target and mode the newest run in which all of it passed, with its packages.
    pub async fn passing_versions(&self, filter: &HistoryFilter) -> Result<Vec<PassingVersionsRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let mut groups: BTreeMap<(String, String, Mode), BTreeMap<i64, Night>> = BTreeMap::new();
        let mut keys: BTreeMap<(String, Mode), Vec<i64>> = BTreeMap::new();
        for (key, case) in history_cases(&mut transaction, filter).await? {
            keys.entry((case.target, case.mode)).or_default().push(key);
        }
        for ((target, mode), keys) in keys {
            for keys in keys.chunks(AT_ONCE) {
                for row in transaction.all(counts_of(filter, keys)).await? {
                    let nights = groups.entry((row.text("architecture")?, target.clone(), mode)).or_default();
                    let (run_key, started_at) = (row.int("run_key")?, row.int("started_at")?);
                    let environment_id = row.optional_text("environment_id")?;
                    let night =
                        nights.entry(run_key).or_insert(Night { started_at, run_key, environment_id, pass: 0, fail: 0 });
                    night.started_at = night.started_at.min(started_at);
                    night.pass += row.unsigned("pass")?;
                    night.fail += row.unsigned("cases")? - row.unsigned("pass")?;
                }
            }
        }
        let names = run_ids(&mut transaction).await?;
        let mut rows = Vec::new();
        for ((architecture, target, mode), nights) in groups {
            let mut nights: Vec<Night> = nights.into_values().collect();
            nights.sort_by_key(|night| std::cmp::Reverse((night.started_at, night.run_key)));
            let Some(newest) = nights.first().map(|night| night.run_key) else { continue };
            let passed = nights.into_iter().find(|night| night.fail == 0);
            let environment_id = passed.as_ref().and_then(|night| night.environment_id.clone());
            rows.push(PassingVersionsRow {
                architecture,
                target,
                mode,
                run_id: passed.as_ref().and_then(|night| names.get(&night.run_key).cloned()),
                started_at: passed.as_ref().map(|night| rfc3339(night.started_at)),
                is_newest: passed.as_ref().is_some_and(|night| night.run_key == newest),
                cases: passed.map_or(0, |night| night.pass),
                environment_id,
                packages: BTreeMap::new(),
            });
        }
        let ids: std::collections::BTreeSet<&String> = rows.iter().filter_map(|row| row.environment_id.as_ref()).collect();
        let mut packages: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        if !ids.is_empty() {
            let query = built("SELECT environment_id, packages FROM environments WHERE 1 = 1").and_in("environment_id", ids);
            for row in transaction.all(query).await? {
                packages.insert(row.text("environment_id")?, row.json("packages")?);
            }
        }
        for row in &mut rows {
            row.packages = row.environment_id.as_ref().and_then(|id| packages.get(id).cloned()).unwrap_or_default();
        }
        Ok(rows)
    }
}

/// Of each run and architecture, how many of some cases say something of the target, and how many of these passed.
fn counts_of(filter: &HistoryFilter, cases: &[i64]) -> Statement {
    let query = built(
        "SELECT a.architecture, a.run_key, MIN(a.started_at) AS started_at, MIN(a.environment_id) AS environment_id, \
         COUNT(*) AS cases, COUNT(CASE WHEN a.outcome = 'pass' THEN 1 END) AS pass FROM attempts a WHERE a.is_final = 1",
    );
    telling(filter.narrow(query, cases)).text(" GROUP BY a.architecture, a.run_key")
}
