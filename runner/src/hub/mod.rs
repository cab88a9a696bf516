//! The farm's only door to the Hub: which models there are, and their files on this machine.
//!
//! Everything a repository or a Hub says is hostile until checked: file names before any path is made of them ([`names`]),
//! bytes by length and hash before anything else sees them, sizes against limits, and the token stays with the endpoint.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may fail by a panic"))]

pub mod catalog;
pub mod client;
pub mod error;
pub mod names;
pub mod selection;
pub mod snapshot;
pub mod store;

mod download;
mod retry;
mod verify;

#[cfg(test)]
mod tests;

pub use catalog::{CatalogQuery, HubModel, Sort, list_models, model};
pub use client::{DownloadLimits, HubClient, HubOptions, Token};
pub use error::{HubError, Refusal};
pub use snapshot::{Snapshot, SnapshotFile, contents_of, download_snapshot};
pub use store::FileStore;
