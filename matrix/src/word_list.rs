//! Lists of words in a TOML file, edited without the loss of their comments.

use toml_edit::{Array, RawString, Value};

/// A word with what stands around it. A comment behind a word on its line is about that word; one on a line of its own is about
/// what follows.
struct Listed {
    value: Value,
    /// Between the end of the line before and the word.
    before: String,
    /// Behind the word, up to the end of its line.
    behind: String,
}

/// Leaves only those words in a list that are wanted, and adds the ones that are missing at its end.
///
/// What stays keeps its comments. Of what goes, the comment on its line goes too; comments on lines of their own stay, since
/// they may be about more than the one word below.
pub(crate) fn keep_words(array: &mut Array, wanted: &[&str]) {
    let (listed, closing) = take_apart(array);
    let opening = listed.first().map_or_else(String::new, |first| first.before.clone());
    let indentation = listed.last().map_or_else(|| " ".to_owned(), |last| indentation(&last.before));
    let there: Vec<String> = listed.iter().filter_map(|listed| listed.value.as_str().map(str::to_owned)).collect();

    // What waits to be written before the next word: the end of the line above, and comments of words that went.
    let mut waiting = String::new();
    let mut first = true;
    let put = |array: &mut Array, mut value: Value, before: String| {
        *value.decor_mut() = toml_edit::Decor::new(before, "");
        array.push_formatted(value);
    };
    for Listed { value, before, behind } in listed {
        if value.as_str().is_none_or(|word| wanted.contains(&word)) {
            let one_line = waiting.is_empty() && !before.contains('\n');
            let before = if first && one_line { opening.clone() } else { below(&waiting, &before) };
            put(array, value, before);
            first = false;
            waiting = behind;
        } else {
            let comments = before.rfind('\n').map_or("", |end| &before[..end]);
            if comments.contains('#') {
                waiting = below(&waiting, comments);
            }
        }
    }
    for word in wanted.iter().filter(|word| !there.iter().any(|one| one == *word)) {
        let before = below(&waiting, if first { &opening } else { &indentation });
        put(array, Value::from(*word), before);
        first = false;
        waiting = String::new();
    }
    array.set_trailing(below(&waiting, &closing));
}

/// One text behind another; a comment ends with its line.
fn below(above: &str, text: &str) -> String {
    let ends_in_comment = above.rsplit('\n').next().is_some_and(|line| line.contains('#'));
    let gap = if ends_in_comment && !text.starts_with(['\n', '\r']) { "\n" } else { "" };
    format!("{above}{gap}{text}")
}

/// What a new word at the end of a list needs before it.
fn indentation(before: &str) -> String {
    before.rfind('\n').map_or_else(|| " ".to_owned(), |end| before[end..].to_owned())
}

/// The words of a list, which is left empty, and what stands before its closing bracket.
fn take_apart(array: &mut Array) -> (Vec<Listed>, String) {
    fn text(raw: Option<&RawString>) -> String {
        raw.and_then(RawString::as_str).unwrap_or_default().to_owned()
    }
    let mut listed: Vec<Listed> = Vec::new();
    // What stands behind a word belongs to it up to the end of the line, and then to what follows.
    let behind = |listed: &mut Vec<Listed>, gap: String| -> String {
        let Some(last) = listed.last_mut() else { return gap };
        match gap.find('\n') {
            Some(end) => {
                last.behind = gap[..end].to_owned();
                gap[end..].to_owned()
            }
            None if gap.contains('#') => {
                last.behind = gap;
                String::new()
            }
            None => gap,
        }
    };
    let mut suffix = String::new();
    for value in array.iter() {
        let gap = format!("{suffix}{}", text(value.decor().prefix()));
        let before = behind(&mut listed, gap);
        suffix = text(value.decor().suffix());
        listed.push(Listed { value: value.clone(), before, behind: String::new() });
    }
    let closing = behind(&mut listed, format!("{suffix}{}", text(Some(array.trailing()))));
    array.clear();
    (listed, closing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toml_edit::DocumentMut;

    fn kept(list: &str, wanted: &[&str]) -> String {
        let mut document: DocumentMut = format!("list = {list}\n").parse().unwrap();
        keep_words(document["list"].as_array_mut().unwrap(), wanted);
        let text = document.to_string();
        let read: DocumentMut = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        let words: Vec<&str> = read["list"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(words.iter().all(|word| wanted.contains(word)) && wanted.iter().all(|word| words.contains(word)), "{text}");
        text.strip_prefix("list = ").unwrap().trim_end().to_owned()
    }

    #[test]
    fn a_list_on_one_line_stays_on_it() {
        assert_eq!(kept(r#"["a", "b", "c"]"#, &["a", "c"]), r#"["a", "c"]"#);
        assert_eq!(kept(r#"["a", "b"]"#, &["b"]), r#"["b"]"#);
        assert_eq!(kept(r#"[ "a", "b" ]"#, &["a"]), r#"[ "a" ]"#);
        assert_eq!(kept(r#"["a"]"#, &["a", "b"]), r#"["a", "b"]"#);
        assert_eq!(kept(r#"["a/*"]"#, &["a/1", "a/2"]), r#"["a/1", "a/2"]"#);
    }

    const LIST: &str = r#"[ # all of them
    # The first two hang.
    "a", # since May
    "b",   # on v5e only

    # This one never worked.
    "c", # ask ann
    "d", # flaky
]"#;

    #[test]
    fn comments_stay_with_their_words() {
        assert_eq!(kept(LIST, &["a", "b", "c", "d"]).matches('#').count(), LIST.matches('#').count());
        assert_eq!(
            kept(LIST, &["a", "d"]),
            "[ # all of them\n    # The first two hang.\n    \"a\", # since May\n\n    # This one never worked.\n    \"d\", # flaky\n]"
        );
        assert_eq!(
            kept(LIST, &["b"]),
            "[ # all of them\n    # The first two hang.\n    \"b\",   # on v5e only\n\n    # This one never worked.\n]"
        );
        let added = kept(LIST, &["a", "b", "c", "d", "e"]);
        assert!(added.ends_with("\"d\", # flaky\n    \"e\",\n]"), "{added}");
    }

    #[test]
    fn a_comment_never_swallows_what_follows() {
        for list in ["[\"a\", # one\n \"b\"]", "[\"a\" # one\n, \"b\" # two\n]", "[# none\n\"a\", \"b\"]"] {
            for wanted in [&["a"][..], &["b"], &["c"], &["a", "c"], &["b", "c"]] {
                kept(list, wanted);
            }
        }
    }

    proptest! {
        /// Whatever stands between the words, what is left is a list of those that are wanted.
        #[test]
        fn any_list_is_one_afterwards(
            gaps in prop::collection::vec("( |\n|# x\n|\t){0,3}", 9),
            trailing_comma in any::<bool>(),
            wanted in proptest::sample::subsequence(vec!["a", "b", "c", "d", "e"], 1..=5),
        ) {
            let end = if trailing_comma { "," } else { "" };
            let [a, b, c, d, e, f, g, h, i] = <[String; 9]>::try_from(gaps).unwrap();
            kept(&format!("[{a}\"a\"{b},{c}\"b\"{d},{e}\"c\"{f},{g}\"d\"{h}{end}{i}]"), &wanted);
        }
    }
}
