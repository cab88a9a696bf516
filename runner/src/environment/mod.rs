//! Environments: locked sets of Python packages, made with uv in the state folder.
//!
//! [`sync`] makes one (or finds it made), [`recreate`] makes an old one again from its requirements, [`list`] tells what is
//! there and [`doctor`] what is wrong. [`worker_source`] unpacks the Python that runs inside an environment.
//!
//! ```text
//! <state>/environments/<name>-<id>/    a virtual environment; environment.json in it is written last
//! <state>/environments/.building-*     one that is being made, or whose making was interrupted
//! <state>/tools/uv-<version>/          uv, where the computer has none
//! <state>/worker/<content hash>/       the worker's Python source
//! ```

mod bounded_command;
mod bytecode;
mod credentials;
mod doctor;
mod error;
mod folder_lock;
mod list;
mod marker;
mod package_files;
mod progress;
mod python;
mod requirements;
mod settings;
mod spec;
mod sync;
#[cfg(test)]
mod sync_tests;
mod uv_command;
mod uv_failure;
mod uv_tool;
mod versions;
pub mod worker_source;

pub use credentials::IndexUrl;
pub use doctor::{Finding, Health, doctor};
pub use error::EnvironmentError;
pub use list::{EnvironmentEntry, EnvironmentState, folder_name_parts, list, open};
pub use marker::{Environment, MARKER_FILE};
pub use progress::SyncEvent;
pub use python::{Python, PythonVersion};
pub use requirements::{ENVIRONMENT_NAMES, Requirements};
pub use settings::EnvironmentSettings;
pub use spec::EnvironmentSpec;
pub use sync::{find, recreate, sync};
pub use uv_tool::own_folder_name;
pub use versions::versions_between;
