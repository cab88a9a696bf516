//! Finding a Python interpreter to make environments with.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bounded_command;
use super::error::EnvironmentError;
use super::settings::EnvironmentSettings;

/// The versions that every package of the environments has files for. The oldest is tried first: it is the one that the
/// requirements are locked for.
const SUPPORTED_MINORS: std::ops::RangeInclusive<u32> = 11..=14;
const SUPPORTED: &str = "3.11, 3.12, 3.13 or 3.14";

const PROBE: &str = "\
import importlib.util, json, struct, sys, sysconfig
print(json.dumps({
    'implementation': sys.implementation.name,
    'major': sys.version_info[0], 'minor': sys.version_info[1], 'version': '.'.join(map(str, sys.version_info[:3])),
    'executable': sys.executable, 'base': getattr(sys, '_base_executable', None) or sys.executable,
    'bits': struct.calcsize('P') * 8, 'free_threaded': bool(sysconfig.get_config_var('Py_GIL_DISABLED')),
    'profiled': '--enable-optimizations' in (sysconfig.get_config_var('CONFIG_ARGS') or ''),
    'installs': any(importlib.util.find_spec(name) for name in ('ensurepip', 'pip')),
}))";

/// The part of Python's version that chooses files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PythonVersion {
    /// 3.
    pub major: u32,
    /// 11 in 3.11.
    pub minor: u32,
}

impl fmt::Display for PythonVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// An interpreter of a supported version, outside any virtual environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// The program.
    pub executable: PathBuf,
    /// Its version without the last part.
    pub version: PythonVersion,
    /// Its whole version.
    pub full_version: String,
    /// Whether its compiler was guided by a profile, which makes tracing a model, the most of a run's time, about a fifth
    /// faster. Builds tell, but a distribution's, which is made this way on every one that matters, keeps quiet about it.
    pub profiled: bool,
    /// Whether it can install packages by itself. Distributions like to package that apart.
    pub installs: bool,
}

#[derive(Deserialize)]
struct Probe {
    implementation: String,
    major: u32,
    minor: u32,
    version: String,
    executable: PathBuf,
    base: PathBuf,
    bits: u32,
    free_threaded: bool,
    profiled: bool,
    installs: bool,
}

/// Looks at `MODELFARM_PYTHON`, the search path, and what uv knows of (`uv`, where there is one). Of several of one name on the
/// search path the first that is profiled is taken: a version manager's, which is often compiled on the spot, stands before the
/// distribution's there.
pub(super) async fn find_python(settings: &EnvironmentSettings, uv: Option<&Path>) -> Result<Python, EnvironmentError> {
    let mut tried = Vec::new();
    let failed = |tried: Vec<String>| EnvironmentError::NoPython {
        wanted: SUPPORTED,
        tried: if tried.is_empty() { "there is no `python3` on PATH".to_owned() } else { tried.join("; ") },
    };
    if let Some(path) = &settings.python {
        return match probe(path).await {
            Ok(python) => Ok(python),
            Err(reason) => Err(failed(vec![format!("MODELFARM_PYTHON is {}, {reason}", path.display())])),
        };
    }
    let names = SUPPORTED_MINORS.map(|minor| format!("python3.{minor}")).chain(["python3".to_owned(), "python".to_owned()]);
    for name in names {
        let mut first = None;
        for path in settings.everywhere_on_path(&name) {
            match probe(&path).await {
                Ok(python) if python.profiled && (python.installs || uv.is_some()) => return Ok(python),
                Ok(python) => first = first.or(Some(python)),
                Err(reason) => tried.push(format!("{} is there, {reason}", path.display())),
            }
        }
        if let Some(python) = first {
            return Ok(python);
        }
    }
    if let Some(path) = match uv {
        Some(uv) => ask_uv(uv).await,
        None => None,
    } {
        match probe(&path).await {
            Ok(python) => return Ok(python),
            Err(reason) => tried.push(format!("{} is there, {reason}", path.display())),
        }
    }
    Err(failed(tried))
}

