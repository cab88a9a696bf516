//! Just enough JSON writing for the statistics, so that the crate needs no dependency for it.

/// An object under construction.
pub struct Object(String);

impl Object {
    /// An empty object.
    pub fn new() -> Self {
        Self("{".to_owned())
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        write_string(&mut self.0, key);
        self.0.push(':');
    }

    /// Adds a whole number.
    pub fn number(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.key(key);
        self.0.push_str(&value.to_string());
        self
    }

    /// Adds a time in milliseconds with three digits.
    pub fn milliseconds(self, key: &str, nanoseconds: u64) -> Self {
        let micros = nanoseconds / 1000;
        self.raw(key, &format!("{}.{:03}", micros / 1000, micros % 1000))
    }

    /// Adds a text.
    pub fn text(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        write_string(&mut self.0, value);
        self
    }

    /// Adds a value that is JSON already.
    pub fn raw(mut self, key: &str, json: &str) -> Self {
        self.key(key);
        self.0.push_str(json);
        self
    }

    /// Adds a list of texts.
    pub fn texts(self, key: &str, values: &[String]) -> Self {
        let items = values.iter().map(|value| {
            let mut item = String::new();
            write_string(&mut item, value);
            item
        });
        let list = array(items);
        self.raw(key, &list)
    }

    /// The finished object.
    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A list of values that are JSON already.
pub fn array(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(","))
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control.is_control() => out.push_str(&format!("\\u{:04x}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_inside_its_string() {
        let json =
            Object::new().text("a\"", "x\"\\\n\u{0}\u{1b}[31m\u{85}é").number("n", 3).milliseconds("ms", 1_234_567).finish();
        assert_eq!(json, "{\"a\\\"\":\"x\\\"\\\\\\n\\u0000\\u001b[31m\\u0085é\",\"n\":3,\"ms\":1.234}");
    }
}
