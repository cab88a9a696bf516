//! The shared state folder, and running the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use modelfarm_reports::rows::{ResultRow, RunRow};

/// One farm at a time: two would halve each other's cores and stretch every deadline.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state folder of all tests: kept between runs, because an environment takes gigabytes.
pub fn state_dir() -> &'static Path {
    static STATE: OnceLock<PathBuf> = OnceLock::new();
    STATE.get_or_init(|| {
        let named = std::env::var_os("MODELFARM_TEST_STATE").map(PathBuf::from);
        let state = named.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("state"));
        std::fs::create_dir_all(&state).unwrap();
        let state = state.canonicalize().unwrap();
        for arguments in [&["env", "sync"][..], &["fixtures", "build"]] {
            let made = modelfarm(&state).args(arguments).output().unwrap();
            assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
        }
        state
    })
}

/// The program with a state folder and nothing of this process's own settings.
pub fn modelfarm(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_modelfarm"));
    for name in ["MODELFARM_DATABASE_URL", "MODELFARM_STATE_DIR", "HF_ENDPOINT", "HF_TOKEN"] {
        command.env_remove(name);
    }
    command.arg("--state-dir").arg(state).stdin(Stdio::null());
    command
}

/// A matrix of one case, for what needs a run and not its results.
pub const ONE_CASE: &str = r#"
name = "one"
[models]
fixtures = "smoke"
[cases]
only = { model = "zoo/tiny-vit" }
targets = ["cpu"]
modes = ["strict-eager"]
"#;

/// A farm with the shared state folder and a database of its own.
pub struct TestFarm {
    pub folder: tempfile::TempDir,
}

impl TestFarm {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn database(&self) -> PathBuf {
        self.folder.path().join("farm.db")
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = modelfarm(state_dir());
        command.arg("--database").arg(format!("sqlite://{}", self.database().display())).args(arguments);
        command.current_dir(self.folder.path());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must end with this code; returns its standard output.
    pub fn expect(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}\n{err}\n{}", self.unexpected());
        out.into_owned()
    }

    pub fn results(&self, arguments: &[&str]) -> Vec<ResultRow> {
        let mut all = vec!["query", "results", "--format", "json"];
        all.extend(arguments);
        let output = self.run(&all);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    pub fn latest_run(&self) -> RunRow {
        let rows: Vec<RunRow> =
            serde_json::from_str(&self.expect(0, &["query", "runs", "--format", "json", "--limit", "1"])).unwrap();
        rows.into_iter().next().unwrap()
    }

    /// What was not as declared, for the message of a failed assertion.
    pub fn unexpected(&self) -> String {
        let rows = self.results(&["--run", "latest"]);
        let lines = rows.iter().filter(|row| row.verdict.is_unexpected()).map(|row| {
            let message = row.message.as_deref().unwrap_or_default();
            let message: String = message.chars().take(300).collect();
            format!("{} {} in {} ({:?}): {message}", row.case(), row.outcome, row.stage, row.fault)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A text as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
