//! Since when a case works, or is broken.

use std::collections::HashMap;

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::episode::{Works, episodes};
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::Outcome;
use serde::{Deserialize, Serialize};

use super::case_history::{HistoryFilter, case_histories};
use super::package_change::{PackageChange, package_changes};
use crate::store::statement::sql;
use crate::store::{Store, StoreError, Transaction, rfc3339};

/// How a case stands, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingRow {
    /// The case.
    pub case_id: CaseId,
    /// `config.model_type`.
    pub architecture: String,
    /// The repository.
    pub model: ModelId,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// What was run.
    pub workload: Workload,
    /// The compute dtype.
    pub dtype: Dtype,
    /// Whether it works.
    pub standing: Works,
    /// The newest outcome that says something of the target.
    pub outcome: Outcome,
    /// The first run of the row of runs that stand so, or the first that is known.
    pub since_run: String,
    /// Its start, RFC 3339 in UTC.
    pub since: String,
    /// Runs in that row.
    pub runs: u64,
    /// The last run before it, which stood otherwise; none where it always stood so.
    pub before_run: Option<String>,
    /// Packages that differ between these two runs.
    pub environment_changes: Vec<PackageChange>,
}

impl Store {
    /// How each case that a filter lets through stands, and since when.
    pub async fn standing(&self, filter: &HistoryFilter) -> Result<Vec<StandingRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let histories = case_histories(&mut transaction, filter).await?;
        let names = run_ids(&mut transaction).await?;
        let name = |key: i64| names.get(&key).cloned().unwrap_or_default();
        let (mut rows, mut pairs) = (Vec::new(), Vec::new());
        for case in histories {
            let told = episodes(case.nights.iter().map(|night| night.outcome));
            let Some(now) = told.last() else { continue };
            let first = &case.nights[now.first];
            let before = told.len().checked_sub(2).map(|place| &case.nights[told[place].last]);
            pairs.push((before.and_then(|night| night.environment_id.clone()), first.environment_id.clone()));
            rows.push(StandingRow {
                case_id: case.case_id,
                architecture: case.architecture,
                model: case.model,
                target: case.target,
                mode: case.mode,
                workload: case.workload,
                dtype: case.dtype,
                standing: now.works,
                outcome: case.nights[now.last].outcome,
                since_run: name(first.run_key),
                since: rfc3339(first.started_at),
                runs: now.nights as u64,
                before_run: before.map(|night| name(night.run_key)),
                environment_changes: Vec::new(),
            });
        }
        let changes = package_changes(&mut transaction, &pairs).await?;
        for (row, changes) in rows.iter_mut().zip(changes) {
            row.environment_changes = changes;
        }
        Ok(rows)
    }
}

/// The id of every run by its key.
pub(crate) async fn run_ids(transaction: &mut Transaction) -> Result<HashMap<i64, String>, StoreError> {
    let rows = transaction.all(sql("SELECT run_key, run_id FROM runs")).await?;
    rows.iter().map(|row| Ok((row.int("run_key")?, row.text("run_id")?))).collect()
}
