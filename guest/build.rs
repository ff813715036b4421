//! Gives the guest kernel its link script. An ordinary build, without `--cfg=guest`, gets nothing.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=kernel.ld");
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_CFG_GUEST").is_none() {
        return;
    }
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells a build script where it is");
    let script = Path::new(&here).join("kernel.ld");
    println!("cargo:rustc-link-arg-bins=-Xlinker");
    println!("cargo:rustc-link-arg-bins=-T");
    println!("cargo:rustc-link-arg-bins=-Xlinker");
    println!("cargo:rustc-link-arg-bins={}", script.display());
    for argument in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
