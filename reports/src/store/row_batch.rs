//! Many rows in one statement: most of what a row costs is the way to the database and back.

use super::cell::Cell;
use super::table_columns::TableColumns;
use super::{Row, StoreError, Transaction};

/// How many rows a statement may have. Few lengths, so that few statements are prepared; the longest, times the columns of
/// `attempts`, is a third of the parameters that SQLite takes.
const LENGTHS: [usize; 5] = [256, 64, 16, 4, 1];

/// Writes rows; returns what the table's statement returns of them, in any order.
pub(crate) async fn insert_rows(
    transaction: &mut Transaction,
    table: &TableColumns,
    rows: Vec<Vec<Cell>>,
) -> Result<Vec<Row>, StoreError> {
    let mut returned = Vec::new();
    let mut left = rows.into_iter();
    while let Some(length) = LENGTHS.into_iter().find(|length| *length <= left.len()) {
        let insert = table.insert(length, transaction.dialect()).bind_all(left.by_ref().take(length).flatten());
        returned.extend(transaction.all(insert).await?);
    }
    Ok(returned)
}

/// Writes a row of a table whose statement returns nothing.
pub(crate) async fn insert_row(transaction: &mut Transaction, table: &TableColumns, row: Vec<Cell>) -> Result<(), StoreError> {
    let insert = table.insert(1, transaction.dialect()).bind_all(row);
    transaction.execute(insert).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::super::table_columns::ATTEMPTS;
    use super::*;

    #[test]
    fn the_longest_statement_stays_below_the_parameters_of_both_databases() {
        assert!(LENGTHS.is_sorted_by(|longer, shorter| longer > shorter) && LENGTHS[LENGTHS.len() - 1] == 1);
        assert!(LENGTHS[0] * ATTEMPTS.columns.len() <= 32_766);
    }
}
