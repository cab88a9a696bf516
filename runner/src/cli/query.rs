//! The options of `modelfarm query`.

use clap::Subcommand;
use modelfarm_matrix::change::Change;
use modelfarm_matrix::outcome::Outcome;
use modelfarm_reports::query::{Since, WINDOW};

use super::{Output, Selection};

/// Ask the store.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one value a process")]
pub enum Query {
    /// Attempts, one row each
    Results {
        /// The run: an id, `latest` or `latest~N`; default: every run
        #[arg(long, value_name = "R")]
        run: Option<String>,
        /// Only these outcomes
        #[arg(long = "outcome", value_name = "O", num_args = 1..)]
        outcomes: Vec<Outcome>,
        /// Earlier tries too, and not only the one that counts
        #[arg(long)]
        all_attempts: bool,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Failures of a run in groups of one masked message, those that block most architectures first
    Failures {
        /// The run: an id, `latest` or `latest~N`
        #[arg(long, value_name = "R", default_value = "latest")]
        run: String,
        /// Also the outcomes that say nothing about the target
        #[arg(long)]
        inconclusive: bool,
        /// Only these outcomes
        #[arg(long = "outcome", value_name = "O", num_args = 1..)]
        outcomes: Vec<Outcome>,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// How each architecture stands in a run, and which the fixtures leave out
    Architectures {
        /// The run: an id, `latest` or `latest~N`
        #[arg(long, value_name = "R", default_value = "latest")]
        run: String,
        /// Only those with a case in the run, without what the fixtures leave out
        #[arg(long)]
        attempted: bool,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// What changed between two runs; exit code 1 where something regressed or is a new failure
    Regressions {
        /// The newer run: an id, `latest` or `latest~N`; default: the newest complete run
        #[arg(long, value_name = "R", conflicts_with = "matrix")]
        run: Option<String>,
        /// The newest complete run of this matrix
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// What it is compared with: a run, a date or a duration, such as latest~1, 2026-11-01 or 7d; default: the complete
        /// run of the same matrix before it
        #[arg(long, value_name = "WHEN")]
        since: Option<Since>,
        /// So many complete runs before that tell whether a case flakes
        #[arg(long, value_name = "N", default_value_t = WINDOW)]
        window: u32,
        /// Only these changes: regressed, fixed, new_failure, new_pass, still_failing, flaky, vanished, undecided
        #[arg(long = "change", value_name = "C", num_args = 1..)]
        changes: Vec<Change>,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// The nights of a matrix, with those that did not come; exit code 1 where the newest one did not or has ended incomplete
    Nights {
        /// The matrix; default: that of the newest run
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// From one night to the next, such as 24h or 7d
        #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration_ms)]
        every: i64,
        /// How far back: a date or a duration, such as 2026-11-01 or 90d
        #[arg(long, value_name = "WHEN", default_value = "30d")]
        since: Since,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Cases that pass and fail by chance
    Flakes {
        /// The matrix; default: that of the newest complete run
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// In so many of its newest complete runs
        #[arg(long, value_name = "N", default_value_t = WINDOW)]
        window: u32,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Hosts, those on which more fails than elsewhere first
    Hosts {
        /// The matrix; default: that of the newest complete run
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// In so many of its newest complete runs
        #[arg(long, value_name = "N", default_value_t = WINDOW)]
        window: u32,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Since when each case works, or is broken
    Standing {
        /// Only runs of this matrix; default: of every matrix
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// How far back: a date or a duration, such as 2026-11-01 or 90d
        #[arg(long, value_name = "WHEN", default_value = "3650d")]
        since: Since,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// The pass rate of each run, target and mode, with its denominator
    PassRate {
        /// Only runs of this matrix; default: of every matrix
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// How far back: a date or a duration, such as 2026-11-01 or 90d
        #[arg(long, value_name = "WHEN", default_value = "90d")]
        since: Since,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// How long it took until what broke worked again
    Repairs {
        /// Only runs of this matrix; default: of every matrix
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// How far back: a date or a duration, such as 2026-11-01 or 90d
        #[arg(long, value_name = "WHEN", default_value = "365d")]
        since: Since,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// The newest environment in which all of an architecture passed
    Versions {
        /// Only runs of this matrix; default: of every matrix
        #[arg(long, value_name = "NAME")]
        matrix: Option<String>,
        /// How far back: a date or a duration, such as 2026-11-01 or 90d
        #[arg(long, value_name = "WHEN", default_value = "365d")]
        since: Since,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Runs, newest first
    Runs {
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Environments that results were made in
    Environments {
        /// How to print
        #[command(flatten)]
        output: Output,
    },
}

/// A duration, as a history's beginning may be one.
fn duration_ms(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(Since::Ago(ms)) if ms > 0 => Ok(ms),
        _ => Err("expected a duration such as 12h, 24h or 7d".to_owned()),
    }
}
