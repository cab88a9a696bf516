//! The state folder: everything the farm writes, in one place.

use std::io;
use std::path::{Path, PathBuf};

use crate::state_lock::InUse;

/// Where the farm keeps its database, environments, Hub files, references and programs.
#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// The state folder at `path`, which need not exist yet; relative paths are made absolute, for workers run elsewhere.
    pub fn at(path: &Path) -> io::Result<Self> {
        let absolute = std::path::absolute(path)?;
        // A worker sees bound folders under their real names: links in the path would not exist inside the sandbox.
        let root = absolute.canonicalize().unwrap_or(absolute);
        Ok(Self { root })
    }

    /// Creates the folder, tells whether it can be written to, and says that it is in use; waits, after a call of `on_wait`, while
    /// something is being removed from it.
    pub fn create(&self, on_wait: impl FnOnce()) -> io::Result<InUse> {
        std::fs::create_dir_all(&self.root)?;
        tempfile::tempfile_in(&self.root)?;
        InUse::say(&self.root, on_wait)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The database where no other is named.
    pub fn database(&self) -> PathBuf {
        self.root.join("farm.db")
    }

    /// The farm's own Hub files.
    pub fn hub(&self) -> PathBuf {
        self.root.join("hub")
    }

    /// References and inputs, by key.
    pub fn references(&self) -> PathBuf {
        self.root.join("references")
    }

    /// The interposer.
    pub fn programs(&self) -> PathBuf {
        self.root.join("programs")
    }

    /// What emulated devices compiled, by program.
    pub fn compiled(&self) -> PathBuf {
        self.root.join("compiled")
    }

    /// Where running workers write; emptied when a run ends.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// The fixture models.
    pub fn fixtures(&self) -> PathBuf {
        self.root.join("fixtures")
    }

    /// The static report.
    pub fn report(&self) -> PathBuf {
        self.root.join("report")
    }
}
