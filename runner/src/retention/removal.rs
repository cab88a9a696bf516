//! Removing what a plan says, so that being killed at any moment leaves nothing broken.
//!
//! A folder gets another name first, in one step: nobody ever finds half of it. What is then left of it is recognised by that name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::item::Item;
use super::plan::Plan;

/// How the name of a folder begins that is being removed.
pub const REMOVING: &str = ".removing-";

/// What could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("remove {path}: {source}")]
pub struct RemovalError {
    path: PathBuf,
    source: io::Error,
}

/// Removes what goes, in the plan's order. What cannot be removed stays, is told, and keeps nothing else from going.
pub fn remove(root: &Path, plan: &Plan) -> (Vec<Item>, Vec<RemovalError>) {
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for item in &plan.go {
        match remove_item(root, item) {
            Ok(()) => removed.push(item.clone()),
            Err(error) => failed.push(error),
        }
    }
    (removed, failed)
}

fn remove_item(root: &Path, item: &Item) -> Result<(), RemovalError> {
    let path = root.join(&item.path);
    remove_path(&path).map_err(|source| RemovalError { path: path.clone(), source })?;
    for beside in &item.beside {
        let path = root.join(beside);
        remove_path(&path).map_err(|source| RemovalError { path: path.clone(), source })?;
    }
    // A shelf that holds nothing any more; one of the state folder's own folders stays.
    let shelves = item.path.ancestors().skip(1).filter(|shelf| shelf.components().count() >= 2);
    for shelf in shelves {
        if fs::remove_dir(root.join(shelf)).is_err() {
            break;
        }
    }
    Ok(())
}

fn remove_path(path: &Path) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.is_dir() {
        return fs::remove_file(path);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(REMOVING) {
        return fs::remove_dir_all(path);
    }
    let renamed = path.with_file_name(format!("{REMOVING}{name}"));
    // One that was left by another call goes with it.
    if renamed.symlink_metadata().is_ok() {
        remove_path(&renamed)?;
    }
    fs::rename(path, &renamed)?;
    fs::remove_dir_all(&renamed)
}
