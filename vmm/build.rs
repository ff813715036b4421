//! Builds the guest kernel and hands it on as `GUEST_KERNEL`, the path of its ELF file.
//!
//! The kernel is a program for the bare machine: it needs compiler flags of its own, hence a cargo of
//! its own, with a target directory of its own (the outer cargo holds the lock of the usual one). No
//! flag or wrapper of the outer build may reach it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// No SSE: ring 0 must not touch it, and nothing in ring 3 needs it. No red zone: interrupts.
const FLAGS: [&str; 4] = [
    "--cfg=guest",
    "-Crelocation-model=static",
    "-Cno-redzone=yes",
    "-Ctarget-feature=-sse,-sse2",
];

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = here.parent().expect("the package lies in the workspace");
    let guest = workspace.join("guest");
    for input in ["src", "build.rs", "kernel.ld", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", guest.join(input).display());
    }
    for input in [here.join("build.rs"), workspace.join("Cargo.toml")] {
        println!("cargo:rerun-if-changed={}", input.display());
    }
    let kernel = build(&guest, Path::new(&variable("OUT_DIR")));
    println!("cargo:rustc-env=GUEST_KERNEL={}", kernel.display());
}

fn build(guest: &Path, out: &Path) -> PathBuf {
    let target = out.join("guest");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(guest)
        .args([
            "build",
            "--locked",
            "--bin",
            "stealtime-guest",
            "--profile",
            "guest",
        ])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if reaches_the_compiler(&name) {
            cargo.env_remove(&*name);
        }
    }
    let status = cargo.status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building the guest kernel failed: {status}"),
        Err(error) => panic!("cargo could not be started to build the guest kernel: {error}"),
    }
    target.join(TARGET).join("guest").join("stealtime-guest")
}

/// Variables by which the outer build changes how things are compiled, or where to.
fn reaches_the_compiler(name: &str) -> bool {
    matches!(
        name,
        "RUSTFLAGS"
            | "RUSTC_WRAPPER"
            | "RUSTC_WORKSPACE_WRAPPER"
            | "CARGO_TARGET_DIR"
            | "RUSTDOCFLAGS"
    ) || name.starts_with("CARGO_BUILD_")
        || name.starts_with("CARGO_PROFILE_")
        || name.starts_with("CARGO_CFG_")
        || name.starts_with("CARGO_FEATURE_")
        || name.starts_with("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_R")
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo gives build scripts {name}"))
}
