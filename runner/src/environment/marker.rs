//! The file that makes an environment complete: written last, read by every command that uses the environment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::EnvironmentError;
use super::package_files;
use super::python::PythonVersion;

/// Name of the marker inside an environment's folder.
pub const MARKER_FILE: &str = "environment.json";
/// Name of the requirements inside an environment's folder.
pub(super) const REQUIREMENTS_FILE: &str = "requirements.txt";
const SCHEMA: u32 = 1;

/// A complete environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Its name, as `torchtpu`.
    pub name: String,
    /// First 16 digits of the fingerprint; with the name the folder's name.
    pub id: String,
    /// SHA-256 (hex) of everything that its content depends on.
    pub fingerprint: String,
    /// The folder.
    pub folder: PathBuf,
    /// Its interpreter.
    pub python: PathBuf,
    /// Where its packages are.
    pub site_packages: PathBuf,
    /// The interpreter's whole version.
    pub python_version: String,
    /// Operating system and processor, as `linux-x86_64`.
    pub platform: String,
    /// Versions of all packages by name (lower case, `-` for `_` and `.`).
    pub packages: BTreeMap<String, String>,
    /// What [`super::recreate`] makes the same packages of: the locked requirements, or, where those of a person were not
    /// locked, the versions that were installed.
    pub requirements: String,
}

/// The marker's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    schema: u32,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) fingerprint: String,
    pub(super) requirements_digest: String,
    pub(super) all_hashed: bool,
    pub(super) sources: Vec<String>,
    pub(super) python: PythonVersion,
    pub(super) python_version: String,
    /// The interpreter that the environment was made with.
    pub(super) base_python: PathBuf,
    /// The `MODELFARM_PYTHON` that it was made for.
    pub(super) requested_python: Option<PathBuf>,
    pub(super) platform: String,
    pub(super) packages: BTreeMap<String, String>,
}

impl Marker {
    pub(super) fn new(
        spec: &super::spec::EnvironmentSpec,
        python_version: String,
        base_python: PathBuf,
        requested_python: Option<PathBuf>,
        packages: BTreeMap<String, String>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            name: spec.name.clone(),
            id: spec.id(),
            fingerprint: spec.fingerprint(),
            requirements_digest: spec.requirements.digest(),
            all_hashed: spec.requirements.all_hashed(),
            sources: spec.sources.clone(),
            python: spec.python,
            python_version,
            base_python,
            requested_python,
            platform: spec.platform.clone(),
            packages,
        }
    }

    /// Writes the marker so that it is there whole or not at all.
    pub(super) fn write(&self, folder: &Path) -> Result<(), EnvironmentError> {
        let path = folder.join(MARKER_FILE);
        let text =
            serde_json::to_vec_pretty(self).map_err(std::io::Error::other).map_err(EnvironmentError::io("write", &path))?;
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            std::io::Write::write_all(&mut file, &text)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(EnvironmentError::io("write", &path))
    }

    /// Reads a folder's marker; the error says in words for a person why the environment is not complete.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let text = fs::read(folder.join(MARKER_FILE)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "its making was interrupted".to_owned(),
            _ => format!("its {MARKER_FILE} cannot be read ({error})"),
        })?;
        let marker: Self = serde_json::from_slice(&text).map_err(|error| format!("its {MARKER_FILE} is damaged ({error})"))?;
        if marker.schema != SCHEMA {
            return Err(format!("its {MARKER_FILE} has schema {}, this program reads {SCHEMA}", marker.schema));
        }
        Ok(marker)
    }

    /// The environment of a folder, or why it is not complete. Looks at every recorded file's size, starts no process.
    pub(super) fn open(self, folder: &Path) -> Result<Environment, String> {
        let python = folder.join("bin").join("python");
        if !python.is_file() {
            return Err(format!("its interpreter is gone ({})", self.base_python.display()));
        }
        let site_packages = folder.join("lib").join(format!("python{}", self.python)).join("site-packages");
        let packages = package_files::installed_packages(&site_packages)
            .map_err(|error| format!("its packages cannot be read ({error})"))?;
        if packages != self.packages {
            let differing = packages.iter().find(|(name, version)| self.packages.get(*name) != Some(version));
            let missing = self.packages.keys().find(|name| !packages.contains_key(*name));
            let name = differing.map(|(name, _)| name).or(missing).map_or("one", String::as_str);
            return Err(format!("its packages were changed ({name})"));
        }
        if let Some(damage) =
            package_files::first_damage(&site_packages).map_err(|error| format!("its packages cannot be read ({error})"))?
        {
            return Err(format!("its packages are damaged ({damage})"));
        }
        let requirements = if self.all_hashed {
            super::requirements::read_kept(&folder.join(REQUIREMENTS_FILE)).map_err(|error| error.to_string())?
        } else {
            self.packages.iter().map(|(name, version)| format!("{name}=={version}\n")).collect()
        };
        Ok(Environment {
            name: self.name,
            id: self.id,
            fingerprint: self.fingerprint,
            folder: folder.to_owned(),
            python,
            site_packages,
            python_version: self.python_version,
            platform: self.platform,
            packages: self.packages,
            requirements,
        })
    }
}
