//! What an environment is, before it is made: everything that its content depends on.

use sha2::{Digest, Sha256};

use super::python::PythonVersion;
use super::requirements::{Requirements, hex};
use super::settings::EnvironmentSettings;

/// A set of requirements for one Python version on one platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSpec {
    /// The environment's name, the first part of its folder's.
    pub name: String,
    /// What it holds.
    pub requirements: Requirements,
    /// The Python version that chooses among the requirements and their files.
    pub python: PythonVersion,
    /// Operating system and processor, as `linux-x86_64`.
    pub platform: String,
    /// Indexes (without passwords) and torch backend, where the requirements alone do not say which files are meant.
    pub sources: Vec<String>,
}

impl EnvironmentSpec {
    /// The specification for this computer.
    pub fn new(name: &str, requirements: Requirements, python: PythonVersion, settings: &EnvironmentSettings) -> Self {
        let sources = sources(&requirements, settings);
        Self { name: name.to_owned(), requirements, python, platform: this_platform(), sources }
    }

    /// SHA-256 (hex) over everything that the environment's content depends on; the same on every computer of one platform.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(format!(
            "modelfarm environment 1\nrequirements {}\npython {}\nplatform {}\n",
            self.requirements.digest(),
            self.python,
            self.platform
        ));
        for source in &self.sources {
            digest.update(format!("source {source}\n"));
        }
        hex(&digest.finalize())
    }

    /// The first 16 digits of the fingerprint.
    pub fn id(&self) -> String {
        self.fingerprint()[..16].to_owned()
    }
}

/// What besides the requirements decides which files are installed. Hashes decide it alone.
pub(super) fn sources(requirements: &Requirements, settings: &EnvironmentSettings) -> Vec<String> {
    if requirements.all_hashed() {
        return Vec::new();
    }
    let indexes = settings.index_url.iter().map(|url| format!("index {url}"));
    let extra = settings.extra_index_urls.iter().map(|url| format!("extra index {url}"));
    let wheels = settings.wheel_folders.iter().map(|folder| format!("wheel folder {}", folder.display()));
    let backend = settings.torch_backend.iter().map(|backend| format!("torch backend {backend}"));
    indexes.chain(extra).chain(wheels).chain(backend).collect()
}

/// Operating system and processor of this program.
pub(super) fn this_platform() -> String {
    format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::super::credentials::IndexUrl;
    use super::*;

    const HASHED: &str = "six==1.17.0 --hash=sha256:00\n";

    fn spec(text: &str, python: PythonVersion, settings: &EnvironmentSettings) -> EnvironmentSpec {
        EnvironmentSpec::new("x", Requirements::parse(text, "t", settings).expect("valid"), python, settings)
    }

    #[test]
    fn the_fingerprint_is_the_content_s() {
        let python = PythonVersion { major: 3, minor: 11 };
        let settings = EnvironmentSettings::default();
        let base = spec(HASHED, python, &settings);
        assert_eq!(base.fingerprint().len(), 64);
        assert_eq!(base.id(), base.fingerprint()[..16]);
        assert_eq!(base.fingerprint(), spec(&format!("# why\n{HASHED}"), python, &settings).fingerprint());
        assert_ne!(base.fingerprint(), spec(HASHED, PythonVersion { major: 3, minor: 12 }, &settings).fingerprint());
        assert_ne!(base.fingerprint(), spec("six==1.16.0 --hash=sha256:00\n", python, &settings).fingerprint());
        assert_ne!(base.fingerprint(), EnvironmentSpec { platform: "macos-aarch64".into(), ..base.clone() }.fingerprint());
    }

    #[test]
    fn a_mirror_changes_only_what_is_not_hashed() {
        let python = PythonVersion { major: 3, minor: 11 };
        let plain = EnvironmentSettings::default();
        let mirror = |url: &str| EnvironmentSettings { index_url: Some(IndexUrl::new(url)), ..Default::default() };
        let (one, other) = (mirror("https://u:one@host/simple"), mirror("https://u:other@host/simple"));
        assert_eq!(spec(HASHED, python, &plain).id(), spec(HASHED, python, &one).id());
        assert_ne!(spec("six", python, &plain).id(), spec("six", python, &one).id());
        assert_eq!(spec("six", python, &one).id(), spec("six", python, &other).id(), "a password is no part of an environment");
    }
}
