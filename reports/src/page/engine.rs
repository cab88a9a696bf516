//! Templates, and the escaping that no template can forget.

use std::io::Write;

use serde::Serialize;
use tera::{Context, Tera};

use super::ReportError;
use crate::visible_text::visible;

/// The style sheet of every page.
pub(crate) const STYLE: &str = include_str!("../../templates/style.css");

const TEMPLATES: [(&str, &str); 13] = [
    ("architecture.html", include_str!("../../templates/architecture.html")),
    ("base.html", include_str!("../../templates/base.html")),
    ("changes.html", include_str!("../../templates/changes.html")),
    ("failures.html", include_str!("../../templates/failures.html")),
    ("flakes.html", include_str!("../../templates/flakes.html")),
    ("group.html", include_str!("../../templates/group.html")),
    ("index.html", include_str!("../../templates/index.html")),
    ("matrix.html", include_str!("../../templates/matrix.html")),
    ("model.html", include_str!("../../templates/model.html")),
    ("runs.html", include_str!("../../templates/runs.html")),
    ("start.html", include_str!("../../templates/start.html")),
    ("strip.html", include_str!("../../templates/strip.html")),
    ("trend.html", include_str!("../../templates/trend.html")),
];

/// Turns views into pages.
pub(crate) struct Engine(Tera);

impl Engine {
    /// Loads the embedded templates.
    #[allow(clippy::expect_used, reason = "the embedded templates are loaded by every test of this module")]
    pub(crate) fn new() -> Self {
        let mut tera = without_templates();
        tera.add_raw_templates(TEMPLATES).expect("the embedded templates are sound");
        Self(tera)
    }

    /// Renders a view with a template; `page` is named in an error.
    pub(crate) fn render(&self, template: &str, page: &str, view: &impl Serialize) -> Result<String, ReportError> {
        let render = || self.0.render(template, &Context::from_serialize(view)?);
        render().map_err(|source| ReportError::Render { page: page.to_owned(), source })
    }
}

fn without_templates() -> Tera {
    let mut tera = Tera::new();
    tera.set_escape_fn(escape);
    tera
}

/// Escapes for HTML text and quoted attributes, and makes visible what would be invisible or reorder the line.
fn escape(text: &str, output: &mut dyn Write) -> std::io::Result<()> {
    let text = visible(text);
    let mut rest = text.as_ref();
    while let Some(position) = rest.find(['&', '<', '>', '"', '\'', '`']) {
        let (before, after) = rest.split_at(position);
        output.write_all(before.as_bytes())?;
        let reference: &[u8] = match after.as_bytes()[0] {
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'"' => b"&quot;",
            b'\'' => b"&#39;",
            _ => b"&#96;",
        };
        output.write_all(reference)?;
        rest = &after[1..];
    }
    output.write_all(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_escapes_and_none_switches_it_off() {
        for (name, text) in TEMPLATES {
            assert!(name.ends_with(".html"), "escaping follows the name: {name}");
            for forbidden in ["safe", "<script", "style=", "javascript:", "http:", "https:", "onclick"] {
                assert!(!text.contains(forbidden), "{name} holds `{forbidden}`");
            }
            // Escaping is on for this very name, with the engine's own settings.
            let mut tera = without_templates();
            tera.add_raw_template(name, "{{ hostile }}").unwrap();
            let mut context = Context::new();
            context.insert("hostile", "<b a=\"'`\">&\u{202e}");
            assert_eq!(tera.render(name, &context).unwrap(), "&lt;b a=&quot;&#39;&#96;&quot;&gt;&amp;[U+202E]", "{name}");
        }
    }

    #[test]
    fn every_template_file_is_one_of_the_embedded() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut found: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        found.retain(|name| name != "style.css");
        found.sort();
        assert_eq!(found, TEMPLATES.map(|(name, _)| name));
    }

    #[test]
    fn the_style_sheet_asks_for_nothing_from_elsewhere() {
        for forbidden in ["@import", "url(", "http", "expression("] {
            assert!(!STYLE.contains(forbidden), "{forbidden}");
        }
    }
}
