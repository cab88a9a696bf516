//! Text of strangers made harmless to the eye: nothing invisible, nothing that reorders a line, nothing endless.
//!
//! Escaping for a format (HTML, XML, Markdown) comes after this and is that format's own matter.

use std::borrow::Cow;

/// Shows what would be invisible, reorder text or drive a terminal.
///
/// Line feeds and tabs stay; carriage returns become line feeds; colour sequences (`ESC [ ... m`) are left out; other
/// control characters become their pictures (`␛`), and bidirectional and other invisible ones become `[U+202E]`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let after = &rest[character.len_utf8()..];
        rest = after;
        match character {
            '\u{1b}' => match after_colour_sequence(after) {
                Some(after_sequence) => rest = after_sequence,
                None => shown.push('␛'),
            },
            '\r' => {
                shown.push('\n');
                rest = after.strip_prefix('\n').unwrap_or(after);
            }
            _ if is_plain(character) => shown.push(character),
            // The control pictures stand in the order of the control characters.
            '\0'..='\u{1f}' => shown.push(char::from_u32(0x2400 + u32::from(character)).unwrap_or('�')),
            '\u{7f}' => shown.push('␡'),
            _ => shown.push_str(&format!("[U+{:04X}]", u32::from(character))),
        }
    }
    Cow::Owned(shown)
}

/// Whether a character is shown as it is.
fn is_plain(character: char) -> bool {
    match character {
        '\n' | '\t' => true,
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => false,
        // The last two of every plane are no characters, and XML forbids two of them.
        other => !other.is_control() && u32::from(other) & 0xfffe != 0xfffe,
    }
}

/// What follows a colour sequence whose escape character was just read.
fn after_colour_sequence(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix('[')?;
    let end = parameters.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    parameters[end..].strip_prefix('m')
}

/// At most `most` characters from the beginning, made visible; says what was left out.
pub fn beginning(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => visible(text).into_owned(),
        Some((cut, _)) => format!("{} … [{} more bytes]", visible(&text[..cut]), text.len() - cut),
    }
}

/// At most `most` characters from the end, made visible; says what was left out.
pub fn ending(text: &str, most: usize) -> String {
    match text.char_indices().rev().nth(most) {
        None => visible(text).into_owned(),
        Some((before, character)) => {
            let cut = before + character.len_utf8();
            format!("[{cut} bytes before] … {}", visible(&text[cut..]))
        }
    }
}

/// At most `most` characters on one line: white space of any kind becomes one space.
pub fn one_line(text: &str, most: usize) -> String {
    // Cut first, generously: a megabyte is not worth splitting for one line.
    let enough = text.char_indices().nth(most.saturating_mul(4)).map_or(text, |(cut, _)| &text[..cut]);
    let line = visible(enough).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None if enough.len() < text.len() => format!("{line}…"),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_seen_is_shown() {
        assert_eq!(visible("a\u{202e}b\u{7}c\u{9b}d\u{7f}"), "a[U+202E]b␇c[U+009B]d␡");
        assert_eq!(visible("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title"), "red ␛]0;title");
        assert_eq!(visible("10%\r20%\r\nend"), "10%\n20%\nend");
        assert!(matches!(visible("plain ✓ tëxt\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn cuts_say_what_they_left_out() {
        assert_eq!(beginning("éabc", 2), "éa … [2 more bytes]");
        assert_eq!(ending("abcé", 2), "[2 bytes before] … cé");
        assert_eq!(beginning("abc", 3), "abc");
        assert_eq!(ending("abc", 3), "abc");
        assert_eq!(one_line(" a\n b\u{2028}c ", 9), "a b[U+202…");
    }

    proptest! {
        #[test]
        fn nothing_invisible_is_left(text in "[\\PC\\x00-\\x1f\\u{80}-\\u{9f}\\u{202a}-\\u{202e}\\u{2066}-\\u{2069}]{0,60}") {
            prop_assert!(visible(&text).chars().all(is_plain));
            prop_assert!(!one_line(&text, 20).contains('\n'));
            prop_assert!(one_line(&text, 20).chars().count() <= 21);
        }
    }
}
