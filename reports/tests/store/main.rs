//! The store on real databases: SQLite files, and PostgreSQL where `MODELFARM_TEST_POSTGRES` holds its URL.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod databases;
mod recording;
mod samples;
