//! Which versions of a package the indexes have, as uv sees them.

use std::path::Path;

use super::bounded_command;
use super::error::EnvironmentError;
use super::python::find_python;
use super::requirements::check_package_name;
use super::settings::EnvironmentSettings;
use super::sync::choose_cache;
use super::uv_command;
use super::uv_failure;
use super::uv_tool::{fetch_uv, find_uv};

/// An index answers at once or is down.
const LOOK_UP_LIMIT: std::time::Duration = std::time::Duration::from_secs(300);
/// More versions than this between two releases are no row that a person walks.
const AT_MOST: usize = 500;

/// The versions of `package` after `from` and before `to`, oldest first, as far as this Python can have them.
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
    let cache = choose_cache(state_dir);
    let (from, to) = (public(from), public(to));
    while versions.len() < AT_MOST {
        let below = versions.last().map_or(to, String::as_str);
        // `<1.0` alone would leave out 1.0.dev1, and `>1.0` 1.0.post1.
        let bounds = format!("{package}>={from},!={from},<={below},!={below}\n");
        std::fs::write(&asked, bounds).map_err(EnvironmentError::io("write", &asked))?;
        let call = uv_command::newest(&python.executable, &asked, settings, &cache);
        let mut command = bounded_command::tool(&uv.path, folder.path());
        command.args(&call.arguments).envs(call.variables.iter().map(|(name, value)| (name, value)));
        let ended = bounded_command::run(command, LOOK_UP_LIMIT, |_: &str| {}).await;
        let Some(ended) = ended.map_err(EnvironmentError::io("run", &uv.path))? else {
            return Err(EnvironmentError::Tool { step: "look up versions", detail: "no answer within minutes".to_owned() });
        };
        let found = ended.stdout.lines().find_map(|line| line.trim().split_once("=="));
        match found {
            Some((_, version)) if ended.status.success() => {
                let version = version.split([' ', ';']).next().unwrap_or_default();
                versions.push(public(version).to_owned());
            }
            _ if is_exhausted(&ended.stderr) => break,
            _ => return Err(uv_failure::explain("look up versions", &ended.stderr, folder.path(), &python.full_version)),
        }
    }
    versions.reverse();
    Ok(versions)
}

/// A version without its local part, as `+cpu`, which a bound may not have.
fn public(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

/// Whether uv knows the package and has no further version of it: it finds no solution within the bounds.
fn is_exhausted(stderr: &str) -> bool {
    stderr.contains("No solution found") && !stderr.contains("was not found in")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_have_no_local_part() {
        assert_eq!(public("2.15.0+cpu"), "2.15.0");
        assert_eq!(public("1.0.dev1"), "1.0.dev1");
    }

    #[test]
    fn a_package_that_no_index_has_is_no_end_of_its_versions() {
        let begins = "error: No solution found when resolving dependencies\n  cause: ";
        for end in [
            "you require six!=1.0 and six>=1.0 and six!=1.1 and six<=1.1, which are incompatible",
            "Because only six<=1.0 is available and you require six>1.0, we can conclude that your requirements are unsatisfiable.",
        ] {
            assert!(is_exhausted(&format!("{begins}{end}")), "{end}");
        }
        let unknown = "Because six was not found in the package registry and you require six, we can conclude that your requirements are unsatisfiable.";
        assert!(!is_exhausted(&format!("{begins}{unknown}")));
        assert!(!is_exhausted("error: Failed to fetch"));
    }
}
