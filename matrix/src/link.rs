//! A link to where something is discussed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text that is no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a link: expected an address such as https://example.org/issues/7, of at most 2000 characters", .0.escape_debug())]
pub struct InvalidLink(String);

/// An address that a browser opens over http or https.
///
/// It ends up in pages and terminals: other schemes could run something, and other characters could end its attribute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(String);

impl Link {
    /// The whole address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const LONGEST: usize = 2000;

impl FromStr for Link {
    type Err = InvalidLink;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidLink(text.chars().take(80).collect());
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or_else(invalid)?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_host = host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte));
        let is_address = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>`\\^{|}".contains(&byte));
        if is_host && is_address && text.len() <= LONGEST { Ok(Self(text.to_owned())) } else { Err(invalid()) }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Link {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_a_browser_opens_is_a_link() {
        for good in
            ["https://github.com/org/repo/issues/12", "http://bugs.internal:8080/7?x=1#c2", "https://[::1]/a", "https://b/12"]
        {
            assert_eq!(good.parse::<Link>().unwrap().as_str(), good);
        }
        let long = format!("https://a/{}", "b".repeat(LONGEST));
        for bad in [
            "javascript:alert(1)",
            "ftp://a/b",
            "https://",
            "https:///x",
            "github.com/org/repo",
            "https://a/b c",
            "https://a/\"onclick=",
            "https://user:word@host/x",
            "https://a/\u{202e}",
            "HTTPS://a",
            "",
            long.as_str(),
        ] {
            assert!(bad.parse::<Link>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_link_is_plain_text_without_an_end_of_an_attribute(text in "(https?://)?\\PC{0,40}") {
            if let Ok(link) = text.parse::<Link>() {
                prop_assert!(link.as_str().starts_with("http"));
                prop_assert!(link.as_str().bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>".contains(&byte)));
            }
        }
    }
}
