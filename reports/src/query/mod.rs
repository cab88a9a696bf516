//! Questions to the store. Each file adds the functions of one question to [`Store`](crate::store::Store).

mod attempts;
mod environments;
mod events;
mod results;
mod run_reference;
mod runs;

pub use attempts::Artifact;
pub use events::StoredEvent;
pub use results::ResultFilter;

pub(crate) use environments::{environment, model};
