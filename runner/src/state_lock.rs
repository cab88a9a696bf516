//! Who works in a state folder: any number of farms, or one that removes what is old.
//!
//! A farm finds a reference, an environment or a snapshot and uses it much later: nothing may be removed between the two. The system
//! frees a lock when its process dies in any way.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// The lock's file in the state folder.
pub const LOCK_FILE: &str = ".lock";

/// Held by who uses what the state folder holds, until dropped.
#[derive(Debug)]
#[must_use = "what is in the state folder may be removed once this is dropped"]
pub struct InUse {
    _file: File,
}

/// Held by who removes something, until dropped.
#[derive(Debug)]
#[must_use = "others may begin to use the state folder once this is dropped"]
pub struct Alone {
    _file: File,
}

fn open(state: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(state.join(LOCK_FILE))
}

impl InUse {
    /// Says that the folder is in use; waits, after a call of `on_wait`, while something is being removed.
    pub fn say(state: &Path, on_wait: impl FnOnce()) -> io::Result<Self> {
        let file = open(state)?;
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                on_wait();
                file.lock_shared()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Self { _file: file })
    }
}

impl Alone {
    /// The folder for oneself; none while it is in use.
    pub fn take(state: &Path) -> io::Result<Option<Self>> {
        let file = open(state)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_use_it_or_one_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let one = InUse::say(folder.path(), || panic!("nobody removes anything")).unwrap();
        let other = InUse::say(folder.path(), || panic!("nobody removes anything")).unwrap();
        assert!(Alone::take(folder.path()).unwrap().is_none());
        drop(one);
        assert!(Alone::take(folder.path()).unwrap().is_none());
        drop(other);
        let alone = Alone::take(folder.path()).unwrap().unwrap();
        assert!(Alone::take(folder.path()).unwrap().is_none());
        let (waits, waiting) = std::sync::mpsc::channel();
        let path = folder.path().to_owned();
        let user = std::thread::spawn(move || InUse::say(&path, || waits.send(()).unwrap()).map(drop));
        waiting.recv().unwrap();
        drop(alone);
        user.join().unwrap().unwrap();
    }
}
