//! What is installed, read from the packages' own records, without starting Python.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A package name in its one spelling: lower case, runs of `-`, `_` and `.` as one `-`.
pub(super) fn normalised_name(name: &str) -> String {
    let mut normalised = String::with_capacity(name.len());
    for letter in name.trim().chars() {
        match letter {
            '-' | '_' | '.' if normalised.ends_with('-') => {}
            '-' | '_' | '.' => normalised.push('-'),
            other => normalised.extend(other.to_lowercase()),
        }
    }
    normalised
}

/// Versions by name of all packages in a `site-packages` folder.
pub(super) fn installed_packages(site_packages: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut packages = BTreeMap::new();
    for folder in record_folders(site_packages)? {
        let metadata = fs::read(folder.join("METADATA"))?;
        let metadata = String::from_utf8_lossy(&metadata);
        let field = |name: &str| {
            let headers = metadata.lines().take_while(|line| !line.is_empty());
            headers
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.trim().to_owned())
        };
        let (Some(name), Some(version)) = (field("Name"), field("Version")) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} has no name or version", folder.display())));
        };
        packages.insert(normalised_name(&name), version);
    }
    Ok(packages)
}

/// The first file that a package recorded and that is missing or of another size. Contents are not read: a second call of
/// `env sync` must take less than a second.
pub(super) fn first_damage(site_packages: &Path) -> io::Result<Option<String>> {
    for folder in record_folders(site_packages)? {
        let record = match fs::read_to_string(folder.join("RECORD")) {
            Ok(record) => record,
            Err(error) => return Ok(Some(format!("{} has no readable record ({error})", file_name(&folder)))),
        };
        for line in record.lines() {
            let Some((file, size)) = recorded_file(line) else { continue };
            let found = fs::symlink_metadata(site_packages.join(&file));
            let same = found.as_ref().is_ok_and(|found| size.is_none_or(|size| size == found.len()));
            if !same {
                let state = if found.is_ok() { "has another size" } else { "is missing" };
                return Ok(Some(format!("{file} of {} {state}", file_name(&folder))));
            }
        }
    }
    Ok(None)
}

fn record_folders(site_packages: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(site_packages)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "dist-info") {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Path and size of a line `path,hash,size` of a RECORD, which is CSV.
fn recorded_file(line: &str) -> Option<(String, Option<u64>)> {
    let mut fields = line.rsplitn(3, ',');
    let (size, _hash, path) = (fields.next()?, fields.next()?, fields.next()?);
    let path = match path.strip_prefix('"').and_then(|path| path.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => path.to_owned(),
    };
    Some((path, size.trim().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_spelling() {
        assert_eq!(normalised_name("Torch_TPU"), "torch-tpu");
        assert_eq!(normalised_name("zope..interface"), "zope-interface");
    }

    #[test]
    fn records_are_csv() {
        assert_eq!(recorded_file("six.py,sha256=abc,34549"), Some(("six.py".into(), Some(34549))));
        assert_eq!(recorded_file("a.dist-info/RECORD,,"), Some(("a.dist-info/RECORD".into(), None)));
        assert_eq!(recorded_file("\"a,\"\"b.py\",sha256=abc,1"), Some(("a,\"b.py".into(), Some(1))));
    }
}
