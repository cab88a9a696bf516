//! Where files from the Hub stand on this machine: each content once, and models as folders of links to contents.
//!
//! ```text
//! <hub>/blobs/<sha256>                    contents, whole and checked
//! <hub>/oids/<git hash>.<kind>            which content a Git hash of a tree stands for
//! <hub>/partial/<git hash>.<kind>         what has come of a content so far
//! <hub>/models/<org>/<name>/<commit>/     a snapshot; it is there or it is not, never in part
//! <hub>/models/<org>/<name>/<commit>.json its files with sizes and hashes
//! <hub>/locks/                            one holder each, in this process and in others
//! <hub>/xet/                              what the xet library caches
//! ```

use super::error::HubError;
use super::names::is_hex;
use super::verify::Told;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder `hub` of the state folder.
#[derive(Debug, Clone)]
pub struct FileStore {
    root: PathBuf,
}

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing the file gives the lock back")] File);

impl FileStore {
    /// Opens the store at `root`, and makes its folders where they are missing.
    ///
    /// # Errors
    ///
    /// Folders that cannot be made.
    pub fn open(root: &Path) -> Result<Self, HubError> {
        let store = Self { root: root.to_path_buf() };
        for folder in ["blobs", "oids", "partial", "models", "locks", "xet"] {
            let folder = root.join(folder);
            std::fs::create_dir_all(&folder).map_err(|source| HubError::store(&folder, source))?;
        }
        Ok(store)
    }

    /// The folder of the store.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Variables that the process must start with, so that the libraries below hf-hub write nowhere else. They read their
    /// environment themselves and have no other setting.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, PathBuf); 1] {
        [("HF_XET_CACHE", self.root.join("xet"))]
    }

    /// Where a content stands, or would.
    #[must_use]
    pub fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(sha256)
    }

    /// The folder of all snapshots of a model, whose id must have been checked.
    pub(super) fn model(&self, id: &str) -> PathBuf {
        // No organisation is called so: the Hub's names do not start with a dash.
        let (org, name) = id.split_once('/').unwrap_or(("-", id));
        self.root.join("models").join(org).join(name)
    }

    pub(super) fn partial(&self, told: &Told) -> PathBuf {
        self.root.join("partial").join(oid_key(told))
    }

    /// The SHA-256 of a content that is here already.
    pub(super) fn known(&self, told: &Told) -> Option<String> {
        let sha256 = std::fs::read_to_string(self.root.join("oids").join(oid_key(told))).ok()?;
        let sha256 = told.sha256.clone().unwrap_or(sha256);
        if !is_hex(&sha256, 64) {
            return None;
        }
        let there = self.blob(&sha256).symlink_metadata().ok()?;
        (there.is_file() && there.len() == told.size).then_some(sha256)
    }

    /// Takes a checked content in.
    pub(super) fn adopt(&self, partial: &Path, told: &Told, sha256: &str) -> Result<(), HubError> {
        let blob = self.blob(sha256);
        // Snapshots share contents: nobody may write into one of them by mistake.
        let mut permissions = partial.metadata().map_err(|source| HubError::store(partial, source))?.permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(partial, permissions).map_err(|source| HubError::store(partial, source))?;
        std::fs::rename(partial, &blob).map_err(|source| HubError::store(&blob, source))?;
        write_whole(&self.root.join("oids").join(oid_key(told)), sha256.as_bytes())
    }

    /// Waits for a lock until `until`. `key` is a file name.
    pub(super) async fn lock(&self, key: &str, until: Instant) -> Result<Lock, HubError> {
        let path = self.root.join("locks").join(key);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|source| HubError::store(&path, source))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::Error(source)) => return Err(HubError::store(&path, source)),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                    let held = std::io::Error::other("another download has held it for too long");
                    return Err(HubError::store(&path, held));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// A plain file may hold the very text of a pointer, and then both have one Git hash.
fn oid_key(told: &Told) -> String {
    format!("{}.{}", told.git_oid, if told.is_pointer { "pointer" } else { "blob" })
}

/// Writes a file that is there whole or not at all.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), HubError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|source| HubError::store(path, source))
}
