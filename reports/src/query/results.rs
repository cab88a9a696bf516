//! Attempts as `query results` prints them.

use std::fmt;
use std::str::FromStr;

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::outcome::Outcome;

use super::case_filter::CaseFilter;
use super::run_reference::find_run;
use crate::rows::ResultRow;
use crate::store::attempt_columns::{result_columns, result_row};
use crate::store::statement::{Statement, built, sql};
use crate::store::{Store, StoreError, Transaction};

/// Which attempts.
#[derive(Debug, Clone, Default)]
pub struct ResultFilter {
    /// A run id, its beginning, `latest` or `latest~N`; none means every run.
    pub run: Option<String>,
    /// Of these cases.
    pub cases: CaseFilter,
    /// Of these outcomes; of every one where none is named.
    pub outcomes: Vec<Outcome>,
    /// At most so many rows.
    pub limit: Option<u64>,
    /// Only those behind this one in the order of `results`: where a page goes on.
    pub after: Option<AttemptPlace>,
    /// Only the attempt that counts for its case in its run: the last.
    pub final_only: bool,
}

/// An attempt by what it is the same in every store, as `RUN.CASE.NUMBER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptPlace {
    /// The run's whole id.
    pub run_id: String,
    /// The case.
    pub case_id: CaseId,
    /// The number of the try.
    pub attempt: u32,
}

impl AttemptPlace {
    /// Where a row stands.
    pub fn of(row: &ResultRow) -> Self {
        Self { run_id: row.run_id.clone(), case_id: row.case_id.clone(), attempt: row.attempt }
    }
}

impl fmt::Display for AttemptPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run_id, self.case_id, self.attempt)
    }
}

/// A text that is no place of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected RUN.CASE.NUMBER, as the page before names it")]
pub struct NoAttemptPlace;

impl FromStr for AttemptPlace {
    type Err = NoAttemptPlace;
    fn from_str(text: &str) -> Result<Self, NoAttemptPlace> {
        let parts: Vec<&str> = text.split('.').collect();
        let [run_id, case_id, attempt] = parts[..] else { return Err(NoAttemptPlace) };
        let run_id = uuid::Uuid::parse_str(run_id).map_err(|_| NoAttemptPlace)?.to_string();
        let case_id = case_id.parse().map_err(|_| NoAttemptPlace)?;
        Ok(Self { run_id, case_id, attempt: attempt.parse().map_err(|_| NoAttemptPlace)? })
    }
}

impl Store {
    /// The attempts that a filter lets through: newest run first, within a run by canonical case string and number of the try.
    pub async fn results(&self, filter: &ResultFilter) -> Result<Vec<ResultRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let mut query = built(concat!(
            "SELECT ",
            result_columns!(),
            " FROM attempts a JOIN cases c ON c.case_key = a.case_key JOIN runs r ON r.run_key = a.run_key WHERE 1 = 1"
        ));
        query = filter.narrow(&mut transaction, query).await?;
        if filter.final_only {
            query = query.text(" AND a.is_final = 1");
        }
        if let Some(place) = &filter.after {
            query = behind(&mut transaction, query, place).await?;
        }
        query = query.text(" ORDER BY r.started_at DESC, r.run_id DESC, c.canonical, a.attempt");
        if let Some(limit) = filter.limit {
            query = query.text(" LIMIT ").bind(limit);
        }
        transaction.all(query).await?.iter().map(result_row).collect()
    }
}

/// Leaves out an attempt and what comes before it, whether or not the filter lets the attempt itself through.
async fn behind(transaction: &mut Transaction, query: Statement, place: &AttemptPlace) -> Result<Statement, StoreError> {
    let run = find_run(transaction, &place.run_id).await?;
    let run = sql("SELECT run_id, started_at FROM runs WHERE run_key = $1").bind(run.run_key);
    let run = transaction.one(run).await?;
    let (run_id, started_at) = (run.text("run_id")?, run.int("started_at")?);
    let case = sql("SELECT canonical FROM cases WHERE case_id = $1").bind(place.case_id.as_str());
    let Some(case) = transaction.optional(case).await? else {
        return Err(StoreError::NoSuchCase(place.case_id.to_string()));
    };
    let canonical = case.text("canonical")?;
    // The first condition says nothing new: an index over the starts of runs can use it.
    let query = query.text(" AND r.started_at <= ").bind(started_at).text(" AND (r.started_at < ").bind(started_at);
    let query = query.text(" OR r.run_id < ").bind(&run_id).text(" OR (r.run_id = ").bind(&run_id);
    let query = query.text(" AND (c.canonical > ").bind(&canonical).text(" OR (c.canonical = ").bind(&canonical);
    Ok(query.text(" AND a.attempt > ").bind(place.attempt).text("))))"))
}

impl ResultFilter {
    /// Adds run, cases and outcomes to a statement over attempts `a` and cases `c`.
    pub(super) async fn narrow(&self, transaction: &mut Transaction, mut query: Statement) -> Result<Statement, StoreError> {
        if let Some(reference) = &self.run {
            query = query.text(" AND a.run_key = ").bind(find_run(transaction, reference).await?.run_key);
        }
        Ok(self.cases.narrow(query).and_in("a.outcome", self.outcomes.iter().map(|word| word.as_str())))
    }
}
