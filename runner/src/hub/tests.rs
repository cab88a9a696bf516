//! The farm's door against a real Hub server that misbehaves as told.

use super::*;
use modelfarm_fixtures::hub::card::{Lie, Slow, Status, StatusOn, TreeExtra, Truncate};
use modelfarm_fixtures::{Card, FixtureHub, Gated, RunningHub, write_fixture};
use modelfarm_matrix::outcome::Outcome;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WEIGHTS: &[u8] = &[7; 200_000];
const CONFIG: &[u8] = br#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}"#;
const FILES: [(&str, &[u8]); 6] = [
    ("README.md", b"# read me"),
    ("config.json", CONFIG),
    ("model.safetensors", WEIGHTS),
    ("pytorch_model.bin", b"a pickle"),
    ("sub/vocab #1.txt", b"a\nb\n"),
    ("empty.py", b""),
];

/// A Hub, a client and a store that know nothing yet.
struct Farm {
    _models: TempDir,
    state: TempDir,
    hub: RunningHub,
    client: HubClient,
    store: FileStore,
    limits: DownloadLimits,
}

fn quick() -> DownloadLimits {
    let second = Duration::from_secs(1);
    DownloadLimits { call: 5 * second, idle: second, total: 30 * second, tries: 3, ..DownloadLimits::default() }
}

fn client(hub: &RunningHub, token: Token) -> HubClient {
    HubClient::new(HubOptions { endpoint: Some(hub.url()), token, limits: quick() }).unwrap()
}

async fn serve(models: &Path) -> RunningHub {
    FixtureHub::serve(models.to_path_buf(), "127.0.0.1:0".parse().unwrap()).await.unwrap()
}

fn write(models: &Path, id: &str, change: impl FnOnce(&mut Card)) -> Card {
    let mut card = Card::new(id);
    card.library_name = Some("transformers".into());
    change(&mut card);
    write_fixture(models, card, &FILES).unwrap()
}

impl Farm {
    async fn of(models: TempDir) -> Self {
        let hub = serve(models.path()).await;
        let state = tempfile::tempdir().unwrap();
        let store = FileStore::open(&state.path().join("hub")).unwrap();
        Self { client: client(&hub, Token::Nobody), _models: models, state, hub, store, limits: quick() }
    }

    /// A Hub with one model `toys/one`.
    async fn with(change: impl FnOnce(&mut Card)) -> Self {
        let models = tempfile::tempdir().unwrap();
        write(models.path(), "toys/one", change);
        Self::of(models).await
    }

    async fn get(&self, id: &str, revision: &str) -> Result<Snapshot, HubError> {
        download_snapshot(&self.client, id, revision, &self.store, &self.limits).await
    }

    async fn one(&self) -> Result<Snapshot, HubError> {
        self.get("toys/one", "main").await
    }

    /// How it fails, after a check that nothing is left that looks like a snapshot.
    async fn failure(&self) -> HubError {
        let error = self.one().await.unwrap_err();
        let left = self.state.path().join("hub/models/toys/one");
        let left: Vec<_> = left.read_dir().into_iter().flatten().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?} after {error}");
        error
    }

    /// GET requests for one file.
    fn gets(&self, file: &str) -> usize {
        let requests = self.hub.requests();
        requests.iter().filter(|request| request.method == "GET" && request.path.ends_with(file)).count()
    }
}

fn weights() -> String {
    "model.safetensors".into()
}

fn is_download(error: &HubError, detail: &str) -> bool {
    matches!(error, HubError::Download { .. }) && error.to_string().contains(detail)
}

#[tokio::test]
async fn a_snapshot_has_the_files_that_a_harness_needs() {
    let farm = Farm::with(|card| card.serve.page_size = Some(1)).await;
    let snapshot = farm.one().await.unwrap();
    let names: Vec<&str> = snapshot.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["config.json", "empty.py", "model.safetensors", "sub/vocab #1.txt"]);
    for (name, content) in FILES.iter().filter(|(name, _)| names.contains(name)) {
        assert_eq!(std::fs::read(snapshot.path.join(name)).unwrap(), *content, "{name}");
    }
    assert_eq!(snapshot.bytes, 200_000 + CONFIG.len() as u64 + 4);
    assert!(snapshot.path.ends_with(format!("hub/models/toys/one/{}", snapshot.commit)));
    assert!(snapshot.path.join("config.json").metadata().unwrap().permissions().readonly());
    assert!(farm.state.path().join("hub/partial").read_dir().unwrap().next().is_none());

    // By its commit it costs nothing, by its branch one question.
    let before = farm.hub.requests().len();
    assert_eq!(farm.get("toys/one", &snapshot.commit).await.unwrap(), snapshot);
    assert_eq!(farm.hub.requests().len(), before);
    assert_eq!(farm.one().await.unwrap(), snapshot);
    assert_eq!(farm.hub.requests().len(), before + 1);
    // A snapshot that lost a file is made again, from what is here.
    std::fs::remove_file(snapshot.path.join("config.json")).unwrap();
    assert_eq!(farm.get("toys/one", &snapshot.commit).await.unwrap(), snapshot);
    assert_eq!((farm.gets("config.json"), farm.gets("model.safetensors")), (1, 1));
    assert!(snapshot.path.join("config.json").is_file());
}

