//! Which models there are: the Hub's listing, with what the farm chooses by.

use super::client::{DownloadLimits, HubClient};
use super::error::HubError;
use super::names::{check_model_id, is_commit};
use super::retry::{Trouble, trouble, with_tries};
use futures::StreamExt;
use hf_hub::repository::ModelInfo;
use serde_json::Value;
use std::time::Instant;

/// Largest configuration that is read only to learn the architecture, in bytes.
const LARGEST_CONFIG: usize = 4 << 20;

/// A model as the Hub tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    /// `org/name`
    pub id: String,
    /// The commit at the time of asking: 40 hex digits.
    pub revision: String,
    /// `transformers`, `diffusers`, ...
    pub library: Option<String>,
    /// `text-generation`, ...
    pub pipeline_tag: Option<String>,
    /// The Hub's tags, the computed ones too.
    pub tags: Vec<String>,
    /// Of the last 30 days.
    pub downloads: u64,
    /// Likes.
    pub likes: u64,
    /// Whether its files need a permission.
    pub gated: bool,
    /// Number of parameters, where the Hub tells it.
    pub parameters: Option<u64>,
    /// `config.model_type`; for diffusers the pipeline or model class; for timm the name of its `architecture`.
    pub architecture: Option<String>,
    /// The first of `config.architectures`; for diffusers and timm the same as the architecture.
    pub class: Option<String>,
}

/// What to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CatalogQuery {
    /// Text in the name.
    pub search: Option<String>,
    /// Organisation or user.
    pub author: Option<String>,
    /// `transformers`, `diffusers`, ...
    pub library: Option<String>,
    /// `text-generation`, ...
    pub pipeline_tag: Option<String>,
    /// Tags that all must be there.
    pub tags: Vec<String>,
    /// The order, largest first.
    pub sort: Sort,
    /// How many at most; absent: all, which on the public Hub are millions.
    pub limit: Option<usize>,
    /// Read `config.json` of each model whose listing does not tell its architecture: up to two requests a model.
    pub read_configs: bool,
}

/// Order of a listing, largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// Downloads of the last 30 days.
    #[default]
    Downloads,
    /// Likes.
    Likes,
    /// When it was changed.
    LastModified,
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Self::Downloads => "downloads",
            Self::Likes => "likes",
            Self::LastModified => "lastModified",
        }
    }
}

/// Lists models. Entries whose name is no model's name are left out and logged.
///
/// # Errors
///
/// See [`HubError`].
pub async fn list_models(client: &HubClient, query: &CatalogQuery) -> Result<Vec<HubModel>, HubError> {
    let until = Instant::now() + client.limits.total;
    let mut models = with_tries(&client.limits, until, "the list of models", || list_once(client, query)).await?;
    for model in models.iter_mut().filter(|model| !is_commit(&model.revision)) {
        model.revision = self::model(client, &model.id, "main").await?.revision;
    }
    if query.read_configs {
        let at_once = client.limits.at_once.max(1);
        let completed = futures::stream::iter(models).map(|model| complete(client, model, until)).buffered(at_once);
        models = completed.collect().await;
    }
    Ok(models)
}

async fn list_once(client: &HubClient, query: &CatalogQuery) -> Result<Vec<HubModel>, Trouble> {
    let what = "the list of models";
    let hub_trouble = |error| trouble(client.endpoint(), "", what, error);
    // hf-hub sends one filter; what else is wanted is looked for in what comes.
    let wanted: Vec<&String> = query.library.iter().chain(&query.tags).collect();
    let sent_limit = if wanted.len() > 1 { None } else { query.limit };
    let call = client.api.list_models().maybe_search(query.search.clone()).maybe_author(query.author.clone());
    let call = call.maybe_filter(wanted.first().map(|filter| (*filter).clone())).sort(query.sort.name());
    let call = call.maybe_pipeline_tag(query.pipeline_tag.clone()).full(true).fetch_config(true).maybe_limit(sent_limit);
    let mut listing = std::pin::pin!(call.send().map_err(hub_trouble)?);
    let mut models = Vec::new();
    while query.limit.is_none_or(|limit| models.len() < limit) {
        let Ok(next) = tokio::time::timeout(client.limits.call, listing.next()).await else {
            let detail = format!("no answer within {} s", client.limits.call.as_secs_f64());
            return Err(Trouble::passing(HubError::download(what, detail)));
        };
        let Some(info) = next else { break };
        let model = HubModel::from(info.map_err(hub_trouble)?);
        let has = |tag: &String| model.tags.contains(tag) || model.library.as_ref() == Some(tag);
        if let Err(fault) = check_model_id(&model.id) {
            tracing::warn!(id = ?model.id, %fault, "the Hub lists a model with a name that cannot be one");
        } else if wanted.iter().all(|tag| has(tag)) {
            models.push(model);
        }
    }
    Ok(models)
}

