//! From the sources that a matrix names to the models of a plan.

use std::collections::{BTreeMap, BTreeSet};

use modelfarm_fixtures::{Card, Gated};
use modelfarm_matrix::axes::Harness;
use modelfarm_matrix::matrix_file::{HubSelection, Matrix};
use modelfarm_matrix::model::{Model, ModelId, ModelSource, safe_name};

use crate::hub::{self, CatalogQuery, HubClient, HubError, HubModel, Sort};

/// Why the models of a matrix are not known.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The Hub could not be read.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Something that this version does not do.
    #[error("read `{key}` of [models]: this version does not support it yet; use {instead}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// What to use instead.
        instead: &'static str,
    },
}

/// The Hubs that models may come from.
#[derive(Debug, Clone, Default)]
pub struct Hubs {
    /// The fixture Hub, where it serves.
    pub fixtures: Option<HubClient>,
    /// The Hub of `HF_ENDPOINT`.
    pub hub: Option<HubClient>,
}

/// Whether a matrix asks for fixture models.
pub fn wants_fixtures(matrix: &Matrix) -> bool {
    !matrix.models.fixtures.is_empty() || !matrix.models.architectures.is_empty()
}

/// Whether a matrix asks for models of the Hub.
pub fn wants_hub(matrix: &Matrix) -> bool {
    matrix.models.hub.is_some() || !matrix.models.list.is_empty()
}

/// What the sources of a matrix hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalogue {
    /// The models that the matrix asks for.
    pub models: Vec<Model>,
    /// Every architecture that the fixtures have.
    pub architectures: BTreeSet<String>,
    /// Every tag that a fixture has.
    pub tags: BTreeSet<String>,
}

/// Asks the sources of a matrix for its models.
pub async fn read(matrix: &Matrix, hubs: &Hubs) -> Result<Catalogue, CatalogueError> {
    let sources = &matrix.models;
    if sources.csv.is_some() {
        return Err(CatalogueError::Unsupported { key: "csv", instead: "`list`" });
    }
    let mut found: BTreeMap<ModelId, Model> = BTreeMap::new();
    let (mut architectures, mut tags) = (BTreeSet::new(), BTreeSet::new());
    if let Some(fixtures) = hubs.fixtures.as_ref().filter(|_| wants_fixtures(matrix)) {
        let all = hub::list_models(fixtures, &CatalogQuery { sort: Sort::Downloads, ..CatalogQuery::default() }).await?;
        let all: Vec<Model> = all.into_iter().filter_map(|model| known(model, ModelSource::Fixtures)).collect();
        architectures.extend(all.iter().map(|model| model.architecture.clone()));
        tags.extend(all.iter().flat_map(|model| model.tags.iter().cloned()));
        let named: BTreeSet<&str> = sources.architectures.iter().map(|name| name.get_ref().as_str()).collect();
        let wanted = |model: &Model| {
            let tagged = sources.all_fixtures() || model.tags.iter().any(|tag| sources.fixtures.contains(tag));
            tagged || named.contains(model.architecture.as_str())
        };
        found.extend(all.into_iter().filter(wanted).map(|model| (model.id.clone(), model)));
    }
    if let Some(client) = &hubs.hub {
        if let Some(selection) = &sources.hub {
            found.extend(listed(client, selection).await?.into_iter().map(|model| (model.id.clone(), model)));
        }
        for listed in &sources.list {
            let revision = listed.revision.as_deref().unwrap_or("main");
            let model = match hub::model(client, listed.id.as_str(), revision).await {
                Ok(model) => known(model, ModelSource::Hub),
                // The run itself will say what is wrong with it, as an outcome of its cases.
                Err(
                    HubError::Gated { .. } | HubError::NotFound { .. } | HubError::Download { .. } | HubError::Refused { .. },
                ) => None,
                Err(error) => return Err(error.into()),
            };
            let mut model = model.unwrap_or_else(|| unknown(listed.id.clone()));
            model.revision = listed.revision.clone().or(model.revision);
            found.insert(model.id.clone(), model);
        }
    }
    Ok(Catalogue { models: found.into_values().collect(), architectures, tags })
}

async fn listed(client: &HubClient, selection: &HubSelection) -> Result<Vec<Model>, CatalogueError> {
    let limit = usize::try_from(selection.top_by_downloads).unwrap_or(usize::MAX);
    let query = CatalogQuery {
        library: Some(selection.library.clone()),
        limit: Some(limit),
        sort: Sort::Downloads,
        read_configs: true,
        ..CatalogQuery::default()
    };
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    let mut models = Vec::new();
    for listed in hub::list_models(client, &query).await? {
        if listed.parameters.is_some_and(|count| selection.max_parameters.is_some_and(|most| count > most)) {
            continue;
        }
        let Some(model) = known(listed, ModelSource::Hub) else { continue };
        let of_architecture = taken.entry(model.architecture.clone()).or_default();
        if selection.per_architecture.is_some_and(|most| *of_architecture >= most) {
            continue;
        }
        *of_architecture += 1;
        models.push(model);
    }
    Ok(models)
}

