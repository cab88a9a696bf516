//! What a person calls a run: its id, the beginning of it, `latest` or `latest~N`. Retrials are only meant by their id.

use modelfarm_matrix::retrial::RetrialPurpose;

use crate::store::statement::{built, sql};
use crate::store::{Store, StoreError, Transaction};

/// A run, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRun {
    pub(crate) run_key: i64,
    pub(crate) run_id: String,
}

impl Store {
    /// The run id that a reference means.
    pub async fn resolve_run(&self, reference: &str) -> Result<String, StoreError> {
        let mut transaction = self.database.read().await?;
        Ok(find_run(&mut transaction, reference).await?.run_id)
    }
}

pub(crate) async fn find_run(transaction: &mut Transaction, reference: &str) -> Result<FoundRun, StoreError> {
    let shown: String = reference.chars().take(80).collect();
    if let Some(back) = steps_back(reference) {
        let query = sql("SELECT run_key, run_id FROM runs WHERE selection <> $1 AND selection <> $2 \
                         ORDER BY started_at DESC, run_id DESC LIMIT 1 OFFSET $3");
        let query = query.bind(RetrialPurpose::Confirm.as_str()).bind(RetrialPurpose::Bisect.as_str()).bind(back);
        return match transaction.optional(query).await? {
            Some(row) => Ok(FoundRun { run_key: row.int("run_key")?, run_id: row.text("run_id")? }),
            None => Err(StoreError::NoSuchRun { reference: shown, hint: how_many(transaction).await? }),
        };
    }
    let prefix = reference.trim().to_ascii_lowercase();
    // Nothing else can be the beginning of a run id, and nothing here is special in LIKE.
    if prefix.is_empty() || prefix.len() > 36 || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Err(StoreError::NoSuchRun { reference: shown, hint: how_many(transaction).await? });
    }
    let query = built("SELECT run_key, run_id FROM runs WHERE run_id LIKE ").bind(format!("{prefix}%"));
    let rows = transaction.all(query.text(" ORDER BY run_id LIMIT 4")).await?;
    match &rows[..] {
        [] => Err(StoreError::NoSuchRun { reference: shown, hint: how_many(transaction).await? }),
        [row] => Ok(FoundRun { run_key: row.int("run_key")?, run_id: row.text("run_id")? }),
        several => {
            let candidates = several.iter().map(|row| row.text("run_id")).collect::<Result<_, _>>()?;
            Err(StoreError::AmbiguousRun { reference: shown, candidates })
        }
    }
}

/// `latest` is 0, `latest~2` is 2.
fn steps_back(reference: &str) -> Option<i64> {
    let rest = reference.trim().strip_prefix("latest")?;
    if rest.is_empty() {
        return Some(0);
    }
    let number = rest.strip_prefix('~')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse::<u32>().ok().map(i64::from)).flatten()
}

async fn how_many(transaction: &mut Transaction) -> Result<String, StoreError> {
    Ok(match transaction.one(sql("SELECT COUNT(*) AS runs FROM runs")).await?.int("runs")? {
        0 => "the store holds no run yet".to_owned(),
        1 => "the store holds 1 run; `modelfarm query runs` shows it".to_owned(),
        count => format!("the store holds {count} runs; `modelfarm query runs` lists them"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_counts_back() {
        assert_eq!(steps_back("latest"), Some(0));
        assert_eq!(steps_back("latest~12"), Some(12));
        for not in ["latest~", "latest~-1", "latest~x", "latests", "0192", "latest~99999999999"] {
            assert_eq!(steps_back(not), None, "{not}");
        }
    }
}
