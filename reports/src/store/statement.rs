//! A statement with its values: one text with `$N` for both databases, or a filter that is built piece by piece.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use sqlx::{Postgres, QueryBuilder, Sqlite};

use super::cell::Cell;
#[cfg(test)]
use super::database::Dialect;

/// A statement to run.
#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// A whole text with `$1`, `$2`, ... and its values.
    Fixed(SqlStr, Vec<Cell>),
    /// Pieces of text with values between them.
    Built(Vec<Piece>),
}

/// A piece of a built statement.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(&'static str),
    Value(Cell),
}

/// A statement of one text.
pub(crate) fn sql(text: &'static str) -> Statement {
    Statement::Fixed(text.into_sql_str(), Vec::new())
}

/// A statement whose text was composed of constants of this program, never of data.
pub(crate) fn composed(text: Arc<str>) -> Statement {
    Statement::Fixed(AssertSqlSafe(text).into_sql_str(), Vec::new())
}

/// A statement that is built piece by piece.
pub(crate) fn built(text: &'static str) -> Statement {
    Statement::Built(vec![Piece::Text(text)])
}

impl Statement {
    /// Adds the next value.
    pub(crate) fn bind(mut self, value: impl Into<Cell>) -> Self {
        match &mut self {
            Statement::Fixed(_, cells) => cells.push(value.into()),
            Statement::Built(pieces) => pieces.push(Piece::Value(value.into())),
        }
        self
    }

    /// Adds the next values.
    pub(crate) fn bind_all(mut self, values: impl IntoIterator<Item = Cell>) -> Self {
        match &mut self {
            Statement::Fixed(_, cells) => cells.extend(values),
            Statement::Built(pieces) => pieces.extend(values.into_iter().map(Piece::Value)),
        }
        self
    }

    /// Adds a text to a built statement.
    pub(crate) fn text(mut self, text: &'static str) -> Self {
        match &mut self {
            Statement::Built(pieces) => pieces.push(Piece::Text(text)),
            Statement::Fixed(..) => debug_assert!(false, "a fixed statement takes no more text"),
        }
        self
    }

    /// Adds ` AND column IN (...)` unless `values` is empty.
    pub(crate) fn and_in<T: Into<Cell>>(self, column: &'static str, values: impl IntoIterator<Item = T>) -> Self {
        self.and_list(column, " IN (", values)
    }

    /// Adds ` AND column NOT IN (...)` unless `values` is empty.
    pub(crate) fn and_not_in<T: Into<Cell>>(self, column: &'static str, values: impl IntoIterator<Item = T>) -> Self {
        self.and_list(column, " NOT IN (", values)
    }

    fn and_list<T: Into<Cell>>(
        mut self,
        column: &'static str,
        relation: &'static str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        let mut some = false;
        for value in values {
            self = if some { self.text(", ") } else { self.text(" AND ").text(column).text(relation) }.bind(value);
            some = true;
        }
        if some { self.text(")") } else { self }
    }
}

#[cfg(test)]
impl Statement {
    /// Its text, with `?` where a built statement has a value.
    pub(crate) fn shown(&self) -> String {
        match self {
            Statement::Fixed(text, _) => text.as_str().to_owned(),
            Statement::Built(pieces) => {
                pieces.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "?" }).collect()
            }
        }
    }

    /// The statement that asks how this one would be carried out.
    pub(crate) fn explained(&self, dialect: Dialect) -> Self {
        let ask = match dialect {
            Dialect::Sqlite => "EXPLAIN QUERY PLAN ",
            Dialect::Postgres => "EXPLAIN ",
        };
        match self.clone() {
            Statement::Fixed(text, cells) => {
                Statement::Fixed(AssertSqlSafe(format!("{ask}{}", text.as_str())).into_sql_str(), cells)
            }
            Statement::Built(mut pieces) => {
                pieces.insert(0, Piece::Text(ask));
                Statement::Built(pieces)
            }
        }
    }
}

macro_rules! bind_cell {
    ($query:expr, $cell:expr) => {
        match $cell {
            Cell::Int(value) => $query.bind(value),
            Cell::Real(value) => $query.bind(value),
            Cell::Text(value) => $query.bind(value),
            Cell::Bytes(value) => $query.bind(value),
        }
    };
}

macro_rules! builder_for {
    ($name:ident, $database:ty) => {
        pub(super) fn $name(pieces: Vec<Piece>) -> QueryBuilder<$database> {
            let mut builder = QueryBuilder::<$database>::new("");
            for piece in pieces {
                match piece {
                    Piece::Text(text) => builder.push(text),
                    Piece::Value(Cell::Int(value)) => builder.push_bind(value),
                    Piece::Value(Cell::Real(value)) => builder.push_bind(value),
                    Piece::Value(Cell::Text(value)) => builder.push_bind(value),
                    Piece::Value(Cell::Bytes(value)) => builder.push_bind(value),
                };
            }
            builder
        }
    };
}

pub(super) use bind_cell;
builder_for!(sqlite_builder, Sqlite);
builder_for!(postgres_builder, Postgres);
