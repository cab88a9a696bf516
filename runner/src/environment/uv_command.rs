//! The command lines given to uv, as data, so that they can be tested without the indexes that they name.

use std::path::{Path, PathBuf};

use super::requirements::Requirements;
use super::settings::EnvironmentSettings;

/// Arguments and variables of one call of uv.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UvCommand {
    pub(super) arguments: Vec<String>,
    /// Addresses with passwords go here: every user of a computer sees the arguments of every process.
    pub(super) variables: Vec<(&'static str, String)>,
}

/// Where uv keeps what it downloaded, so that another environment links to the same files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UvCache {
    /// Where it does for everything else.
    Default,
    /// A folder of the farm's own.
    Own(PathBuf),
}

/// `uv venv` of a folder that may be renamed afterwards.
pub(super) fn make_venv(folder: &Path, python: &Path, cache: &UvCache) -> UvCommand {
    let mut command = UvCommand::default();
    let arguments =
        ["venv", "--quiet", "--no-project", "--no-python-downloads", "--relocatable", "--allow-existing", "--python"];
    command.arguments.extend(arguments.map(str::to_owned));
    command.arguments.push(python.display().to_string());
    command.add_cache(cache);
    command.arguments.push(folder.display().to_string());
    command
}

/// `uv pip install` of a requirements file into the environment of an interpreter.
pub(super) fn install(
    python: &Path,
    requirements_file: &Path,
    requirements: &Requirements,
    settings: &EnvironmentSettings,
    cache: &UvCache,
) -> UvCommand {
    let mut command = UvCommand::default();
    command
        .arguments
        .extend(["pip", "install", "--no-python-downloads", "--no-compile-bytecode", "--python"].map(str::to_owned));
    command.arguments.push(python.display().to_string());
    if requirements.all_hashed() {
        command.arguments.push("--require-hashes".to_owned());
        // What builds a source package is not locked.
        command.arguments.push("--no-build".to_owned());
    }
    let cuda_is_resolved = settings.torch_backend.as_ref().is_some_and(|backend| backend != "cpu");
    if requirements.all_pinned() && !cuda_is_resolved {
        // A locked file is complete, and leaves out on purpose what some package asks for. The libraries of another CUDA
        // version than the locked one are not in it.
        command.arguments.push("--no-deps".to_owned());
    }
    command.add_indexes(settings);
    command.add_cache(cache);
    command.arguments.extend(["--requirements".to_owned(), requirements_file.display().to_string()]);
    command
}

/// `uv pip compile` of one requirement alone, which prints the newest version that satisfies it.
pub(super) fn newest(python: &Path, requirement_file: &Path, settings: &EnvironmentSettings, cache: &UvCache) -> UvCommand {
    let mut command = UvCommand::default();
    let arguments =
        ["pip", "compile", "--quiet", "--no-python-downloads", "--no-deps", "--no-header", "--no-annotate", "--python"];
    command.arguments.extend(arguments.map(str::to_owned));
    command.arguments.push(python.display().to_string());
    command.add_indexes(settings);
    command.add_cache(cache);
    command.arguments.push(requirement_file.display().to_string());
    command
}

impl UvCommand {
    fn add_indexes(&mut self, settings: &EnvironmentSettings) {
        if let Some(backend) = &settings.torch_backend {
            self.arguments.extend(["--torch-backend".to_owned(), backend.clone()]);
        }
        if let Some(url) = &settings.index_url {
            if url.is_secret() {
                self.variables.push(("UV_DEFAULT_INDEX", url.exposed().to_owned()));
            } else {
                self.arguments.extend(["--default-index".to_owned(), url.exposed().to_owned()]);
            }
        }
        if settings.extra_index_urls.iter().any(super::IndexUrl::is_secret) {
            let all = settings.extra_index_urls.iter().map(|url| url.exposed()).collect::<Vec<_>>().join(" ");
            self.variables.push(("UV_INDEX", all));
        } else {
            for url in &settings.extra_index_urls {
                self.arguments.extend(["--index".to_owned(), url.exposed().to_owned()]);
            }
        }
        self.add_wheel_folders(settings);
    }

