//! Judges what a store says of generated histories by the truth about them.
//!
//!     cargo run --release -p modelfarm-reports --example judge_history -- URL TRUTH.json [URL TRUTH.json]...
//!
//! Asks for the comparison of every night with the complete night before it, as `query regressions --run R` does, and holds every answer
//! against the truth of `generate_history`. The store is asked with run ids; it never sees the truth.
//!
//! - A case that only the night decides (it passes, fails, regresses, is fixed, comes, goes, says nothing) must be told of exactly, in every
//!   comparison: the change, the night that it is compared with, the packages that differ and whether the revision does.
//! - A flaking case that fails for good from a night on must be called `regressed` in some comparison from that night on.
//! - Of the flaking cases at most one in a hundred may be called `regressed` while it only flakes, in any comparison of a night before
//!   which seven told something of the case: until then nobody can know that it flakes. Without that condition it is told beside.
//!
//! Ends with 1 where one of them does not hold.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod expected;
mod known_truth;
mod score;

use std::collections::BTreeSet;
use std::error::Error;
use std::process::ExitCode;

use modelfarm_matrix::change::Change;
use modelfarm_reports::store::Store;

use known_truth::KnownTruth;
use score::{LEAST_NIGHTS, Score, TruthClass};

async fn judge(arguments: &[String]) -> Result<bool, Box<dyn Error>> {
    if arguments.is_empty() || !arguments.len().is_multiple_of(2) {
        return Err("expected a URL and a truth.json, or several such pairs".into());
    }
    let mut all = Score::default();
    for pair in arguments.chunks(2) {
        let truth = KnownTruth::of(serde_json::from_slice(&std::fs::read(&pair[1])?)?)?;
        let store = Store::open_read_only(&pair[0]).await?;
        eprintln!("seed {}: {} nights, {} cases", truth.seed, truth.nights.len(), truth.cases.len());
        all.judge(&store, &truth).await?;
        store.close().await;
    }
    print(&all);
    Ok(all.is_fine())
}

fn print(score: &Score) {
    let mut columns: Vec<Option<Change>> = vec![None];
    columns.extend(Change::ALL.iter().copied().map(Some));
    print!("{:26}", "truth \\ told");
    for column in &columns {
        print!("{:>14}", column.map_or("nothing", Change::as_str));
    }
    println!();
    let classes: BTreeSet<TruthClass> = score.table.keys().map(|(truth, _)| *truth).collect();
    for class in classes {
        print!("{class:26}");
        for column in &columns {
            print!("{:14}", score.table.get(&(class, *column)).copied().unwrap_or_default());
        }
        println!();
    }
    let (all, right) = score.certain();
    println!(
        "only the night decides: {right} of {all} comparisons exact, {} with a wrong baseline, package or revision",
        score.wrong_causes
    );
    for example in &score.examples {
        println!("  {example}");
    }
    let longest = score.delays.iter().max().copied().unwrap_or_default();
    let mean = score.delays.iter().sum::<usize>() as f64 / (score.delays.len().max(1)) as f64;
    println!(
        "flaked and fail for good: {} of {} called regressed, after {mean:.1} more complete nights on average, {longest} at most",
        score.delays.len(),
        score.failing_for_good
    );
    println!(
        "flaking: {} of {} cases called regressed in some night before which {LEAST_NIGHTS} told something of them ({} of {} comparisons); \
         {} in any night",
        score.called_when_known, score.flaking_cases, score.known_comparisons_called, score.known_comparisons, score.called
    );
    println!(
        "hosts: {} of {} bad ones stand out at the end, {} others",
        score.hosts_found, score.hosts_true, score.hosts_wrong
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match judge(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("judge_history: {error}");
            ExitCode::FAILURE
        }
    }
}
