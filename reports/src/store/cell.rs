//! A value on its way into a database, the same for SQLite and PostgreSQL.

/// One value to bind; its type is known even when it is NULL, as PostgreSQL asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Int(Option<i64>),
    Real(Option<f64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// Values of any types as cells, in their order.
macro_rules! values {
    ($($value:expr),+ $(,)?) => {
        vec![$($crate::store::cell::Cell::from($value)),+]
    };
}
pub(crate) use values;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Real,
    Text,
    Bytes,
}

/// PostgreSQL stores no NUL in text, and SQLite's own functions end at it: it becomes the replacement character.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Cell::Int(Some(value))
    }
}

impl From<Option<i64>> for Cell {
    fn from(value: Option<i64>) -> Self {
        Cell::Int(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Cell::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Cell::Int(Some(i64::from(value)))
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Cell::Int(Some(i64::from(value)))
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        // SQLite turns NaN into NULL; saying so here makes PostgreSQL the same.
        Cell::Real(value.filter(|value| !value.is_nan()))
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Cell::Text(Some(storable(value)))
    }
}

impl From<&String> for Cell {
    fn from(value: &String) -> Self {
        Cell::from(value.as_str())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Cell::from(value.as_str())
    }
}

impl From<Option<&str>> for Cell {
    fn from(value: Option<&str>) -> Self {
        Cell::Text(value.map(storable))
    }
}

impl From<&Option<String>> for Cell {
    fn from(value: &Option<String>) -> Self {
        Cell::from(value.as_deref())
    }
}

impl From<Vec<u8>> for Cell {
    fn from(value: Vec<u8>) -> Self {
        Cell::Bytes(Some(value))
    }
}
