//! The environments that attempts ran in, and the models as they were known.

use modelfarm_matrix::model::Model;

use crate::store::statement::sql;
use crate::store::{Environment, Row, Store, StoreError};

impl Store {
    /// Every environment, newest first.
    pub async fn environments(&self, limit: Option<u64>) -> Result<Vec<Environment>, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = sql("SELECT environment_id, name, packages, requirements, created_at FROM environments \
                         ORDER BY created_at DESC, environment_id LIMIT $1");
        let limit = limit.unwrap_or(i64::MAX as u64);
        transaction.all(query.bind(limit)).await?.iter().map(environment).collect()
    }

    /// Every model, most downloaded first.
    pub async fn models(&self, limit: Option<u64>) -> Result<Vec<Model>, StoreError> {
        let mut transaction = self.database.read().await?;
        let query = sql("SELECT model, revision, source, architecture, class, harness, tags, downloads FROM models \
                         ORDER BY downloads DESC, model, revision LIMIT $1");
        let limit = limit.unwrap_or(i64::MAX as u64);
        transaction.all(query.bind(limit)).await?.iter().map(model).collect()
    }
}

pub(crate) fn environment(row: &Row) -> Result<Environment, StoreError> {
    Ok(Environment {
        environment_id: row.text("environment_id")?,
        name: row.text("name")?,
        packages: row.json("packages")?,
        requirements: row.text("requirements")?,
        created_at: row.int("created_at")?,
    })
}

pub(crate) fn model(row: &Row) -> Result<Model, StoreError> {
    let source = serde_json::Value::String(row.text("source")?);
    Ok(Model {
        id: row.word("model")?,
        revision: Some(row.text("revision")?).filter(|revision| !revision.is_empty()),
        source: serde_json::from_value(source)
            .map_err(|error| StoreError::Value { column: "source", detail: error.to_string() })?,
        architecture: row.text("architecture")?,
        class: row.text("class")?,
        harness: row.word("harness")?,
        tags: row.json("tags")?,
        downloads: row.unsigned("downloads")?,
    })
}
