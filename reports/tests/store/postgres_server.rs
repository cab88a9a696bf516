//! A PostgreSQL server of the tests' own, where the programs for it are installed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

/// Starts a server in a new folder, tells the folder, and removes both when its standard input ends: with the process that holds
/// the other side, however that ends. A socket's path may be 107 bytes long, so the folder is in no folder that is named elsewhere.
const SERVE: &str = r#"
set -eu
folder=$(mktemp -d /tmp/modelfarm-postgres.XXXXXX)
server=
clean() {
    [ -z "$server" ] || { kill -INT "$server" && wait "$server"; } || true
    rm -rf "$folder"
}
trap clean EXIT
complain() { cat "$folder/log" >&2; exit 1; }
"$1/initdb" --pgdata="$folder/data" --username=modelfarm --auth=trust --encoding=UTF8 --locale=C --no-sync \
    >"$folder/log" 2>&1 || complain
"$1/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c fsync=off -c max_connections=300 \
    >>"$folder/log" 2>&1 </dev/null &
server=$!
until "$1/pg_isready" -q -h "$folder"; do
    kill -0 "$server" || complain
    sleep 0.1
done
echo "$folder"
while read -r _; do :; done
"#;

/// A running server, reached through a socket in its folder alone.
pub struct PostgresServer {
    folder: PathBuf,
    /// Holds the shell's standard input open.
    _shell: Child,
}

impl PostgresServer {
    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://modelfarm@localhost/{database}?host={}", self.folder.display())
    }

    fn start(programs: &Path) -> Self {
        let mut command = match rustix::process::geteuid().is_root() {
            // The server refuses to be root. This is `nobody`, on every Linux.
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
                command
            }
            false => Command::new("sh"),
        };
        command.args(["-c", SERVE, "sh"]).arg(programs).current_dir("/");
        // In a group of its own, so that an interrupt from the keyboard ends it through its standard input like everything else.
        let mut shell = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let folder = PathBuf::from(line.trim_end());
        assert!(folder.is_absolute(), "PostgreSQL in {} does not start; it says why above", programs.display());
        Self { folder, _shell: shell }
    }
}

/// The server of this process. None where PostgreSQL is not installed, which it must be in CI.
pub fn server() -> Option<&'static PostgresServer> {
    static SERVER: LazyLock<Option<PostgresServer>> = LazyLock::new(|| {
        let found = programs();
        if found.is_none() {
            let missing = "no initdb, postgres and pg_isready in the folder that `pg_config --bindir` names, nor in \
                           /usr/lib/postgresql/*/bin; `.ci/run system` installs them";
            assert!(std::env::var_os("CI").is_none(), "the store must be tested on PostgreSQL in CI: there is {missing}");
            // Past what the test runner keeps of a test that passes.
            let _ = writeln!(std::io::stderr(), "skipped: the store is tested on SQLite alone: there is {missing}");
        }
        found.as_deref().map(PostgresServer::start)
    });
    SERVER.as_ref()
}

/// The folder of the server's programs; of several the newest version's.
fn programs() -> Option<PathBuf> {
    let told = Command::new("pg_config").arg("--bindir").output().ok().map(|output| {
        let folder = String::from_utf8_lossy(&output.stdout);
        PathBuf::from(folder.trim_end())
    });
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    let folders = told.into_iter().chain(versions.into_iter().rev().map(|(_, folder)| folder));
    folders.into_iter().find(|folder| ["initdb", "postgres", "pg_isready"].iter().all(|name| folder.join(name).is_file()))
}
