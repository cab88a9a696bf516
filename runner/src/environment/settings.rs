//! What a person sets about environments: own package index, own requirements, own Python and uv.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::credentials::IndexUrl;
use super::error::EnvironmentError;

/// Settings from the table `[environment]` of `<state>/config.toml`, overridden by `MODELFARM_*` variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvironmentSettings {
    /// The package index to use in place of the default one (`MODELFARM_INDEX_URL`; else what uv is configured with; else
    /// `PIP_INDEX_URL`).
    pub index_url: Option<IndexUrl>,
    /// Further indexes, asked first (`MODELFARM_EXTRA_INDEX_URLS`, separated by blanks).
    pub extra_index_urls: Vec<IndexUrl>,
    /// Folders of wheels that are taken beside what the indexes have (`MODELFARM_WHEEL_FOLDERS`, separated as in `PATH`).
    pub wheel_folders: Vec<PathBuf>,
    /// uv's `--torch-backend`, as `cpu` for PyTorch's wheels without CUDA (`MODELFARM_TORCH_BACKEND`).
    pub torch_backend: Option<String>,
    /// Requirements in place of those that the program carries (`MODELFARM_REQUIREMENTS`).
    pub requirements_file: Option<PathBuf>,
    /// The interpreter to make environments with (`MODELFARM_PYTHON`).
    pub python: Option<PathBuf>,
    /// The uv to use (`MODELFARM_UV`).
    pub uv: Option<PathBuf>,
    /// Where programs are looked for: `PATH`.
    #[serde(skip)]
    pub search_path: OsString,
}

#[derive(Deserialize, Default)]
struct ConfigFile {
    #[serde(default)]
    environment: EnvironmentSettings,
}

impl EnvironmentSettings {
    /// Reads `<state>/config.toml`, where there is one, and the process's variables.
    pub fn load(state_dir: &Path) -> Result<Self, EnvironmentError> {
        let path = state_dir.join("config.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(EnvironmentError::io("read", path)(error)),
        };
        Self::from_file_and_variables(&text, &path, |name| env::var_os(name))
    }

    fn from_file_and_variables(
        text: &str,
        path: &Path,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, EnvironmentError> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| EnvironmentError::BadSetting {
            place: path.display().to_string(),
            // The whole message shows the line, which may hold a password.
            reason: format!("{}{}", line_of(text, error.span()), error.message()),
        })?;
        let mut settings = file.environment;
        let folder = path.parent().unwrap_or(Path::new("."));
        let named = [&mut settings.requirements_file, &mut settings.python, &mut settings.uv].into_iter().flatten();
        for own in named.chain(&mut settings.wheel_folders) {
            *own = folder.join(&*own);
        }

