//! What a worker process may see: its files read-only, a scratch folder, no network, no person's environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Serialize;

/// How workers are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// bubblewrap: own network, pid, ipc namespaces; a root that holds only what a worker needs, read-only.
    Bubblewrap,
    /// The system offers none: only the environment is clean. Run facts say so.
    None,
}

/// What one worker may use.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// Folders and files it may read.
    pub readable: Vec<PathBuf>,
    /// The folder it may write to.
    pub scratch: PathBuf,
    /// Other folders it may write to.
    pub writable: Vec<PathBuf>,
    /// Device nodes it may open.
    pub devices: Vec<PathBuf>,
    /// All of its environment.
    pub env: BTreeMap<String, OsString>,
}

/// What of the system a Python process needs to start: libraries, the loader's cache, names of users and time zones.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/nix/store",
    "/sys",
];

impl Sandbox {
    /// The strongest sandbox that works here, tried and not guessed.
    pub async fn detect() -> Self {
        let mut probe = tokio::process::Command::new("bwrap");
        probe.args([
            "--unshare-net",
            "--unshare-pid",
            "--unshare-ipc",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
        ]);
        probe.args(["--proc", "/proc", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match probe.status().await {
            Ok(status) if status.success() => Self::Bubblewrap,
            _ => Self::None,
        }
    }

    /// One line for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap: no network, read-only files, own pids, clean environment",
            Self::None => {
                "NONE: bubblewrap is missing or not permitted; models run with this user's rights (install bubblewrap)"
            }
        }
    }

    /// The command that runs `program` confined.
    pub fn command(self, confinement: &Confinement, program: &Path, arguments: &[&str]) -> tokio::process::Command {
        let mut command = match self {
            Self::None => tokio::process::Command::new(program),
            Self::Bubblewrap => {
                let mut command = tokio::process::Command::new("bwrap");
                command.args(bubblewrap_arguments(confinement)).arg("--").arg(program);
                command
            }
        };
        command.args(arguments).env_clear().envs(&confinement.env).current_dir(&confinement.scratch);
        command
    }
}

fn bubblewrap_arguments(confinement: &Confinement) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
            .into_iter()
            .chain(["--new-session", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"])
            .map(OsString::from)
            .collect();
    let mut bind = |option: &str, path: &Path| {
        arguments.extend([option.into(), path.as_os_str().to_owned(), path.as_os_str().to_owned()]);
    };
    for path in SYSTEM {
        bind("--ro-bind-try", Path::new(path));
    }
    for path in &confinement.readable {
        bind("--ro-bind", path);
    }
    for path in &confinement.devices {
        bind("--dev-bind-try", path);
    }
    for path in &confinement.writable {
        bind("--bind", path);
    }
    bind("--bind", &confinement.scratch);
    arguments.push("--chdir".into());
    arguments.push(confinement.scratch.clone().into());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str) -> Option<(String, bool)> {
        if Sandbox::detect().await == Sandbox::None {
            assert!(std::env::var_os("CI").is_none(), "bubblewrap must work in CI");
            eprintln!("skipped: bubblewrap does not work here");
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let confinement = Confinement {
            readable: vec![],
            scratch: scratch.path().to_owned(),
            writable: vec![],
            devices: vec![],
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".into())]),
        };
        let output = Sandbox::Bubblewrap.command(&confinement, Path::new("/bin/sh"), &["-c", script]).output().await.unwrap();
        Some((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
    }

    #[tokio::test]
    async fn nothing_of_the_person_is_seen() {
        let Some((seen, _)) = shell("env; ls -A /root /home 2>/dev/null; ls /etc").await else { return };
        assert!(!seen.contains("HOME=") && !seen.contains("CARGO"), "{seen}");
        assert!(!seen.contains("shadow") && !seen.contains(".ssh") && !seen.contains(".cargo"), "{seen}");
    }

    #[tokio::test]
    async fn only_the_scratch_folder_is_writable_and_no_network_is_there() {
        let Some((_, wrote)) = shell("echo x > /usr/x").await else { return };
        assert!(!wrote);
        assert!(shell("echo x > ./x && test -s ./x").await.unwrap().1);
        let (interfaces, _) = shell("cat /proc/net/dev").await.unwrap();
        assert_eq!(interfaces.lines().skip(2).filter(|line| !line.trim().starts_with("lo:")).count(), 0, "{interfaces}");
    }
}
