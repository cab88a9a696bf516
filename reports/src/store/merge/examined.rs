//! Rows that were read, and what reading them in full came to.

use super::super::{Row, StoreError};

/// A row that can be read, with what a merge has to know of it.
pub(super) struct Examined<T> {
    pub(super) row: Row,
    pub(super) facts: T,
}

/// Examines rows on another thread: meanwhile this one talks to the databases.
pub(super) async fn examine<T: Send + 'static>(
    rows: Vec<Row>,
    examine: impl Fn(&Row) -> Result<T, StoreError> + Send + 'static,
) -> Result<Vec<Examined<T>>, StoreError> {
    let examining = tokio::task::spawn_blocking(move || {
        rows.into_iter().map(|row| examine(&row).map(|facts| Examined { row, facts })).collect()
    });
    examining.await.unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()))
}
