//! Unpacking Python source that the program carries: the worker, the rewriter, and any other folder such as the zoo.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use include_dir::{Dir, File, include_dir};
use sha2::{Digest, Sha256};

use super::requirements::hex;

/// The packages by name, one by one: the folder around them holds tests and tools' caches.
static PACKAGES: [(&str, Dir<'static>); 2] = [
    ("modelfarm_worker", include_dir!("$CARGO_MANIFEST_DIR/worker/modelfarm_worker")),
    ("modelfarm_rewriter", include_dir!("$CARGO_MANIFEST_DIR/worker/modelfarm_rewriter")),
];

/// What could not be done with which file.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}: {source}")]
pub struct UnpackError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Unpacks the worker's packages below `<state>/worker/`; the folder returned is for `PYTHONPATH`.
pub fn unpack_worker(state_dir: &Path) -> Result<PathBuf, UnpackError> {
    unpack_files(worker_content(), &state_dir.join("worker"))
}

/// The name of the folder that `unpack_worker` makes.
pub fn worker_version() -> String {
    version(worker_content())
}

fn worker_content() -> Vec<(PathBuf, &'static [u8])> {
    let of_package = |(name, dir): &'static (&str, Dir<'static>)| {
        source_files(dir).into_iter().map(move |file| (Path::new(name).join(file.path()), file.contents()))
    };
    PACKAGES.iter().flat_map(of_package).collect()
}

/// Unpacks a folder to `<parent>/<hash of its content>/`, unless it is there already with exactly this content. Bytecode, caches,
/// tests and hidden files are left out.
pub fn unpack(dir: &'static Dir<'static>, parent: &Path) -> Result<PathBuf, UnpackError> {
    unpack_files(content_of(dir), parent)
}

/// The name of the folder that `unpack` makes of a folder.
pub fn version_of(dir: &'static Dir<'static>) -> String {
    version(content_of(dir))
}

fn content_of(dir: &'static Dir<'static>) -> Vec<(PathBuf, &'static [u8])> {
    let inside = |file: &File<'static>| file.path().strip_prefix(dir.path()).unwrap_or(file.path()).to_owned();
    source_files(dir).into_iter().map(|file| (inside(file), file.contents())).collect()
}

fn version(mut content: Vec<(PathBuf, &[u8])>) -> String {
    content.sort();
    content_hash(&content)
}

fn unpack_files(mut content: Vec<(PathBuf, &[u8])>, parent: &Path) -> Result<PathBuf, UnpackError> {
    content.sort();
    if let Some((path, _)) =
        content.iter().find(|(path, _)| !path.components().all(|part| matches!(part, Component::Normal(_))))
    {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "the path leaves the folder");
        return Err(UnpackError { action: "unpack", path: path.clone(), source });
    }
    let parent = std::path::absolute(parent).map_err(failed("find", parent))?;
    let folder = parent.join(content_hash(&content));
    if is_whole(&folder, &content) {
        return Ok(folder);
    }
    fs::create_dir_all(&parent).map_err(failed("create", &parent))?;
    let temporary =
        tempfile::Builder::new().prefix(".unpacking-").tempdir_in(&parent).map_err(failed("create a folder in", &parent))?;
    let fresh = temporary.path().join("fresh");
    for (path, bytes) in &content {
        let path = fresh.join(path);
        let above = path.parent().unwrap_or(&fresh);
        fs::create_dir_all(above).map_err(failed("create", above))?;
        fs::write(&path, bytes).map_err(failed("write", &path))?;
    }
    // Another process may unpack the same at this moment: whoever comes second finds it whole.
    for attempt in 0.. {
        match fs::rename(&fresh, &folder) {
            Ok(()) => break,
            Err(_) if is_whole(&folder, &content) => break,
            Err(error) if attempt == 2 => return Err(failed("rename the unpacked source to", &folder)(error)),
            Err(_) => {
                let damaged = temporary.path().join(format!("damaged-{attempt}"));
                let _ = fs::rename(&folder, &damaged);
            }
        }
    }
    Ok(folder)
}

