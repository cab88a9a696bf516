//! A model at one commit, on this machine: the files that a harness needs, whole and checked, in a folder of their own.

use super::client::{DownloadLimits, HubClient};
use super::download::{WantedFile, fetch};
use super::error::{HubError, Refusal};
use super::names::{check_file_name, check_model_id, is_commit, is_hex, shown};
use super::retry::{Trouble, trouble, with_tries};
use super::selection::needed_files;
use super::store::{FileStore, write_whole};
use super::verify::Told;
use crate::last_use;
use futures::{StreamExt, TryStreamExt};
use hf_hub::repository::RepoTreeEntry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A model's files, ready to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// `org/name`
    pub id: String,
    /// 40 hex digits.
    pub commit: String,
    /// The folder with the files. They are links to shared contents: read, never write.
    pub path: PathBuf,
    /// Ordered by name.
    pub files: Vec<SnapshotFile>,
    /// Sum over the files.
    pub bytes: u64,
}

/// A file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotFile {
    /// Relative to the snapshot, with `/` between its parts.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// 64 hex digits.
    pub sha256: String,
}

/// Brings a model's files here, or finds that they are. A revision that is a full commit of a model that is here costs no
/// request. Two calls for one model, from two tasks or two processes, download it once.
///
/// # Errors
///
/// See [`HubError`]; nothing of a model that fails can be taken for a snapshot, and what came is kept for the next try.
pub async fn download_snapshot(
    client: &HubClient,
    id: &str,
    revision: &str,
    store: &FileStore,
    limits: &DownloadLimits,
) -> Result<Snapshot, HubError> {
    check_model_id(id).map_err(|fault| HubError::bad_name(id, id, fault))?;
    let until = Instant::now() + limits.total;
    let commit = if is_commit(revision) { revision.to_owned() } else { commit_of(client, id, revision, limits, until).await? };
    if let Some(snapshot) = present(store, id, &commit) {
        return Ok(snapshot);
    }
    let _lock = store.lock(&format!("{}@{commit}", id.replace('/', "@")), until).await?;
    if let Some(snapshot) = present(store, id, &commit) {
        return Ok(snapshot);
    }
    let wanted = wanted_files(client, id, &commit, limits, until).await?;
    let fetched = futures::stream::iter(wanted)
        .map(|file| async move {
            let sha256 = fetch(client, &file, store, limits, until).await?;
            Ok::<_, HubError>(SnapshotFile { name: file.name, size: file.told.size, sha256 })
        })
        .buffer_unordered(limits.at_once.max(1));
    let mut files: Vec<SnapshotFile> = fetched.try_collect().await?;
    files.sort_by(|left, right| left.name.cmp(&right.name));
    build(store, id, &commit, files)
}

async fn commit_of(
    client: &HubClient,
    id: &str,
    revision: &str,
    limits: &DownloadLimits,
    until: Instant,
) -> Result<String, HubError> {
    let what = format!("{id}@{revision}");
    let (owner, name) = hf_hub::split_id(id);
    let model = client.api.model(owner, name);
    let info = with_tries(limits, until, &what, || async {
        let call = model.info().revision(revision).expand(vec!["sha".to_owned()]).send();
        let answer = tokio::time::timeout(limits.call, call).await.map_err(|_| no_answer(&what, limits))?;
        answer.map_err(|error| trouble(client.endpoint(), id, &what, error))
    });
    let commit = info.await?.sha.unwrap_or_default();
    if is_commit(&commit) {
        return Ok(commit);
    }
    Err(HubError::download(what, format!("the Hub tells the commit `{}`, which is no Git hash", shown(&commit))))
}

fn no_answer(what: &str, limits: &DownloadLimits) -> Trouble {
    Trouble::passing(HubError::download(what, format!("no answer within {} s", limits.call.as_secs_f64())))
}

/// The files that a harness needs, with their names and sizes checked.
async fn wanted_files(
    client: &HubClient,
    id: &str,
    commit: &str,
    limits: &DownloadLimits,
    until: Instant,
) -> Result<Vec<WantedFile>, HubError> {
    let tree = with_tries(limits, until, id, || list_tree(client, id, commit, limits)).await?;
    let sized: Vec<(&str, u64)> = tree.iter().map(|(name, told)| (name.as_str(), told.size)).collect();
    let needed = needed_files(&sized);
    if needed.is_empty() {
        return Err(HubError::refused(id, Refusal::Nothing));
    }
    for name in &needed {
        check_file_name(name).map_err(|fault| HubError::bad_name(id, name, fault))?;
    }
    check_places(id, &needed)?;
    let bytes = needed.iter().fold(0u64, |sum, name| sum.saturating_add(tree[*name].size));
    if bytes > limits.max_bytes {
        return Err(HubError::refused(id, Refusal::Size { bytes, limit: limits.max_bytes }));
    }
    let file = |name: &str| WantedFile {
        id: id.to_owned(),
        commit: commit.to_owned(),
        name: name.to_owned(),
        told: tree[name].clone(),
    };
    Ok(needed.into_iter().map(file).collect())
}

