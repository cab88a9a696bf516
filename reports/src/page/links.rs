//! Where each model's page stands.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::model::ModelId;

/// The pages of models, relative to the index.
pub(super) struct Links(BTreeMap<ModelId, String>);

impl Links {
    /// Gives each model a page. Model ids are validated, so they are plain path components; two that differ in case alone get
    /// different names even on a file system that does not tell case apart.
    pub(super) fn new<'a>(models: impl Iterator<Item = &'a ModelId>) -> Self {
        let models: BTreeSet<&ModelId> = models.collect();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut pages = BTreeMap::new();
        for model in models {
            let mut page = format!("models/{model}.html");
            let mut number = 2;
            while !taken.insert(page.to_ascii_lowercase()) {
                page = format!("models/{model}~{number}.html");
                number += 1;
            }
            pages.insert(model.clone(), page);
        }
        Self(pages)
    }

    /// A model's page.
    pub(super) fn page(&self, model: &ModelId) -> String {
        self.0.get(model).cloned().unwrap_or_else(|| format!("models/{model}.html"))
    }

    /// A case on its model's page.
    pub(super) fn case(&self, model: &ModelId, case: &CaseId) -> String {
        format!("{}#{}", self.page(model), anchor(case))
    }
}

/// The name of a case's place on its page.
pub(super) fn anchor(case: &CaseId) -> String {
    format!("case-{case}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_differ_in_case_alone_have_pages_of_their_own() {
        let models: Vec<ModelId> = ["a/B", "a/b", "A/b"].iter().map(|id| id.parse().unwrap()).collect();
        let links = Links::new(models.iter());
        let pages: BTreeSet<String> = models.iter().map(|model| links.page(model).to_ascii_lowercase()).collect();
        assert_eq!(pages.len(), 3);
    }
}
