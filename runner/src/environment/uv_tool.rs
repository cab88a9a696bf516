//! Finding uv, or getting it where the computer has none.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bounded_command;
use super::error::EnvironmentError;
use super::folder_lock::FolderLock;
use super::progress::SyncEvent;
use super::python::Python;
use super::requirements::UV_REQUIREMENTS;
use super::settings::EnvironmentSettings;
use super::uv_failure;

/// The first version that knows every option used here (`--torch-backend`).
const OLDEST: (u32, u32, u32) = (0, 6, 9);

/// A uv that works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Uv {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

/// The uv that is there: `MODELFARM_UV`, one on the search path, or the farm's own. `None` where there is none.
pub(super) async fn find_uv(state_dir: &Path, settings: &EnvironmentSettings) -> Result<Option<Uv>, EnvironmentError> {
    if let Some(path) = &settings.uv {
        let bad = |reason| EnvironmentError::NoUv { reason: format!("MODELFARM_UV is {}, {reason}", path.display()) };
        return version_of(path).await.map(|version| Some(Uv { path: path.clone(), version })).map_err(bad);
    }
    for path in [settings.on_path("uv"), Some(own_program(state_dir))].into_iter().flatten() {
        if let Ok(version) = version_of(&path).await {
            return Ok(Some(Uv { path, version }));
        }
    }
    Ok(None)
}

/// Gets uv from the package index, by hash, into the state folder.
pub(super) async fn fetch_uv(
    state_dir: &Path,
    settings: &EnvironmentSettings,
    python: &Python,
    progress: &mut impl FnMut(SyncEvent),
) -> Result<Uv, EnvironmentError> {
    let tools = state_dir.join("tools");
    fs::create_dir_all(&tools).map_err(EnvironmentError::io("create", &tools))?;
    let _lock = FolderLock::take(&tools.join(".lock"), || progress(SyncEvent::Waiting)).await?;
    let path = own_program(state_dir);
    if let Ok(version) = version_of(&path).await {
        return Ok(Uv { path, version });
    }
    progress(SyncEvent::FetchingUv);
    let building = tempfile::Builder::new()
        .prefix(".building-uv@")
        .tempdir_in(&tools)
        .map_err(EnvironmentError::io("create a folder in", &tools))?;
    let requirements = building.path().join("uv.txt");
    fs::write(&requirements, UV_REQUIREMENTS).map_err(EnvironmentError::io("write", &requirements))?;

    let folder = building.path().join("uv");
    let venv = run_python(python, &["-m".as_ref(), "venv".as_ref(), folder.as_os_str()], settings, building.path()).await;
    let installed = match venv {
        Ok(()) => {
            let own = Python { executable: folder.join("bin").join("python"), ..python.clone() };
            pip_install(&own, &requirements, None, settings, building.path()).await
        }
        // Debian leaves venv's other half (ensurepip) out, yet may have pip.
        Err(venv) => {
            let _ = fs::remove_dir_all(&folder);
            pip_install(python, &requirements, Some(&folder), settings, building.path()).await.map_err(|pip| match pip {
                EnvironmentError::Tool { detail, .. } => EnvironmentError::NoUv {
                    reason: format!(
                        "there is none on PATH; `{0} -m venv` ended with: {venv}; `{0} -m pip` ended with: {detail}",
                        python.executable.display()
                    ),
                },
                other => other,
            })
        }
    };
    installed?;
    let version = version_of(&folder.join("bin").join("uv"))
        .await
        .map_err(|reason| EnvironmentError::NoUv { reason: format!("the one fetched does not work here, {reason}") })?;
    let place = own_folder(state_dir);
    if place.exists() {
        fs::remove_dir_all(&place).map_err(EnvironmentError::io("remove the damaged", &place))?;
    }
    fs::rename(&folder, &place).map_err(EnvironmentError::io("rename the new uv to", &place))?;
    Ok(Uv { path, version })
}

