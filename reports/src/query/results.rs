//! Attempts as `query results` prints them.

use modelfarm_matrix::outcome::Outcome;

use super::case_filter::CaseFilter;
use super::run_reference::find_run;
use crate::rows::ResultRow;
use crate::store::attempt_columns::{result_columns, result_row};
use crate::store::statement::{Statement, built};
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
    /// Only the attempt that counts for its case in its run: the last.
    pub final_only: bool,
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
        query = query.text(" ORDER BY r.started_at DESC, r.run_id DESC, c.canonical, a.attempt");
        if let Some(limit) = filter.limit {
            query = query.text(" LIMIT ").bind(limit);
        }
        transaction.all(query).await?.iter().map(result_row).collect()
    }
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
