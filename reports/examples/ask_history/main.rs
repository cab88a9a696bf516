//! Asks a long history what people and a dashboard ask, and tells how long each answer takes.
//!
//!     cargo run --release -p modelfarm-reports --example ask_history -- URL [--times N] [--only TEXT] [--architecture A]
//!
//! Each question is asked once to warm up, then N times (default 30; fewer of one that takes long). Ends with 1 where a question that may
//! take so long at most takes longer at its 95th percentile. Opens the database for reading alone.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod questions;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use modelfarm_reports::store::Store;

use questions::{Asked, Subject};

/// A question that takes long is asked fewer times, but as often as a 95th percentile needs.
const LONGEST: Duration = Duration::from_secs(20);
const LEAST: usize = 5;

struct Wanted {
    url: String,
    times: usize,
    only: String,
    architecture: String,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted { url: String::new(), times: 30, only: String::new(), architecture: "llama".into() };
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") {
            wanted.url = argument;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--times" => wanted.times = value.parse().map_err(|error| format!("--times {value}: {error}"))?,
            "--only" => wanted.only = value,
            "--architecture" => wanted.architecture = value,
            _ => return Err(format!("unknown option {argument}; expected --times, --only or --architecture")),
        }
    }
    match wanted.url.is_empty() || wanted.times == 0 {
        true => Err("expected the URL of a database, such as sqlite://state/farm.db, and at least one time".into()),
        false => Ok(wanted),
    }
}

/// The longest that an answer may take at the 95th percentile, in milliseconds, where that was promised.
fn bound_ms(asked: Asked) -> Option<f64> {
    match asked {
        Asked::RegressionsOfArchitecture => Some(50.0),
        Asked::Regressions => Some(500.0),
        _ => None,
    }
}

/// The smallest of those times that so large a share of them does not exceed.
fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted[place.clamp(1, sorted.len()) - 1].as_secs_f64() * 1000.0
}

async fn measure(wanted: &Wanted) -> Result<bool, Box<dyn std::error::Error>> {
    let store = Store::open_read_only(&wanted.url).await?;
    let about = Subject::of(&store, &wanted.architecture).await?;
    println!("{:44}{:>7}{:>7}{:>11}{:>11}", "question", "rows", "times", "median ms", "p95 ms");
    let mut all_in_time = true;
    for asked in Asked::ALL.iter().filter(|asked| asked.as_str().contains(&wanted.only)) {
        let rows = asked.ask(&store, &about).await?;
        let mut took = Vec::new();
        let began = Instant::now();
        while took.len() < wanted.times && (took.len() < LEAST || began.elapsed() < LONGEST) {
            let began = Instant::now();
            asked.ask(&store, &about).await?;
            took.push(began.elapsed());
        }
        took.sort();
        let slow = percentile(&took, 0.95);
        let bound = bound_ms(*asked).map_or(String::new(), |bound| {
            let is_in_time = slow <= bound;
            all_in_time &= is_in_time;
            format!("  at most {bound:.0}{}", if is_in_time { "" } else { ": TOO SLOW" })
        });
        println!("{:44}{rows:7}{:7}{:11.1}{slow:11.1}{bound}", asked.as_str(), took.len(), percentile(&took, 0.5));
    }
    store.close().await;
    Ok(all_in_time)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let measured = match parse(std::env::args().skip(1)) {
        Ok(wanted) => measure(&wanted).await.map_err(|error| error.to_string()),
        Err(usage) => Err(usage),
    };
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ask_history: {error}");
            ExitCode::FAILURE
        }
    }
}
