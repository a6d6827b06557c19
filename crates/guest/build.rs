//! Compiles the guest, the static Linux program that runs inside every sandbox, so that it can be embedded, and compresses it for those
//! that are far away.

#![allow(clippy::disallowed_methods, reason = "cargo speaks through the environment")]

use agent_wire::sha256::Sha256;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let wire = Path::new(agent_wire::SOURCES);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed={}", wire.display());
    let build = hash_of(&[wire, Path::new("src")]);
    println!("cargo:rustc-env=GUEST_BUILD={build}");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let on_linux = variable("CARGO_CFG_TARGET_OS") == "linux";

    // musl makes the smaller program, and rustc contains all that linking it needs. It is not always installed.
    let musl = format!("{arch}-unknown-linux-musl");
    let result = if installed(&musl) {
        compile(&musl, wire, &build)
    } else if on_linux {
        compile(&format!("{arch}-unknown-linux-gnu"), wire, &build)
    } else {
        Err(format!("the target {musl} is not installed (rustup target add {musl})"))
    };
    if let Err(message) = result {
        // Not needed elsewhere: AGENT_GUEST names a guest that was built on Linux.
        assert!(!on_linux, "the guest cannot be built: {message}");
        println!("cargo:warning=no guest is embedded: {message}");
        std::fs::write(output().join("guest"), []).expect("OUT_DIR is writable");
    }
    let program = std::fs::read(output().join("guest")).expect("it was written");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let packed = encoder.write_all(&program).and_then(|()| encoder.finish()).expect("memory takes it");
    std::fs::write(output().join("guest.gz"), packed).expect("OUT_DIR is writable");
}

/// Compiles the protocol and then the guest, which is linked with it.
fn compile(target: &str, wire: &Path, build: &str) -> Result<(), String> {
    let library = output().join("libagent_wire.rlib");
    rustc(target, build, &wire.join("lib.rs"), &library, &["--crate-name=agent_wire", "--crate-type=rlib"])?;
    let linked = format!("agent_wire={}", library.display());
    let options = ["--crate-name=guest", "--crate-type=bin", "--extern", &linked];
    rustc(target, build, Path::new("src/main.rs"), &output().join("guest"), &options)
}

fn rustc(target: &str, build: &str, source: &Path, output: &Path, options: &[&str]) -> Result<(), String> {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc
        .env("GUEST_BUILD", build)
        .arg(source)
        .args(["--edition=2024", "-Ctarget-feature=+crt-static", "-Copt-level=3", "-Cpanic=abort"])
        .arg("-Cstrip=symbols")
        .arg(format!("--target={target}"))
        .args(options)
        .arg("-o")
        .arg(output);
    if !cfg!(target_os = "linux") {
        rustc.arg("-Clinker=rust-lld");
    }
    let result = rustc.output().map_err(|error| format!("rustc does not start: {error}"))?;
    let stderr = String::from_utf8_lossy(&result.stderr);
    if result.status.success() { Ok(()) } else { Err(format!("{target}: {stderr}")) }
}

/// The hash of the sources below `directories`, by which host and guest recognise each other: it is the same for every
/// processor and wherever the sources are.
fn hash_of(directories: &[&Path]) -> String {
    let mut hash = Sha256::new();
    for directory in directories {
        let mut files = Vec::new();
        list(directory, &mut files);
        files.sort();
        for file in files {
            let content = std::fs::read(&file).expect("the guest's sources can be read");
            let name = file.strip_prefix(directory).expect("it was listed there");
            hash.update(format!("{} {}\n", name.display(), content.len()).as_bytes());
            hash.update(&content);
        }
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

fn output() -> PathBuf {
    PathBuf::from(variable("OUT_DIR"))
}

/// A variable that cargo always sets.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
