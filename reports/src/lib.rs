//! What came out: the store, queries over it, and every view of them.

pub mod rows;
pub mod query;
pub mod store;
