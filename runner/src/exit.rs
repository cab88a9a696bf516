//! Exit codes, and the one place where errors become what a person sees.

use modelfarm_reports::store::StoreError;
use modelfarm_reports::terminal_text::terminal_text;

/// The documented exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Fine.
    Fine = 0,
    /// Unexpected failures or regressions, or expectations that are not sound.
    Unexpected = 1,
    /// Usage or configuration.
    Usage = 2,
    /// Nothing to run.
    NothingToRun = 3,
    /// More undeclared inconclusive outcomes than the matrix allows.
    TooInconclusive = 4,
    /// Interrupted; everything finished so far is recorded.
    Interrupted = 130,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// An error that ends the program, and its exit code.
#[derive(Debug)]
pub struct Failure {
    /// What a person reads, without "failed to".
    message: String,
    code: ExitCode,
}

impl Failure {
    /// A failure of usage or configuration, in its own words.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: ExitCode::Usage }
    }

    /// An error whose text is a fragment that fits "failed to ...".
    pub fn to(error: impl std::fmt::Display) -> Self {
        Self::usage(format!("failed to {error}"))
    }

    /// Nothing to run, and why.
    pub fn nothing(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: ExitCode::NothingToRun }
    }

    /// Stopped by a person or a signal before there was an answer.
    pub fn interrupted() -> Self {
        Self {
            message: "interrupted before there was an answer; everything finished is recorded".to_owned(),
            code: ExitCode::Interrupted,
        }
    }

    /// Its exit code.
    pub fn code(&self) -> ExitCode {
        self.code
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::to(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A message may quote what a model or a Hub said.
        let lines = self.message.lines().map(terminal_text).collect::<Vec<_>>();
        f.write_str(&lines.join("\n"))
    }
}

/// Writes an error for people to standard error. Where nobody can read it, the exit code tells.
pub fn show(failure: &Failure) {
    crate::progress::line(&failure.to_string());
}
