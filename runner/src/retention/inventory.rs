//! What a state folder holds: things that the farm knows as its own, and the rest, which nobody touches.
//!
//! Names decide, at every level down to a thing; a link is never followed and never the farm's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::footprint::Footprint;
use super::item::{Item, Kind, Stays};
use super::removal::REMOVING;
use crate::environment::folder_name_parts;
use crate::farm::reference_cache;
use crate::hub::contents_of;
use crate::last_use;

/// A folder or file that could not be looked at.
#[derive(Debug, thiserror::Error)]
#[error("look at {path}: {source}")]
pub struct InventoryError {
    path: PathBuf,
    source: io::Error,
}

/// What stays because this program, its settings or a recorded run needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Current {
    /// The interposer's file name.
    pub interposer: String,
    /// The folder of the worker's source.
    pub worker_source: String,
    /// The folder of the fixtures' source.
    pub fixture_source: String,
    /// The folder of uv.
    pub tool: String,
    /// Folders of environments, and why each stays.
    pub environments: BTreeMap<String, String>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The farm's own.
    pub items: Vec<Item>,
    /// What is not, below the state folder.
    pub unknown: Vec<PathBuf>,
    /// Processes of runs whose scratch folder is there, and that live.
    pub at_work: Vec<u32>,
}

/// Looks at everything in a state folder. Seconds where there are many files and the disk is cold.
pub fn look(root: &Path, current: &Current) -> Result<Inventory, InventoryError> {
    let mut looking = Looking { root, found: Inventory::default() };
    for entry in looking.entries(Path::new(""))? {
        match entry.name.as_str() {
            "references" if entry.is_folder() => looking.references(&entry.path)?,
            "compiled" if entry.is_folder() => looking.compiled(&entry.path)?,
            "programs" if entry.is_folder() => looking.interposers(&entry.path, current)?,
            "worker" if entry.is_folder() => looking.sources(&entry.path, Kind::WorkerSource, &current.worker_source)?,
            "fixtures" if entry.is_folder() => looking.fixtures(&entry.path, current)?,
            "tools" if entry.is_folder() => looking.tools(&entry.path, current)?,
            "environments" if entry.is_folder() => looking.environments(&entry.path, current)?,
            "hub" if entry.is_folder() => looking.hub(&entry.path)?,
            "scratch" if entry.is_folder() => looking.scratch(&entry.path)?,
            // Results and settings, which nothing replaces, and what uv keeps and prunes itself.
            "report" | "uv-cache" if entry.is_folder() => {}
            "config.toml" | crate::state_lock::LOCK_FILE if entry.is_file() => {}
            name if name.starts_with("farm.db") && entry.is_file() => {}
            _ => looking.found.unknown.push(entry.path),
        }
    }
    looking.found.items.sort_by(|one, other| one.path.cmp(&other.path));
    looking.found.unknown.sort();
    Ok(looking.found)
}

/// A name in a folder.
struct Entry {
    name: String,
    /// Below the state folder.
    path: PathBuf,
    found: Metadata,
}

impl Entry {
    fn is_folder(&self) -> bool {
        self.found.is_dir()
    }

    fn is_file(&self) -> bool {
        self.found.is_file()
    }

    /// Whether it is what a killed process was about to give its name, or to remove.
    fn is_unfinished(&self) -> bool {
        let prefixes = [".tmp", ".building-", ".unpacking-", REMOVING];
        (self.is_folder() || self.is_file()) && prefixes.iter().any(|prefix| self.name.starts_with(prefix))
    }
}

struct Looking<'a> {
    root: &'a Path,
    found: Inventory,
}