/// A fixture as the farm knows it once its Hub has listed it.
pub fn fixture(card: &Card) -> Option<Model> {
    let model = HubModel {
        id: card.id.clone(),
        revision: card.commit.clone(),
        library: card.library_name.clone(),
        pipeline_tag: card.pipeline_tag.clone(),
        tags: card.tags.clone(),
        downloads: card.downloads,
        likes: card.likes,
        gated: card.gated != Gated::No,
        parameters: None,
        architecture: card.architecture.clone(),
        class: card.class.clone(),
    };
    known(model, ModelSource::Fixtures)
}

/// A model as the farm knows it; none where its name is no model's name.
fn known(model: HubModel, source: ModelSource) -> Option<Model> {
    let named = |name: Option<String>| name.as_deref().map_or_else(|| "unknown".to_owned(), safe_name);
    let harness = harness(&model);
    let class = match harness {
        Harness::SentenceTransformers => sentence_class(&model).to_owned(),
        _ => named(model.class),
    };
    Some(Model {
        id: model.id.parse().ok()?,
        revision: Some(model.revision),
        source,
        architecture: named(model.architecture),
        class,
        harness,
        tags: model.tags,
        downloads: model.downloads,
    })
}

fn unknown(id: ModelId) -> Model {
    Model {
        id,
        revision: None,
        source: ModelSource::Hub,
        architecture: "unknown".to_owned(),
        class: "unknown".to_owned(),
        harness: Harness::Transformers,
        tags: Vec::new(),
        downloads: 0,
    }
}

/// The harness of a model's library, or of what its tags say where no library is told.
fn harness(model: &HubModel) -> Harness {
    let tagged = || HARNESS_TAGS.into_iter().find(|library| model.tags.iter().any(|tag| tag == library));
    match model.library.as_deref().or_else(tagged) {
        Some("diffusers") => Harness::Diffusers,
        Some("timm") => Harness::Timm,
        // These know no sentence embedding: what embeds or scores tokens and sparse words is run as its backbone.
        Some("sentence-transformers") if !is_sparse_or_late(model) => Harness::SentenceTransformers,
        _ => Harness::Transformers,
    }
}

/// Libraries that the Hub also tells as tags.
const HARNESS_TAGS: [&str; 3] = ["diffusers", "timm", "sentence-transformers"];

fn is_sparse_or_late(model: &HubModel) -> bool {
    model.tags.iter().any(|tag| ["sparse-encoder", "multi-vector", "ColBERT"].contains(&tag.as_str()))
}

/// The class of sentence-transformers that runs a model: the backbone's class says whether it scores pairs of texts.
fn sentence_class(model: &HubModel) -> &'static str {
    let scores = model.pipeline_tag.as_deref() == Some("text-ranking")
        || model.tags.iter().any(|tag| tag == "cross-encoder")
        || model.class.as_deref().is_some_and(|class| class.ends_with("ForSequenceClassification"));
    if scores { "CrossEncoder" } else { "SentenceTransformer" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(library: Option<&str>, architecture: &str, class: &str, tags: &[&str]) -> Model {
        let model = HubModel {
            id: "a/b".into(),
            revision: "0".repeat(40),
            library: library.map(str::to_owned),
            pipeline_tag: None,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            downloads: 0,
            likes: 0,
            gated: false,
            parameters: None,
            architecture: Some(architecture.into()),
            class: Some(class.into()),
        };
        known(model, ModelSource::Hub).unwrap()
    }

    #[test]
    fn a_library_decides_the_harness() {
        for (library, tags, expected) in [
            (Some("transformers"), &["diffusers"][..], Harness::Transformers),
            (Some("diffusers"), &[], Harness::Diffusers),
            (Some("timm"), &[], Harness::Timm),
            (Some("sentence-transformers"), &[], Harness::SentenceTransformers),
            (Some("sentence-transformers"), &["sparse-encoder"], Harness::Transformers),
            (None, &["timm"], Harness::Timm),
            (None, &["x"], Harness::Transformers),
        ] {
            assert_eq!(listed(library, "bert", "BertModel", tags).harness, expected, "{library:?} {tags:?}");
        }
    }

    #[test]
    fn a_sentence_model_is_run_by_the_class_that_fits_its_backbone() {
        let library = Some("sentence-transformers");
        let encoder = listed(library, "bert", "BertModel", &[]);
        assert_eq!((encoder.architecture.as_str(), encoder.class.as_str()), ("bert", "SentenceTransformer"));
        let scorer = listed(library, "bert", "BertForSequenceClassification", &[]);
        assert_eq!((scorer.architecture.as_str(), scorer.class.as_str()), ("bert", "CrossEncoder"));
        assert_eq!(listed(library, "bert", "BertModel", &["cross-encoder"]).class, "CrossEncoder");
        assert_eq!(listed(Some("diffusers"), "FluxPipeline", "FluxPipeline", &[]).class, "FluxPipeline");
    }
}