#[tokio::test]
async fn a_content_that_two_models_share_comes_once() {
    let models = tempfile::tempdir().unwrap();
    write(models.path(), "toys/one", |_| ());
    write(models.path(), "toys/two", |_| ());
    let farm = Farm::of(models).await;
    farm.get("toys/one", "main").await.unwrap();
    farm.get("toys/two", "main").await.unwrap();
    assert_eq!(farm.gets("model.safetensors"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_ask_at_once_download_once() {
    let slow = Slow { file: weights(), bytes_per_second: 2_000_000 };
    let farm = Farm::with(|card| card.serve.slow = Some(slow)).await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            // Each with a store of its own, as another process would have.
            let store = FileStore::open(farm.store.root()).unwrap();
            let (client, limits) = (farm.client.clone(), farm.limits.clone());
            tokio::spawn(async move { download_snapshot(&client, "toys/one", "main", &store, &limits).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!((farm.gets("config.json"), farm.gets("model.safetensors")), (1, 1));
}

#[tokio::test]
async fn a_body_that_was_cut_off_goes_on_where_it_stopped() {
    let cut = Truncate { file: weights(), bytes: 100_000, times: Some(1) };
    let farm = Farm::with(|card| card.serve.truncate = Some(cut.clone())).await;
    let snapshot = farm.one().await.unwrap();
    assert_eq!(std::fs::read(snapshot.path.join("model.safetensors")).unwrap(), WEIGHTS);
    let ranges: Vec<String> = farm.hub.requests().into_iter().filter_map(|request| request.range).collect();
    assert_eq!(ranges, ["bytes=100000-199999"]);

    // A server that ignores the range sends all again, and all again is what is kept.
    let farm = Farm::with(|card| {
        card.serve.truncate = Some(cut);
        card.serve.ignore_range = true;
    })
    .await;
    let snapshot = farm.one().await.unwrap();
    assert_eq!(std::fs::read(snapshot.path.join("model.safetensors")).unwrap(), WEIGHTS);
    assert_eq!(farm.gets("model.safetensors"), 3);
}

#[tokio::test]
async fn a_run_goes_on_where_the_one_before_gave_up() {
    let cut = Truncate { file: weights(), bytes: 100_000, times: Some(1) };
    let mut farm = Farm::with(|card| card.serve.truncate = Some(cut)).await;
    farm.limits.tries = 1;
    assert!(is_download(&farm.failure().await, "after 100000 of 200000 bytes"));
    farm.one().await.unwrap();
    assert!(farm.hub.requests().iter().any(|request| request.range.as_deref() == Some("bytes=100000-199999")));
}

#[tokio::test]
async fn a_body_that_never_ends_whole_is_a_download_error() {
    let cut = Truncate { file: weights(), bytes: 1000, times: None };
    let farm = Farm::with(|card| card.serve.truncate = Some(cut)).await;
    let error = farm.failure().await;
    assert!(is_download(&error, "1000 of 200000 bytes") && is_download(&error, "3 tries"), "{error}");
    assert_eq!(error.outcome(), Outcome::DownloadError);
}

#[tokio::test]
async fn wrong_bytes_are_noticed_and_not_kept() {
    for file in ["model.safetensors", "config.json"] {
        let farm = Farm::with(|card| card.serve.lie = Some(Lie { file: file.into() })).await;
        let error = farm.failure().await;
        assert!(is_download(&error, "Git hash") && is_download(&error, file), "{error}");
        assert_eq!(farm.gets(file), 2);
        let kept: Vec<_> = farm.state.path().join("hub/partial").read_dir().unwrap().collect();
        assert!(kept.is_empty(), "{kept:?}");
    }
}

#[tokio::test]
async fn errors_of_the_server_are_tried_again_and_then_told() {
    let status = |code, times, on| Some(Status { code, times, on, retry_after: 1 });
    for on in [StatusOn::File, StatusOn::Api] {
        let farm = Farm::with(|card| card.serve.status = status(500, Some(1), on)).await;
        farm.one().await.unwrap();
        let farm = Farm::with(|card| card.serve.status = status(502, None, on)).await;
        let error = farm.failure().await;
        assert!(is_download(&error, "answered 502") && is_download(&error, "3 tries"), "{error}");
    }
    let farm = Farm::with(|card| card.serve.status = status(429, Some(1), StatusOn::Api)).await;
    let started = Instant::now();
    farm.one().await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1), "Retry-After was not honoured");

    let long = Status { code: 429, times: None, on: StatusOn::File, retry_after: 3600 };
    let farm = Farm::with(|card| card.serve.status = Some(long)).await;
    let started = Instant::now();
    assert!(is_download(&farm.failure().await, "429"));
    assert!(started.elapsed() < Duration::from_secs(5), "waited for an hour that there is not");
    // What will not change is not tried again.
    let farm = Farm::with(|card| card.serve.status = status(410, None, StatusOn::Api)).await;
    assert!(is_download(&farm.failure().await, "410"));
    assert_eq!(farm.hub.requests().len(), 1);
}

#[tokio::test]
async fn gated_private_and_missing_are_told_apart() {
    let farm = Farm::with(|card| {
        card.gated = Gated::Manual;
        card.serve.token = Some("hf_good".into());
    })
    .await;
    for token in [Token::Nobody, Token::Given("hf_bad".into())] {
        let farm = Farm { client: client(&farm.hub, token), ..Farm::with(|_| ()).await };
        let error = farm.one().await.unwrap_err();
        assert!(matches!(error, HubError::Gated { .. }), "{error}");
        assert!(error.to_string().contains("HF_TOKEN") && error.outcome() == Outcome::Gated, "{error}");
    }
    let with_token = client(&farm.hub, Token::Given("hf_good".into()));
    download_snapshot(&with_token, "toys/one", "main", &farm.store, &farm.limits).await.unwrap();

    let farm = Farm::with(|card| card.private = true).await;
    for (id, revision) in [("toys/one", "main"), ("toys/none", "main"), ("toys/none", &"a".repeat(40))] {
        let error = farm.get(id, revision).await.unwrap_err();
        assert!(matches!(error, HubError::NotFound { .. }) && error.to_string().contains(id), "{error}");
    }
    let farm = Farm::with(|_| ()).await;
    for revision in ["v9", &"a".repeat(40), "../../../x", "refs/pr/1"] {
        let error = farm.get("toys/one", revision).await.unwrap_err();
        assert!(matches!(error, HubError::NotFound { .. }) && error.to_string().contains(revision), "{error}");
    }
}

#[tokio::test]
async fn a_body_that_stops_or_drips_ends_in_time() {
    let farm = Farm::with(|card| card.serve.slow = Some(Slow { file: weights(), bytes_per_second: 0 })).await;
    let error = farm.failure().await;
    assert!(is_download(&error, "after 0 of 200000 bytes"), "{error}");

    let mut farm = Farm::with(|card| card.serve.slow = Some(Slow { file: weights(), bytes_per_second: 1000 })).await;
    farm.limits.total = Duration::from_secs(2);
    let started = Instant::now();
    let error = farm.failure().await;
    assert!(is_download(&error, "within the 2 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn hostile_names_are_refused_before_anything_is_written() {
    for name in [
        "../../../escape.json",
        "/tmp/escape.json",
        "..\\..\\escape.json",
        "sub/../../escape.py",
        "C:escape.json",
        "con.json",
        "a\u{0}b.json",
        "a\u{1b}[2J.json",
        "a\u{202e}nosj.py",
        ".json/./a.json",
        &format!("{}.json", "x".repeat(300)),
    ] {
        let farm = Farm::with(|card| card.serve.tree_extra = vec![TreeExtra { path: name.into(), size: 3 }]).await;
        let error = farm.failure().await;
        let text = error.to_string();
        assert!(matches!(error, HubError::Refused { reason: Refusal::Name { .. }, .. }), "{name:?}: {text}");
        assert!(!text.contains(['\u{0}', '\u{1b}', '\u{202e}']), "{text:?}");
        assert_eq!(error.outcome(), Outcome::Refused);
        assert!(farm.hub.requests().iter().all(|request| request.path.starts_with("/api/")), "{name:?}");
    }
    for (name, id) in [("config.json/x.json", "toys/one"), ("config.json", "toys/one")] {
        let farm = Farm::with(|card| card.serve.tree_extra = vec![TreeExtra { path: name.into(), size: 3 }]).await;
        let error = farm.get(id, "main").await.unwrap_err();
        assert!(matches!(error, HubError::Refused { reason: Refusal::Clash { .. }, .. }), "{name:?}: {error}");
    }
    // A name that no harness needs harms nobody.
    let extra = vec![TreeExtra { path: "docs/what?.png".into(), size: 3 }, TreeExtra { path: "more.json".into(), size: 3 }];
    let farm = Farm::with(|card| card.serve.tree_extra = extra).await;
    let snapshot = farm.one().await.unwrap();
    assert_eq!(std::fs::read(snapshot.path.join("more.json")).unwrap(), b"xxx");
    // Nor does an id become a path.
    for id in ["../one", "toys/..", "toys/one/two", "toys/o\u{0}ne", ""] {
        assert!(matches!(farm.get(id, "main").await, Err(HubError::Refused { .. })), "{id:?}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_comes() {
    let mut farm = Farm::with(|_| ()).await;
    farm.limits.max_bytes = 200_000;
    let error = farm.failure().await;
    assert!(matches!(error, HubError::Refused { reason: Refusal::Size { limit: 200_000, .. }, .. }), "{error}");
    farm.limits = DownloadLimits { max_files: 3, ..quick() };
    assert!(matches!(farm.failure().await, HubError::Refused { reason: Refusal::Files { limit: 3 }, .. }));

    let extra = ["a.json", "b.json", "c.json"].map(|path| TreeExtra { path: path.into(), size: u64::MAX / 2 });
    let farm = Farm::with(|card| card.serve.tree_extra = extra.into()).await;
    let error = farm.failure().await;
    assert!(matches!(error, HubError::Refused { reason: Refusal::Size { bytes: u64::MAX, .. }, .. }), "{error}");

    let models = tempfile::tempdir().unwrap();
    write_fixture(models.path(), Card::new("toys/one"), &[("README.md", b"nothing else")]).unwrap();
    let farm = Farm::of(models).await;
    assert!(matches!(farm.failure().await, HubError::Refused { reason: Refusal::Nothing, .. }));
}

#[tokio::test]
async fn a_hub_that_is_not_there_is_offline_and_snapshots_stay_usable() {
    let farm = Farm::with(|_| ()).await;
    let snapshot = farm.one().await.unwrap();
    let Farm { hub, client, store, limits, .. } = &farm;
    let address = hub.address();
    // A port that was free a moment ago.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_ne!(address, gone);
    let options = HubOptions { endpoint: Some(format!("http://{gone}")), token: Token::Nobody, limits: limits.clone() };
    let offline = HubClient::new(options).unwrap();
    let error = download_snapshot(&offline, "toys/one", "main", store, limits).await.unwrap_err();
    assert!(matches!(error, HubError::Offline { .. }) && error.to_string().contains("HF_ENDPOINT"), "{error}");
    assert!(matches!(list_models(&offline, &CatalogQuery::default()).await, Err(HubError::Offline { .. })));
    let kept = download_snapshot(&offline, "toys/one", &snapshot.commit, store, limits).await.unwrap();
    assert_eq!(kept, snapshot);
    assert!(model(client, "toys/one", "main").await.is_ok());
}

#[tokio::test]
async fn the_token_stays_with_the_endpoint() {
    let models = tempfile::tempdir().unwrap();
    let token = Some("hf_good".to_owned());
    let stored = write(models.path(), "toys/one", |_| ());
    let other = serve(models.path()).await;
    let gated = |card: &mut Card| {
        card.gated = Gated::Auto;
        card.serve.token = token.clone();
    };

    // Files that another host sends, as the Hub's storage does.
    let farm = Farm::with(|card| {
        gated(card);
        card.serve.redirect_to = Some(other.url());
    })
    .await;
    let farm = Farm { client: client(&farm.hub, Token::Given("hf_good".into())), ..farm };
    assert_eq!(farm.one().await.unwrap().commit, stored.commit);
    let seen = other.requests();
    assert!(seen.iter().any(|request| request.path.starts_with("/cdn/")), "{seen:?}");
    assert!(seen.iter().all(|request| request.authorization.is_none()), "{seen:?}");
    assert!(farm.hub.requests().iter().all(|request| request.authorization.as_deref() == Some("Bearer hf_good")));

    // A list that goes on elsewhere.
    let before = other.requests().len();
    let farm = Farm::with(|card| {
        gated(card);
        card.serve.page_size = Some(2);
        card.serve.link_to = Some(other.url());
    })
    .await;
    let farm = Farm { client: client(&farm.hub, Token::Given("hf_good".into())), ..farm };
    let error = farm.failure().await;
    assert!(matches!(error, HubError::Refused { reason: Refusal::ForeignHost { .. }, .. }), "{error}");
    assert_eq!(other.requests().len(), before);

    // And without a token none is sent, whatever the machine's own files hold.
    let farm = Farm::with(|_| ()).await;
    farm.one().await.unwrap();
    assert!(farm.hub.requests().iter().all(|request| request.authorization.is_none()));
}

#[tokio::test]
async fn the_catalogue_tells_what_models_are_chosen_by() {
    let models = tempfile::tempdir().unwrap();
    for (at, downloads) in [(1, 10), (2, 30), (3, 20)] {
        write(models.path(), &format!("zoo/tiny-{at}"), |card| {
            card.downloads = downloads;
            card.likes = at;
            card.pipeline_tag = Some("text-generation".into());
            card.tags = if at == 1 { vec![] } else { vec!["smoke".into()] };
            card.gated = if at == 3 { Gated::Auto } else { Gated::No };
        });
    }
    let mut card = Card::new("zoo/pipe");
    card.library_name = Some("diffusers".into());
    write_fixture(models.path(), card, &[("model_index.json", br#"{"_class_name": "DiTPipeline"}"#)]).unwrap();
    let farm = Farm::of(models).await;
    let list = async |query: CatalogQuery| list_models(&farm.client, &query).await.unwrap();
    let names = |models: &[HubModel]| models.iter().map(|model| model.id[4..].to_owned()).collect::<Vec<_>>();

    let all = list(CatalogQuery::default()).await;
    assert_eq!(names(&all), ["tiny-2", "tiny-3", "tiny-1", "pipe"]);
    let first = &all[0];
    assert_eq!((first.downloads, first.likes, first.gated), (30, 2, false));
    assert_eq!((first.architecture.as_deref(), first.class.as_deref()), (Some("llama"), Some("LlamaForCausalLM")));
    assert_eq!((first.library.as_deref(), first.pipeline_tag.as_deref()), (Some("transformers"), Some("text-generation")));
    assert!(all[1].gated && all.iter().all(|model| names::is_commit(&model.revision)));
    assert_eq!(all[3].class.as_deref(), Some("DiTPipeline"));

    let library = |library: &str| CatalogQuery { library: Some(library.into()), ..CatalogQuery::default() };
    assert_eq!(names(&list(library("diffusers")).await), ["pipe"]);
    let smoke = CatalogQuery { tags: vec!["smoke".into()], limit: Some(1), sort: Sort::Likes, ..library("transformers") };
    assert_eq!(names(&list(smoke).await), ["tiny-3"]);
    let limited = CatalogQuery { limit: Some(2), read_configs: true, ..CatalogQuery::default() };
    assert_eq!(names(&list(limited).await), ["tiny-2", "tiny-3"]);

    let one = model(&farm.client, "zoo/pipe", "main").await.unwrap();
    assert_eq!((one.architecture.as_deref(), one.gated), (Some("DiTPipeline"), false));
    assert!(matches!(model(&farm.client, "zoo/none", "main").await, Err(HubError::NotFound { .. })));
}

#[tokio::test]
async fn models_of_other_libraries_are_named_by_their_own_configuration() {
    let models = tempfile::tempdir().unwrap();
    for (id, library, config) in [
        ("zoo/pictures", "timm", r#"{"architecture": "test_vit", "num_classes": 10, "pretrained_cfg": {}}"#),
        ("zoo/denoiser", "diffusers", r#"{"_class_name": "UNet2DModel", "sample_size": 16}"#),
    ] {
        let mut card = Card::new(id);
        card.library_name = Some(library.into());
        write_fixture(models.path(), card, &[("config.json", config.as_bytes())]).unwrap();
    }
    let farm = Farm::of(models).await;
    for (id, expected) in [("zoo/pictures", "test_vit"), ("zoo/denoiser", "UNet2DModel")] {
        let told = model(&farm.client, id, "main").await.unwrap();
        assert_eq!((told.architecture.as_deref(), told.class.as_deref()), (Some(expected), Some(expected)));
    }
    // The listing alone tells it too.
    let listed = list_models(&farm.client, &CatalogQuery::default()).await.unwrap();
    assert!(listed.iter().all(|model| model.architecture.is_some()), "{listed:?}");
}
