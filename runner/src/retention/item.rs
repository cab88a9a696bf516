//! A thing in a state folder that goes or stays as a whole.

use std::path::PathBuf;

use super::footprint::Footprint;

modelfarm_matrix::words! {
    /// What a thing in a state folder is.
    pub enum Kind ("kind") {
        /// What the CPU computed for a question, with the control's answers to it.
        Reference => "reference",
        /// A program that an emulated device compiled.
        CompiledProgram => "compiled_program",
        /// A Python environment.
        Environment => "environment",
        /// A model's files at one commit.
        HubSnapshot => "hub_snapshot",
        /// A file's content, which snapshots share.
        HubContent => "hub_content",
        /// A version of the PJRT interposer.
        Interposer => "interposer",
        /// A version of the worker's Python source.
        WorkerSource => "worker_source",
        /// A version of the fixtures' Python source.
        FixtureSource => "fixture_source",
        /// A version of uv.
        Tool => "tool",
        /// What a process left that was killed.
        Leftover => "leftover",
    }
}

/// A thing, and what is known of it. Paths are below the state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Its file or folder.
    pub path: PathBuf,
    /// Files that are worth nothing without it.
    pub beside: Vec<PathBuf>,
    /// The space that it takes.
    pub footprint: Footprint,
    /// When it was last used, UTC milliseconds since 1970.
    pub last_used: i64,
    /// Paths of the things that it does not work without.
    pub needs: Vec<PathBuf>,
    /// How long it stays.
    pub stays: Stays,
}

/// How long a thing stays. One that another needs stays as long as that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stays {
    /// For its kind's age after its last use.
    WhileUsed,
    /// Whatever its age, and why.
    Always(String),
    /// A removal that was interrupted had it already.
    NoLonger,
}
