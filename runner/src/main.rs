//! The `modelfarm` program.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use modelfarm::cli::Cli;
use modelfarm::{command, exit};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match EnvFilter::try_new(&cli.log) {
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
