//! Runs tiny models through TorchTPU, this library and a CPU plugin, in the Python environment that
//! `MODELFARM_TEST_PYTHON` names (its `python`). The work is in `models_through_torchtpu.py` beside this file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The cdylib that Cargo built for this test run, next to the test program's folder.
fn library() -> PathBuf {
    let test_program = std::env::current_exe().expect("this program has a path");
    let name = format!("{}modelfarm_pjrt{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let deps = test_program.parent().expect("a folder");
    [deps.join(&name), deps.parent().expect("a folder").join(&name)]
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is neither in {} nor above it: it is built with the crate", deps.display()))
}

#[test]
fn tiny_models_pass_in_all_modes() {
    let Some(python) = std::env::var_os("MODELFARM_TEST_PYTHON") else {
        eprintln!(
            "skipped: MODELFARM_TEST_PYTHON is not set. Set it to the python of an environment with torch_tpu, \
             transformers, jaxlib and a CPU PJRT plugin"
        );
        return;
    };
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new(&python)
        .arg(crate_folder.join("tests/models_through_torchtpu.py"))
        .env("MODELFARM_TEST_LIBRARY", library())
        .env("PYTHONPATH", crate_folder.join("../worker"))
        .status()
        .unwrap_or_else(|error| panic!("starting '{}' failed: {error}", python.to_string_lossy()));
    assert!(status.success(), "models_through_torchtpu.py failed ({status}); its output stands above");
}
