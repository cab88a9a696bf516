//! The store on real databases: SQLite files, and PostgreSQL where `MODELFARM_TEST_POSTGRES` holds its URL.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a child process talks to its test")]

mod databases;
mod full_disk;
mod killing;
mod known;
mod merging;
mod migrating;
mod opening;
mod rate;
mod recording;
mod samples;
mod writing_rows;
