//! The masked message that groups the same failure across models.

use std::sync::LazyLock;

use regex::Regex;

const MAX_CHARACTERS: usize = 160;

#[allow(clippy::unwrap_used, reason = "constant patterns, compiled by a test")]
static MASKS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    [
        (r"0x[0-9a-fA-F]+", "<address>"),
        (r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}\b", "<uuid>"),
        (r"\b[0-9a-f]{16,64}\b", "<hash>"),
        (r"(?:/[\w.+@-]+){2,}", "<path>"),
        (r"\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b", "<n>"),
        (r"<n>(?:\s*[,x×]\s*<n>)+", "<n>"),
        (r"\s+", " "),
    ]
    .into_iter()
    .map(|(pattern, mask)| (Regex::new(pattern).unwrap(), mask))
    .collect()
});

/// Masks what differs from model to model in a message: addresses, hashes, paths, numbers. Only its first line counts.
pub fn signature(message: &str) -> Option<String> {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty())?;
    // A hostile message may be one line of a megabyte.
    let mut text: String = line.chars().take(4 * MAX_CHARACTERS).filter(|c| !c.is_control()).collect();
    for (pattern, mask) in MASKS.iter() {
        text = pattern.replace_all(&text, *mask).into_owned();
    }
    Some(text.trim().chars().take(MAX_CHARACTERS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_same_failure_has_the_same_signature() {
        let one = signature("RuntimeError: shape [2, 16, 32] at 0x7ffd01 in /home/a/model.py:12\nmore").unwrap();
        let two = signature("\nRuntimeError: shape [4, 8] at 0x55aa in /srv/b/c/model.py:7").unwrap();
        assert_eq!(one, two);
        assert_eq!(one, "RuntimeError: shape [<n>] at <address> in <path>:<n>");
        assert_eq!(signature(" \n "), None);
    }

    proptest! {
        #[test]
        fn a_signature_is_one_short_line(message in "\\PC{0,400}") {
            if let Some(signature) = signature(&message) {
                prop_assert!(signature.chars().count() <= MAX_CHARACTERS);
                prop_assert!(!signature.contains('\n'));
            }
        }
    }
}