async fn probe(path: &Path) -> Result<Python, String> {
    let mut command = bounded_command::tool(path, Path::new("/"));
    command.args(["-I", "-c", PROBE]);
    let ended = match bounded_command::run(command, Duration::from_secs(60), |_| {}).await {
        Ok(Some(ended)) => ended,
        Ok(None) => return Err("but it does not answer".to_owned()),
        Err(error) => return Err(format!("but it does not start: {error}")),
    };
    let Ok(found) = serde_json::from_str::<Probe>(&ended.stdout) else {
        return Err(format!("but it does not work ({})", ended.stderr.lines().last().unwrap_or("no output")));
    };
    if found.implementation != "cpython" || found.bits != 64 || found.free_threaded {
        let kind = if found.free_threaded { "free-threaded" } else { &found.implementation };
        return Err(format!("but it is a {}-bit {kind} build; the packages need an ordinary 64-bit CPython", found.bits));
    }
    if found.major != 3 || !SUPPORTED_MINORS.contains(&found.minor) {
        return Err(format!("but it is Python {}", found.version));
    }
    let executable = if found.base.is_file() { found.base } else { found.executable };
    Ok(Python {
        version: PythonVersion { major: found.major, minor: found.minor },
        full_version: found.version,
        profiled: found.profiled || executable.starts_with("/usr/bin"),
        installs: found.installs,
        executable,
    })
}

async fn ask_uv(uv: &Path) -> Option<PathBuf> {
    let mut command = bounded_command::tool(uv, Path::new("/"));
    command.args(["python", "find", "--no-python-downloads", "--no-project", ">=3.11,<3.15"]);
    let ended = bounded_command::run(command, Duration::from_secs(60), |_| {}).await.ok()??;
    ended.status.success().then(|| PathBuf::from(ended.stdout.trim()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn an_absent_python_is_told_with_what_to_do() {
        let empty = tempfile::tempdir().expect("a folder");
        let settings = EnvironmentSettings { search_path: empty.path().into(), ..Default::default() };
        let error = find_python(&settings, None).await.expect_err("no Python").to_string();
        for part in ["3.11, 3.12, 3.13 or 3.14", "no `python3` on PATH", "apt install", "MODELFARM_PYTHON"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[tokio::test]
    async fn an_old_or_broken_python_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, body: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
        };
        write("python3.11", "echo no such version >&2; exit 127");
        write(
            "python3",
            r#"echo '{"implementation":"cpython","major":3,"minor":9,"version":"3.9.2","executable":"/x","base":"/x","bits":64,"free_threaded":false,"profiled":false,"installs":true}'"#,
        );
        let settings = EnvironmentSettings { search_path: folder.path().into(), ..Default::default() };
        let error = find_python(&settings, None).await.expect_err("no usable Python").to_string();
        assert!(error.contains("it is Python 3.9.2") && error.contains("no such version"), "{error}");
    }

    #[tokio::test]
    async fn of_one_name_the_profiled_one_is_taken() {
        let folders = ["first", "second", "third"].map(|_| tempfile::tempdir().expect("a folder"));
        for (folder, (profiled, installs)) in folders.iter().zip([(false, true), (true, true), (true, false)]) {
            let path = folder.path().join("python3.12");
            let base = path.display();
            let answer = format!(
                r#"{{"implementation":"cpython","major":3,"minor":12,"version":"3.12.1","executable":"/x","base":"{base}","bits":64,"free_threaded":false,"profiled":{profiled},"installs":{installs}}}"#
            );
            std::fs::write(&path, format!("#!/bin/sh\necho '{answer}'\n")).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
        }
        let chosen = async |folders: &[&tempfile::TempDir]| {
            let search_path = std::env::join_paths(folders.iter().map(|folder| folder.path())).expect("a search path");
            let settings = EnvironmentSettings { search_path, ..Default::default() };
            find_python(&settings, None).await.expect("a Python").executable
        };
        let [first, second, third] = &folders;
        assert_eq!(chosen(&[first, third, second]).await, second.path().join("python3.12"));
        assert_eq!(chosen(&[first, third]).await, first.path().join("python3.12"), "the farm has to get uv with it");
    }

    #[tokio::test]
    async fn the_named_python_is_the_only_one_looked_at() {
        let settings = EnvironmentSettings {
            python: Some("/nonexistent/python3".into()),
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            ..Default::default()
        };
        let error = find_python(&settings, None).await.expect_err("no such file").to_string();
        assert!(error.contains("/nonexistent/python3") && error.contains("does not start"), "{error}");
    }
}
