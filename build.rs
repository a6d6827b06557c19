//! Builds the guest, the static Linux program that runs inside every sandbox, so that it can be embedded.

#[path = "src/guest/sha256.rs"]
mod sha256;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/guest");
    let guest = PathBuf::from(variable("OUT_DIR")).join("guest");
    let build = hash_of(Path::new("src/guest"));
    println!("cargo:rustc-env=GUEST_BUILD={build}");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let on_linux = variable("CARGO_CFG_TARGET_OS") == "linux";

    // musl makes the smaller program, and rustc contains all that linking it needs. It is not always installed.
    let musl = format!("{arch}-unknown-linux-musl");
    let result = if installed(&musl) {
        compile(&musl, &guest, &build)
    } else if on_linux {
        compile(&format!("{arch}-unknown-linux-gnu"), &guest, &build)
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

fn compile(target: &str, output: &Path, build: &str) -> Result<(), String> {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .env("GUEST_BUILD", build)
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

/// The hash of a directory's sources, by which host and guest recognise each other: it is the same for every processor.
fn hash_of(directory: &Path) -> String {
    let mut files = Vec::new();
    list(directory, &mut files);
    files.sort();
    let mut hash = sha256::Sha256::new();
    for file in files {
        let content = std::fs::read(&file).expect("the guest's sources can be read");
        hash.update(format!("{} {}\n", file.display(), content.len()).as_bytes());
        hash.update(&content);
    }
    hash.finish().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the guest's sources can be listed") {
        let path = entry.expect("the guest's sources can be listed").path();
        if path.is_dir() { list(&path, files) } else { files.push(path) }
    }
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
