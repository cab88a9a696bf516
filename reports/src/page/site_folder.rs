//! A folder of pages that is replaced as a whole, or not at all.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::ReportSummary;

/// Lists the files of a report, so that a later one knows what it may remove.
const LIST: &str = ".modelfarm-report";

/// A report's folder could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The folder holds somebody else's page.
    #[error("`{0}` holds an index.html that is no report of modelfarm; give `--out` another folder")]
    Foreign(PathBuf),
    /// `out` is no folder.
    #[error("`{0}` is not a folder; give `--out` a folder")]
    NoFolder(PathBuf),
    /// The system refused.
    #[error("`{path}`: {source}{}", advice(.source))]
    Io {
        /// What was to be written.
        path: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; an earlier report is as it was: free some space and run `modelfarm report` again"
        }
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => "; give `--out` a folder that you may write to",
        _ => "",
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> SiteError {
    let path = path.to_owned();
    |source| SiteError::Io { path, source }
}

/// A folder that is being written. Nothing of it is visible before [`SiteFolder::publish`].
pub(super) struct SiteFolder {
    out: PathBuf,
    staging: PathBuf,
    files: Vec<String>,
    bytes: u64,
}

impl SiteFolder {
    /// Prepares to write to `out`, which may exist.
    pub(super) fn open(out: &Path) -> Result<Self, SiteError> {
        if out.exists() && !out.is_dir() {
            return Err(SiteError::NoFolder(out.to_owned()));
        }
        if out.join("index.html").exists() && !out.join(LIST).exists() {
            return Err(SiteError::Foreign(out.to_owned()));
        }
        fs::create_dir_all(out).map_err(at(out))?;
        // Inside `out`, so that a rename never crosses a file system.
        let staging = out.join(format!(".staging-{}", std::process::id()));
        if staging.exists() {
            fs::remove_dir_all(&staging).map_err(at(&staging))?;
        }
        fs::create_dir(&staging).map_err(at(&staging))?;
        Ok(Self { out: out.to_owned(), staging, files: Vec::new(), bytes: 0 })
    }

    /// Adds a file under a relative path with `/` between its parts. The last one added is published last.
    pub(super) fn add(&mut self, relative: &str, text: &str) -> Result<(), SiteError> {
        let path = self.staging.join(relative);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(at(folder))?;
        }
        fs::write(&path, text).map_err(at(&self.out.join(relative)))?;
        self.bytes += text.len() as u64;
        self.files.push(relative.to_owned());
        Ok(())
    }

    /// Replaces the old files by the new ones, then removes old pages that the new report has not.
    pub(super) fn publish(self) -> Result<ReportSummary, SiteError> {
        let before = fs::read_to_string(self.out.join(LIST)).unwrap_or_default();
        // While files are replaced the list names old and new ones, so that whatever happens none is forgotten.
        let now: BTreeSet<&str> = self.files.iter().map(String::as_str).collect();
        let old: BTreeSet<&str> = before.lines().filter(|line| is_page_of_a_model(line) && !now.contains(line)).collect();
        self.write_list(now.union(&old))?;
        for file in &self.files {
            let (from, to) = (self.staging.join(file), self.out.join(file));
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(at(folder))?;
            }
            fs::rename(&from, &to).map_err(at(&to))?;
        }
        let mut removed = 0;
        for file in &old {
            removed += usize::from(fs::remove_file(self.out.join(file)).is_ok());
        }
        self.write_list(now.iter())?;
        let pages = self.files.iter().filter(|file| file.ends_with(".html")).count();
        let summary = ReportSummary { index: self.out.join("index.html"), pages, bytes: self.bytes, removed };
        Ok(summary)
    }

    fn write_list<'a>(&self, files: impl Iterator<Item = &'a &'a str>) -> Result<(), SiteError> {
        let list: String = files.map(|file| format!("{file}\n")).collect();
        let (from, to) = (self.staging.join(LIST), self.out.join(LIST));
        fs::write(&from, list).map_err(at(&to))?;
        fs::rename(&from, &to).map_err(at(&to))
    }
}

impl Drop for SiteFolder {
    fn drop(&mut self) {
        // Best effort: what is left of it is hidden and harmless.
        let _ = fs::remove_dir_all(&self.staging);
    }
}

/// Whether a line of the list may be removed: the list is a file, and a file can be edited.
fn is_page_of_a_model(line: &str) -> bool {
    let Some(id) = line.strip_prefix("models/").and_then(|rest| rest.strip_suffix(".html")) else { return false };
    id.split_once('~').map_or(id, |(id, _)| id).parse::<modelfarm_matrix::model::ModelId>().is_ok() && !id.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(out: &Path, files: &[&str]) -> Result<ReportSummary, SiteError> {
        let mut site = SiteFolder::open(out)?;
        for file in files {
            site.add(file, file)?;
        }
        site.publish()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_update_removes_what_is_no_more_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        write(&out, &["models/o/one.html", "models/o/two.html", "index.html"]).unwrap();
        fs::write(out.join("notes.txt"), "mine").unwrap();
        fs::write(folder.path().join("a/kept.html"), "mine").unwrap();
        let list = fs::read_to_string(out.join(LIST)).unwrap() + "models/../../kept.html\nnotes.txt\n";
        fs::write(out.join(LIST), list).unwrap();
        let summary = write(&out, &["models/o/one.html", "index.html"]).unwrap();
        assert_eq!((summary.pages, summary.removed), (2, 1));
        assert_eq!(names(&out), [LIST, "index.html", "models", "notes.txt"]);
        assert_eq!(names(&out.join("models/o")), ["one.html"]);
        assert!(folder.path().join("a/kept.html").exists());
    }

    #[test]
    fn what_fails_before_the_end_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["index.html"]).unwrap();
        let mut site = SiteFolder::open(folder.path()).unwrap();
        site.add("index.html", "new").unwrap();
        drop(site);
        assert_eq!(fs::read_to_string(folder.path().join("index.html")).unwrap(), "index.html");
        assert_eq!(names(folder.path()), [LIST, "index.html"]);
    }

    #[test]
    fn somebody_elses_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("index.html"), "mine").unwrap();
        assert!(matches!(write(folder.path(), &["index.html"]), Err(SiteError::Foreign(_))));
        let file = folder.path().join("index.html");
        assert!(matches!(write(&file, &["index.html"]), Err(SiteError::NoFolder(_))));
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        // Writing to /dev/full answers "no space left on device".
        let source = fs::write("/dev/full", "x").unwrap_err();
        let error = SiteError::Io { path: "out/index.html".into(), source };
        assert!(error.to_string().contains("free some space"), "{error}");
        let source = io::Error::from(ErrorKind::ReadOnlyFilesystem);
        let error = SiteError::Io { path: "out".into(), source };
        assert!(error.to_string().contains("`--out` a folder that you may write to"), "{error}");
    }
}
