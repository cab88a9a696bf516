//! How many requests were answered how.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;

/// Counts by path, as the document writes it, and status.
#[derive(Debug, Default)]
pub(super) struct RequestCounts(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl RequestCounts {
    pub(super) fn count(&self, path: &'static str, status: StatusCode) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((path, status.as_u16())).or_default() += 1;
    }

    pub(super) fn all(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
