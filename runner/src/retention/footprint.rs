//! The space that files take, where several names may stand for one file.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A file of the file system, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    device: u64,
    number: u64,
}

/// A file with several names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    bytes: u64,
    /// How many names it has anywhere.
    names: u64,
    /// How many of them are here.
    here: u64,
}

/// The files of one or several things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of files that have no other name.
    own: u64,
    shared: BTreeMap<FileId, Shared>,
}

impl Footprint {
    /// Adds a name of a file.
    pub fn add(&mut self, found: &Metadata) {
        let bytes = found.blocks() * 512;
        if found.is_dir() || found.nlink() <= 1 {
            self.own += bytes;
            return;
        }
        let id = FileId { device: found.dev(), number: found.ino() };
        let shared = self.shared.entry(id).or_insert(Shared { bytes, names: found.nlink(), here: 0 });
        shared.here += 1;
    }

    /// Adds what another thing takes.
    pub fn join(&mut self, other: &Self) {
        self.own += other.own;
        for (id, shared) in &other.shared {
            self.shared.entry(*id).or_insert(Shared { here: 0, ..*shared }).here += shared.here;
        }
    }

    /// Bytes that are free once all of it is gone: a file takes space until its last name goes.
    pub fn freed_bytes(&self) -> u64 {
        let last = self.shared.values().filter(|shared| shared.here >= shared.names);
        self.own + last.map(|shared| shared.bytes).sum::<u64>()
    }

    #[cfg(test)]
    pub(super) fn of_own(bytes: u64) -> Self {
        Self { own: bytes, shared: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_space_until_its_last_name_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("alone"), vec![1; 10_000]).unwrap();
        std::fs::write(path("one"), vec![1; 20_000]).unwrap();
        std::fs::hard_link(path("one"), path("other")).unwrap();
        let of = |name: &str| {
            let mut footprint = Footprint::default();
            footprint.add(&path(name).symlink_metadata().unwrap());
            footprint
        };
        let alone = of("alone").freed_bytes();
        assert!(alone >= 10_000);
        assert_eq!(of("one").freed_bytes(), 0);
        let mut all = of("alone");
        all.join(&of("one"));
        assert_eq!(all.freed_bytes(), alone);
        all.join(&of("other"));
        assert!(all.freed_bytes() >= alone + 20_000);
    }
}
