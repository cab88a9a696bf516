//! What came out: the store, queries over it, and every view of them.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may fail by a panic"))]

// So that a module of an example, which names this crate, can be a module of its tests.
#[cfg(test)]
extern crate self as modelfarm_reports;

mod change_summary;
pub mod compatibility;
pub mod fair_cut;
mod figures;
pub mod final_summary;
pub mod junit;
mod markdown_text;
pub mod page;
pub mod query;
pub mod rows;
pub mod run_figures;
pub mod server;
pub mod step_summary;
pub mod store;
pub mod table;
pub mod terminal_text;
pub mod verdict_mark;
pub mod visible_text;
