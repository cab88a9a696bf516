//! How it runs: catalogue and download, environments, workers, references, the judge, and the commands.

pub mod catalogue;
pub mod cli;
pub mod command;
pub mod environment;
pub mod exit;
pub mod farm;
pub mod fixture_architectures;
pub mod fixture_build;
pub mod hub;
pub mod interposer;
pub mod judge;
pub mod last_use;
pub mod progress;
pub mod retention;
pub mod state_dir;
pub mod state_lock;
pub mod worker;
