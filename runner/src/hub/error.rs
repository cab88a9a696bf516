//! What can go wrong between the farm and the Hub, told so that the reader knows what to do.

use super::names::{NameFault, shown};
use modelfarm_matrix::outcome::Outcome;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A failure of the catalogue or of a download; fragments that fit "failed to ...".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The repository wants a permission that the farm has not.
    #[error(
        "read {id}: the Hub refuses access ({detail}); ask for it at {endpoint}/{id}, and give the farm a token that has it \
         in HF_TOKEN"
    )]
    Gated {
        /// The model.
        id: String,
        /// The Hub that was asked.
        endpoint: String,
        /// What the Hub said.
        detail: String,
    },
    /// No such repository or revision, or one that is private.
    #[error("find {what} at {endpoint}; check its spelling, and set HF_TOKEN if it is private")]
    NotFound {
        /// `org/name`, or `org/name@revision`.
        what: String,
        /// The Hub that was asked.
        endpoint: String,
    },
    /// The Hub answered, and what was asked for did not arrive whole.
    #[error("download {what}: {detail}; run again to go on where it stopped, and if it stays so report it to the Hub")]
    Download {
        /// `org/name/file`, or what else was asked for.
        what: String,
        /// What happened, after how many tries.
        detail: String,
    },
    /// The farm's own rules forbid it.
    #[error("download {id}: refused, because {reason}")]
    Refused {
        /// The model.
        id: String,
        /// The rule.
        reason: Refusal,
    },
    /// The Hub cannot be reached.
    #[error(
        "reach {endpoint}: {detail}; check the network and HF_ENDPOINT, or name models that are here already by their full \
         commit"
    )]
    Offline {
        /// The Hub that was asked.
        endpoint: String,
        /// What happened.
        detail: String,
    },
    /// This machine's own files cannot be read or written.
    #[error("use the farm's files at {path}: {source}; check the disk's space and the folder's permissions")]
    Store {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The client's settings are of no use.
    #[error("set up the Hub client: {detail}; check HF_ENDPOINT")]
    Settings {
        /// What is wrong with them.
        detail: String,
    },
}

/// Why the farm refuses a repository. The words follow "because".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A name that no path may be made of.
    #[error("the name {} {fault}; nothing of it was written", shown_name(.name))]
    Name {
        /// As the Hub told it.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// Two files want one place.
    #[error("the names {} and {} want the same place", shown_name(.first), shown_name(.second))]
    Clash {
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// Larger than the limit for one model.
    #[error("its files have {bytes} bytes and the limit is {limit}; raise the size limit to run it")]
    Size {
        /// Sum over the files that a harness needs, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// More files than the limit.
    #[error("it has more than {limit} files")]
    Files {
        /// The limit.
        limit: usize,
    },
    /// Nothing there that a harness could load.
    #[error("none of its files is one that a harness reads")]
    Nothing,
    /// A list that goes on at another host, which would get the token.
    #[error("its list of files goes on at another host, {host}, which must not see the token")]
    ForeignHost {
        /// The host.
        host: String,
    },
}

fn shown_name(name: &str) -> String {
    format!("`{}`", shown(name))
}

impl HubError {
    /// The outcome of a case that ends with this error.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Gated { .. } => Outcome::Gated,
            Self::NotFound { .. } => Outcome::NotFound,
            Self::Download { .. } => Outcome::DownloadError,
            Self::Refused { .. } => Outcome::Refused,
            Self::Offline { .. } | Self::Store { .. } | Self::Settings { .. } => Outcome::InfraError,
        }
    }

    pub(super) fn store(path: &Path, source: std::io::Error) -> Self {
        Self::Store { path: path.to_path_buf(), source }
    }

    pub(super) fn refused(id: &str, reason: Refusal) -> Self {
        Self::Refused { id: shown(id), reason }
    }

    pub(super) fn bad_name(id: &str, name: &str, fault: NameFault) -> Self {
        Self::refused(id, Refusal::Name { name: name.to_owned(), fault })
    }

    pub(super) fn download(what: impl Into<String>, detail: impl AsRef<str>) -> Self {
        Self::Download { what: shown(&what.into()), detail: shown(detail.as_ref()) }
    }

    /// Adds how much was tried to an error of the network.
    pub(super) fn after(mut self, tries: u32, taken: Duration) -> Self {
        if tries > 1
            && let Self::Download { detail, .. } | Self::Offline { detail, .. } = &mut self
        {
            *detail = format!("{detail} ({tries} tries in {:.1} s)", taken.as_secs_f64());
        }
        self
    }
}
