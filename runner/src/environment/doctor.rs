//! What is right and wrong with this computer and its environment.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::bounded_command;
use super::list::folders_of;
use super::marker::{Environment, Marker};
use super::python::find_python;
use super::settings::EnvironmentSettings;
use super::uv_failure::free_gib;
use super::uv_tool::find_uv;

/// Packages whose versions decide what a result means.
const TOLD_PACKAGES: [&str; 7] =
    ["torch", "torch-tpu", "libtpu", "transformers", "jaxlib", "safetensors", "fastatomstruct-xla-cpu"];
/// The `torchtpu` environment takes 7.2 GiB; models, references and results come on top.
const WANTED_FREE_GIB: f64 = 12.0;
/// The default limit of one case is 6 GiB, beside a zygote of about 1 GiB.
const WANTED_MEMORY_GIB: f64 = 8.0;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// As it should be.
    Ok,
    /// It works, with less than it could.
    Warning,
    /// Something will not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: `python`, `uv`, `environment`, a package, `sandbox`, `disk`, `memory`, `cores`.
    pub subject: String,
    /// How serious it is.
    pub health: Health,
    /// What was found: a version, a size, a path.
    pub found: String,
    /// What to do, unless all is well.
    pub advice: Option<String>,
}

impl Finding {
    fn new(subject: &str, health: Health, found: impl Into<String>, advice: impl Into<String>) -> Self {
        let advice = (health != Health::Ok).then(|| advice.into());
        Self { subject: subject.to_owned(), health, found: found.into(), advice }
    }
}

/// Looks at everything an environment and a run need. Changes nothing.
pub async fn doctor(state_dir: &Path, name: &str, settings: &EnvironmentSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let uv = match find_uv(state_dir, settings).await {
        Ok(uv) => uv,
        Err(error) => {
            findings.push(Finding::new("uv", Health::Problem, error.to_string(), "set or unset MODELFARM_UV"));
            None
        }
    };
    match find_python(settings, uv.as_ref().map(|uv| uv.path.as_path())).await {
        Ok(python) => {
            let found = format!("{} ({})", python.full_version, python.executable.display());
            findings.push(Finding::new("python", Health::Ok, found, ""));
        }
        Err(error) => {
            let text = error.to_string();
            let (found, advice) = text.split_once('\n').unwrap_or((&text, ""));
            findings.push(Finding::new("python", Health::Problem, format!("failed to {found}"), advice));
        }
    }
    match uv {
        Some(uv) => findings.push(Finding::new("uv", Health::Ok, format!("{} ({})", uv.version, uv.path.display()), "")),
        None if settings.uv.is_none() => {
            findings.push(Finding::new("uv", Health::Warning, "none on PATH", "nothing: `env sync` fetches its own"));
        }
        None => {}
    }
    findings.extend(environment(state_dir, name));
    findings.push(sandbox(settings).await);
    findings.push(disk(state_dir));
    findings.extend(memory());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    findings.push(Finding::new(
        "cores",
        if cores >= 2 { Health::Ok } else { Health::Warning },
        cores.to_string(),
        "references and the device share one core: expect runs to be slow",
    ));
    findings
}

fn environment(state_dir: &Path, name: &str) -> Vec<Finding> {
    let mut wrong = String::new();
    let mut complete: Option<Environment> = None;
    for folder in folders_of(&state_dir.join("environments"), name) {
        match Marker::read(&folder).and_then(|marker| marker.open(&folder)) {
            Ok(environment) => complete = Some(environment),
            Err(reason) => {
                let _ = write!(wrong, "; {} is half-made: {reason}", folder.display());
            }
        }
    }
    let remedy = format!("run `modelfarm env sync {name}`");
    let Some(environment) = complete else {
        let found = format!("no complete environment `{name}`{wrong}");
        return vec![Finding::new("environment", Health::Problem, found, remedy)];
    };
    let mut findings = vec![Finding::new(
        "environment",
        if wrong.is_empty() { Health::Ok } else { Health::Warning },
        format!(
            "{} {} with {} packages, Python {}{wrong}",
            name,
            environment.id,
            environment.packages.len(),
            environment.python_version
        ),
        &remedy,
    )];
    for package in TOLD_PACKAGES {
        match environment.packages.get(package) {
            Some(version) => findings.push(Finding::new(package, Health::Ok, version, "")),
            None => findings.push(Finding::new(
                package,
                Health::Warning,
                "not in the environment",
                format!("add `{package}` to your requirements file, or unset MODELFARM_REQUIREMENTS and {remedy}"),
            )),
        }
    }
    findings
}

