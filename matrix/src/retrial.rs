//! Runs that try some cases again, to find out more about a change: they are no nights.

crate::words! {
    /// What cases are tried again for. Its word is the selection that such a run is recorded under, so that no comparison takes it
    /// for a night, and `latest` passes it over.
    pub enum RetrialPurpose ("retrial") {
        /// Whether a regression can be seen again in the environments of before and now.
        Confirm => "confirm",
        /// Which package broke a case.
        Bisect => "bisect",
    }
}
