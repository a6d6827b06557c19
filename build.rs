//! Builds the guest, the static Linux program that runs inside every sandbox, so that it can be embedded.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/guest");
    let guest = PathBuf::from(variable("OUT_DIR")).join("guest");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let on_linux = variable("CARGO_CFG_TARGET_OS") == "linux";

    // musl makes the smaller program, and rustc contains all that linking it needs. It is not always installed.
    let musl = format!("{arch}-unknown-linux-musl");
    let result = if installed(&musl) {
        compile(&musl, &guest)
    } else if on_linux {
        compile(&format!("{arch}-unknown-linux-gnu"), &guest)
    } else {
        Err(format!("the target {musl} is not installed (rustup target add {musl})"))
    };
    if let Err(message) = result {
        // Not needed elsewhere: AGENT_GUEST names a guest that was built on Linux.
        assert!(!on_linux, "the guest cannot be built: {message}");
        println!("cargo:warning=no guest is embedded: {message}");
        std::fs::write(&guest, []).expect("OUT_DIR is writable");
    }
}

fn compile(target: &str, output: &Path) -> Result<(), String> {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .args(["src/guest/main.rs", "--crate-name=guest", "--crate-type=bin", "--edition=2024"])
        .arg(format!("--target={target}"))
        .args(["-Ctarget-feature=+crt-static", "-Copt-level=3", "-Cpanic=abort", "-Cstrip=symbols"])
        .arg("-o")
        .arg(output);
    if !cfg!(target_os = "linux") {
        rustc.arg("-Clinker=rust-lld");
    }
    let result = rustc.output().map_err(|error| format!("rustc does not start: {error}"))?;
    let stderr = String::from_utf8_lossy(&result.stderr);
    if result.status.success() { Ok(()) } else { Err(format!("{target}: {stderr}")) }
}

fn installed(target: &str) -> bool {
    let output = Command::new(variable("RUSTC"))
        .args(["--print=target-libdir", &format!("--target={target}")])
        .output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// A variable that cargo always sets.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
