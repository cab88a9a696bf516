//! The `modelfarm` program.

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Parser;
use modelfarm::cli::Cli;
use modelfarm::state_dir::StateDir;
use modelfarm::{command, exit};
use tracing_subscriber::EnvFilter;

/// Starts the program again with `HF_XET_CACHE` inside the state folder, where it is not so already.
///
/// The library below hf-hub reads the variable itself and has no other setting; a process cannot change its own environment
/// safely. Returns only where nothing is to be done, or with what went wrong.
fn with_xet_cache_in_state_dir(cli: &Cli) -> Option<exit::Failure> {
    let state = StateDir::at(&cli.state_dir).ok()?;
    let cache = state.hub().join("xet");
    if std::env::var_os("HF_XET_CACHE").is_some_and(|found| found == cache) {
        return None;
    }
    let program = std::env::current_exe().ok()?;
    let error = Command::new(program).args(std::env::args_os().skip(1)).env("HF_XET_CACHE", cache).exec();
    Some(exit::Failure::to(format!("start again with HF_XET_CACHE set: {error}")))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Some(failure) = with_xet_cache_in_state_dir(&cli) {
        exit::show(&failure);
        return exit::ExitCode::Usage.into();
    }
    let filter = match EnvFilter::try_new(&cli.log) {
        // The farm tries again itself: that the library gave up on one request is no error yet.
        Ok(filter) if !cli.log.contains("hf_hub") => {
            filter.add_directive("hf_hub::retry=off".parse().expect("a directive that was written here"))
        }
        Ok(filter) => filter,
        Err(error) => {
            exit::show(&exit::Failure::usage(format!("--log: {error}")));
            return exit::ExitCode::Usage.into();
        }
    };
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            exit::show(&exit::Failure::to(format!("start: {error}")));
            return exit::ExitCode::Usage.into();
        }
    };
    let code = match runtime.block_on(command::execute(cli)) {
        Ok(code) => code,
        Err(failure) => {
            exit::show(&failure);
            failure.code()
        }
    };
    // A download thread or a display must not keep a finished program alive.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    code.into()
}
