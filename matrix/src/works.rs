//! How a case stands over several nights.

crate::words! {
    /// How a case stands.
    pub enum Works ("standing") {
        /// It passes.
        Works => "works",
        /// It fails.
        Broken => "broken",
    }
}
