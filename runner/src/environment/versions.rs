//! Which versions of a package the indexes have, as uv sees them.

use std::path::Path;

use super::bounded_command;
use super::error::EnvironmentError;
use super::python::find_python;
use super::requirements::check_package_name;
use super::settings::EnvironmentSettings;
use super::uv_command;
use super::uv_failure;
use super::uv_tool::{fetch_uv, find_uv};

/// An index answers at once or is down.
const LOOK_UP_LIMIT: std::time::Duration = std::time::Duration::from_secs(300);
/// More versions than this between two releases are no row that a person walks.
const AT_MOST: usize = 500;

/// The versions of `package` after `from` and before `to`, oldest first.
///
/// uv has no command that lists versions: it is asked for the newest one below the last answer until there is none.
pub async fn versions_between(
    state_dir: &Path,
    package: &str,
    from: &str,
    to: &str,
    settings: &EnvironmentSettings,
) -> Result<Vec<String>, EnvironmentError> {
    check_package_name(package)?;
    let known_uv = find_uv(state_dir, settings).await?;
    let python = find_python(settings, known_uv.as_ref().map(|uv| uv.path.as_path())).await?;
    let uv = match known_uv {
        Some(uv) => uv,
        None => fetch_uv(state_dir, settings, &python, &mut |_| {}).await?,
    };
    let folder = tempfile::tempdir().map_err(EnvironmentError::io("create a folder in", std::env::temp_dir()))?;
    let asked = folder.path().join("asked.in");
    let mut versions: Vec<String> = Vec::new();
    while versions.len() < AT_MOST {
        let below = versions.last().map_or(to, String::as_str);
        std::fs::write(&asked, format!("{package}>{from},<{below}\n")).map_err(EnvironmentError::io("write", &asked))?;
        let call = uv_command::newest(&python.executable, &asked, settings);
        let mut command = bounded_command::tool(&uv.path, folder.path());
        command.args(&call.arguments).envs(call.variables.iter().map(|(name, value)| (name, value)));
        let ended = bounded_command::run(command, LOOK_UP_LIMIT, |_: &str| {}).await;
        let Some(ended) = ended.map_err(EnvironmentError::io("run", &uv.path))? else {
            return Err(EnvironmentError::Tool { step: "look up versions", detail: "no answer within minutes".to_owned() });
        };
        let found = ended.stdout.lines().find_map(|line| line.trim().split_once("=="));
        match found {
            Some((_, version)) if ended.status.success() => {
                versions.push(version.split([' ', ';']).next().unwrap_or_default().to_owned());
            }
            // That nothing satisfies the bounds is how uv says that there is no further version.
            _ if ended.stderr.contains("unsatisfiable") => break,
            _ => return Err(uv_failure::explain("look up versions", &ended.stderr, folder.path(), &python.full_version)),
        }
    }
    versions.reverse();
    Ok(versions)
}
