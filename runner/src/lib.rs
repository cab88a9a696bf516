//! How it runs.
