//! Editing the text of an expectations file: what is not changed keeps its comments, its order and its spaces.

use std::collections::BTreeSet;

use toml_edit::{Array, ArrayOfTables, Datetime, Decor, DocumentMut, InlineTable, Item, RawString, Table, TableLike, Value};

use crate::expectation::{Expectation, Expectations};
use crate::expectation_update::Fate;
use crate::selector::Selector;
use crate::toml_error::TomlError;
use crate::word_list::keep_words;

/// The entry as it stands in a file, with an end of line.
pub fn entry_text(expectation: &Expectation) -> String {
    let mut tables = ArrayOfTables::new();
    let mut table = table_of(expectation);
    table.decor_mut().clear();
    tables.push(table);
    let mut document = DocumentMut::new();
    document.insert("expect", Item::ArrayOfTables(tables));
    document.to_string()
}

/// The text with a new entry at its end; `file` is named in errors.
///
/// # Errors
/// The text is no expectations file, or writes its entries in a list of inline tables.
pub fn append(file: &str, text: &str, expectation: &Expectation) -> Result<String, TomlError> {
    let entries = Expectations::parse(file, text)?.entries().len();
    rewrite(file, text, &vec![Fate::Stays; entries], std::slice::from_ref(expectation))
}

/// The text after each entry met its fate, in their order, and with new entries at its end; `file` is named in errors.
///
/// # Errors
/// The text is no expectations file, or writes its entries in a list of inline tables.
pub fn rewrite(file: &str, text: &str, fates: &[Fate], additions: &[Expectation]) -> Result<String, TomlError> {
    if text.contains("\r\n") {
        // The editor ends lines in its own way: an unchanged line would look changed.
        let edited = rewrite(file, &text.replace("\r\n", "\n"), fates, additions)?;
        return Ok(edited.replace('\n', "\r\n"));
    }
    let before = Expectations::parse(file, text)?;
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        TomlError::at(file, text, error.span().map_or(0, |span| span.start), error.message().to_owned())
    })?;
    let item = document.entry("expect").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let Some(tables) = item.as_array_of_tables_mut() else {
        let message = "`expect` is a list of inline tables; write each entry as [[expect]] to have it edited".to_owned();
        return Err(TomlError { file: file.to_owned(), line: before.entries().first().map_or(1, |first| first.line), message });
    };

    let old: Vec<Table> = tables.iter().cloned().collect();
    let mut meant: Vec<Expectation> = Vec::new();
    let mut new: Vec<Table> = Vec::new();
    // Comments of entries that went, which were about more than those.
    let mut left_over = String::new();
    for (index, (declared, mut table)) in before.entries().iter().zip(old).enumerate() {
        let becomes = match fates.get(index) {
            None | Some(Fate::Stays) => std::slice::from_ref(&declared.expectation),
            Some(Fate::Becomes(becomes)) => becomes,
            Some(Fate::Goes) => &[],
        };
        meant.extend_from_slice(becomes);
        let above = text_of(table.decor().prefix()).to_owned();
        let Some((first, others)) = becomes.split_first() else {
            left_over = joined(&left_over, &about_more(&above, index == 0));
            continue;
        };
        edit(&mut table, &declared.expectation, first);
        // A file does not begin with an empty line.
        let begins = new.is_empty() && index > 0 && left_over.is_empty();
        let above = if begins { above.trim_start_matches(['\n', '\r']).to_owned() } else { above };
        table.decor_mut().set_prefix(joined(&std::mem::take(&mut left_over), &above));
        new.push(table);
        new.extend(others.iter().map(table_of));
    }
    let mut end = joined(&left_over, text_of(Some(document.trailing())));
    for (number, addition) in additions.iter().enumerate() {
        let mut table = table_of(addition);
        // Comments at the end of the file stay before what is added behind them.
        let above = if number == 0 { std::mem::take(&mut end) } else { String::new() };
        let begins = above.is_empty() && new.is_empty();
        table.decor_mut().set_prefix(if begins { String::new() } else { joined(&above, "\n") });
        new.push(table);
        meant.push(addition.clone());
    }
    document.set_trailing(end);
    if let Some(tables) = document.get_mut("expect").and_then(Item::as_array_of_tables_mut) {
        tables.clear();
        for mut table in new {
            // The order is that of the list, and no longer that of the text which was read.
            table.set_position(None);
            if let Some(select) = table.get_mut("select").and_then(Item::as_table_mut) {
                select.set_position(None);
            }
            tables.push(table);
        }
    }
    let text = document.to_string();
    reads_back(file, &text, &meant)?;
    Ok(text)
}

