//! The parameters of a URL as they stand in it, decoded strictly: what is no text is an error and becomes nothing else.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

use super::refusal::Refusal;

/// The most bytes of a query.
const LONGEST: usize = 8 * 1024;

/// Names and values in their order.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    if query.len() > LONGEST {
        return Err(Refusal::wrong(format!("the query is {} bytes long; expected at most {LONGEST}", query.len())));
    }
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(name)?, decoded(value)?))
        })
        .collect()
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let text = text.replace('+', " ");
    let decoded = percent_decode(text.as_bytes()).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| Refusal::wrong("the query is not UTF-8 once its %-escapes are decoded"))
}

/// The query of these names and values.
pub(super) fn query_of<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let encoded = |text: &'a str| utf8_percent_encode(text, NON_ALPHANUMERIC);
    pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(
            pairs("a=1&a=%C3%A9+b&c").unwrap(),
            [("a", "1"), ("a", "é b"), ("c", "")].map(|(a, b)| (a.into(), b.into()))
        );
        assert!(pairs("a=%FF").is_err() && pairs("%C3=1").is_err());
        assert!(pairs(&"a".repeat(LONGEST + 1)).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(given in proptest::collection::vec(("[a-z]{1,9}", any::<String>()), 0..6)) {
            let written = query_of(given.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            prop_assert_eq!(pairs(&written).unwrap(), given);
        }
    }
}
