//! The store on real databases: SQLite files, and a PostgreSQL server that the tests start where it is installed.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a child process talks to its test")]

mod confirming;
mod copying;
mod databases;
mod full_disk;
mod history;
mod killing;
mod known;
mod merging;
mod merging_pages;
mod migrating;
mod opening;
mod past_the_store;
mod postgres_server;
mod rate;
mod recording;
mod samples;
mod writing_at_once;
mod writing_rows;
