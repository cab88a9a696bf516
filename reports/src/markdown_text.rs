//! Text in GitHub's Markdown that can be no markup.

use std::fmt::Write as _;

use crate::visible_text::{one_line, visible};

/// Text of strangers, harmless anywhere in a line of Markdown, a table included: every punctuation mark is a character
/// reference inside `<code>`, where it can be no link, no mention and no reference to an issue.
pub(crate) fn code(stranger: &str, most: usize) -> String {
    let mut escaped = String::from("<code>");
    for character in one_line(stranger, most).chars() {
        if character.is_ascii_punctuation() {
            let _ = write!(escaped, "&#{};", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped.push_str("</code>");
    escaped
}

/// A word of the farm's own, or a validated name.
pub(crate) fn plain(word: &str) -> String {
    // Underscores and dots of names such as `non_finite` or `www.x` are the only ones with a meaning.
    visible(word).replace('_', "&#95;").replace('.', "&#46;")
}
