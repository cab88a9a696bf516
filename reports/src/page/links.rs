//! Where each page stands, relative to the report's folder.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::model::ModelId;

use crate::rows::ResultRow;

/// As many characters of an architecture's name are in its file name; file systems allow 255 bytes.
const MOST_CHARACTERS: usize = 100;

/// The pages of models and architectures.
pub(super) struct Links {
    models: BTreeMap<ModelId, String>,
    architectures: BTreeMap<String, String>,
    /// The model of each case.
    cases: BTreeMap<String, ModelId>,
}

impl Links {
    /// Gives each model and each architecture a page. Two names that differ in case alone get different pages even on a file
    /// system that does not tell case apart.
    pub(super) fn new<'a>(rows: impl Iterator<Item = &'a ResultRow>) -> Self {
        let rows: Vec<&ResultRow> = rows.collect();
        let models: BTreeSet<&ModelId> = rows.iter().map(|row| &row.model).collect();
        let architectures: BTreeSet<&str> = rows.iter().map(|row| row.architecture.as_str()).collect();
        // Model ids are validated, so they are plain path components.
        let model_pages = distinct(models.iter().map(|model| format!("models/{model}")));
        let names = architectures.iter().map(|name| format!("architectures/{}", file_name(name)));
        let architecture_pages = distinct(names);
        Self {
            models: models.into_iter().cloned().zip(model_pages).collect(),
            architectures: architectures.into_iter().map(str::to_owned).zip(architecture_pages).collect(),
            cases: rows.iter().map(|row| (row.case_id.to_string(), row.model.clone())).collect(),
        }
    }

    /// A model's page.
    pub(super) fn page(&self, model: &ModelId) -> String {
        self.models.get(model).cloned().unwrap_or_else(|| format!("models/{model}.html"))
    }

    /// A case on its model's page.
    pub(super) fn case(&self, model: &ModelId, case: &CaseId) -> String {
        format!("{}#{}", self.page(model), anchor(case))
    }

    /// A case whose model is not at hand; empty where the run has no such case.
    pub(super) fn by_case_id(&self, case: &str) -> String {
        self.cases.get(case).map_or(String::new(), |model| format!("{}#case-{case}", self.page(model)))
    }

    /// An architecture's page; empty where the run has none of it.
    pub(super) fn architecture(&self, name: &str) -> String {
        self.architectures.get(name).cloned().unwrap_or_default()
    }

    /// Every architecture with its page.
    pub(super) fn architectures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.architectures.iter().map(|(name, page)| (name.as_str(), page.as_str()))
    }
}

/// The name of a case's place on its page.
pub(super) fn anchor(case: &CaseId) -> String {
    format!("case-{case}")
}

/// A plain file name for a name that a stranger chose.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '~' };
    let shown: String = name.chars().take(MOST_CHARACTERS).map(plain).collect();
    // A name of dots alone would be a folder, and one that begins with a dot is hidden.
    if shown.starts_with('.') || shown.is_empty() { format!("~{shown}") } else { shown }
}

/// A page for each name, different for names that differ in case alone.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut pages = Vec::new();
    for name in names {
        let mut page = format!("{name}.html");
        let mut number = 2;
        while !taken.insert(page.to_ascii_lowercase()) {
            page = format!("{name}~{number}.html");
            number += 1;
        }
        pages.push(page);
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_alone_have_pages_of_their_own() {
        let pages = distinct(["a/B", "a/b", "A/b"].into_iter().map(str::to_owned));
        let lower: BTreeSet<String> = pages.iter().map(|page| page.to_ascii_lowercase()).collect();
        assert_eq!(lower.len(), 3);
    }

    #[test]
    fn a_strangers_name_is_a_plain_file_name() {
        for name in ["llama", "../../etc/passwd", "..", "", "a/b", "\u{202e}x", "C:\\x", &"x".repeat(5000)] {
            let file = file_name(name);
            assert!(!file.is_empty() && !file.starts_with('.') && file.len() <= MOST_CHARACTERS + 1, "{name}: {file}");
            assert!(file.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.~".contains(&b)), "{name}: {file}");
        }
        assert_eq!(file_name("qwen2_vl"), "qwen2_vl");
    }
}
