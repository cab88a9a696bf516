//! Where a store is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::StoreError;

/// A database URL, understood.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// `sqlite://PATH`: a file.
    Sqlite(PathBuf),
    /// `postgres://USER:PASSWORD@HOST/NAME`.
    Postgres {
        /// The whole URL, with its password.
        url: String,
        /// The URL without its password, for messages.
        shown: String,
    },
}

impl DatabaseUrl {
    /// The URL of a SQLite file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        DatabaseUrl::Sqlite(path.into())
    }
}

impl FromStr for DatabaseUrl {
    type Err = StoreError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")) {
            // What SQLite would take for "no file" is never meant.
            if path.is_empty() || path.starts_with(':') || path.contains(['?', '\0']) {
                return Err(StoreError::Url(text.to_owned()));
            }
            return Ok(DatabaseUrl::Sqlite(path.into()));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(DatabaseUrl::Postgres { url: text.to_owned(), shown: without_password(text) });
        }
        Err(StoreError::Url(without_password(text).chars().take(200).collect()))
    }
}

/// Leaves out what stands between the first `:` of the user and the last `@` of the authority, and all parameters.
fn without_password(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let Some((user, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{host}")
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseUrl::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            DatabaseUrl::Postgres { shown, .. } => f.write_str(shown),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_understood_and_a_password_is_never_shown() {
        assert_eq!("sqlite://a/farm.db".parse::<DatabaseUrl>().unwrap(), DatabaseUrl::file("a/farm.db"));
        assert_eq!("sqlite:///a/farm.db".parse::<DatabaseUrl>().unwrap(), DatabaseUrl::file("/a/farm.db"));
        let url: DatabaseUrl = "postgres://me:p@ss:word@host/farm?password=x".parse().unwrap();
        assert_eq!(format!("{url} {url:?}"), "postgres://me@host/farm DatabaseUrl(postgres://me@host/farm)");
        for wrong in ["sqlite://", "sqlite://:memory:", "mysql://me:secret@x/y", "farm.db", ""] {
            let error = wrong.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(error.contains("expected sqlite://PATH") && !error.contains("secret"), "{error}");
        }
    }
}
