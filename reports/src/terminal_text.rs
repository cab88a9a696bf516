//! Untrusted text for one line of a terminal or a log.

use crate::visible_text::visible;

/// Shows a text on one line: it can neither move the cursor, nor colour, reorder, hide or break the line.
pub fn terminal_text(text: &str) -> String {
    visible(text).replace('\n', "␊").replace('\t', "␉")
}

/// The same for at most `most` characters; `…` says that there was more.
pub fn terminal_text_up_to(text: &str, most: usize) -> String {
    // Cut before the work: a hostile text may be endless.
    let cut = text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end]);
    let shown = terminal_text(cut);
    match shown.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None if cut.len() < text.len() => format!("{shown}…"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(terminal_text("a\nb\tc\u{1b}[2J\u{9b}31m\u{202e}"), "a␊b␉c␛[2J[U+009B]31m[U+202E]");
        assert_eq!(terminal_text_up_to("abcdef", 3), "abc…");
        assert_eq!(terminal_text_up_to("abc", 3), "abc");
        assert!(terminal_text_up_to(&"\u{202e}".repeat(1 << 20), 20).chars().count() <= 21);
    }
}
