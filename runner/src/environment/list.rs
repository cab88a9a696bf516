//! What environments a state folder holds.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::EnvironmentError;
use super::marker::{Environment, Marker};
use super::requirements::check_name;

/// One folder of `<state>/environments`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentEntry {
    /// Its name, as `torchtpu`.
    pub name: String,
    /// Its id: 16 hexadecimal digits; empty for one that was being made.
    pub id: String,
    /// The folder.
    pub folder: PathBuf,
    /// Bytes on disk. Files that uv's cache holds too are counted, though they take no further space.
    pub size_bytes: u64,
    /// Whether it can be used.
    pub state: EnvironmentState,
}

/// Whether an environment can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentState {
    /// It is whole.
    Complete(Box<Environment>),
    /// It is not, and why; `env sync` makes it anew.
    HalfMade(String),
}

/// All environments of a state folder by name and id; none where there is no such folder. Reads every folder's sizes: seconds
/// where they are cold.
pub fn list(state_dir: &Path) -> Result<Vec<EnvironmentEntry>, EnvironmentError> {
    let environments = state_dir.join("environments");
    let mut entries = Vec::new();
    for (file_name, folder) in subfolders(&environments)? {
        let (name, id) = match file_name.strip_prefix(".building-").and_then(|rest| rest.split_once('@')) {
            Some((name, _)) => (name, ""),
            None => match folder_name_parts(&file_name) {
                Some(parts) => parts,
                None => continue,
            },
        };
        let state = match Marker::read(&folder).and_then(|marker| marker.open(&folder)) {
            Ok(environment) if !id.is_empty() => EnvironmentState::Complete(Box::new(environment)),
            Ok(_) => EnvironmentState::HalfMade("it is being made".to_owned()),
            Err(reason) => EnvironmentState::HalfMade(reason),
        };
        entries.push(EnvironmentEntry {
            name: name.to_owned(),
            id: id.to_owned(),
            size_bytes: size_of(&folder),
            folder,
            state,
        });
    }
    entries.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
    Ok(entries)
}

/// The complete environment with this id (or an unambiguous beginning of it of at least four digits), if there is one.
pub fn open(state_dir: &Path, id: &str) -> Result<Option<Environment>, EnvironmentError> {
    if id.len() < 4 {
        return Ok(None);
    }
    let mut found = None;
    for (file_name, folder) in subfolders(&state_dir.join("environments"))? {
        if !folder_name_parts(&file_name).is_some_and(|(_, full)| full.starts_with(id)) {
            continue;
        }
        if let Ok(environment) = Marker::read(&folder).and_then(|marker| marker.open(&folder)) {
            if found.is_some() {
                return Ok(None);
            }
            found = Some(environment);
        }
    }
    Ok(found)
}

/// The folders whose name is this environment's with any id.
pub(super) fn folders_of(environments: &Path, name: &str) -> Vec<PathBuf> {
    let folders = subfolders(environments).unwrap_or_default();
    let of_name = |file_name: &str| folder_name_parts(file_name).is_some_and(|(found, _)| found == name);
    folders.into_iter().filter(|(file_name, _)| of_name(file_name)).map(|(_, folder)| folder).collect()
}

/// Name and id of an environment, by its folder's name.
pub fn folder_name_parts(file_name: &str) -> Option<(&str, &str)> {
    let (name, id) = file_name.rsplit_once('-')?;
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && check_name(name).is_ok()).then_some((name, id))
}

/// The folders in a folder, by name; none where it is not there.
pub(super) fn subfolders(environments: &Path) -> Result<Vec<(String, PathBuf)>, EnvironmentError> {
    let entries = match fs::read_dir(environments) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(EnvironmentError::io("read", environments)(error)),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry.map_err(EnvironmentError::io("read", environments))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    folders.sort();
    Ok(folders)
}

fn size_of(folder: &Path) -> u64 {
    let mut open = vec![folder.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // What vanishes meanwhile takes no space.
            let Ok(found) = entry.path().symlink_metadata() else { continue };
            if found.is_dir() {
                open.push(entry.path());
            } else {
                bytes += found.blocks() * 512;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_are_name_and_id() {
        assert_eq!(folder_name_parts("torchtpu-nightly-0123456789abcdef"), Some(("torchtpu-nightly", "0123456789abcdef")));
        assert_eq!(folder_name_parts("torchtpu-0123"), None);
        assert_eq!(folder_name_parts("-0123456789abcdef"), None);
        assert_eq!(folder_name_parts(".building-x@abc"), None);
    }

    #[test]
    fn a_state_folder_that_does_not_exist_holds_nothing() {
        assert!(list(Path::new("/nonexistent")).expect("no error").is_empty());
    }
}
