//! The command line, as `modelfarm --help` tells it.

mod expect;
mod query;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use modelfarm_matrix::axes::{Harness, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::case_filter::CaseFilter;
use modelfarm_matrix::plan::Shard;
use modelfarm_matrix::sample::Sample;
use modelfarm_reports::query::Since;

use crate::retention::policy::OlderThan;

pub use expect::{Expect, ExpectationsOptions, Select};
pub use query::Query;

/// A test farm for model compatibility with PyTorch accelerator backends.
#[derive(Debug, Parser)]
#[command(name = "modelfarm", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// Where the farm keeps everything: database, environments, Hub files, references, reports
    #[arg(long, global = true, env = "MODELFARM_STATE_DIR", default_value = ".modelfarm", value_name = "DIR")]
    pub state_dir: PathBuf,
    /// The database; default: farm.db in the state folder
    #[arg(long, global = true, env = "MODELFARM_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database: Option<String>,
    /// What is logged to standard error: error, warn, info, debug, trace, or a filter such as modelfarm=debug
    #[arg(long, global = true, env = "MODELFARM_LOG", default_value = "warn", value_name = "LEVEL")]
    pub log: String,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 fine (unexpected passes are a warning; --strict makes them 1), 1 unexpected failures, \
or something wrong that `expect check` found, \
2 usage or configuration, 3 nothing to run, 4 more undeclared inconclusive outcomes than limits.max_inconclusive, \
130 interrupted (everything finished so far is recorded)";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set everything up, serve the fixture models on a local Hub, run the smoke matrix, write the report
    Demo(ExecutionOptions),
    /// Run a matrix
    Run {
        /// The matrix file
        #[arg(long, value_name = "FILE", required_unless_present = "resume")]
        matrix: Option<PathBuf>,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How
        #[command(flatten)]
        execution: ExecutionOptions,
    },
    /// Show the cases that a run would take, in order, and why every other one is left out; runs nothing
    Plan {
        /// The matrix file
        #[arg(long, value_name = "FILE")]
        matrix: PathBuf,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// List every case that is left out, and not only the reasons
        #[arg(long)]
        left_out: bool,
        /// More targets, or other definitions of known ones
        #[arg(long, value_name = "FILE")]
        targets_file: Option<PathBuf>,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Try what regressed again, in the environment of before and in that of now; exit code 1 where both sides agree
    Confirm {
        /// The matrix file that the runs were of
        #[arg(long, value_name = "FILE")]
        matrix: PathBuf,
        /// The newer run: an id, `latest` or `latest~N`; default: the newest complete run of the matrix
        #[arg(long, value_name = "R")]
        run: Option<String>,
        /// What it is compared with: a run, a date or a duration; default: the complete run before it
        #[arg(long, value_name = "WHEN")]
        since: Option<Since>,
        /// How often each case is tried in each environment
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
        tries: u32,
        /// Of more regressions than this only so many are tried, of each signature and architecture some
        #[arg(long, value_name = "N", default_value_t = 50)]
        at_most: usize,
        /// Models at a time; default: the number of cores
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// More targets, or other definitions of known ones
        #[arg(long, value_name = "FILE")]
        targets_file: Option<PathBuf>,
        /// Which cases
        #[command(flatten)]
        selection: Selection,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Find the package, and the version of it, that broke a case
    Bisect {
        /// The case, by its id
        case: CaseId,
        /// A run in which it passed
        #[arg(long, value_name = "R")]
        good: String,
        /// A run in which it failed
        #[arg(long, value_name = "R")]
        bad: String,
        /// The matrix file that the case is of
        #[arg(long, value_name = "FILE")]
        matrix: PathBuf,
        /// How often the case is tried in each environment
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
        tries: u32,
        /// More targets, or other definitions of known ones
        #[arg(long, value_name = "FILE")]
        targets_file: Option<PathBuf>,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Remove what was not used for long and can be made or fetched again; results stay for ever
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
        /// How long something stays after its last use, such as 30d or environment=90d; default: 30d, environments and tools 60d,
        /// what killed processes left 1d
        #[arg(long, value_name = "[KIND=]AGE", num_args = 1..)]
        older_than: Vec<OlderThan>,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Everything known about one case or attempt
    Show {
        /// A case id (16 hex digits) or its beginning; CASE/ATTEMPT; RUN/CASE; RUN/CASE/ATTEMPT
        reference: String,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Ask the store
    #[command(subcommand)]
    Query(Query),
    /// What is known to fail
    #[command(subcommand)]
    Expect(Expect),
    /// The fixture models
    #[command(subcommand)]
    Fixtures(Fixtures),
    /// Python environments
    #[command(subcommand)]
    Env(Env),
    /// The database
    #[command(subcommand)]
    Db(Db),
    /// Serve the results over HTTP, read-only, until interrupted: a JSON API, badges, a feed, metrics, live events
    Serve {
        /// Where to listen; whoever reaches an address that is not this machine's own can read everything
        #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
        listen: SocketAddr,
        /// Also answer requests for this host, such as that of a proxy in front
        #[arg(long = "allow-host", value_name = "NAME", num_args = 1..)]
        allowed_hosts: Vec<String>,
    },
    /// Write the static HTML report of a run
    Report {
        /// The run: an id, `latest` or `latest~N`
        #[arg(long, default_value = "latest", value_name = "R")]
        run: String,
        /// Where to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Also write JUnit XML
        #[arg(long, value_name = "FILE")]
        junit: Option<PathBuf>,
        /// Also write a Markdown summary for a CI job
        #[arg(long, value_name = "FILE")]
        summary: Option<PathBuf>,
        /// Also write COMPATIBILITY.md: architectures by workload and mode, and the largest causes of failure
        #[arg(long, value_name = "FILE")]
        compatibility: Option<PathBuf>,
        /// Runs whose cases COMPATIBILITY.md holds too
        #[arg(long, value_name = "R", num_args = 1.., requires = "compatibility")]
        also_run: Vec<String>,
        /// Explanations of these causes; default: the ones that come with this program
        #[arg(long, value_name = "FILE", requires = "compatibility")]
        causes: Option<PathBuf>,
    },
}

/// Which cases of a matrix.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Selection")]
pub struct Selection {
    /// Only these cases (ids as `plan` shows them)
    #[arg(long = "case", value_name = "ID", num_args = 1..)]
    pub cases: Vec<CaseId>,
    /// Only these targets
    #[arg(long = "target", value_name = "T", num_args = 1..)]
    pub targets: Vec<String>,
    /// Only these modes
    #[arg(long = "mode", value_name = "M", num_args = 1..)]
    pub modes: Vec<Mode>,
    /// Only these architectures
    #[arg(long = "architecture", value_name = "A", num_args = 1..)]
    pub architectures: Vec<String>,
    /// Only these models
    #[arg(long = "model", value_name = "ID", num_args = 1..)]
    pub models: Vec<String>,
    /// Only these harnesses
    #[arg(long = "harness", value_name = "H", num_args = 1..)]
    pub harnesses: Vec<Harness>,
    /// Only these workloads
    #[arg(long = "workload", value_name = "W", num_args = 1..)]
    pub workloads: Vec<Workload>,
    /// Only this part of N, split by model
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Only the models of this sample of N: a run of its own, for nights that take all in turn
    #[arg(long, value_name = "I/N")]
    pub sample: Option<Sample>,
}

impl Selection {
    /// The cases that it means, apart from shard and sample.
    pub fn cases(&self) -> CaseFilter {
        let Self { cases, targets, modes, architectures, models, harnesses, workloads, shard: _, sample: _ } = self.clone();
        CaseFilter { ids: cases, targets, modes, architectures, models, harnesses, workloads }
    }
}

/// How a run is executed.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Execution")]
pub struct ExecutionOptions {
    /// The run's id; shards of one run share it
    #[arg(long, value_name = "UUID", conflicts_with_all = ["resume"])]
    pub run_id: Option<String>,
    /// Models at a time; default: the number of cores
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Deadline of each attempt, in place of the matrix's
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub timeout: Option<f64>,
    /// How often an unexpected failure is tried again
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// How often each case is tried, whatever comes out: what passes by chance shows as well as what fails by chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Go on with a run that was interrupted
    #[arg(long, value_name = "R", conflicts_with = "rerun")]
    pub resume: Option<String>,
    /// Run the cases of an earlier run again, as a new run
    #[arg(long, value_name = "R")]
    pub rerun: Option<String>,
    /// With --rerun: only those that failed
    #[arg(long, value_enum, requires = "rerun")]
    pub only: Option<Only>,
    /// Unexpected passes are an error too
    #[arg(long)]
    pub strict: bool,
    /// Write JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write a Markdown summary for a CI job
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Write the static HTML report
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Another PJRT plugin file for a target
    #[arg(long = "plugin", value_name = "TARGET=FILE", num_args = 1..)]
    pub plugins: Vec<String>,
    /// More targets, or other definitions of known ones
    #[arg(long, value_name = "FILE")]
    pub targets_file: Option<PathBuf>,
    /// Expectations; default: expectations.toml beside the matrix, else those that come with the program
    #[arg(long, value_name = "FILE")]
    pub expectations: Option<PathBuf>,
}

/// Which cases of an earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// Those that did not pass.
    Failed,
}

/// How to print.
#[derive(Debug, Clone, Default, Args)]
pub struct Output {
    /// table, json or csv; default: table on a terminal, json elsewhere
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// At most so many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// The fixture models.
#[derive(Debug, Subcommand)]
pub enum Fixtures {
    /// Build what is missing or outdated
    Build {
        /// Every fixture; default: those that the demo needs
        #[arg(long, conflicts_with_all = ["only", "tags"])]
        all: bool,
        /// Only these
        #[arg(long, value_name = "ID", num_args = 1..)]
        only: Vec<String>,
        /// Only those with this tag: smoke, zoo, heads, generate, train, toy or real
        #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
        tags: Vec<String>,
        /// How many at a time; default: the number of cores
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
    },
    /// List the architectures that are built and those that are left out
    List {
        /// One row for each model that is built
        #[arg(long, conflicts_with = "left_out")]
        models: bool,
        /// Everything that is left out, classes with a task head too, with the reason and what would bring it in
        #[arg(long)]
        left_out: bool,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Serve them over the Hub's API, until interrupted
    Serve {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:8765", value_name = "ADDRESS")]
        listen: SocketAddr,
    },
}

/// Python environments.
#[derive(Debug, Subcommand)]
pub enum Env {
    /// Make an environment, or repair it
    Sync {
        /// Its name
        #[arg(default_value = "torchtpu", conflicts_with = "environment")]
        name: String,
        /// Make again the environment that a result was made in, by its id
        #[arg(long, value_name = "ID")]
        environment: Option<String>,
    },
    /// What is there
    List {
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Print versions, and what is wrong
    Doctor {
        /// The environment's name
        #[arg(default_value = "torchtpu")]
        name: String,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
}

/// The database.
#[derive(Debug, Subcommand)]
pub enum Db {
    /// Create it, or bring it to this program's schema
    Migrate,
    /// Take the results of other databases in; twice is once
    Merge {
        /// Database files, such as those of shards
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Copy everything into another database, which is created or migrated; twice is once
    Copy {
        /// sqlite://PATH or postgres://USER@HOST/NAME
        #[arg(value_name = "URL")]
        into: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_unknown_mode_is_told_with_the_nearest() {
        let error = Cli::try_parse_from(["modelfarm", "run", "--matrix", "m.toml", "--mode", "strict_eager"]).unwrap_err();
        assert!(error.to_string().contains("did you mean `strict-eager`"), "{error}");
    }
}
