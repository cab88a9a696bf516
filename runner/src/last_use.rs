//! When a thing in the state folder was last used: the time at which its file was last said to be modified.
//!
//! Times of access would need no writing, but most file systems do not keep them.

use std::fs::{File, Metadata};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Says that a file or folder is used now. Where that cannot be kept the thing only seems older than it is.
pub fn mark(path: &Path) {
    let marked = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = marked {
        tracing::debug!(%error, path = %path.display(), "its use could not be marked");
    }
}

/// When it was last used, UTC milliseconds since 1970.
pub fn of(found: &Metadata) -> i64 {
    let since = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_marked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [&file, folder.path()] {
            File::open(path).unwrap().set_modified(UNIX_EPOCH).unwrap();
            assert_eq!(of(&path.metadata().unwrap()), 0);
            mark(path);
            assert!(of(&path.metadata().unwrap()) > 1_700_000_000_000);
        }
        mark(&folder.path().join("missing"));
    }
}
