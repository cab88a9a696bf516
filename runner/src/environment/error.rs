//! What can go wrong with an environment, as fragments that fit "failed to ...".

use std::io;
use std::path::PathBuf;

/// Why an environment could not be made, found or described.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The name is none of those whose requirements the program carries.
    #[error("find the environment `{name}`: there is {known}; a requirements file of your own goes with one of these names")]
    UnknownName {
        /// What was asked for.
        name: String,
        /// The names there are, for reading.
        known: String,
    },
    /// A setting, in a file or a variable, is not usable.
    #[error("use the setting {place}: {reason}")]
    BadSetting {
        /// The file and key, or the variable.
        place: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A requirements file holds something that an environment cannot be made of again.
    #[error("use the requirements in {place}, line {line}: {reason}")]
    BadRequirements {
        /// The file, or where else the text came from.
        place: String,
        /// Line number, from 1.
        line: usize,
        /// What is wrong and what to do.
        reason: String,
    },
    /// No interpreter of a supported version was found.
    #[error(
        "find Python {wanted}: {tried}\nInstall one (Debian and Ubuntu: `apt install python3 python3-venv`; anywhere: `uv python install 3.12`) \
         or name one with MODELFARM_PYTHON=/path/to/python3"
    )]
    NoPython {
        /// The supported versions.
        wanted: &'static str,
        /// What was looked at and what it was.
        tried: String,
    },
    /// uv is missing and could not be fetched.
    #[error(
        "get uv, which makes the Python environments: {reason}\nInstall it (`pipx install uv`), give Python its venv module (Debian and Ubuntu: \
         `apt install python3-venv`), or name it with MODELFARM_UV=/path/to/uv"
    )]
    NoUv {
        /// What was tried and how it ended.
        reason: String,
    },
    /// A package index cannot be reached.
    #[error(
        "{step}: no answer from the package index ({detail})\nCheck the network and the proxy (HTTPS_PROXY), or name a reachable index with \
         MODELFARM_INDEX_URL"
    )]
    Network {
        /// What was being done.
        step: &'static str,
        /// What uv or pip said, without credentials.
        detail: String,
    },
    /// A downloaded file is not the one that was locked.
    #[error(
        "{step}: the file of `{package}` is not the one that was locked (hash mismatch)\nThe index or something on the way serves another file; do \
         not use it. If it is a build of your own, name your own requirements with MODELFARM_REQUIREMENTS"
    )]
    HashMismatch {
        /// What was being done.
        step: &'static str,
        /// The package, as `name==version`.
        package: String,
    },
    /// A package has no file for this computer.
    #[error("{step}: a package has no wheel for this computer ({platform}, Python {python})\n{detail}")]
    NoWheel {
        /// What was being done.
        step: &'static str,
        /// Operating system and processor.
        platform: String,
        /// Python's version.
        python: String,
        /// What uv said.
        detail: String,
    },
    /// The file system is full.
    #[error(
        "{step}: no space left on the disk of {path} ({free_gib:.1} GiB free; the `torchtpu` environment takes about 8 GiB)"
    )]
    DiskFull {
        /// What was being done.
        step: &'static str,
        /// The folder that was written to.
        path: PathBuf,
        /// What is free there.
        free_gib: f64,
    },
    /// uv, pip or Python ended in an error that is none of the above.
    #[error("{step}: {detail}")]
    Tool {
        /// What was being done.
        step: &'static str,
        /// The last lines it printed, without credentials.
        detail: String,
    },
    /// The file system refused.
    #[error("{action} {path}: {source}{}", advice(source))]
    Io {
        /// What was being done.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl EnvironmentError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space or name another folder with --state-dir"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; the state folder must be writable: name another one with --state-dir"
        }
        _ => "",
    }
}