async fn list_tree(
    client: &HubClient,
    id: &str,
    commit: &str,
    limits: &DownloadLimits,
) -> Result<BTreeMap<String, Told>, Trouble> {
    let what = format!("{id}@{commit}");
    let hub_trouble = |error| trouble(client.endpoint(), id, &what, error);
    let (owner, name) = hf_hub::split_id(id);
    let model = client.api.model(owner, name);
    let tree = model.list_tree().revision(commit).recursive(true).send().map_err(hub_trouble)?;
    let mut tree = std::pin::pin!(tree);
    let mut files = BTreeMap::new();
    let mut entries = 0usize;
    loop {
        let entry = tokio::time::timeout(limits.call, tree.next()).await.map_err(|_| no_answer(&what, limits))?;
        let Some(entry) = entry else { return Ok(files) };
        entries += 1;
        if entries > limits.max_files {
            return Err(Trouble::final_one(HubError::refused(id, Refusal::Files { limit: limits.max_files })));
        }
        let RepoTreeEntry::File { oid, size, path, lfs, xet_hash, .. } = entry.map_err(hub_trouble)? else { continue };
        if !is_hex(&oid, 40) {
            let detail = format!("the Hub tells the hash `{}` for {}, which is no Git hash", shown(&oid), shown(&path));
            return Err(Trouble::final_one(HubError::download(&what, detail)));
        }
        let is_pointer = lfs.is_some() || xet_hash.is_some();
        let sha256 = lfs.and_then(|lfs| lfs.sha256).filter(|sha256| is_hex(sha256, 64));
        let told = Told { size, git_oid: oid, is_pointer, sha256 };
        if files.insert(path.clone(), told).is_some() {
            let clash = Refusal::Clash { first: path.clone(), second: path };
            return Err(Trouble::final_one(HubError::refused(id, clash)));
        }
    }
}

/// No name may be a folder of another.
fn check_places(id: &str, names: &[&str]) -> Result<(), HubError> {
    let all: BTreeSet<&str> = names.iter().copied().collect();
    for name in names {
        for (end, _) in name.match_indices('/') {
            if let Some(file) = all.get(&name[..end]) {
                let clash = Refusal::Clash { first: (*file).to_owned(), second: (*name).to_owned() };
                return Err(HubError::refused(id, clash));
            }
        }
    }
    Ok(())
}

/// What stands next to a snapshot's folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    id: String,
    commit: String,
    files: Vec<SnapshotFile>,
}

/// The contents, by SHA-256, that the file beside a snapshot names; none where that is no such file.
pub fn contents_of(manifest: &[u8]) -> Vec<String> {
    let manifest: Option<Manifest> = serde_json::from_slice(manifest).ok();
    let files = manifest.map(|manifest| manifest.files).unwrap_or_default();
    files.into_iter().map(|file| file.sha256).filter(|sha256| is_hex(sha256, 64)).collect()
}

/// The snapshot when it is here and each file has its size.
fn present(store: &FileStore, id: &str, commit: &str) -> Option<Snapshot> {
    let path = store.model(id).join(commit);
    let text = std::fs::read(manifest_path(&path)).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    if manifest.id != id || manifest.commit != commit {
        return None;
    }
    let whole = manifest.files.iter().all(|file| {
        let there = path.join(&file.name).symlink_metadata();
        check_file_name(&file.name).is_ok() && there.is_ok_and(|there| there.is_file() && there.len() == file.size)
    });
    if !whole {
        return None;
    }
    last_use::mark(&manifest_path(&path));
    Some(snapshot(id, commit, path, manifest.files))
}

fn snapshot(id: &str, commit: &str, path: PathBuf, files: Vec<SnapshotFile>) -> Snapshot {
    let bytes = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
    Snapshot { id: id.to_owned(), commit: commit.to_owned(), path, files, bytes }
}

fn manifest_path(snapshot: &Path) -> PathBuf {
    snapshot.with_added_extension("json")
}

/// Links the contents into a folder that takes its place in one step.
fn build(store: &FileStore, id: &str, commit: &str, files: Vec<SnapshotFile>) -> Result<Snapshot, HubError> {
    let model = store.model(id);
    let path = model.join(commit);
    let io = |source| HubError::store(&path, source);
    std::fs::create_dir_all(&model).map_err(io)?;
    let building = tempfile::Builder::new().prefix(".building-").tempdir_in(&model).map_err(io)?;
    for file in &files {
        let place = building.path().join(&file.name);
        if let Some(folder) = place.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        let blob = store.blob(&file.sha256);
        // A file system without hard links, or with no more of them for this file, gets a copy.
        if std::fs::hard_link(&blob, &place).is_err() {
            std::fs::copy(&blob, &place).map_err(io)?;
        }
    }
    if path.symlink_metadata().is_ok() {
        std::fs::remove_dir_all(&path).map_err(io)?;
    }
    let manifest = Manifest { id: id.to_owned(), commit: commit.to_owned(), files };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|error| io(std::io::Error::other(error)))?;
    write_whole(&manifest_path(&path), &text)?;
    std::fs::rename(building.keep(), &path).map_err(io)?;
    Ok(snapshot(id, commit, path.clone(), manifest.files))
}
