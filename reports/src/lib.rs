//! What came out.
