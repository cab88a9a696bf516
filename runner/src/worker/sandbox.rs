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
    /// The same made with `unshare`, `mount` and `chroot`, which every Linux system has, where bubblewrap is missing.
    Unshare,
    /// The system offers none: only the environment is clean. Run facts say so.
    None,
}

/// Where a worker looks for programs.
pub const SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

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
        if probe.status().await.is_ok_and(|status| status.success()) {
            return Self::Bubblewrap;
        }
        // The whole script is tried, for each of its steps may be forbidden.
        let Ok(scratch) = tempfile::tempdir() else { return Self::None };
        let confinement = Confinement {
            readable: Vec::new(),
            scratch: scratch.path().to_owned(),
            writable: Vec::new(),
            devices: Vec::new(),
            env: BTreeMap::from([("PATH".to_owned(), SEARCH_PATH.into())]),
        };
        let mut probe = Self::Unshare.command(&confinement, Path::new("/bin/true"), &[]);
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match probe.status().await {
            Ok(status) if status.success() => Self::Unshare,
            _ => Self::None,
        }
    }

    /// One line for people.
    pub fn description(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap: no network, read-only files, own pids, clean environment",
            Self::Unshare => "unshare: no network, read-only files, own pids, clean environment (bubblewrap is missing)",
            Self::None => {
                "NONE: bubblewrap is missing or not permitted; models run with this user's rights (install bubblewrap)"
            }
        }
    }

    /// The command that runs `program` confined.
    pub fn command(self, confinement: &Confinement, program: &Path, arguments: &[&str]) -> tokio::process::Command {
        let mut command = match self {
            Self::None => tokio::process::Command::new(program),
            Self::Unshare => {
                let mut command = tokio::process::Command::new("unshare");
                command.args(["--user", "--map-root-user", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork"]);
                command.args(["--kill-child", "--propagation", "private", "--", "/bin/sh", "-eu", "-c", UNSHARED, "sandbox"]);
                command.arg(&confinement.scratch).args(mounts(confinement)).arg("--").arg(program);
                command
            }
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

/// Builds a root of its own from the paths it is given, and runs a program in it without any capability.
///
/// `$1` is the scratch folder; then come `ro PATH` and `rw PATH` in pairs, `--`, and the program.
const UNSHARED: &str = r#"
scratch=$1; shift
# What this script needs is not always where a worker looks.
given=$PATH
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
root=$scratch/.root; mkdir -p "$root"
mount -t tmpfs tmpfs "$root"
place() {
    if [ -d "$2" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; : > "$root$2"; fi
    mount --rbind "$2" "$root$2"
    [ "$1" = rw ] || mount -o remount,bind,ro "$root$2" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$root$2" 2>/dev/null ||
        mount -o remount,bind,ro,nosuid,nodev,noexec "$root$2"
}
mkdir -p "$root/proc" "$root/tmp" "$root/dev/shm"
mount -t tmpfs tmpfs "$root/tmp"
for node in null zero full random urandom; do place rw "/dev/$node"; done
mount -t tmpfs tmpfs "$root/dev/shm"
while [ "$1" != -- ]; do
    if [ -L "$2" ]; then mkdir -p "$(dirname "$root$2")"; ln -s "$(readlink "$2")" "$root$2"; elif [ -e "$2" ]; then place "$1" "$2"; fi
    shift 2
done
shift
mkdir -p "$root$scratch"
mount --bind "$scratch" "$root$scratch"
mount -t proc proc "$root/proc"
exec chroot "$root" setpriv --no-new-privs --bounding-set=-all --inh-caps=-all /bin/sh -c 'PATH=$1; cd "$2"; shift 2; exec "$@"' sh "$given" "$scratch" "$@"
"#;

/// What the script is to place, in order.
fn mounts(confinement: &Confinement) -> Vec<OsString> {
    let system = SYSTEM.iter().map(|path| ("ro", Path::new(path)));
    let readable = confinement.readable.iter().map(|path| ("ro", path.as_path()));
    let writable = confinement.writable.iter().chain(&confinement.devices).map(|path| ("rw", path.as_path()));
    system.chain(readable).chain(writable).flat_map(|(how, path)| [OsString::from(how), path.as_os_str().to_owned()]).collect()
}

fn bubblewrap_arguments(confinement: &Confinement) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
            .into_iter()
            // Run by root, bubblewrap would leave a worker the right to mount the file system writable again.
            .chain(["--cap-drop", "ALL", "--new-session", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"])
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

    /// What a shell script sees and whether it succeeds, in each sandbox that works here.
    async fn shell(script: &str) -> Vec<(Sandbox, String, bool)> {
        let mut seen = Vec::new();
        for sandbox in [Sandbox::Bubblewrap, Sandbox::Unshare] {
            let scratch = tempfile::tempdir().unwrap();
            let confinement = Confinement {
                readable: vec![],
                scratch: scratch.path().to_owned(),
                writable: vec![],
                devices: vec![],
                env: BTreeMap::from([("PATH".to_owned(), SEARCH_PATH.into())]),
            };
            let run = async |script: &str| {
                let output = sandbox.command(&confinement, Path::new("/bin/sh"), &["-c", script]).output().await;
                output.map(|output| (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
            };
            match run("true").await {
                Ok((_, true)) => {}
                _ if std::env::var_os("CI").is_some() => panic!("{sandbox:?} must work in CI"),
                _ => {
                    eprintln!("skipped: {sandbox:?} does not work here");
                    continue;
                }
            }
            let (output, success) = run(script).await.unwrap();
            seen.push((sandbox, output, success));
        }
        seen
    }

    #[tokio::test]
    async fn nothing_of_the_person_is_seen() {
        for (sandbox, seen, _) in shell("env; ls -A /root /home 2>/dev/null; ls /etc").await {
            assert!(!seen.contains("HOME=") && !seen.contains("CARGO"), "{sandbox:?}: {seen}");
            assert!(!seen.contains("shadow") && !seen.contains(".ssh") && !seen.contains(".cargo"), "{sandbox:?}: {seen}");
        }
    }

    #[tokio::test]
    async fn only_the_scratch_folder_is_writable() {
        for script in ["echo x > /usr/x", "mount -o remount,rw,bind /usr && echo x > /usr/x", "umount /usr && ls /usr/bin"] {
            for (sandbox, _, succeeded) in shell(script).await {
                assert!(!succeeded, "{sandbox:?}: {script}");
            }
        }
        for (sandbox, _, wrote) in shell("echo x > ./x && test -s ./x && echo y > /tmp/y && test -w /dev/null").await {
            assert!(wrote, "{sandbox:?}");
        }
    }

    #[tokio::test]
    async fn neither_network_nor_other_processes_are_there() {
        for (sandbox, interfaces, _) in shell("cat /proc/net/dev").await {
            let others = interfaces.lines().skip(2).filter(|line| !line.trim().starts_with("lo:")).count();
            assert_eq!(others, 0, "{sandbox:?}: {interfaces}");
        }
        for (sandbox, pids, _) in shell("ls -d /proc/[0-9]* | wc -l").await {
            assert!(pids.trim().parse::<u32>().unwrap() < 8, "{sandbox:?}: {pids}");
        }
    }
}