/// A text that would say something else than what is meant must never replace a person's file.
fn reads_back(file: &str, text: &str, meant: &[Expectation]) -> Result<(), TomlError> {
    let sorted = |expectation: &Expectation| {
        let fields = expectation.select.fields().into_iter();
        let fields: Vec<(&str, BTreeSet<String>)> =
            fields.map(|(key, words)| (key, words.into_iter().map(str::to_owned).collect())).collect();
        (format!("{fields:?}"), Expectation { select: Selector::default(), ..expectation.clone() })
    };
    let read = Expectations::parse(file, text)?;
    let same = read.entries().len() == meant.len()
        && read.entries().iter().zip(meant).all(|(declared, meant)| sorted(&declared.expectation) == sorted(meant));
    let message = || "the edited text does not read back as it was meant; nothing was changed".to_owned();
    if same { Ok(()) } else { Err(TomlError { file: file.to_owned(), line: 1, message: message() }) }
}

fn text_of(raw: Option<&RawString>) -> &str {
    raw.and_then(RawString::as_str).unwrap_or_default()
}

/// Two pieces of comments and empty lines, one below the other and an empty line between.
fn joined(above: &str, below: &str) -> String {
    let above = above.trim_end_matches([' ', '\t', '\n', '\r']);
    if above.is_empty() {
        return below.to_owned();
    }
    let gap = if below.starts_with(['\n', '\r']) || below.is_empty() { "\n" } else { "\n\n" };
    format!("{above}{gap}{below}")
}

/// Of what stands above an entry, that which is not about this entry alone: what an empty line keeps apart from it. The first
/// entry of a file may stand right below what is said of the whole file.
fn about_more(above: &str, is_first: bool) -> String {
    let lines: Vec<&str> = above.split_inclusive('\n').collect();
    let own = lines.iter().rposition(|line| line.trim().is_empty()).map_or(0, |empty| empty + 1);
    let kept = if is_first && own == 0 { above.to_owned() } else { lines[..own].concat() };
    if kept.contains('#') { kept } else { String::new() }
}

fn edit(table: &mut Table, old: &Expectation, new: &Expectation) {
    if let Some(select) = table.get_mut("select").and_then(Item::as_table_like_mut) {
        let old_fields = old.select.fields();
        for (key, words) in new.select.fields() {
            if !old_fields.contains(&(key, words.clone())) {
                edit_words(select, key, &words);
            }
        }
    }
    let fault = |expectation: &Expectation| expectation.fault.map(|fault| fault.as_str().to_owned());
    for (key, old, new) in [
        ("outcome", Some(old.outcome.as_str().to_owned()), Some(new.outcome.as_str().to_owned())),
        ("fault", fault(old), fault(new)),
        ("reason", Some(old.reason.clone()), Some(new.reason.clone())),
    ] {
        match new {
            Some(new) if old.as_ref() != Some(&new) => set(table, key, new.into()),
            None if old.is_some() => {
                table.remove(key);
            }
            _ => {}
        }
    }
}

/// Puts words in the place of a selector's words; a key that is new comes last.
fn edit_words(select: &mut dyn TableLike, key: &str, words: &[&str]) {
    match select.get_mut(key) {
        Some(Item::Value(Value::Array(array))) => keep_words(array, words),
        _ => set(select, key, words_value(words)),
    }
}

/// Sets a value; comments and spaces around one that was there stay.
fn set(table: &mut dyn TableLike, key: &str, mut value: Value) {
    if let Some(Item::Value(there)) = table.get_mut(key) {
        *value.decor_mut() = there.decor().clone();
        *there = value;
        return;
    }
    // The space before `}` belongs to the last value of an inline table.
    if let Some((_, Item::Value(last))) = table.iter_mut().last()
        && text_of(last.decor().suffix()).trim_matches([' ', '\t']).is_empty()
        && last.decor().suffix().is_some()
    {
        last.decor_mut().set_suffix("");
    }
    table.insert(key, Item::Value(value));
}

fn words_value(words: &[&str]) -> Value {
    match words {
        [one] => Value::from(*one),
        many => Value::Array(many.iter().copied().collect::<Array>()),
    }
}

