//! What is known of cases: what is recorded, and what matrices plan.

use std::path::Path;

use modelfarm_matrix::known_case::{Known, KnownCase};
use modelfarm_reports::store::{Store, StoreError};

use crate::cli::{ExecutionOptions, ExpectationsOptions, Selection};
use crate::command::Farm;
use crate::command::prepare::{MatrixText, prepare};
use crate::exit::Failure;

/// The store, where there is one: nothing recorded yet is no error.
pub async fn store(farm: &Farm) -> Result<Option<Store>, Failure> {
    match Store::open_read_only(&farm.database).await {
        Ok(store) => Ok(Some(store)),
        Err(StoreError::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Every recorded case.
pub async fn recorded(farm: &Farm) -> Result<Known, Failure> {
    match store(farm).await? {
        Some(store) => Ok(Known::of(store.known_cases().await?)),
        None => Ok(Known::default()),
    }
}

/// Every case that is recorded, and every one that the named matrices plan.
pub async fn recorded_and_planned(farm: &Farm, options: &ExpectationsOptions) -> Result<(Known, Vec<KnownCase>), Failure> {
    let recorded = recorded(farm).await?;
    let mut planned = Vec::new();
    for matrix in &options.matrix {
        planned.extend(plan(farm, matrix, options).await?);
    }
    Ok((recorded, planned))
}

/// The cases of a whole matrix.
async fn plan(farm: &Farm, matrix: &Path, options: &ExpectationsOptions) -> Result<Vec<KnownCase>, Failure> {
    let execution = ExecutionOptions { targets_file: options.targets_file.clone(), ..ExecutionOptions::default() };
    let prepared = prepare(farm, MatrixText::read(matrix)?, &Selection::default(), &execution, None).await?;
    Ok(prepared.plan.cases().map(|(planned, case)| KnownCase::planned(&planned.model, &case.case)).collect())
}
