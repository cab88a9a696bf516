//! Requirement texts: those that the program carries, a person's own, and what is the same in all spellings of one.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::credentials::redact;
use super::error::EnvironmentError;
use super::settings::EnvironmentSettings;

/// The environments whose requirements the program carries.
pub const ENVIRONMENT_NAMES: &[&str] = &["torchtpu"];

const TORCHTPU: &str = include_str!("../../worker/environments/torchtpu.txt");

/// What installs uv itself.
pub(super) const UV_REQUIREMENTS: &str = include_str!("../../worker/environments/uv.txt");

/// The text of a requirements file, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    text: String,
    lines: Vec<String>,
}

impl Requirements {
    /// The requirements of an environment under these settings: a person's own file, else those that the program carries.
    pub fn of(name: &str, settings: &EnvironmentSettings) -> Result<Self, EnvironmentError> {
        check_name(name)?;
        let (text, place) = match &settings.requirements_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(EnvironmentError::io("read the requirements file", path))?;
                (text, path.display().to_string())
            }
            None => (carried(name)?.to_owned(), format!("the locked `{name}`")),
        };
        Self::parse(&text, &place, settings)
    }

    /// Checks a text; `place` says in errors where it came from. With a torch backend, PyTorch's own packages come from another
    /// index and are other files: their hashes, and the CUDA packages that the backend's build names itself, are left out.
    pub fn parse(text: &str, place: &str, settings: &EnvironmentSettings) -> Result<Self, EnvironmentError> {
        let mut lines = Vec::new();
        for (number, line) in logical_lines(text) {
            check_line(&line, place, number)?;
            match &settings.torch_backend {
                Some(_) if is_cuda_package(&line) => {}
                Some(_) if is_torch_package(&line) => lines.push(without_hashes(&line)),
                _ => lines.push(line),
            }
        }
        lines.sort();
        lines.dedup();
        if lines.is_empty() {
            return Err(EnvironmentError::BadRequirements {
                place: place.to_owned(),
                line: 1,
                reason: "it names no package".to_owned(),
            });
        }
        let text = if settings.torch_backend.is_some() { lines.join("\n") + "\n" } else { text.to_owned() };
        Ok(Self { text, lines })
    }

    /// The text to install from and to keep.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether every requirement is pinned by hash, so that two installations cannot differ.
    pub fn all_hashed(&self) -> bool {
        self.lines.iter().all(|line| line.contains(" --hash="))
    }

    /// Whether every requirement has an exact version, so that nothing has to be resolved.
    pub fn all_pinned(&self) -> bool {
        self.lines.iter().all(|line| !line.starts_with('-') && line.split(';').next().is_some_and(|left| left.contains("==")))
    }

    /// The lines of each package, by its normalised name: a locked file has several where versions differ between Pythons. Options,
    /// which begin with `-`, are under their own text.
    pub fn by_package(&self) -> BTreeMap<String, Vec<String>> {
        let mut packages: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in &self.lines {
            let key = if line.starts_with('-') { line.clone() } else { package_name(line) };
            packages.entry(key).or_default().push(line.clone());
        }
        packages
    }

    /// SHA-256 (hex) that is the same for two texts that ask for the same: comments, blank lines and order do not matter.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for line in &self.lines {
            digest.update(line.as_bytes());
            digest.update(b"\n");
        }
        hex(&digest.finalize())
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn carried(name: &str) -> Result<&'static str, EnvironmentError> {
    match name {
        "torchtpu" => Ok(TORCHTPU),
        _ => Err(EnvironmentError::UnknownName {
            name: name.to_owned(),
            known: ENVIRONMENT_NAMES.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// A name becomes part of a path.
pub(super) fn check_name(name: &str) -> Result<(), EnvironmentError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if plain && !name.is_empty() && name.len() <= 64 && !name.starts_with('-') {
        return Ok(());
    }
    Err(EnvironmentError::BadSetting {
        place: "environment name".to_owned(),
        reason: format!("`{}` may only hold a-z, 0-9 and -", name.escape_default()),
    })
}

/// Requirements with their number of the first line: comments left out, continued lines joined, blanks made single.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, raw) in text.lines().enumerate() {
        let line = raw.trim();
        let uncommented = match line.find('#') {
            Some(0) => "",
            Some(at) if line[..at].ends_with(char::is_whitespace) => line[..at].trim_end(),
            _ => line,
        };
        let (part, continues) = match uncommented.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (uncommented, false),
        };
        let (_, joined) = open.get_or_insert((index + 1, String::new()));
        for word in part.split_whitespace() {
            if !joined.is_empty() {
                joined.push(' ');
            }
            joined.push_str(word);
        }
        if !continues {
            found.extend(open.take());
        }
    }
    found.extend(open);
    found.retain(|(_, line)| !line.is_empty());
    found
}

