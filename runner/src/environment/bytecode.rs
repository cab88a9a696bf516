//! The bytecode of an environment, so that no worker has to compile it: their file system is read-only.
//!
//! Compiling all packages takes a minute of a core; most of them stand in another environment of the state folder already. Where uv
//! linked both to one file of its cache, the bytecode beside the other is the bytecode of this one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bounded_command;
use super::error::EnvironmentError;

/// Compiling everything takes a minute.
const COMPILE_LIMIT: Duration = Duration::from_secs(3600);
const CACHE: &str = "__pycache__";

/// Links the bytecode that other `site-packages` folders of the same Python have of the same files; returns the files without.
pub(super) fn link_known(site_packages: &Path, others: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut uncompiled = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let folder = site_packages.join(&relative);
        let mut sources = BTreeSet::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() && entry.file_name() != CACHE => open.push(relative.join(entry.file_name())),
                kind if kind.is_file() && Path::new(&entry.file_name()).extension().is_some_and(|end| end == "py") => {
                    sources.insert(entry.file_name());
                }
                _ => {}
            }
        }
        for other in others {
            if sources.is_empty() {
                break;
            }
            link_of(&folder, &other.join(&relative), &mut sources)?;
        }
        uncompiled.extend(sources.into_iter().map(|name| folder.join(name)));
    }
    uncompiled.sort();
    Ok(uncompiled)
}

/// Links the bytecode that `other` has of the very files that `folder` has, and takes these out of `sources`.
fn link_of(folder: &Path, other: &Path, sources: &mut BTreeSet<OsString>) -> io::Result<()> {
    // Most folders of another environment are not there, or hold nothing compiled.
    let Ok(compiled) = fs::read_dir(other.join(CACHE)) else { return Ok(()) };
    for entry in compiled {
        let entry = entry?;
        // `name.cpython-311.pyc`; further words before the end are of optimised bytecode, which no worker reads.
        let name = entry.file_name();
        let Some(words) = name.to_str().map(|name| name.split('.').collect::<Vec<_>>()) else { continue };
        let [module, _, "pyc"] = words[..] else { continue };
        let source = OsString::from(format!("{module}.py"));
        if !sources.contains(&source) || !is_one_file(&folder.join(&source), &other.join(&source)) {
            continue;
        }
        let cache = folder.join(CACHE);
        fs::create_dir_all(&cache)?;
        match fs::hard_link(entry.path(), cache.join(&name)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // A file system may allow no more links to a file: it is compiled then.
            Err(_) => continue,
        }
        sources.remove(&source);
    }
    Ok(())
}

/// Same size and time would not do: reproducible builds give every file the same time.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let place =
        |path: &Path| fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|found| (found.dev(), found.ino()));
    place(one).is_some_and(|one| place(other) == Some(one))
}

/// Compiles files. What cannot be compiled, such as a template of Python, stays as it is: an import of it would say so.
pub(super) async fn compile(python: &Path, files: &[PathBuf], folder: &Path) -> Result<(), EnvironmentError> {
    if files.is_empty() {
        return Ok(());
    }
    let list = folder.join(".uncompiled");
    let mut text = Vec::new();
    for file in files {
        text.extend(file.as_os_str().as_encoded_bytes());
        text.push(b'\n');
    }
    fs::write(&list, text).map_err(EnvironmentError::io("write", &list))?;
    let mut command = bounded_command::tool(python, folder);
    // Of a time, as an import checks it: a hash would be read and counted in every process.
    command.args(["-I", "-m", "compileall", "-qq", "-j", "0", "--invalidation-mode", "timestamp", "-i"]).arg(&list);
    let ended =
        bounded_command::run(command, COMPILE_LIMIT, |_: &str| {}).await.map_err(EnvironmentError::io("run", python))?;
    if ended.is_none() {
        return Err(EnvironmentError::Tool { step: "compile the packages", detail: "no end after an hour".to_owned() });
    }
    fs::remove_file(&list).map_err(EnvironmentError::io("remove", &list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytecode_of_the_same_file_is_linked_and_of_another_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        for (name, is_linked) in [("same", true), ("changed", false)] {
            for side in [&new, &old] {
                fs::create_dir_all(side.join("package")).unwrap();
            }
            let source = |side: &Path| side.join("package").join(format!("{name}.py"));
            fs::write(source(&old), "1").unwrap();
            if is_linked {
                fs::hard_link(source(&old), source(&new)).unwrap();
            } else {
                fs::write(source(&new), "2").unwrap();
            }
            fs::create_dir_all(old.join("package/__pycache__")).unwrap();
            fs::write(old.join(format!("package/__pycache__/{name}.cpython-311.pyc")), name).unwrap();
        }
        fs::write(new.join("fresh.py"), "3").unwrap();
        fs::write(new.join("data.txt"), "4").unwrap();
        let missing = folder.path().join("missing");
        let uncompiled = link_known(&new, &[missing, old]).unwrap();
        assert_eq!(uncompiled, [new.join("fresh.py"), new.join("package/changed.py")]);
        let linked: Vec<_> =
            fs::read_dir(new.join("package/__pycache__")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(linked, ["same.cpython-311.pyc"]);
    }
}
