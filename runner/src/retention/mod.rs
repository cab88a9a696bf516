//! What of a state folder goes, and what stays.
//!
//! Results are in the database and stay for ever. What stands beside it can be made or fetched again, and goes when it has not been
//! used for long and nothing that stays needs it. [`plan`] decides and is pure; [`inventory`] looks and [`removal`] removes.

pub mod footprint;
pub mod inventory;
pub mod item;
pub mod plan;
pub mod policy;
pub mod removal;