fn check_line(line: &str, place: &str, number: usize) -> Result<(), EnvironmentError> {
    let bad = |reason: &str| {
        Err(EnvironmentError::BadRequirements { place: place.to_owned(), line: number, reason: reason.to_owned() })
    };
    if redact(line) != line {
        return bad(
            "an address with a password or query would be kept with every result; set it as MODELFARM_INDEX_URL instead",
        );
    }
    let option = line.split([' ', '=']).next().unwrap_or_default();
    let names_a_file = ["-r", "--requirement", "-c", "--constraint", "-e", "--editable"].contains(&option)
        || ["-r", "-c", "-e"].iter().any(|short| line.starts_with(short) && !line.starts_with("--"));
    if names_a_file {
        return bad("other files and editable folders cannot be kept with the results; write all packages into this one file");
    }
    if line.starts_with(['.', '/']) {
        return bad(
            "a local path cannot be kept with the results; serve the wheel from an index, or write `name @ file:///path`",
        );
    }
    Ok(())
}

/// A name becomes part of a requirement.
pub(super) fn check_package_name(name: &str) -> Result<(), EnvironmentError> {
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    match plain {
        true => Ok(()),
        false => Err(EnvironmentError::BadSetting {
            place: "package".to_owned(),
            reason: format!("`{}` is no name of a package", name.escape_default()),
        }),
    }
}

fn package_name(line: &str) -> String {
    let end = line.find(|letter: char| !(letter.is_ascii_alphanumeric() || "._-".contains(letter))).unwrap_or(line.len());
    super::package_files::normalised_name(&line[..end])
}

fn is_torch_package(line: &str) -> bool {
    ["torch", "torchvision", "torchaudio"].contains(&package_name(line).as_str())
}

fn is_cuda_package(line: &str) -> bool {
    let name = package_name(line);
    name.starts_with("nvidia-") || name.starts_with("cuda-") || name == "triton"
}

fn without_hashes(line: &str) -> String {
    line.split(" --hash=").next().unwrap_or_default().to_owned()
}

/// Reads a file that was written by [`super::sync`] beside an environment.
pub(super) fn read_kept(path: &Path) -> Result<String, EnvironmentError> {
    std::fs::read_to_string(path).map_err(EnvironmentError::io("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Requirements, EnvironmentError> {
        Requirements::parse(text, "test.txt", &EnvironmentSettings::default())
    }

    #[test]
    fn spelling_does_not_change_the_digest_but_content_does() {
        let one = parse("b==2 \\\n    --hash=sha256:02 \\\n    --hash=sha256:03\n    # via x\n\na==1 --hash=sha256:01\n")
            .expect("valid");
        let other =
            parse("# a comment\na==1    --hash=sha256:01  # why\nb==2 --hash=sha256:02 --hash=sha256:03").expect("valid");
        assert_eq!(one.digest(), other.digest());
        assert!(one.all_hashed() && one.all_pinned());
        let changed = parse("a==1 --hash=sha256:01\nb==2 --hash=sha256:02").expect("valid");
        assert_ne!(one.digest(), changed.digest());
    }

    #[test]
    fn what_cannot_be_made_again_is_refused() {
        for (text, line) in [
            ("six\n-r other.txt", 2),
            ("-rother.txt", 1),
            ("--constraint=x", 1),
            ("\n\n-e .", 3),
            ("--index-url https://user:hunter2@host/simple\nsix", 1),
            ("six @ https://host/six.whl?token=hunter2", 1),
            ("./six.whl", 1),
            ("# nothing", 1),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("test.txt, line {line}")), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn every_carried_environment_is_locked_and_names_no_address() {
        for name in ENVIRONMENT_NAMES {
            let requirements = Requirements::of(name, &EnvironmentSettings::default()).expect("valid");
            assert!(requirements.all_hashed() && requirements.all_pinned());
            assert!(!requirements.text().contains("://"));
        }
        assert!(parse(UV_REQUIREMENTS).expect("valid").all_hashed());
        assert!(Requirements::of("torchtpu2", &EnvironmentSettings::default()).is_err());
        assert!(Requirements::of("../x", &EnvironmentSettings::default()).is_err());
    }

    #[test]
    fn a_package_keeps_all_its_lines() {
        let text = "--pre\nNum_py==1 ; python_version < '3.12'\nnum-py==2 ; python_version >= '3.12'\nsix==3\n";
        let requirements = parse(text).expect("valid");
        let packages = requirements.by_package();
        assert_eq!(packages.keys().collect::<Vec<_>>(), ["--pre", "num-py", "six"]);
        assert_eq!(packages["num-py"].len(), 2);
        let again: String = packages.values().flatten().map(|line| format!("{line}\n")).collect();
        assert_eq!(parse(&again).expect("valid").digest(), requirements.digest());
    }

    #[test]
    fn a_torch_backend_takes_pytorch_s_own_files() {
        let settings = EnvironmentSettings { torch_backend: Some("cpu".into()), ..Default::default() };
        let requirements = Requirements::of("torchtpu", &settings).expect("valid");
        let text = requirements.text();
        assert!(text.lines().any(|line| line == "torch==2.15.0"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("torch-tpu==") && line.contains("--hash=")), "{text}");
        assert!(!text.contains("nvidia-") && !text.contains("triton"));
        assert!(requirements.all_pinned() && !requirements.all_hashed());
        assert_eq!(Requirements::parse(text, "again", &settings).expect("valid"), requirements);
    }
}