fn table_of(expectation: &Expectation) -> Table {
    let Expectation { select, outcome, fault, reason, issue, owner, expires } = expectation;
    let mut inline = InlineTable::new();
    for (key, words) in select.fields() {
        inline.insert(key, words_value(&words));
    }
    let expires = expires.map(|date| {
        let text = date.to_string();
        text.parse::<Datetime>().map_or_else(|_| Value::from(text), Value::from)
    });
    let values = [
        ("select", Some(Value::InlineTable(inline))),
        ("outcome", Some(outcome.as_str().into())),
        ("fault", fault.map(|fault| fault.as_str().into())),
        ("reason", Some(reason.as_str().into())),
        ("issue", issue.as_ref().map(|issue| issue.as_str().into())),
        ("owner", owner.as_deref().map(Value::from)),
        ("expires", expires),
    ];
    let mut table = Table::new();
    for (key, value) in values {
        if let Some(value) = value {
            table.insert(key, Item::Value(value));
        }
    }
    *table.decor_mut() = Decor::new("\n", "");
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use proptest::prelude::*;

    const FILE: &str = r#"# What is known to fail.

# --- Crashes

# It died in May.
[[expect]]
select = { model = "zoo/a", target = "tpu" } # on every host
outcome = "crash"
fault = "backend"
reason = "dies"

[[expect]]
select.model = [
    "zoo/b",
    # These two are slow.
    "zoo/c", # 3 minutes
    "zoo/d",
]
outcome = "timeout"   # of 300 s
reason = 'slow'
expires = 2027-01-31

# --- Others

[[expect]]
outcome = "mismatch"
reason = "rounds"
[expect.select]
architecture = "llama"
mode = ["compiled", "strict-eager"]

# The end.
"#;

    fn entries() -> Vec<Expectation> {
        Expectations::parse("e.toml", FILE).unwrap().entries().iter().map(|declared| declared.expectation.clone()).collect()
    }

    fn select(text: &str) -> Selector {
        toml::from_str(text).unwrap()
    }

    fn addition() -> Expectation {
        Expectation {
            select: select("model = \"zoo/e\"\nmode = [\"compiled\", \"strict-eager\"]"),
            outcome: Outcome::Crash,
            fault: Some(crate::fault::Fault::Backend),
            reason: "a \"b\" \\ \u{1b} c".into(),
            issue: Some("https://x.org/7".parse().unwrap()),
            owner: Some("@ann".into()),
            expires: Some("2027-01-31".parse().unwrap()),
        }
    }

    #[test]
    fn nothing_changed_is_the_same_text() {
        assert_eq!(rewrite("e.toml", FILE, &[], &[]).unwrap(), FILE);
        let windows = FILE.replace('\n', "\r\n");
        assert_eq!(rewrite("e.toml", &windows, &[], &[]).unwrap(), windows);
        assert_eq!(rewrite("e.toml", crate::EXPECTATIONS_TOML, &[], &[]).unwrap(), crate::EXPECTATIONS_TOML);
    }

    #[test]
    fn a_new_entry_comes_last_and_reads_back() {
        let text = append("e.toml", FILE, &addition()).unwrap();
        let new = text.strip_prefix(FILE).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(new, format!("\n{}", entry_text(&addition())));
        assert_eq!(
            entry_text(&Expectation { reason: "r".into(), ..addition() }),
            "[[expect]]\nselect = { model = \"zoo/e\", mode = [\"compiled\", \"strict-eager\"] }\noutcome = \"crash\"\n\
             fault = \"backend\"\nreason = \"r\"\nissue = \"https://x.org/7\"\nowner = \"@ann\"\nexpires = 2027-01-31\n"
        );
        assert_eq!(append("e.toml", "", &addition()).unwrap(), entry_text(&addition()));
        assert_eq!(append("e.toml", "# Ours.", &addition()).unwrap(), format!("# Ours.\n\n{}", entry_text(&addition())));
    }

    #[test]
    fn a_narrowed_entry_keeps_all_else() {
        let old = entries();
        let becomes =
            |entry: usize, text: &str| Fate::Becomes(vec![Expectation { select: select(text), ..old[entry].clone() }]);
        let changes = [
            becomes(0, "model = \"zoo/a\"\ntarget = \"tpu\"\nmode = \"compiled\""),
            becomes(1, "model = [\"zoo/b\", \"zoo/d\"]\ndtype = \"float32\""),
            becomes(2, "architecture = \"llama\"\nmode = \"compiled\"\nmodel = [\"zoo/x\", \"zoo/y\"]"),
        ];
        let text = rewrite("e.toml", FILE, &changes, &[]).unwrap();
        let expected = FILE
            .replace("target = \"tpu\" }", "target = \"tpu\", mode = \"compiled\" }")
            .replace("    \"zoo/c\", # 3 minutes\n", "")
            .replace("]\noutcome = \"timeout\"", "]\nselect.dtype = \"float32\"\noutcome = \"timeout\"")
            .replace("[\"compiled\", \"strict-eager\"]", "[\"compiled\"]\nmodel = [\"zoo/x\", \"zoo/y\"]");
        assert_eq!(text, expected);
    }

    #[test]
    fn an_entry_that_goes_takes_only_what_is_about_it() {
        let text = rewrite("e.toml", FILE, &[Fate::Goes, Fate::Stays, Fate::Goes], &[addition()]).unwrap();
        let (head, rest) = FILE.split_once("# It died").unwrap();
        let (_, second) = rest.split_once("\n\n").unwrap();
        let (second, _) = second.split_once("\n# --- Others").unwrap();
        assert_eq!(text, format!("{head}{second}\n# --- Others\n\n# The end.\n\n{}", entry_text(&addition())));
        assert_eq!(rewrite("e.toml", FILE, &[Fate::Goes, Fate::Goes, Fate::Goes], &[]).unwrap().matches("---").count(), 2);
    }

    #[test]
    fn an_entry_may_say_something_else_and_fall_apart() {
        let old = entries();
        let first = Expectation { outcome: Outcome::Timeout, fault: None, reason: "hangs".into(), ..old[0].clone() };
        let second = Expectation { select: select("model = \"zoo/z\""), ..first.clone() };
        let text = rewrite("e.toml", FILE, &[Fate::Becomes(vec![first, second.clone()])], &[]).unwrap();
        assert!(
            text.contains("# It died in May.\n[[expect]]\nselect = { model = \"zoo/a\", target = \"tpu\" } # on every host\n"),
            "{text}"
        );
        assert!(text.contains(&format!("reason = \"hangs\"\n\n{}\n[[expect]]\nselect.model", entry_text(&second))), "{text}");
        assert!(text.ends_with("# The end.\n"), "{text}");
    }

    #[test]
    fn what_cannot_be_edited_is_told() {
        let inline = "expect = [{ select = { model = \"a/b\" }, outcome = \"crash\", reason = \"r\" }]\n";
        let error = append("e.toml", inline, &addition()).unwrap_err();
        assert!(error.message.contains("[[expect]]") && error.line == 1, "{error}");
        assert!(append("e.toml", "[[expect]]\n", &addition()).is_err());
    }

    proptest! {
        #[test]
        fn any_reason_and_any_words_read_back(reason in "\\PC{0,20}[a-z]\\PC{0,20}", model in "\\PC{1,12}", more in prop::option::of("\\PC{1,12}")) {
            let model: Vec<String> = [Some(model), more].into_iter().flatten().collect();
            let entry = Expectation { reason, select: Selector { model, ..Selector::default() }, ..addition() };
            let text = append("e.toml", FILE, &entry).unwrap();
            prop_assert!(text.starts_with(FILE));
            let read = Expectations::parse("e.toml", &text).unwrap();
            prop_assert_eq!(&read.entries().last().unwrap().expectation, &entry);
        }

        #[test]
        fn no_comment_above_a_section_is_lost(goes in prop::collection::vec(any::<bool>(), 3)) {
            let changes: Vec<Fate> = goes.iter().map(|goes| if *goes { Fate::Goes } else { Fate::Stays }).collect();
            let text = rewrite("e.toml", FILE, &changes, &[]).unwrap();
            for comment in ["# What is known to fail.", "# --- Crashes", "# --- Others", "# The end."] {
                prop_assert_eq!(text.matches(comment).count(), 1, "{}", text);
            }
            let kept = goes.iter().filter(|goes| !**goes).count();
            prop_assert_eq!(Expectations::parse("e.toml", &text).unwrap().entries().len(), kept);
        }
    }
}
