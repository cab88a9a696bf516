//! Addresses that may hold a password, and keeping those out of everything that is shown or kept.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

static USER_INFO: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@?#]*(?:@[^/\s@?#]*)*@").expect("a valid pattern")
});
static QUERY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?P<address>[A-Za-z][A-Za-z0-9+.-]*://[^\s?#]*)\?[^\s#)]*").expect("a valid pattern"));

/// The address of a package index. Shown, it never tells a user name, password or query.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct IndexUrl(String);

impl IndexUrl {
    /// Wraps an address as a person wrote it.
    pub fn new(address: impl Into<String>) -> Self {
        Self(address.into())
    }

    /// The address with everything in it; only for handing it to the program that downloads.
    pub fn exposed(&self) -> &str {
        &self.0
    }

    /// Whether the address holds something secret.
    pub fn is_secret(&self) -> bool {
        redact(&self.0) != self.0
    }
}

impl fmt::Display for IndexUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for IndexUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "IndexUrl({self})")
    }
}

/// The text with user names, passwords and queries of all addresses in it replaced by `***`.
pub fn redact(text: &str) -> String {
    let without_user = USER_INFO.replace_all(text, "${scheme}***@");
    QUERY.replace_all(&without_user, "${address}?***").into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_users_and_queries_are_replaced() {
        for (shown, wanted) in [
            ("https://user:pass@host/simple", "https://***@host/simple"),
            ("https://token@host/simple/", "https://***@host/simple/"),
            ("https://a:p@ss@host/simple", "https://***@host/simple"),
            ("error for url (https://u:p@h/six/?key=abc)", "error for url (https://***@h/six/?***)"),
            ("two http://a:b@c/ and ftp://d:e@f/", "two http://***@c/ and ftp://***@f/"),
            ("https://host/simple", "https://host/simple"),
            ("mail me@example.org about six==1.0", "mail me@example.org about six==1.0"),
        ] {
            assert_eq!(redact(shown), wanted);
        }
    }

    #[test]
    fn an_index_never_shows_its_password() {
        let index = IndexUrl::new("https://user:hunter2@host/simple");
        assert!(index.is_secret());
        assert!(!format!("{index} {index:?}").contains("hunter2"));
        assert!(!IndexUrl::new("https://host/simple").is_secret());
    }
}
