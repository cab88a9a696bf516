//! Builds the PJRT interposer and hands it to the program, which carries it in itself.
//!
//! Cargo does not build the cdylib of another package for `cargo run` or `cargo install`, and a program that needs a
//! second file beside it gets separated from it. So the interposer is built here, into this script's own output folder
//! (another target folder than the outer build's, whose lock is held), and included by `src/interposer.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let manifest_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out_dir = PathBuf::from(variable("OUT_DIR"));
    let crate_dir = manifest_dir.join("pjrt");
    for watched in ["src", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", crate_dir.join(watched).display());
    }
    // `include_dir!` sees files that change, but not new ones.
    for package in ["modelfarm_worker", "modelfarm_rewriter"] {
        println!("cargo:rerun-if-changed={}", manifest_dir.join("worker").join(package).display());
    }
    let target_dir = out_dir.join("pjrt");
    let mut build = Command::new(variable("CARGO"));
    build.args(["rustc", "--release", "--lib", "--crate-type", "cdylib", "--manifest-path"]).arg(crate_dir.join("Cargo.toml"));
    build.arg("--target-dir").arg(&target_dir).arg("--target").arg(variable("TARGET"));
    // Clippy and coverage tools wrap the compiler of the outer build; here a real library is wanted.
    for wrapper in
        ["RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR"]
    {
        build.env_remove(wrapper);
    }
    let status = build.status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "building the PJRT interposer in {} failed ({status:?}); its errors stand above",
        crate_dir.display()
    );
    let built = target_dir.join(variable("TARGET")).join("release").join(library_name());
    assert!(built.exists(), "the PJRT interposer was built, but {} does not exist", built.display());
    let included = out_dir.join("interposer");
    copy(&built, &included);
    println!("cargo:rustc-env=MODELFARM_INTERPOSER={}", included.display());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

fn library_name() -> &'static str {
    if variable("CARGO_CFG_TARGET_OS") == "macos" { "libmodelfarm_pjrt.dylib" } else { "libmodelfarm_pjrt.so" }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap_or_else(|error| panic!("copying {} failed: {error}", from.display()));
}
