//! Making an environment, or finding it made.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::bounded_command;
use super::bytecode;
use super::error::EnvironmentError;
use super::folder_lock::FolderLock;
use super::list::{folders_of, subfolders};
use super::marker::{Environment, MARKER_FILE, Marker, REQUIREMENTS_FILE};
use super::package_files;
use super::progress::{SyncEvent, UvProgress};
use super::python::{Python, find_python};
use super::requirements::{Requirements, check_name};
use super::settings::EnvironmentSettings;
use super::spec::{EnvironmentSpec, sources, this_platform};
use super::uv_command::{self, UvCache, UvCommand};
use super::uv_failure;
use super::uv_tool::{Uv, fetch_uv, find_uv};
use crate::last_use;

/// A slow connection may take hours for gigabytes; one that hangs must still end.
const INSTALL_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Makes the environment `name` in the state folder, unless it is there and whole. A second call starts no process. Half-made and
/// damaged ones are made anew; of two concurrent calls one makes it and the other waits.
pub async fn sync(
    state_dir: &Path,
    name: &str,
    settings: &EnvironmentSettings,
    progress: impl FnMut(SyncEvent),
) -> Result<Environment, EnvironmentError> {
    make(state_dir, name, Requirements::of(name, settings)?, settings, progress).await
}

/// Makes an environment of requirements that were kept with old results (see [`Environment::requirements`]).
pub async fn recreate(
    state_dir: &Path,
    name: &str,
    requirements: &str,
    settings: &EnvironmentSettings,
    progress: impl FnMut(SyncEvent),
) -> Result<Environment, EnvironmentError> {
    check_name(name)?;
    let requirements = Requirements::parse(requirements, "the kept requirements", settings)?;
    make(state_dir, name, requirements, settings, progress).await
}

/// The environment of these requirements, where it is there and whole; starts no process.
pub fn find(state_dir: &Path, name: &str, requirements: &Requirements, settings: &EnvironmentSettings) -> Option<Environment> {
    find_complete(&state_dir.join("environments"), name, requirements, settings, &mut None)
}

async fn make(
    state_dir: &Path,
    name: &str,
    requirements: Requirements,
    settings: &EnvironmentSettings,
    mut progress: impl FnMut(SyncEvent),
) -> Result<Environment, EnvironmentError> {
    let begun = Instant::now();
    let state_dir = std::path::absolute(state_dir).map_err(EnvironmentError::io("find", state_dir))?;
    let environments = state_dir.join("environments");
    let mut damage = None;
    let mut reused = true;
    let environment = match find_complete(&environments, name, &requirements, settings, &mut damage) {
        Some(environment) => environment,
        None => {
            fs::create_dir_all(&environments).map_err(EnvironmentError::io("create", &environments))?;
            let _lock = FolderLock::take(&environments.join(format!(".{name}.lock")), || progress(SyncEvent::Waiting)).await?;
            damage = None;
            match find_complete(&environments, name, &requirements, settings, &mut damage) {
                Some(environment) => environment,
                None => {
                    reused = false;
                    build(&state_dir, &environments, name, requirements, settings, damage, &mut progress).await?
                }
            }
        }
    };
    last_use::mark(&environment.folder.join(MARKER_FILE));
    progress(SyncEvent::Done { packages: environment.packages.len(), elapsed: begun.elapsed(), reused });
    Ok(environment)
}

/// A complete environment of these requirements. Which Python would be chosen is not asked again: that takes a process.
fn find_complete(
    environments: &Path,
    name: &str,
    requirements: &Requirements,
    settings: &EnvironmentSettings,
    damage: &mut Option<String>,
) -> Option<Environment> {
    let digest = requirements.digest();
    let sources = sources(requirements, settings);
    for folder in folders_of(environments, name) {
        let marker = match Marker::read(&folder) {
            Ok(marker) => marker,
            Err(reason) => {
                *damage = Some(format!("{}: {reason}", folder.display()));
                continue;
            }
        };
        let wanted = marker.name == name
            && marker.requirements_digest == digest
            && marker.sources == sources
            && marker.platform == this_platform()
            && (settings.python.is_none() || settings.python == marker.requested_python);
        if wanted {
            match marker.open(&folder) {
                Ok(environment) => return Some(environment),
                Err(reason) => *damage = Some(format!("{}: {reason}", folder.display())),
            }
        }
    }
    None
}

async fn build(
    state_dir: &Path,
    environments: &Path,
    name: &str,
    requirements: Requirements,
    settings: &EnvironmentSettings,
    damage: Option<String>,
    progress: &mut impl FnMut(SyncEvent),
) -> Result<Environment, EnvironmentError> {
    let building_prefix = format!(".building-{name}@");
    let interrupted = remove_interrupted(environments, &building_prefix)?;
    if let Some(reason) = damage.or(interrupted.then(|| "its making was interrupted".to_owned())) {
        progress(SyncEvent::Repairing { reason });
    }
    let known_uv = find_uv(state_dir, settings).await?;
    let python = find_python(settings, known_uv.as_ref().map(|uv| uv.path.as_path())).await?;
    let uv = match known_uv {
        Some(uv) => uv,
        None => fetch_uv(state_dir, settings, &python, progress).await?,
    };
    let spec = EnvironmentSpec::new(name, requirements, python.version, settings);
    let folder = environments.join(format!("{name}-{}", spec.id()));
    tracing::debug!(environment = name, id = spec.id(), uv = uv.version, python = %python.executable.display(), "making an environment");

    let building = tempfile::Builder::new()
        .prefix(&building_prefix)
        .tempdir_in(environments)
        .map_err(EnvironmentError::io("create a folder in", environments))?;
    install(&uv, &python, &spec, building.path(), state_dir, settings, progress).await?;
    let packages = package_files::installed_packages(&site_packages(building.path(), &python))
        .map_err(EnvironmentError::io("read the packages in", building.path()))?;
    Marker::new(&spec, python.full_version.clone(), python.executable.clone(), settings.python.clone(), packages)
        .write(building.path())?;

    // The old one goes by one rename too, so that no moment shows half of it under the name.
    if fs::symlink_metadata(&folder).is_ok() {
        let broken = tempfile::Builder::new()
            .prefix(&building_prefix)
            .tempdir_in(environments)
            .map_err(EnvironmentError::io("create a folder in", environments))?;
        fs::rename(&folder, broken.path().join("broken")).map_err(EnvironmentError::io("move away the damaged", &folder))?;
    }
    fs::rename(building.path(), &folder).map_err(EnvironmentError::io("rename the new environment to", &folder))?;
    let _ = building.keep(); // It has another name now; nothing is left to remove.
    Marker::read(&folder).and_then(|marker| marker.open(&folder)).map_err(|reason| EnvironmentError::Tool {
        step: "install the packages",
        detail: format!("the environment {} is not whole: {reason}", folder.display()),
    })
}

