//! Everything known about the attempts of a case, or about one attempt.

use modelfarm_matrix::case::Case;

use super::run_reference::find_run;
use crate::rows::AttemptDetail;
use crate::store::attempt_columns::{attempt_detail, result_columns};
use crate::store::statement::{Statement, built, sql};
use crate::store::{Store, StoreError, Transaction};

/// A file that an attempt left behind. It stays on its host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Artifact {
    /// What it is, such as `program` or `outputs`.
    pub kind: String,
    /// The host.
    pub host: String,
    /// Its path there.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

impl Store {
    /// The attempts of a case over all runs, newest first, or the one attempt that is named.
    ///
    /// `reference` is a case id, the beginning of one, a canonical case string, or `RUN/CASE/NUMBER` where RUN is a run id, its
    /// beginning, `latest` or `latest~N`; `RUN/CASE` means the last attempt of the case in that run, and `CASE/NUMBER` that
    /// attempt in the newest run that has the case.
    pub async fn attempts_of(&self, reference: &str, limit: Option<u64>) -> Result<Vec<AttemptDetail>, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = select(&mut transaction, reference).await?;
        let query = query.text(" ORDER BY r.started_at DESC, r.run_id DESC, a.attempt DESC");
        let query = if let Some(limit) = limit { query.text(" LIMIT ").bind(limit) } else { query };
        let rows = transaction.all(query).await?;
        if rows.is_empty() {
            return Err(none(reference));
        }
        rows.iter().map(attempt_detail).collect()
    }

    /// Every attempt of a run that counts for its case, with its details: what a report with a page a model shows.
    pub async fn final_attempts(&self, run: &str) -> Result<Vec<AttemptDetail>, StoreError> {
        let mut transaction = self.database.read().await?;
        let run = find_run(&mut transaction, run).await?;
        let query = all_details().text(" AND a.is_final = 1 AND a.run_key = ").bind(run.run_key);
        transaction.all(query.text(" ORDER BY c.canonical")).await?.iter().map(attempt_detail).collect()
    }

    /// The files that an attempt left behind, in the order of kind and path.
    pub async fn artifacts_of(&self, run: &str, case_id: &str, attempt: u32) -> Result<Vec<Artifact>, StoreError> {
        let mut transaction = self.database.read().await?;
        let run = find_run(&mut transaction, run).await?;
        let query = sql("SELECT f.kind, f.host, f.path, f.bytes FROM artifacts f \
                         JOIN attempts a ON a.attempt_key = f.attempt_key JOIN cases c ON c.case_key = a.case_key \
                         WHERE a.run_key = $1 AND c.case_id = $2 AND a.attempt = $3 ORDER BY f.kind, f.path, f.host");
        let rows = transaction.all(query.bind(run.run_key).bind(case_id).bind(attempt)).await?;
        rows.iter()
            .map(|row| {
                let (kind, host, path) = (row.text("kind")?, row.text("host")?, row.text("path")?);
                Ok(Artifact { kind, host, path, bytes: row.unsigned("bytes")? })
            })
            .collect()
    }
}

fn all_details() -> Statement {
    built(concat!(
        "SELECT ",
        result_columns!(),
        ", d.expectation_reason, d.evidence, d.facts, d.output, d.leaves",
        " FROM attempts a JOIN cases c ON c.case_key = a.case_key JOIN runs r ON r.run_key = a.run_key",
        " JOIN attempt_details d ON d.attempt_key = a.attempt_key WHERE 1 = 1"
    ))
}

fn none(reference: &str) -> StoreError {
    StoreError::NoSuchCase(reference.chars().take(300).collect())
}

async fn select(transaction: &mut Transaction, reference: &str) -> Result<Statement, StoreError> {
    let reference = reference.trim();
    if let Ok(case) = reference.parse::<Case>() {
        return Ok(all_details().text(" AND c.case_id = ").bind(case.id().as_str()));
    }
    let parts: Vec<&str> = reference.split('/').collect();
    match parts[..] {
        [case] => Ok(all_details().text(" AND a.case_key = ").bind(find_case(transaction, case).await?)),
        // An attempt's number; the beginning of a case id is longer.
        [case, number] if number.len() < 4 && number.parse::<u32>().is_ok() => {
            let case = find_case(transaction, case).await?;
            let query = all_details()
                .text(" AND a.case_key = ")
                .bind(case)
                .text(" AND a.attempt = ")
                .bind(number.parse::<u32>().unwrap_or_default());
            let query = query.text(" AND a.run_key = (SELECT MAX(l.run_key) FROM attempts l WHERE l.case_key = ").bind(case);
            Ok(query.text(")"))
        }
        [run, case] => {
            let run = find_run(transaction, run).await?;
            let case = find_case(transaction, case).await?;
            let query = all_details().text(" AND a.run_key = ").bind(run.run_key).text(" AND a.case_key = ").bind(case);
            let query = query.text(" AND a.attempt = (SELECT MAX(l.attempt) FROM attempts l WHERE l.run_key = ");
            Ok(query.bind(run.run_key).text(" AND l.case_key = ").bind(case).text(")"))
        }
        [run, case, number] => {
            let number: u32 = number.parse().map_err(|_| none(reference))?;
            let run = find_run(transaction, run).await?;
            let case = find_case(transaction, case).await?;
            let query = all_details().text(" AND a.run_key = ").bind(run.run_key).text(" AND a.case_key = ").bind(case);
            Ok(query.text(" AND a.attempt = ").bind(number))
        }
        _ => Err(none(reference)),
    }
}

async fn find_case(transaction: &mut Transaction, id: &str) -> Result<i64, StoreError> {
    let prefix = id.to_ascii_lowercase();
    if prefix.is_empty() || prefix.len() > 16 || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(none(id));
    }
    let query = sql("SELECT case_key FROM cases WHERE case_id LIKE $1 LIMIT 2").bind(format!("{prefix}%"));
    match &transaction.all(query).await?[..] {
        [] => Err(none(id)),
        [row] => row.int("case_key"),
        _ => Err(StoreError::AmbiguousCase(prefix)),
    }
}
