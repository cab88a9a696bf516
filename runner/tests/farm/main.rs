//! The whole program against real parts: fixture Hub, environment, sandboxed workers, TorchTPU on the emulated device, SQLite.
//!
//! All tests share one state folder (environment, fixtures, references, compiled programs), each has a database of its own.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail by a panic, and may print")]

mod bad_input;
mod bisecting;
mod copying;
mod expectations;
mod history;
mod interruption;
mod lists;
mod outputs;
#[path = "../../../reports/tests/store/postgres_server.rs"]
mod postgres_server;
mod retention;
mod scripts;
mod serving;
mod setup;
mod smoke;
