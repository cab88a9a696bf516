//! What trying a changed case again in both environments came to.

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::outcome::Outcome;
use serde::Serialize;
use uuid::Uuid;

use super::attempt_columns::json_text;
use super::cell::{Cell, values};
use super::row_batch::insert_row;
use super::statement::{built, sql};
use super::table_columns::CONFIRMATIONS;
use super::time::now_ms;
use super::{Row, Store, StoreError};

/// A case that was tried again where it was well and where it is not, to tell a change from chance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confirmation {
    /// The same in every store, so that merges find it again.
    pub confirmation_id: Uuid,
    /// The case.
    pub case_id: CaseId,
    /// As it was before the change.
    pub before: Retrial,
    /// As it is since the change.
    pub after: Retrial,
    /// Whether the change was seen again; none where the tries decide nothing.
    pub confirmed: Option<bool>,
    /// When it ended, UTC milliseconds since 1970.
    pub at: i64,
}

/// The new tries of a case in one environment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Retrial {
    /// The environment.
    pub environment_id: String,
    /// The commit of the model, where it is known.
    pub revision: Option<String>,
    /// What each try came to, in order.
    pub outcomes: Vec<Outcome>,
}

impl Confirmation {
    /// A confirmation that ends now.
    pub fn new(case_id: CaseId, before: Retrial, after: Retrial, confirmed: Option<bool>) -> Self {
        Self { confirmation_id: Uuid::now_v7(), case_id, before, after, confirmed, at: now_ms() }
    }
}

impl Store {
    /// Records a confirmation; one that is there already stays as it is.
    ///
    /// # Errors
    /// No attempt of the case was ever recorded.
    pub async fn record_confirmation(&self, confirmation: &Confirmation) -> Result<(), StoreError> {
        let mut transaction = self.database.write().await?;
        let find = sql("SELECT case_key FROM cases WHERE case_id = $1").bind(confirmation.case_id.as_str());
        let Some(case) = transaction.optional(find).await? else {
            return Err(StoreError::NoSuchCase(confirmation.case_id.to_string()));
        };
        let values = confirmation_values(case.int("case_key")?, confirmation);
        insert_row(&mut transaction, &CONFIRMATIONS, values).await?;
        transaction.commit().await
    }

    /// The confirmations of a case, newest first.
    pub async fn confirmations_of(&self, case_id: &CaseId) -> Result<Vec<Confirmation>, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = built(CONFIRMATION_COLUMNS).text(" WHERE c.case_id = ").bind(case_id.as_str());
        let rows = transaction.all(query.text(" ORDER BY f.at DESC, f.confirmation_id DESC")).await?;
        rows.iter().map(confirmation).collect()
    }
}

/// Everything that `confirmation` reads.
pub(crate) const CONFIRMATION_COLUMNS: &str = "SELECT f.confirmation_id, f.case_key, c.case_id, f.before_environment, \
    f.before_revision, f.before_outcomes, f.after_environment, f.after_revision, f.after_outcomes, f.confirmed, f.at \
    FROM confirmations f JOIN cases c ON c.case_key = f.case_key";

pub(crate) fn confirmation(row: &Row) -> Result<Confirmation, StoreError> {
    let confirmed = match row.optional_int("confirmed")? {
        None => None,
        Some(0) => Some(false),
        Some(1) => Some(true),
        Some(other) => return Err(StoreError::Value { column: "confirmed", detail: format!("{other} is neither 0 nor 1") }),
    };
    Ok(Confirmation {
        confirmation_id: row.word("confirmation_id")?,
        case_id: row.word("case_id")?,
        before: Retrial {
            environment_id: row.text("before_environment")?,
            revision: row.optional_text("before_revision")?,
            outcomes: row.json("before_outcomes")?,
        },
        after: Retrial {
            environment_id: row.text("after_environment")?,
            revision: row.optional_text("after_revision")?,
            outcomes: row.json("after_outcomes")?,
        },
        confirmed,
        at: row.int("at")?,
    })
}

/// A confirmation, in the order of `CONFIRMATIONS`.
pub(crate) fn confirmation_values(case_key: i64, confirmation: &Confirmation) -> Vec<Cell> {
    let Confirmation { confirmation_id, before, after, confirmed, at, .. } = confirmation;
    values![
        confirmation_id.to_string(),
        case_key,
        &before.environment_id,
        &before.revision,
        json_text(&before.outcomes),
        &after.environment_id,
        &after.revision,
        json_text(&after.outcomes),
        confirmed.map(i64::from),
        *at,
    ]
}
