//! What rows of the source are here.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Row, StoreError};

/// Keys of the source with what they are here. No two of the source are one here.
pub(super) struct Keys {
    column: &'static str,
    here: BTreeMap<i64, i64>,
    taken: BTreeSet<i64>,
}

impl Keys {
    pub(super) fn of_column(column: &'static str) -> Self {
        Self { column, here: BTreeMap::new(), taken: BTreeSet::new() }
    }

    /// Adds a key. A second one for the same row here could only come from a source without this program's constraints.
    pub(super) fn add(&mut self, source: i64, here: i64) -> Result<(), StoreError> {
        if self.here.insert(source, here).is_some() || !self.taken.insert(here) {
            let detail = format!("key {source} is a second one of the same thing");
            return Err(StoreError::Value { column: self.column, detail });
        }
        Ok(())
    }

    /// What the key in a row of the source is here.
    pub(super) fn of(&self, row: &Row) -> Result<i64, StoreError> {
        let key = row.int(self.column)?;
        self.here.get(&key).copied().ok_or_else(|| leads_nowhere(self.column, key))
    }
}

pub(super) fn leads_nowhere(column: &'static str, key: i64) -> StoreError {
    StoreError::Value { column, detail: format!("key {key} leads nowhere") }
}

/// A run of the source.
pub(super) struct MergedRun {
    pub(super) source_key: i64,
    /// Its key here.
    pub(super) key: i64,
    /// Whether nothing of it was here before: then nothing of it has to be looked up.
    pub(super) is_new: bool,
    /// The last number that was given to an event of it here.
    pub(super) last_sequence: i64,
}

/// The starts of shards of the source.
pub(super) struct Shards {
    keys: Keys,
    new: BTreeSet<i64>,
}

impl Default for Shards {
    fn default() -> Self {
        Self { keys: Keys::of_column("shard_key"), new: BTreeSet::new() }
    }
}

impl Shards {
    /// Adds one that was not here.
    pub(super) fn add_new(&mut self, source: i64, here: i64) -> Result<(), StoreError> {
        self.new.insert(here);
        self.keys.add(source, here)
    }

    /// Adds one that was here, perhaps with fewer events.
    pub(super) fn add_present(&mut self, source: i64, here: i64) -> Result<(), StoreError> {
        self.keys.add(source, here)
    }

    /// What the key in a row of the source is here.
    pub(super) fn of(&self, row: &Row) -> Result<i64, StoreError> {
        self.keys.of(row)
    }

    /// Whether a start, by its key here, was not here before.
    pub(super) fn is_new(&self, here: i64) -> bool {
        self.new.contains(&here)
    }
}
