//! Writes a history to measure and judge on: a SQLite file a night, as its shards leave it together, and the truth about it.
//!
//!     cargo run --release -p modelfarm-reports --example generate_history -- OUT [--nights N] [--models N] [--seed N] [--last-night YYYY-MM-DD]
//!
//! Each night asks every model that is there in three modes on one target. Cases regress, are fixed, fail for long, flake, fail on one
//! bad host, or say nothing; models come and go; packages and models' revisions change, with an effect and without; some nights a shard is
//! missing or the farm has trouble. A failure is tried up to three times more. The same seed makes the same history.
//!
//! OUT/truth.json names for each case its pattern and the nights on which it changes, with the cause. Nights count from 1.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod calendar;
mod cases;
mod history;
mod pattern;
mod random;
mod tries;
mod truth;

use std::path::PathBuf;
use std::process::ExitCode;

use jiff::civil::Date;
use serde_json::json;

use history::{Wanted, generate};

fn parse(arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted =
        Wanted { out: PathBuf::new(), nights: 365, models: 1000, seed: 1, last_night: Date::constant(2026, 11, 30) };
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") {
            wanted.out = argument.into();
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        let wrong = |error: &dyn std::fmt::Display| format!("{argument} {value}: {error}");
        match argument.as_str() {
            "--nights" => wanted.nights = value.parse().map_err(|error| wrong(&error))?,
            "--models" => wanted.models = value.parse().map_err(|error| wrong(&error))?,
            "--seed" => wanted.seed = value.parse().map_err(|error| wrong(&error))?,
            "--last-night" => wanted.last_night = value.parse().map_err(|error| wrong(&error))?,
            _ => return Err(format!("{argument} is not known; expected --nights, --models, --seed or --last-night")),
        }
    }
    if wanted.out.as_os_str().is_empty() {
        return Err("expected the folder to write to".to_owned());
    }
    if wanted.nights == 0 || wanted.models == 0 {
        return Err("expected at least one night and one model".to_owned());
    }
    Ok(wanted)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let written = match parse(std::env::args().skip(1)) {
        Ok(wanted) => generate(&wanted).await.map_err(|error| error.to_string()),
        Err(usage) => Err(usage),
    };
    match written {
        Ok(attempts) => {
            println!("{}", json!({"attempts": attempts}));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("generate_history: {error}");
            ExitCode::FAILURE
        }
    }
}
