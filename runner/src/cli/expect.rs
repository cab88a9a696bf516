//! The options of `modelfarm expect`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use modelfarm_matrix::axes::{Dtype, Mode, Workload};
use modelfarm_matrix::case::CaseId;
use modelfarm_matrix::date::Date;
use modelfarm_matrix::fault::Fault;
use modelfarm_matrix::link::Link;
use modelfarm_matrix::outcome::Outcome;

use super::Output;

/// What is known to fail.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one value a process")]
pub enum Expect {
    /// Every entry, and for how many cases of the newest recorded results it counts
    List {
        /// Of which file
        #[command(flatten)]
        file: ExpectationsOptions,
        /// How to print
        #[command(flatten)]
        output: Output,
    },
    /// Say what is wrong: entries that are stale, expired, shadowed, contradicted or useless, and names that nobody knows
    Check {
        /// Of which file
        #[command(flatten)]
        file: ExpectationsOptions,
        /// Only what the named matrices plan counts as known: what they no longer ask is stale
        #[arg(long, requires = "matrix")]
        planned: bool,
    },
    /// Add an entry, unless `check` would find something wrong with it
    Add {
        /// To which file; it is created where there is none
        #[command(flatten)]
        file: ExpectationsOptions,
        /// What is expected to be observed
        #[arg(long, value_name = "O")]
        outcome: Outcome,
        /// Whose problem it is expected to be
        #[arg(long, value_name = "F")]
        fault: Option<Fault>,
        /// Why: a person reads it beside the result
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Where it is discussed
        #[arg(long, value_name = "URL")]
        issue: Option<Link>,
        /// Who looks after it
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// The last day on which it needs no new look
        #[arg(long, value_name = "DATE")]
        expires: Option<Date>,
        /// For which cases
        #[command(flatten)]
        select: Select,
    },
    /// Propose as a diff what a run tells: entries for what failed undeclared, and narrower ones for what passed
    Update {
        /// Of which file; it is created where there is none
        #[command(flatten)]
        file: ExpectationsOptions,
        /// The run: an id, `latest` or `latest~N`
        #[arg(long, value_name = "R", default_value = "latest")]
        run: String,
        /// Entries also for the outcomes that say nothing about the target
        #[arg(long)]
        inconclusive: bool,
        /// Write the file; default: only show what would change
        #[arg(long)]
        write: bool,
    },
}

/// Which expectations file.
#[derive(Debug, Clone, Default, Args)]
pub struct ExpectationsOptions {
    /// Expectations; default: expectations.toml beside the matrix, else those that come with the program
    #[arg(long, value_name = "FILE")]
    pub expectations: Option<PathBuf>,
    /// Matrix files: the expectations lie beside the first, and `check` and `add` know their cases besides the recorded ones
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub matrix: Vec<PathBuf>,
    /// More targets, or other definitions of known ones
    #[arg(long, value_name = "FILE")]
    pub targets_file: Option<PathBuf>,
}

/// The cases that an entry is for: those that match every option that is given, and of each any of its words.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cases, at least one option")]
pub struct Select {
    /// A recorded case: its model, target, mode, workload and dtype
    #[arg(long, value_name = "ID", conflicts_with_all = ["models", "architectures", "classes", "tags", "targets", "modes", "workloads", "dtypes"])]
    pub case: Option<CaseId>,
    /// Models; may end in *
    #[arg(long = "model", value_name = "ID", num_args = 1..)]
    pub models: Vec<String>,
    /// Architectures; may end in *
    #[arg(long = "architecture", value_name = "A", num_args = 1..)]
    pub architectures: Vec<String>,
    /// Classes; may end in *
    #[arg(long = "class", value_name = "C", num_args = 1..)]
    pub classes: Vec<String>,
    /// Tags of the repository; may end in *
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    pub tags: Vec<String>,
    /// Targets
    #[arg(long = "target", value_name = "T", num_args = 1..)]
    pub targets: Vec<String>,
    /// Modes
    #[arg(long = "mode", value_name = "M", num_args = 1..)]
    pub modes: Vec<Mode>,
    /// Workloads
    #[arg(long = "workload", value_name = "W", num_args = 1..)]
    pub workloads: Vec<Workload>,
    /// Dtypes
    #[arg(long = "dtype", value_name = "D", num_args = 1..)]
    pub dtypes: Vec<Dtype>,
}
