//! Since when a case works, or is broken.

use std::collections::HashMap;

use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::model::ModelId;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_matrix::works::Works;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::case_history::{HistoryFilter, Turn, turning_cases};
use super::package_change::{PackageChange, package_changes};
use crate::store::statement::sql;
use crate::store::{Store, StoreError, Transaction, rfc3339};

/// How a case stands, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
        let names = run_ids(&mut transaction).await?;
        let name = |key: i64| names.get(&key).cloned().unwrap_or_default();
        let (mut rows, mut pairs) = (Vec::new(), Vec::new());
        for turning in turning_cases(&mut transaction, filter).await? {
            let Turn { works, night, before, .. } = turning.newest();
            pairs.push((before.as_ref().and_then(|night| night.environment_id.clone()), night.environment_id.clone()));
            rows.push(StandingRow {
                standing: *works,
                since_run: name(night.run_key),
                since: rfc3339(night.started_at),
                runs: turning.nights_since(),
                before_run: before.as_ref().map(|night| name(night.run_key)),
                environment_changes: Vec::new(),
                outcome: turning.outcome,
                case_id: turning.case.case_id,
                architecture: turning.architecture,
                model: turning.case.model,
                target: turning.case.target,
                mode: turning.case.mode,
                workload: turning.case.workload,
                dtype: turning.case.dtype,
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
