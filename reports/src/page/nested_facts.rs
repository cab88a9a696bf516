//! Nested facts, as a bounded list of names and values.

use serde::Serialize;
use serde_json::Value;

use crate::visible_text::one_line;

const MOST_ROWS: usize = 200;
const MOST_DEPTH: usize = 6;

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Fact {
    /// Dotted path.
    pub(super) name: String,
    /// Its value on one line.
    pub(super) value: String,
}

impl Fact {
    /// A fact of the farm's own.
    pub(super) fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }
}

/// The leaves of a JSON value under dotted paths, at most 200 of them; lists of plain values are one fact.
pub(super) fn nested_facts(value: &Value) -> Vec<Fact> {
    let mut facts = Vec::new();
    collect(String::new(), value, 0, &mut facts);
    facts
}

fn collect(path: String, value: &Value, depth: usize, facts: &mut Vec<Fact>) {
    if facts.len() > MOST_ROWS {
        return;
    }
    if facts.len() == MOST_ROWS {
        facts.push(Fact::new("…", "more facts are left out"));
        return;
    }
    let child = |name: &str| if path.is_empty() { one_line(name, 80) } else { format!("{path}.{}", one_line(name, 80)) };
    match value {
        Value::Null => {}
        Value::Object(fields) if depth < MOST_DEPTH => {
            fields.iter().for_each(|(name, value)| collect(child(name), value, depth + 1, facts));
        }
        Value::Array(items) if depth < MOST_DEPTH && items.iter().any(|item| item.is_object() || item.is_array()) => {
            items.iter().enumerate().for_each(|(index, item)| collect(child(&index.to_string()), item, depth + 1, facts));
        }
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let shown = items.iter().take(30).map(plain).collect::<Vec<_>>().join(", ");
            let value = if items.is_empty() { "none".to_owned() } else { one_line(&shown, 500) };
            facts.push(Fact { name: path, value });
        }
        other => facts.push(Fact { name: path, value: plain(other) }),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text, 500),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => one_line(&other.to_string(), 500),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_flat_and_bounded() {
        let facts = nested_facts(&serde_json::json!({"a": {"b": [1, 2]}, "c": [{"d": true}], "n": null, "e": []}));
        assert_eq!(facts, [Fact::new("a.b", "1, 2"), Fact::new("c.0.d", "yes"), Fact::new("e", "none")]);
        let many: Vec<Value> = (0..10_000).map(|i| serde_json::json!({ "i": i })).collect();
        assert_eq!(nested_facts(&Value::Array(many)).len(), MOST_ROWS + 1);
        assert!(nested_facts(&Value::String("x".repeat(1 << 20)))[0].value.len() < 600);
    }
}
