//! What came out: the store, queries over it, and every view of them.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may fail by a panic"))]

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
pub mod step_summary;
pub mod store;
pub mod table;
pub mod terminal_text;
pub mod verdict_mark;
pub mod visible_text;
