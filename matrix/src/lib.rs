//! What modelfarm tests.
