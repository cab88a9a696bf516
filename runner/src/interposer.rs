//! The PJRT interposer that this program carries, written where a worker can load it.

use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::environment::{Finding, Health};
use crate::state_dir::StateDir;

static INTERPOSER: &[u8] = include_bytes!(env!("MODELFARM_INTERPOSER"));

/// The file's name, which holds its hash.
pub fn file_name() -> String {
    let digest = Sha256::digest(INTERPOSER);
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("libmodelfarm_pjrt-{hash}.so")
}

/// Writes the interposer into the state folder, under a name that holds its hash; does nothing where it is there.
pub fn unpack(state: &StateDir) -> io::Result<PathBuf> {
    let path = state.programs().join(file_name());
    if std::fs::metadata(&path).is_ok_and(|found| found.len() == INTERPOSER.len() as u64) {
        return Ok(path);
    }
    std::fs::create_dir_all(state.programs())?;
    let temporary = tempfile::NamedTempFile::new_in(state.programs())?;
    std::fs::write(temporary.path(), INTERPOSER)?;
    temporary.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

/// Writes the interposer where it is not there yet, and tells `env doctor` of it.
pub fn examine(state: &StateDir) -> Finding {
    let subject = "interposer".to_owned();
    match unpack(state) {
        Ok(path) => {
            let found = format!("{} bytes, {}", INTERPOSER.len(), path.display());
            Finding { subject, health: Health::Ok, found, advice: None }
        }
        Err(error) => {
            let advice = format!("make {} writable, or choose another state folder with --state-dir", state.root().display());
            Finding { subject, health: Health::Problem, found: format!("cannot be written: {error}"), advice: Some(advice) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_carried_interposer_is_a_library_with_the_entry_point() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path()).unwrap();
        let path = unpack(&state).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"\x7fELF") || cfg!(target_os = "macos"));
        assert!(bytes.windows(10).any(|window| window == b"GetPjrtApi"));
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(unpack(&state).unwrap(), path);
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), modified, "a second call writes nothing");
    }
}
