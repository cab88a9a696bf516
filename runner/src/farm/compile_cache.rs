//! Where an emulated device's compiled programs are kept from case to case and from night to night.
//!
//! The emulator's code generator is not what is tested, and on small models it takes a third of the time. The interposer keeps
//! what it made by program and options (docs/pjrt.md); everything else that can change the machine code is in the
//! folder's name, so that a program never meets an executable made under other conditions.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use modelfarm_matrix::target::Target;
use sha2::{Digest, Sha256};

use crate::environment::Environment;
use crate::state_dir::StateDir;

/// The variable that names the folder to the interposer.
pub const VARIABLE: &str = "MODELFARM_PJRT_COMPILE_CACHE";

/// The folder for programs that `plugin` compiles for `target`; `None` where nothing may be kept: a real device's compiler
/// is under test itself.
pub fn folder(
    state: &StateDir,
    environment: &Environment,
    target: &Target,
    plugin: &Path,
    interposer: &Path,
) -> Option<PathBuf> {
    if !target.emulated {
        return None;
    }
    let file = fs::metadata(plugin).ok()?;
    let modified = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(environment.id.as_bytes());
    add(plugin.as_os_str().as_encoded_bytes());
    add(&file.len().to_le_bytes());
    add(&modified.to_le_bytes());
    add(interposer.as_os_str().as_encoded_bytes());
    add(processor_features().as_bytes());
    for (name, value) in &target.env {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    let name: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Some(state.compiled().join(format!("{}-{name}", target.name)))
}

/// The instruction sets of this machine's processor: machine code made with more of them would not run on one with fewer.
fn processor_features() -> String {
    let described = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let wanted = ["model name", "flags", "Features"];
    let line_of = |name: &str| described.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    wanted.map(line_of).join("\n")
}