async fn pip_install(
    python: &Python,
    requirements: &Path,
    target: Option<&Path>,
    settings: &EnvironmentSettings,
    folder: &Path,
) -> Result<(), EnvironmentError> {
    let options =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--require-hashes"];
    let mut arguments: Vec<&std::ffi::OsStr> = options.iter().map(AsRef::as_ref).collect();
    arguments.extend([AsRef::<std::ffi::OsStr>::as_ref("--only-binary"), ":all:".as_ref(), "--requirement".as_ref()]);
    arguments.push(requirements.as_os_str());
    if let Some(target) = target {
        arguments.extend(["--target".as_ref(), target.as_os_str()]);
    }
    run_python(python, &arguments, settings, folder).await.map_err(|stderr| {
        match (uv_failure::explain("get uv with pip", &stderr, folder, &python.full_version), &settings.index_url) {
            // Not every pip says where it looked.
            (EnvironmentError::Network { step, detail }, Some(index)) if !detail.contains("://") => {
                EnvironmentError::Network { step, detail: format!("{index}; {detail}") }
            }
            (error, _) => error,
        }
    })
}

/// Runs Python; the error is what it printed.
async fn run_python(
    python: &Python,
    arguments: &[&std::ffi::OsStr],
    settings: &EnvironmentSettings,
    folder: &Path,
) -> Result<(), String> {
    let mut command = bounded_command::tool(&python.executable, folder);
    command.args(arguments);
    if let Some(index) = &settings.index_url {
        command.env("PIP_INDEX_URL", index.exposed());
    }
    match bounded_command::run(command, Duration::from_secs(600), |_| {}).await {
        Ok(Some(ended)) if ended.status.success() => Ok(()),
        Ok(Some(ended)) => Err(format!("{}\n{}", ended.stdout.trim(), ended.stderr.trim()).trim().to_owned()),
        Ok(None) => Err("no end after 10 minutes".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

async fn version_of(path: &Path) -> Result<String, String> {
    let mut command = bounded_command::tool(path, Path::new("/"));
    command.arg("--version");
    let ended = match bounded_command::run(command, Duration::from_secs(60), |_| {}).await {
        Ok(Some(ended)) => ended,
        Ok(None) => return Err("but it does not answer".to_owned()),
        Err(error) => return Err(format!("but it does not start: {error}")),
    };
    let version = ended.stdout.strip_prefix("uv ").and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    match parse_version(version) {
        Some(parsed) if parsed >= OLDEST => Ok(version.to_owned()),
        Some(_) => Err(format!("but it is uv {version}; 0.6.9 or newer is needed")),
        None => Err("but it is not uv".to_owned()),
    }
}

fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts =
        text.split('.').map(|part| part.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default().parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

fn own_folder(state_dir: &Path) -> PathBuf {
    state_dir.join("tools").join(own_folder_name())
}

/// The folder in `<state>/tools` of the uv that the farm gets itself.
pub fn own_folder_name() -> String {
    format!("uv-{}", pinned_version())
}

fn own_program(state_dir: &Path) -> PathBuf {
    own_folder(state_dir).join("bin").join("uv")
}

fn pinned_version() -> &'static str {
    let pin = UV_REQUIREMENTS.lines().find_map(|line| line.strip_prefix("uv=="));
    pin.and_then(|pin| pin.split_whitespace().next()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_uv_is_pinned_to_a_usable_version() {
        assert!(parse_version(pinned_version()).is_some_and(|version| version >= OLDEST));
        assert_eq!(parse_version("0.6.10+3"), Some((0, 6, 10)));
        assert_eq!(parse_version("next"), None);
    }

    #[tokio::test]
    async fn a_named_uv_that_does_not_work_is_an_error() {
        let settings = EnvironmentSettings { uv: Some("/nonexistent/uv".into()), ..Default::default() };
        let error = find_uv(Path::new("/nonexistent"), &settings).await.expect_err("no such file").to_string();
        assert!(error.contains("/nonexistent/uv") && error.contains("MODELFARM_UV"), "{error}");
    }
}
