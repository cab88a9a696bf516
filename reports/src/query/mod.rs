//! Questions to the store. Each file adds the functions of one question to [`Store`](crate::store::Store).

mod architectures;
mod attempts;
mod environments;
mod events;
mod failures;
mod known_cases;
mod results;
mod run_reference;
mod runs;

pub use architectures::{ArchitectureRow, Counts};
pub use attempts::Artifact;
pub use events::StoredEvent;
pub use failures::FailureGroup;
pub use results::ResultFilter;

pub(crate) use environments::{environment, model};
