//! Running a tool: lines as they come, a bounded memory of them, a time limit, nothing left running.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;

const KEPT_LINES: usize = 200;
const LINE_BYTES: u64 = 16 * 1024;

/// How a tool ended and what it printed last.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// A tool that sees none of the variables with which a person's shell steers Python and uv elsewhere.
pub(super) fn tool(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    for variable in [
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_USER",
        "PIP_REQUIREMENT",
        "PIP_CONSTRAINT",
        "UV_PYTHON",
        "UV_PROJECT",
        "UV_WORKING_DIR",
        "UV_SYSTEM_PYTHON",
        "UV_PROJECT_ENVIRONMENT",
        "UV_CONSTRAINT",
        "UV_OVERRIDE",
        "UV_EXCLUDE",
        "UV_EXCLUDE_NEWER",
        "UV_NO_BINARY",
        "UV_NO_PROGRESS",
        "UV_NO_VERIFY_HASHES",
        "UV_TORCH_BACKEND",
        "UV_VENV_SEED",
        "RUST_LOG",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Runs a tool to its end and hands on the lines of its standard error. `None` when it did not end in time.
pub(super) async fn run(
    mut command: Command,
    limit: Duration,
    mut on_line: impl FnMut(&str),
) -> std::io::Result<Option<Ended>> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(std::io::Error::other("no pipe to the tool"));
    };
    let work = async {
        let (stdout, stderr) = tokio::join!(last_lines(stdout, |_| {}), last_lines(stderr, &mut on_line));
        Ok::<_, std::io::Error>(Ended { status: child.wait().await?, stdout: stdout?, stderr: stderr? })
    };
    match tokio::time::timeout(limit, work).await {
        Ok(ended) => ended.map(Some),
        Err(_) => Ok(None),
    }
}

async fn last_lines(source: impl AsyncRead + Unpin, mut on_line: impl FnMut(&str)) -> std::io::Result<String> {
    let mut reader = BufReader::new(source);
    let mut kept = VecDeque::new();
    loop {
        let mut line = Vec::new();
        if (&mut reader).take(LINE_BYTES).read_until(b'\n', &mut line).await? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        on_line(&line);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
    Ok(kept.into_iter().collect::<Vec<_>>().join("\n"))
}