async fn sandbox(settings: &EnvironmentSettings) -> Finding {
    let advice = "install bubblewrap (Debian and Ubuntu: `apt install bubblewrap`) and allow unprivileged user namespaces; without it, workers \
                  run unconfined and every run's facts say so";
    let Some(bwrap) = settings.on_path("bwrap") else {
        return Finding::new("sandbox", Health::Warning, "there is no `bwrap` on PATH", advice);
    };
    let mut command = bounded_command::tool(&bwrap, Path::new("/"));
    command.args(["--ro-bind", "/", "/", "--tmpfs", "/tmp", "--unshare-net", "true"]);
    match bounded_command::run(command, Duration::from_secs(20), |_| {}).await {
        Ok(Some(ended)) if ended.status.success() => {
            Finding::new("sandbox", Health::Ok, format!("bubblewrap works ({})", bwrap.display()), "")
        }
        Ok(Some(ended)) => {
            let said = ended.stderr.lines().last().unwrap_or("it said nothing").to_owned();
            Finding::new("sandbox", Health::Warning, format!("bubblewrap does not work here: {said}"), advice)
        }
        Ok(None) => Finding::new("sandbox", Health::Warning, "bubblewrap does not end", advice),
        Err(error) => Finding::new("sandbox", Health::Warning, format!("bubblewrap does not start: {error}"), advice),
    }
}

fn disk(state_dir: &Path) -> Finding {
    let advice = format!("a run wants {WANTED_FREE_GIB:.0} GiB: free some space or name another folder with --state-dir");
    let absolute = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    match free_gib(&absolute) {
        Some(free) => {
            let health = if free >= WANTED_FREE_GIB { Health::Ok } else { Health::Problem };
            Finding::new("disk", health, format!("{free:.1} GiB free at {}", absolute.display()), advice)
        }
        None => {
            Finding::new("disk", Health::Warning, format!("the file system of {} does not tell", absolute.display()), advice)
        }
    }
}

/// Available memory, on Linux.
fn memory() -> Option<Finding> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib_of = |name: &str| -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.trim().split(' ').next()?.parse().ok()
    };
    let gib = |kib: f64| kib / f64::from(1 << 20);
    let (total, available) = (gib(kib_of("MemTotal:")?), gib(kib_of("MemAvailable:")?));
    let health = if available >= WANTED_MEMORY_GIB { Health::Ok } else { Health::Warning };
    let advice = format!(
        "a case may take 6 GiB beside the workers: with less than {WANTED_MEMORY_GIB:.0} GiB set a smaller `memory_gib`"
    );
    Some(Finding::new("memory", health, format!("{available:.1} GiB available of {total:.1} GiB"), advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_missing_is_told_with_what_to_do() {
        let empty = tempfile::tempdir().expect("a folder");
        let settings = EnvironmentSettings { search_path: empty.path().into(), ..Default::default() };
        let findings = doctor(empty.path(), "torchtpu", &settings).await;
        for (subject, health, advice) in [
            ("python", Health::Problem, "apt install python3"),
            ("uv", Health::Warning, "env sync"),
            ("environment", Health::Problem, "modelfarm env sync torchtpu"),
            ("sandbox", Health::Warning, "bubblewrap"),
        ] {
            let finding = findings.iter().find(|finding| finding.subject == subject).expect(subject);
            assert_eq!(finding.health, health, "{finding:?}");
            assert!(finding.advice.as_ref().is_some_and(|text| text.contains(advice)), "{finding:?}");
        }
        assert!(findings.iter().all(|finding| finding.advice.is_some() != (finding.health == Health::Ok)));
        assert!(fs::read_dir(empty.path()).expect("readable").next().is_none(), "it writes nothing");
    }
}
