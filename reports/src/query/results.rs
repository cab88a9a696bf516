//! Attempts as `query results` prints them.

use std::fmt;
use std::str::FromStr;

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::outcome::Outcome;

use super::case_filter::narrow;
use super::run_reference::find_run;
use crate::rows::ResultRow;
use crate::store::attempt_columns::{result_columns, result_row};
use crate::store::statement::{Statement, built, sql};
use crate::store::{Store, StoreError, Transaction};
use modelfarm_matrix::case_filter::CaseFilter;

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

/// `results`, up to its conditions.
fn select() -> Statement {
    built(concat!(
        "SELECT ",
        result_columns!(),
        " FROM attempts a JOIN cases c ON c.case_key = a.case_key JOIN runs r ON r.run_key = a.run_key WHERE 1 = 1"
    ))
}

impl Store {
    /// The attempts that a filter lets through: newest run first, within a run by canonical case string and number of the try.
    pub async fn results(&self, filter: &ResultFilter) -> Result<Vec<ResultRow>, StoreError> {
        let mut transaction = self.database.read().await?;
        let place = match &filter.after {
            Some(place) => Some(KnownPlace::of(&mut transaction, place).await?),
            None => None,
        };
        if let (Some(limit), None, false) = (filter.limit, &filter.run, filter.cases.names_few()) {
            return newest(&mut transaction, filter, place, limit).await;
        }
        let mut query = filter.narrow(&mut transaction, select()).await?;
        if filter.final_only {
            query = query.text(" AND a.is_final = 1");
        }
        if let Some(place) = &place {
            query = place.narrow(query);
        }
        query = query.text(" ORDER BY r.started_at DESC, r.run_id DESC, c.canonical, a.attempt");
        if let Some(limit) = filter.limit {
            query = query.text(" LIMIT ").bind(limit);
        }
        transaction.all(query).await?.iter().map(result_row).collect()
    }
}

/// The first rows of all runs, a run at a time: all attempts of years are not sorted for those of the last night.
async fn newest(
    transaction: &mut Transaction,
    filter: &ResultFilter,
    place: Option<KnownPlace>,
    limit: u64,
) -> Result<Vec<ResultRow>, StoreError> {
    let query = built("SELECT r.run_key, r.run_id FROM runs r WHERE 1 = 1");
    let query = match &place {
        Some(KnownPlace { run_id, started_at, .. }) => query
            .text(" AND r.started_at <= ")
            .bind(*started_at)
            .text(" AND (r.started_at < ")
            .bind(*started_at)
            .text(" OR r.run_id <= ")
            .bind(run_id)
            .text(")"),
        None => query,
    };
    let mut rows = Vec::new();
    for run in transaction.all(query.text(" ORDER BY r.started_at DESC, r.run_id DESC")).await? {
        let missing = limit.saturating_sub(rows.len() as u64);
        if missing == 0 {
            break;
        }
        let query = filter.narrow_attempts(select().text(" AND a.run_key = ").bind(run.int("run_key")?));
        let mut query = if filter.final_only { query.text(" AND a.is_final = 1") } else { query };
        if let Some(place) = place.as_ref().filter(|place| run.text("run_id").is_ok_and(|run_id| run_id == place.run_id)) {
            query = place.narrow_within_run(query.text(" AND ("), ")");
        }
        let query = query.text(" ORDER BY c.canonical, a.attempt LIMIT ").bind(missing);
        for row in transaction.all(query).await? {
            rows.push(result_row(&row)?);
        }
    }
    Ok(rows)
}

/// A place of an attempt by what rows are ordered by.
struct KnownPlace {
    run_id: String,
    started_at: i64,
    canonical: String,
    attempt: u32,
}

impl KnownPlace {
    async fn of(transaction: &mut Transaction, place: &AttemptPlace) -> Result<Self, StoreError> {
        let run = find_run(transaction, &place.run_id).await?;
        let start = sql("SELECT started_at FROM runs WHERE run_key = $1").bind(run.run_key);
        let started_at = transaction.one(start).await?.int("started_at")?;
        let case = sql("SELECT canonical FROM cases WHERE case_id = $1").bind(place.case_id.as_str());
        let Some(case) = transaction.optional(case).await? else {
            return Err(StoreError::NoSuchCase(place.case_id.to_string()));
        };
        Ok(Self { run_id: run.run_id, started_at, canonical: case.text("canonical")?, attempt: place.attempt })
    }

    /// Leaves out the place and what comes before it, whether or not there is an attempt at it.
    fn narrow(&self, query: Statement) -> Statement {
        let Self { run_id, started_at, .. } = self;
        // The first condition says nothing new: an index over the starts of runs can use it.
        let query = query.text(" AND r.started_at <= ").bind(*started_at).text(" AND (r.started_at < ").bind(*started_at);
        let query = query.text(" OR r.run_id < ").bind(run_id).text(" OR (r.run_id = ").bind(run_id).text(" AND (");
        self.narrow_within_run(query, ")))")
    }

    /// The condition of a row that is behind it in its run, and what follows the condition.
    fn narrow_within_run(&self, query: Statement, end: &'static str) -> Statement {
        let query = query.text("c.canonical > ").bind(&self.canonical).text(" OR (c.canonical = ").bind(&self.canonical);
        query.text(" AND a.attempt > ").bind(self.attempt).text(")").text(end)
    }
}

impl ResultFilter {
    /// Adds run, cases and outcomes to a statement over attempts `a` and cases `c`.
    pub(super) async fn narrow(&self, transaction: &mut Transaction, mut query: Statement) -> Result<Statement, StoreError> {
        if let Some(reference) = &self.run {
            query = query.text(" AND a.run_key = ").bind(find_run(transaction, reference).await?.run_key);
        }
        Ok(self.narrow_attempts(query))
    }

    /// Adds cases and outcomes alone.
    fn narrow_attempts(&self, query: Statement) -> Statement {
        narrow(&self.cases, query).and_in("a.outcome", self.outcomes.iter().map(|word| word.as_str()))
    }
}