fn source_files(dir: &'static Dir<'static>) -> Vec<&'static File<'static>> {
    let mut found = Vec::new();
    let mut open: Vec<&'static [include_dir::DirEntry<'static>]> = vec![dir.entries()];
    while let Some(entries) = open.pop() {
        for entry in entries {
            let name = file_name(entry.path());
            if name.starts_with('.') {
                continue;
            }
            match entry {
                include_dir::DirEntry::Dir(_) if name == "__pycache__" || name == "tests" => {}
                include_dir::DirEntry::Dir(dir) => open.push(dir.entries()),
                include_dir::DirEntry::File(_) if name.contains(".pyc") => {}
                include_dir::DirEntry::File(file) => found.push(file),
            }
        }
    }
    found
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn content_hash(content: &[(PathBuf, &[u8])]) -> String {
    let mut digest = Sha256::new();
    for (path, bytes) in content {
        let path = path.to_string_lossy();
        digest.update(format!("{} {} {path}\n", path.len(), bytes.len()));
        digest.update(bytes);
    }
    hex(&digest.finalize())[..16].to_owned()
}

/// Whether the folder holds these files and no other: a file too many would be imported as readily. The whole is a few hundred
/// kilobytes, so its bytes are compared.
fn is_whole(folder: &Path, content: &[(PathBuf, &[u8])]) -> bool {
    let mut expected: std::collections::BTreeMap<PathBuf, &[u8]> =
        content.iter().map(|(path, bytes)| (folder.join(path), *bytes)).collect();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { return false };
        for entry in entries {
            let Ok(entry) = entry else { return false };
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() == "__pycache__" => {}
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(kind) if kind.is_file() => match expected.remove(&path) {
                    Some(bytes) if fs::read(&path).is_ok_and(|found| found == bytes) => {}
                    _ => return false,
                },
                _ => return false,
            }
        }
    }
    expected.is_empty()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path = path.to_owned();
    move |source| UnpackError { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_worker_s_packages_are_unpacked() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = unpack_worker(state.path()).expect("unpacked");
        assert!(folder.join("modelfarm_worker/__main__.py").is_file());
        assert!(folder.join("modelfarm_rewriter/__main__.py").is_file());
        for entry in fs::read_dir(&folder).expect("readable") {
            let name = entry.expect("readable").file_name().into_string().expect("text");
            assert!(name.starts_with("modelfarm_"), "{name}");
        }
        assert!(!folder.join("modelfarm_worker/__pycache__").exists());
        assert!(!folder.join("modelfarm_worker/tests").exists());
    }

    #[test]
    fn every_source_file_is_carried() {
        // Cargo does not see a file that is new in an included folder: `touch runner/build.rs` when this fails.
        let state = tempfile::tempdir().expect("a folder");
        let folder = unpack_worker(state.path()).expect("unpacked");
        for (package, _) in &PACKAGES {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("worker").join(package);
            for entry in fs::read_dir(source).expect("readable").flatten() {
                let name = entry.file_name();
                if name.to_string_lossy().ends_with(".py") {
                    assert!(folder.join(package).join(&name).is_file(), "{package}/{} is missing", name.to_string_lossy());
                }
            }
        }
    }

    #[test]
    fn a_whole_folder_is_left_alone_and_a_changed_one_is_mended() {
        let state = tempfile::tempdir().expect("a folder");
        let folder = unpack_worker(state.path()).expect("unpacked");
        let file = folder.join("modelfarm_worker/__main__.py");
        let original = fs::read(&file).expect("readable");
        let first = fs::metadata(&folder).and_then(|found| found.modified()).expect("a time");
        assert_eq!(unpack_worker(state.path()).expect("unpacked"), folder);
        assert_eq!(fs::metadata(&folder).and_then(|found| found.modified()).expect("a time"), first);

        fs::write(&file, "import evil").expect("written");
        unpack_worker(state.path()).expect("mended");
        assert_eq!(fs::read(&file).expect("readable"), original);

        let extra = folder.join("torch.py");
        fs::write(&extra, "import evil").expect("written");
        unpack_worker(state.path()).expect("mended");
        assert!(!extra.exists());

        fs::remove_file(&file).expect("removed");
        unpack_worker(state.path()).expect("mended");
        assert!(file.is_file());
        let left: Vec<_> = fs::read_dir(state.path().join("worker")).expect("readable").collect();
        assert_eq!(left.len(), 1, "nothing temporary is left");
    }

    #[test]
    fn concurrent_unpacking_ends_in_one_whole_folder() {
        let state = tempfile::tempdir().expect("a folder");
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| unpack_worker(state.path()))).collect();
            for thread in threads {
                thread.join().expect("no panic").expect("unpacked");
            }
        });
        let left: Vec<_> = fs::read_dir(state.path().join("worker")).expect("readable").collect();
        assert_eq!(left.len(), 1);
    }
}
