//! The server on a real port, over real databases with real rows.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "../store/databases.rs"]
mod databases;
#[path = "../store/postgres_server.rs"]
mod postgres_server;
#[allow(dead_code, reason = "the store's own tests use the rest")]
#[path = "../store/samples.rs"]
mod samples;

mod client;
mod described;
mod following;
mod fresh;
mod guarded;
mod hostile;
mod other_forms;
mod questions;
mod served;
mod stopping;