    fn add_wheel_folders(&mut self, settings: &EnvironmentSettings) {
        for folder in &settings.wheel_folders {
            self.arguments.extend(["--find-links".to_owned(), folder.display().to_string()]);
        }
    }

    fn add_cache(&mut self, cache: &UvCache) {
        if let UvCache::Own(folder) = cache {
            self.arguments.extend(["--cache-dir".to_owned(), folder.display().to_string()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::credentials::IndexUrl;
    use super::*;

    const HASHED: &str = "six==1.17.0 --hash=sha256:00\n";

    fn command(text: &str, settings: &EnvironmentSettings) -> UvCommand {
        let requirements = Requirements::parse(text, "t", settings).expect("valid");
        install(Path::new("/e/bin/python"), Path::new("/e/r.txt"), &requirements, settings, &UvCache::Default)
    }

    #[test]
    fn a_locked_file_is_installed_by_hash_and_alone() {
        assert_eq!(
            command(HASHED, &EnvironmentSettings::default()).arguments.join(" "),
            "pip install --no-python-downloads --no-compile-bytecode --python /e/bin/python --require-hashes --no-build --no-deps --requirements /e/r.txt"
        );
    }

    #[test]
    fn own_requirements_are_resolved() {
        assert_eq!(
            command("torch_tpu>=0.3.dev0\n", &EnvironmentSettings::default()).arguments.join(" "),
            "pip install --no-python-downloads --no-compile-bytecode --python /e/bin/python --requirements /e/r.txt"
        );
    }

    #[test]
    fn own_indexes_and_torch_backend_are_handed_on() {
        let settings = EnvironmentSettings {
            index_url: Some(IndexUrl::new("https://mirror/simple")),
            extra_index_urls: vec![IndexUrl::new("https://one/"), IndexUrl::new("https://two/")],
            wheel_folders: vec!["/wheels".into()],
            torch_backend: Some("cpu".into()),
            ..Default::default()
        };
        assert_eq!(
            command("torch==2.15.0 --hash=sha256:00\nsix==1.17.0 --hash=sha256:00\n", &settings).arguments.join(" "),
            "pip install --no-python-downloads --no-compile-bytecode --python /e/bin/python --no-deps --torch-backend cpu \
             --default-index https://mirror/simple --index https://one/ --index https://two/ --find-links /wheels --requirements /e/r.txt"
        );
    }

    #[test]
    fn another_cuda_brings_its_own_libraries() {
        let settings = EnvironmentSettings { torch_backend: Some("cu130".into()), ..Default::default() };
        let command = command("torch==2.15.0 --hash=sha256:00\nnvidia-cublas==13 --hash=sha256:00\n", &settings);
        let arguments = command.arguments.join(" ");
        assert!(arguments.contains("--torch-backend cu130") && !arguments.contains("--no-deps"), "{arguments}");
    }

    #[test]
    fn passwords_are_in_no_argument() {
        let settings = EnvironmentSettings {
            index_url: Some(IndexUrl::new("https://u:hunter2@mirror/simple")),
            extra_index_urls: vec![IndexUrl::new("https://u:hunter3@one/"), IndexUrl::new("https://two/")],
            ..Default::default()
        };
        let command = command(HASHED, &settings);
        assert!(!command.arguments.join(" ").contains("hunter"));
        assert_eq!(
            command.variables,
            [
                ("UV_DEFAULT_INDEX", "https://u:hunter2@mirror/simple".to_owned()),
                ("UV_INDEX", "https://u:hunter3@one/ https://two/".to_owned())
            ]
        );
    }

    #[test]
    fn an_own_cache_is_named() {
        let venv = make_venv(Path::new("/e"), Path::new("/usr/bin/python3"), &UvCache::Own("/s/cache".into()));
        assert_eq!(
            venv.arguments.join(" "),
            "venv --quiet --no-project --no-python-downloads --relocatable --allow-existing --python /usr/bin/python3 --cache-dir /s/cache /e"
        );
    }
}