/// What the Hub tells of one model at a branch, tag or commit.
///
/// # Errors
///
/// See [`HubError`].
pub async fn model(client: &HubClient, id: &str, revision: &str) -> Result<HubModel, HubError> {
    check_model_id(id).map_err(|fault| HubError::bad_name(id, id, fault))?;
    let limits: &DownloadLimits = &client.limits;
    let until = Instant::now() + limits.total;
    let what = format!("{id}@{revision}");
    let (owner, name) = hf_hub::split_id(id);
    let repository = client.api.model(owner, name);
    let info = with_tries(limits, until, &what, || async {
        let Ok(answer) = tokio::time::timeout(limits.call, repository.info().revision(revision).send()).await else {
            let detail = format!("no answer within {} s", limits.call.as_secs_f64());
            return Err(Trouble::passing(HubError::download(&what, detail)));
        };
        answer.map_err(|error| trouble(client.endpoint(), id, &what, error))
    });
    let found = HubModel::from(info.await?);
    if !is_commit(&found.revision) {
        return Err(HubError::download(what, "the Hub tells no commit for it"));
    }
    Ok(complete(client, found, until).await)
}

/// Reads the architecture from the repository's own files where the listing does not have it. A model without one is a
/// model all the same.
async fn complete(client: &HubClient, mut model: HubModel, until: Instant) -> HubModel {
    for name in ["config.json", "model_index.json"] {
        if model.architecture.is_some() || model.gated {
            break;
        }
        match with_tries(&client.limits, until, &model.id, || read_json(client, &model, name)).await {
            Ok(config) => (model.architecture, model.class) = architecture(&config),
            Err(error) => tracing::debug!(id = model.id, name, %error, "no configuration to read"),
        }
    }
    model
}

async fn read_json(client: &HubClient, model: &HubModel, file: &str) -> Result<Value, Trouble> {
    let (limits, what) = (&client.limits, format!("{}/{file}", model.id));
    let late = || Trouble::passing(HubError::download(&what, "it came too slowly"));
    let hub_trouble = |error| trouble(client.endpoint(), &model.id, &what, error);
    let (owner, name) = hf_hub::split_id(&model.id);
    let repository = client.files.model(owner, name);
    let call = repository.download_file_stream().filename(file).revision(model.revision.as_str()).send();
    let (_, mut stream) = tokio::time::timeout(limits.call, call).await.map_err(|_| late())?.map_err(hub_trouble)?;
    let mut text = Vec::new();
    while let Some(piece) = tokio::time::timeout(limits.idle, stream.next()).await.map_err(|_| late())? {
        text.extend_from_slice(&piece.map_err(hub_trouble)?);
        if text.len() > LARGEST_CONFIG {
            return Err(Trouble::final_one(HubError::download(&what, "it is too large for a configuration")));
        }
    }
    serde_json::from_slice(&text).map_err(|error| Trouble::final_one(HubError::download(&what, error.to_string())))
}

/// Architecture and class, from a `config.json`, a `model_index.json`, or the part of them that a listing has.
fn architecture(config: &Value) -> (Option<String>, Option<String>) {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let class = text(&config["architectures"][0]);
    if let Some(architecture) = text(&config["model_type"]) {
        return (Some(architecture), class);
    }
    let diffusers = text(&config["_class_name"]).or_else(|| text(&config["diffusers"]["_class_name"]));
    // timm names what makes the model, and no class.
    let named = diffusers.or_else(|| text(&config["architecture"]));
    (named.clone(), named.or(class))
}

impl From<ModelInfo> for HubModel {
    fn from(info: ModelInfo) -> Self {
        let (architecture, class) = info.config.as_ref().map(architecture).unwrap_or_default();
        Self {
            revision: info.sha.unwrap_or_default(),
            library: info.library_name,
            pipeline_tag: info.pipeline_tag,
            tags: info.tags.unwrap_or_default(),
            downloads: info.downloads.unwrap_or_default(),
            likes: info.likes.unwrap_or_default(),
            gated: info.gated.is_some_and(|gated| !matches!(gated, Value::Bool(false) | Value::Null)),
            parameters: info.safetensors.map(|safetensors| safetensors.total),
            architecture,
            class,
            id: info.id,
        }
    }
}