impl Looking<'_> {
    /// The names in a folder; what is no text is not the farm's.
    fn entries(&mut self, folder: &Path) -> Result<Vec<Entry>, InventoryError> {
        let at = self.root.join(folder);
        let failed = |source| InventoryError { path: at.clone(), source };
        let mut entries = Vec::new();
        for entry in still_there(fs::read_dir(&at)).map_err(failed)?.into_iter().flatten() {
            let entry = entry.map_err(failed)?;
            let path = folder.join(entry.file_name());
            // Of a folder's entry this is the link itself, where it is one.
            let Some(found) = still_there(entry.metadata()).map_err(failed)? else { continue };
            match entry.file_name().into_string() {
                Ok(name) => entries.push(Entry { name, path, found }),
                Err(_) => self.found.unknown.push(path),
            }
        }
        Ok(entries)
    }

    /// The space that a file or a folder with everything in it takes, and when the newest of it was written.
    fn measure(&self, path: &Path) -> Result<(Footprint, i64), InventoryError> {
        let (mut footprint, mut newest) = (Footprint::default(), 0);
        let mut open = vec![self.root.join(path)];
        while let Some(path) = open.pop() {
            let failed = |source| InventoryError { path: path.clone(), source };
            let Some(found) = still_there(path.symlink_metadata()).map_err(failed)? else { continue };
            footprint.add(&found);
            newest = newest.max(last_use::of(&found));
            if found.is_dir() {
                for entry in still_there(fs::read_dir(&path)).map_err(failed)?.into_iter().flatten() {
                    open.push(entry.map_err(failed)?.path());
                }
            }
        }
        Ok((footprint, newest))
    }

    fn add(&mut self, kind: Kind, path: PathBuf, last_used: i64, kept: Option<String>) -> Result<(), InventoryError> {
        let (footprint, _) = self.measure(&path)?;
        let stays = kept.map_or(Stays::WhileUsed, Stays::Always);
        self.found.items.push(Item { kind, path, beside: Vec::new(), footprint, last_used, needs: Vec::new(), stays });
        Ok(())
    }

    /// What a killed process left; of use for as long as something in it was written lately.
    fn leftover(&mut self, entry: Entry) -> Result<(), InventoryError> {
        let (footprint, last_used) = self.measure(&entry.path)?;
        // What was about to be removed was decided on before.
        let stays = if entry.name.starts_with(REMOVING) { Stays::NoLonger } else { Stays::WhileUsed };
        let (kind, path) = (Kind::Leftover, entry.path);
        self.found.items.push(Item { kind, path, beside: Vec::new(), footprint, last_used, needs: Vec::new(), stays });
        Ok(())
    }

    fn references(&mut self, folder: &Path) -> Result<(), InventoryError> {
        for shelf in self.entries(folder)? {
            if !(shelf.is_folder() && is_hex(&shelf.name, 2)) {
                self.found.unknown.push(shelf.path);
                continue;
            }
            for entry in self.entries(&shelf.path)? {
                if entry.is_unfinished() {
                    self.leftover(entry)?;
                } else if entry.is_folder() && is_hex(&entry.name, 32) {
                    self.reference(entry)?;
                } else {
                    self.found.unknown.push(entry.path);
                }
            }
        }
        Ok(())
    }

    fn reference(&mut self, folder: Entry) -> Result<(), InventoryError> {
        let card = self.root.join(&folder.path).join(reference_cache::CARD).symlink_metadata();
        let last_used = last_use::of(card.as_ref().unwrap_or(&folder.found));
        let foreign = self
            .entries(&folder.path)?
            .into_iter()
            .find(|file| !(file.is_file() && (reference_cache::is_file_name(&file.name) || file.is_unfinished())));
        let kept = foreign.map(|file| {
            self.found.unknown.push(file.path);
            "it holds what is not the farm's".to_owned()
        });
        self.add(Kind::Reference, folder.path, last_used, kept)
    }

    fn compiled(&mut self, folder: &Path) -> Result<(), InventoryError> {
        for device in self.entries(folder)? {
            if !(device.is_folder() && device.name.rsplit_once('-').is_some_and(|(_, hash)| is_hex(hash, 16))) {
                self.found.unknown.push(device.path);
                continue;
            }
            for entry in self.entries(&device.path)? {
                let (hash, end) = entry.name.split_once('.').unwrap_or((&entry.name, ""));
                match (entry.is_file() && is_hex(hash, 64), end) {
                    (true, "") => {
                        let last_used = last_use::of(&entry.found);
                        self.add(Kind::CompiledProgram, entry.path, last_used, None)?;
                    }
                    (true, end) if end.ends_with("partial") => self.leftover(entry)?,
                    _ if entry.is_unfinished() => self.leftover(entry)?,
                    _ => self.found.unknown.push(entry.path),
                }
            }
        }
        Ok(())
    }

    fn interposers(&mut self, folder: &Path, current: &Current) -> Result<(), InventoryError> {
        for entry in self.entries(folder)? {
            let hash = entry.name.strip_prefix("libmodelfarm_pjrt-").and_then(|rest| rest.strip_suffix(".so"));
            if entry.is_unfinished() {
                self.leftover(entry)?;
            } else if entry.is_file() && hash.is_some_and(|hash| is_hex(hash, 16)) {
                let kept = (entry.name == current.interposer).then(of_this_program);
                self.add(Kind::Interposer, entry.path, last_use::of(&entry.found), kept)?;
            } else {
                self.found.unknown.push(entry.path);
            }
        }
        Ok(())
    }

    fn sources(&mut self, folder: &Path, kind: Kind, current: &str) -> Result<(), InventoryError> {
        for entry in self.entries(folder)? {
            if entry.is_unfinished() {
                self.leftover(entry)?;
            } else if entry.is_folder() && is_hex(&entry.name, 16) {
                let kept = (entry.name == current).then(of_this_program);
                self.add(kind, entry.path, last_use::of(&entry.found), kept)?;
            } else {
                self.found.unknown.push(entry.path);
            }
        }
        Ok(())
    }

    fn fixtures(&mut self, folder: &Path, current: &Current) -> Result<(), InventoryError> {
        for entry in self.entries(folder)? {
            match entry.name.as_str() {
                "source" if entry.is_folder() => self.sources(&entry.path, Kind::FixtureSource, &current.fixture_source)?,
                // The models: whoever builds them removes what is no longer today's.
                "models" if entry.is_folder() => {}
                _ => self.found.unknown.push(entry.path),
            }
        }
        Ok(())
    }

    fn tools(&mut self, folder: &Path, current: &Current) -> Result<(), InventoryError> {
        for entry in self.entries(folder)? {
            let is_version = |version: &str| version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
            if entry.is_unfinished() {
                self.leftover(entry)?;
            } else if entry.is_folder() && entry.name.strip_prefix("uv-").is_some_and(is_version) {
                let kept = (entry.name == current.tool).then(of_this_program);
                self.add(Kind::Tool, entry.path, last_use::of(&entry.found), kept)?;
            } else if entry.name != crate::state_lock::LOCK_FILE {
                self.found.unknown.push(entry.path);
            }
        }
        Ok(())
    }

    fn environments(&mut self, folder: &Path, current: &Current) -> Result<(), InventoryError> {
        for entry in self.entries(folder)? {
            if entry.is_unfinished() {
                self.leftover(entry)?;
            } else if entry.is_folder() && folder_name_parts(&entry.name).is_some() {
                let marker = self.root.join(&entry.path).join(crate::environment::MARKER_FILE).symlink_metadata();
                let kept = current.environments.get(&entry.name).cloned();
                match marker {
                    Ok(marker) => self.add(Kind::Environment, entry.path, last_use::of(&marker), kept)?,
                    // Without it the environment is half made.
                    Err(_) => self.leftover(entry)?,
                }
            } else if !(entry.is_file() && entry.name.starts_with('.') && entry.name.ends_with(".lock")) {
                self.found.unknown.push(entry.path);
            }
        }
        Ok(())
    }

    fn scratch(&mut self, folder: &Path) -> Result<(), InventoryError> {
        for entry in self.entries(folder)? {
            let run = entry.name.get(..36).filter(|run| uuid::Uuid::parse_str(run).is_ok());
            let process =
                entry.name.get(36..).and_then(|rest| rest.strip_prefix('-')).and_then(|rest| rest.parse::<u32>().ok());
            match (run, process) {
                (Some(_), Some(process)) if entry.is_folder() => {
                    if is_a_farm(process) {
                        self.found.at_work.push(process);
                    } else {
                        self.leftover(entry)?;
                    }
                }
                _ if entry.is_unfinished() => self.leftover(entry)?,
                _ => self.found.unknown.push(entry.path),
            }
        }
        Ok(())
    }

    fn hub(&mut self, folder: &Path) -> Result<(), InventoryError> {
        let mut hub = HubFolders::default();
        for entry in self.entries(folder)? {
            match entry.name.as_str() {
                "models" if entry.is_folder() => self.snapshots(&entry.path, &mut hub)?,
                "blobs" if entry.is_folder() => hub.blobs = self.entries(&entry.path)?,
                "oids" if entry.is_folder() => hub.oids = self.entries(&entry.path)?,
                "partial" if entry.is_folder() => {
                    for partial in self.entries(&entry.path)? {
                        self.leftover(partial)?;
                    }
                }
                "locks" if entry.is_folder() => {
                    hub.locks = self.entries(&entry.path)?.into_iter().map(|lock| (lock.name, lock.path)).collect();
                }
                "xet" if entry.is_folder() => {
                    for cached in self.entries(&entry.path)? {
                        let (_, newest) = self.measure(&cached.path)?;
                        self.add(Kind::HubContent, cached.path, newest, None)?;
                    }
                }
                _ => self.found.unknown.push(entry.path),
            }
        }
        self.contents(folder, hub)
    }

    fn snapshots(&mut self, folder: &Path, hub: &mut HubFolders) -> Result<(), InventoryError> {
        for owner in self.entries(folder)? {
            if !owner.is_folder() {
                self.found.unknown.push(owner.path);
                continue;
            }
            for model in self.entries(&owner.path)? {
                if !model.is_folder() {
                    self.found.unknown.push(model.path);
                    continue;
                }
                let entries = self.entries(&model.path)?;
                let folders: BTreeSet<String> =
                    entries.iter().filter(|entry| entry.is_folder()).map(|entry| entry.name.clone()).collect();
                let manifests: BTreeMap<String, i64> = entries
                    .iter()
                    .filter(|entry| entry.is_file())
                    .filter_map(|entry| Some((entry.name.strip_suffix(".json")?.to_owned(), last_use::of(&entry.found))))
                    .collect();
                for entry in entries {
                    let commit = entry.name.strip_suffix(".json").unwrap_or(&entry.name);
                    if entry.is_unfinished() {
                        self.leftover(entry)?;
                    } else if !is_hex(commit, 40) {
                        self.found.unknown.push(entry.path);
                    } else if entry.is_folder() {
                        let last_used = manifests.get(&entry.name).copied();
                        let lock = format!("{}@{}@{}", owner.name, model.name, entry.name);
                        hub.snapshots.push((self.found.items.len(), lock));
                        self.add(Kind::HubSnapshot, entry.path.clone(), last_used.unwrap_or(last_use::of(&entry.found)), None)?;
                        if last_used.is_some()
                            && let Some(item) = self.found.items.last_mut()
                        {
                            let manifest = entry.path.with_added_extension("json");
                            let text = fs::read(self.root.join(&manifest)).unwrap_or_default();
                            item.needs = contents_of(&text).into_iter().map(PathBuf::from).collect();
                            item.beside.push(manifest);
                        }
                    } else if !folders.contains(commit) {
                        self.leftover(entry)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Contents, with the names under which they are found. `folder` is the hub's.
    fn contents(&mut self, folder: &Path, hub: HubFolders) -> Result<(), InventoryError> {
        for (index, lock) in &hub.snapshots {
            let item = &mut self.found.items[*index];
            item.beside.extend(hub.locks.get(lock).cloned());
            for needed in &mut item.needs {
                *needed = folder.join("blobs").join(&*needed);
            }
        }
        let mut names: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        let blobs: BTreeSet<String> = hub.blobs.iter().map(|blob| blob.name.clone()).collect();
        for oid in hub.oids {
            let content = fs::read_to_string(self.root.join(&oid.path)).unwrap_or_default();
            if blobs.contains(&content) {
                names
                    .entry(content)
                    .or_default()
                    .extend([Some(oid.path), hub.locks.get(&oid.name).cloned()].into_iter().flatten());
            } else {
                self.leftover(oid)?;
            }
        }
        for blob in hub.blobs {
            if !(blob.is_file() && is_hex(&blob.name, 64)) {
                self.found.unknown.push(blob.path);
                continue;
            }
            self.add(Kind::HubContent, blob.path, last_use::of(&blob.found), None)?;
            if let Some(item) = self.found.items.last_mut() {
                item.beside = names.remove(&blob.name).unwrap_or_default();
            }
        }
        Ok(())
    }
}

/// What belongs together in the hub's folders.
#[derive(Default)]
struct HubFolders {
    blobs: Vec<Entry>,
    oids: Vec<Entry>,
    locks: BTreeMap<String, PathBuf>,
    /// Where each snapshot stands among the items, and its lock's name.
    snapshots: Vec<(usize, String)>,
}

/// A dry run may look while a farm is at work: what vanishes meanwhile is not there.
fn still_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn of_this_program() -> String {
    "this program uses it".to_owned()
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a process lives and is a farm; its number may be another's by now.
fn is_a_farm(process: u32) -> bool {
    if process == std::process::id() {
        return false;
    }
    let folder = Path::new("/proc").join(process.to_string());
    match fs::read_link(folder.join("exe")) {
        Ok(program) => program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("modelfarm")),
        // Somebody else's, or a system without /proc: better to keep too much.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => true,
        Err(_) if !Path::new("/proc/self").exists() => {
            let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
            pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
        }
        Err(_) => false,
    }
}
