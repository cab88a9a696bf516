//! The keys of cases. A case that is new is written.

use std::collections::BTreeMap;

use modelfarm_matrix::case::{Case, CaseId};

use super::attempt_columns::case_values;
use super::row_batch::{insert_row, insert_rows};
use super::statement::{built, sql};
use super::table_columns::CASES;
use super::{StoreError, Transaction};

/// Cases looked up at a time.
const PAGE: usize = 256;

/// The key of a case.
pub(crate) async fn put_case(transaction: &mut Transaction, case: &Case) -> Result<i64, StoreError> {
    let id = case.id();
    let find = || sql("SELECT case_key FROM cases WHERE case_id = $1").bind(id.as_str());
    if let Some(row) = transaction.optional(find()).await? {
        return row.int("case_key");
    }
    insert_row(transaction, &CASES, case_values(case)).await?;
    transaction.one(find()).await?.int("case_key")
}

/// The key of each case.
///
/// Cases are written in the order of their ids: two writers who wait for each other's cases would otherwise wait for ever.
pub(crate) async fn put_cases(
    transaction: &mut Transaction,
    cases: &BTreeMap<CaseId, Case>,
) -> Result<BTreeMap<CaseId, i64>, StoreError> {
    let mut keys = BTreeMap::new();
    let all: Vec<(&CaseId, &Case)> = cases.iter().collect();
    for page in all.chunks(PAGE) {
        find_cases(transaction, page.iter().map(|(id, _)| *id), &mut keys).await?;
        let missing: Vec<_> = page.iter().filter(|(id, _)| !keys.contains_key(*id)).collect();
        if !missing.is_empty() {
            let rows = missing.iter().map(|(_, case)| case_values(case)).collect();
            insert_rows(transaction, &CASES, rows).await?;
            find_cases(transaction, missing.iter().map(|(id, _)| *id), &mut keys).await?;
        }
    }
    Ok(keys)
}

/// Adds the keys of those cases that are there; there must be at least one id.
async fn find_cases(
    transaction: &mut Transaction,
    ids: impl Iterator<Item = &CaseId>,
    keys: &mut BTreeMap<CaseId, i64>,
) -> Result<(), StoreError> {
    let find = built("SELECT case_id, case_key FROM cases WHERE 1 = 1").and_in("case_id", ids.map(CaseId::as_str));
    for row in transaction.all(find).await? {
        keys.insert(row.word("case_id")?, row.int("case_key")?);
    }
    Ok(())
}
