//! How long it took until what broke worked again.

use std::collections::BTreeMap;

use modelfarm_matrix::axes::Mode;
use modelfarm_matrix::works::Works;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::case_history::{HistoryFilter, turning_cases};
use crate::store::{Store, StoreError};

/// The repairs of an architecture on a target in a mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RepairRow {
    /// `config.model_type`.
    pub architecture: String,
    /// The target.
    pub target: String,
    /// How the backend executed.
    pub mode: Mode,
    /// Times that a case which had worked broke.
    pub broke: u64,
    /// Of these, how many work again.
    pub repaired: u64,
    /// Of these, how many are broken still.
    pub open: u64,
    /// Median of the days from the first failing run to the first that passed.
    pub median_days: Option<f64>,
    /// The longest of them.
    pub longest_days: Option<f64>,
}

const DAY_MS: f64 = 86_400_000.0;

impl Store {
    /// How long repairs took, by architecture, target and mode. A case that never worked before does not count.
    pub async fn repairs(&self, filter: &HistoryFilter) -> Result<Vec<RepairRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let mut groups: BTreeMap<(String, String, Mode), (u64, Vec<f64>)> = BTreeMap::new();
        for turning in turning_cases(&mut transaction, filter).await? {
            let key = (turning.architecture.clone(), turning.case.target.clone(), turning.case.mode);
            for (place, turn) in turning.turns.iter().enumerate().skip(1).filter(|(_, turn)| turn.works == Works::Broken) {
                let (broke, days) = groups.entry(key.clone()).or_default();
                *broke += 1;
                if let Some(again) = turning.turns.get(place + 1) {
                    days.push((again.night.started_at - turn.night.started_at) as f64 / DAY_MS);
                }
            }
        }
        let row = |((architecture, target, mode), (broke, mut days)): ((String, String, Mode), (u64, Vec<f64>))| {
            days.sort_by(f64::total_cmp);
            let repaired = days.len() as u64;
            let median = |days: &[f64]| (days[(days.len() - 1) / 2] + days[days.len() / 2]) / 2.0;
            RepairRow {
                architecture,
                target,
                mode,
                broke,
                repaired,
                open: broke - repaired,
                median_days: (!days.is_empty()).then(|| median(&days)),
                longest_days: days.last().copied(),
            }
        };
        Ok(groups.into_iter().map(row).collect())
    }
}
