//! What modelfarm tests: models, targets, cases, outcomes, expectations and plans.
//!
//! This crate is the pure domain. It reads no file, opens no socket and knows no clock; what it decides, it decides
//! from its arguments alone, so that a plan, a verdict or a fault can be computed again years later.
//!
//! The words are those of `ARCHITECTURE.md`.

pub mod attempt;
pub mod axes;
pub mod bisection;
pub mod case;
pub mod case_filter;
pub mod cause;
pub mod change;
pub mod coverage;
pub mod date;
pub mod event;
pub mod exclusion;
pub mod expectation;
pub mod expectation_check;
pub mod expectation_text;
pub mod expectation_update;
pub mod fault;
pub mod known_case;
pub mod leaf;
pub mod link;
pub mod matrix_file;
pub mod model;
pub mod outcome;
pub mod plan;
pub mod retrial;
pub mod rhythm;
pub mod sample;
pub mod selector;
mod selector_cover;
pub mod target;
mod toml_error;
pub mod word;
mod word_list;
pub mod works;

/// The targets that come with the program (`matrix/targets.toml`).
pub const TARGETS_TOML: &str = include_str!("../targets.toml");
/// The matrix of `modelfarm demo` (`matrix/smoke.toml`).
pub const SMOKE_TOML: &str = include_str!("../smoke.toml");
/// The expectations that come with the program (`matrix/expectations.toml`).
pub const EXPECTATIONS_TOML: &str = include_str!("../expectations.toml");
/// The explanations of failure groups, `causes.toml`.
pub const CAUSES_TOML: &str = include_str!("../causes.toml");