        let text_of = |name: &str| -> Result<Option<String>, EnvironmentError> {
            match variable(name).filter(|value| !value.is_empty()) {
                None => Ok(None),
                Some(value) => value.into_string().map(Some).map_err(|_| EnvironmentError::BadSetting {
                    place: name.to_owned(),
                    reason: "it is not UTF-8 text".to_owned(),
                }),
            }
        };
        let path_of = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(url) = text_of("MODELFARM_INDEX_URL")? {
            settings.index_url = Some(IndexUrl::new(url));
        }
        let uv_is_configured =
            ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE"].iter().any(|name| variable(name).is_some());
        if settings.index_url.is_none() && !uv_is_configured {
            // uv does not read pip's variables, but a computer behind a mirror often has only these.
            settings.index_url = text_of("PIP_INDEX_URL")?.map(IndexUrl::new);
        }
        if let Some(urls) = text_of("MODELFARM_EXTRA_INDEX_URLS")? {
            settings.extra_index_urls = urls.split_whitespace().map(IndexUrl::new).collect();
        }
        if let Some(folders) = variable("MODELFARM_WHEEL_FOLDERS").filter(|value| !value.is_empty()) {
            let absolute = |folder: PathBuf| std::path::absolute(&folder).map_err(EnvironmentError::io("find", folder));
            settings.wheel_folders = env::split_paths(&folders).map(absolute).collect::<Result<_, _>>()?;
        }
        if let Some(backend) = text_of("MODELFARM_TORCH_BACKEND")? {
            settings.torch_backend = Some(backend);
        }
        settings.requirements_file = path_of("MODELFARM_REQUIREMENTS").or(settings.requirements_file);
        settings.python = path_of("MODELFARM_PYTHON").or(settings.python);
        settings.uv = path_of("MODELFARM_UV").or(settings.uv);
        settings.search_path = variable("PATH").unwrap_or_default();
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), EnvironmentError> {
        for url in self.index_url.iter().chain(&self.extra_index_urls) {
            let known = ["https://", "http://", "file://"].iter().any(|scheme| url.exposed().starts_with(scheme));
            if !known || url.exposed().contains(char::is_whitespace) {
                return Err(EnvironmentError::BadSetting {
                    place: "index_url or extra_index_urls".to_owned(),
                    reason: "each must be one address that begins with https://, http:// or file://".to_owned(),
                });
            }
        }
        if let Some(folder) = self.wheel_folders.iter().find(|folder| !folder.is_dir()) {
            return Err(EnvironmentError::BadSetting {
                place: "wheel_folders".to_owned(),
                reason: format!("{} is no folder; expected folders that hold .whl files", folder.display()),
            });
        }
        if let Some(backend) = &self.torch_backend {
            let plain = backend.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '.');
            if backend.is_empty() || !plain {
                return Err(EnvironmentError::BadSetting {
                    place: "torch_backend".to_owned(),
                    reason: format!("`{}` is no torch backend of uv, such as `cpu` or `cu130`", backend.escape_default()),
                });
            }
        }
        Ok(())
    }

    /// The first file of this name on the search path that may be executed.
    pub(super) fn on_path(&self, program: &str) -> Option<PathBuf> {
        self.everywhere_on_path(program).next()
    }

    /// Every program of a name on the search path, in its order.
    pub(super) fn everywhere_on_path(&self, program: &str) -> impl Iterator<Item = PathBuf> {
        env::split_paths(&self.search_path)
            .filter(|folder| folder.is_absolute())
            .map(move |folder| folder.join(program))
            .filter(|file| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
    }
}

fn line_of(text: &str, span: Option<std::ops::Range<usize>>) -> String {
    let Some(span) = span else { return String::new() };
    let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
    format!("line {line}: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, variables: &[(&str, &str)]) -> Result<EnvironmentSettings, EnvironmentError> {
        EnvironmentSettings::from_file_and_variables(text, Path::new("/state/config.toml"), |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn variables_win_over_the_file() {
        let file = "[environment]\nindex_url = 'https://file/simple'\ntorch_backend = 'cpu'\nrequirements_file = 'own.txt'\n[other]\nkey = 1\n";
        let settings = read(file, &[("MODELFARM_INDEX_URL", "https://variable/simple"), ("PIP_INDEX_URL", "https://pip/")])
            .expect("settings");
        assert_eq!(settings.index_url, Some(IndexUrl::new("https://variable/simple")));
        assert_eq!(settings.torch_backend.as_deref(), Some("cpu"));
        assert_eq!(settings.requirements_file.as_deref(), Some(Path::new("/state/own.txt")));
    }

    #[test]
    fn pip_s_index_is_used_only_where_uv_has_none() {
        let pip = ("PIP_INDEX_URL", "https://pip/simple");
        assert_eq!(read("", &[pip]).expect("settings").index_url, Some(IndexUrl::new("https://pip/simple")));
        assert_eq!(read("", &[pip, ("UV_DEFAULT_INDEX", "https://uv/simple")]).expect("settings").index_url, None);
    }

    #[test]
    fn wrong_settings_say_where_and_tell_no_password() {
        let error = read("\n[environment]\nindx_url = 'https://u:hunter2@h/'\n", &[]).expect_err("an unknown key").to_string();
        assert!(error.contains("/state/config.toml") && error.contains("line 3") && error.contains("indx_url"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        assert!(read("", &[("MODELFARM_TORCH_BACKEND", "--evil")]).is_err());
        assert!(read("", &[("MODELFARM_EXTRA_INDEX_URLS", "https://a/ --b")]).is_err());
    }

    #[test]
    fn wheel_folders_are_folders() {
        let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let both = std::env::join_paths([one.path(), other.path()]).expect("no colon in it");
        let settings = read("", &[("MODELFARM_WHEEL_FOLDERS", both.to_str().expect("text"))]).expect("settings");
        assert_eq!(settings.wheel_folders, [one.path(), other.path()]);
        let error = read("[environment]\nwheel_folders = ['no-wheels']\n", &[]).expect_err("no such folder").to_string();
        assert!(error.contains("/state/no-wheels is no folder"), "{error}");
    }
}