async fn install(
    uv: &Uv,
    python: &Python,
    spec: &EnvironmentSpec,
    folder: &Path,
    state_dir: &Path,
    settings: &EnvironmentSettings,
    progress: &mut impl FnMut(SyncEvent),
) -> Result<(), EnvironmentError> {
    let cache = choose_cache(state_dir);
    progress(SyncEvent::Resolving);
    let venv = uv_command::make_venv(folder, &python.executable, &cache);
    run_uv(uv, &venv, "create the virtual environment", folder, python, &mut |_| {}).await?;

    let requirements_file = folder.join(REQUIREMENTS_FILE);
    fs::write(&requirements_file, spec.requirements.text()).map_err(EnvironmentError::io("write", &requirements_file))?;
    let own_python = folder.join("bin").join("python");
    let install = uv_command::install(&own_python, &requirements_file, &spec.requirements, settings, &cache);
    let mut lines = UvProgress::default();
    run_uv(uv, &install, "install the packages", folder, python, &mut |line| {
        if let Some(event) = lines.read(line) {
            progress(event);
        }
    })
    .await?;
    let packages = site_packages(folder, python);
    let others = compiled_by(folder, &python.full_version);
    let uncompiled =
        bytecode::link_known(&packages, &others).map_err(EnvironmentError::io("link the bytecode in", &packages))?;
    bytecode::compile(&own_python, &uncompiled, folder).await
}

/// The packages of the whole environments beside a folder whose bytecode this very Python made.
fn compiled_by(folder: &Path, python_version: &str) -> Vec<PathBuf> {
    let beside = folder.parent().map(subfolders).and_then(Result::ok).unwrap_or_default();
    let markers = beside.into_iter().filter_map(|(_, folder)| Marker::read(&folder).ok().map(|marker| (folder, marker)));
    let same = markers.filter(|(_, marker)| marker.python_version == python_version);
    same.map(|(folder, marker)| folder.join("lib").join(format!("python{}", marker.python)).join("site-packages")).collect()
}

async fn run_uv(
    uv: &Uv,
    call: &UvCommand,
    step: &'static str,
    folder: &Path,
    python: &Python,
    on_line: &mut dyn FnMut(&str),
) -> Result<(), EnvironmentError> {
    let mut command = bounded_command::tool(&uv.path, folder);
    command.args(&call.arguments).envs(call.variables.iter().map(|(name, value)| (name, value)));
    let ended = bounded_command::run(command, INSTALL_LIMIT, on_line).await.map_err(EnvironmentError::io("run", &uv.path))?;
    match ended {
        Some(ended) if ended.status.success() => Ok(()),
        Some(ended) if ended.stderr.trim().is_empty() => {
            Err(EnvironmentError::Tool { step, detail: format!("{} ended with {}", uv.path.display(), ended.status) })
        }
        Some(ended) => Err(uv_failure::explain(step, &ended.stderr, folder, &python.full_version)),
        None => Err(EnvironmentError::Tool { step, detail: format!("no end after {} hours", INSTALL_LIMIT.as_secs() / 3600) }),
    }
}

/// Removes what interrupted calls left, as far as it can: the uv of a call that was killed may still be writing there, which
/// hurts nobody, as every call builds in a folder of its own. The caller holds the lock.
fn remove_interrupted(environments: &Path, prefix: &str) -> Result<bool, EnvironmentError> {
    let mut any = false;
    let reading = || EnvironmentError::io("read", environments);
    for entry in fs::read_dir(environments).map_err(reading())? {
        let entry = entry.map_err(reading())?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            any = true;
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::warn!(folder = %entry.path().display(), %error, "a half-made environment cannot be removed yet");
            }
        }
    }
    Ok(any)
}

fn site_packages(folder: &Path, python: &Python) -> PathBuf {
    folder.join("lib").join(format!("python{}", python.version)).join("site-packages")
}

/// Files are linked from uv's cache, which needs one file system: gigabytes would be copied otherwise.
pub(super) fn choose_cache(state_dir: &Path) -> UvCache {
    let named = std::env::var_os("UV_CACHE_DIR").filter(|folder| !folder.is_empty());
    if named.is_some() {
        return UvCache::Default;
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let default = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    let own = UvCache::Own(state_dir.join("uv-cache"));
    let Some(default) = default.map(|folder| folder.join("uv")) else { return own };
    let Some(there) = default.ancestors().find(|folder| folder.exists()) else { return own };
    let writable = rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_ok();
    match (fs::metadata(there), fs::metadata(state_dir)) {
        (Ok(cache), Ok(state)) if writable && cache.dev() == state.dev() => UvCache::Default,
        _ => own,
    }
}
