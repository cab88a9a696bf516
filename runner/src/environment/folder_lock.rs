//! One process at a time makes an environment.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use super::error::EnvironmentError;

/// Held until dropped; the system frees it when the process dies in any way.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock file at `path`, which is made where missing; `on_wait` is called once where another process holds it.
    pub(super) async fn take(path: &Path, on_wait: impl FnOnce()) -> Result<Self, EnvironmentError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(EnvironmentError::io("open the lock file", path))?;
        match file.try_lock() {
            Ok(()) => return Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => on_wait(),
            Err(TryLockError::Error(source)) => return Err(EnvironmentError::io("lock", path)(source)),
        }
        let file = tokio::task::spawn_blocking(move || file.lock().map(|()| file))
            .await
            .map_err(std::io::Error::other)
            .and_then(|locked| locked)
            .map_err(EnvironmentError::io("lock", path))?;
        Ok(Self { _file: file })
    }
}
