//! The `modelfarm` program.
fn main() {}
