//! Programs of others that drive the binary, which `tests/clients/install` installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The Python that has what `requirements` of `tests/clients` name: `protocols`, `python`, `novita` or `langchain`. Without it the test is skipped
/// by name, but not in CI.
pub fn python(requirements: &str) -> Option<PathBuf> {
    let python = root().join("target/clients").join(requirements).join("bin/python");
    if python.with_file_name("../installed").exists() {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "tests/clients/install {requirements} has not run");
    eprintln!("skipped: run tests/clients/install {requirements}");
    None
}

/// Whether `program` can be started; in CI it has to.
pub fn has(program: &str, package: &str) -> bool {
    let found =
        Command::new(program).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "missing: {program}");
    if !found {
        eprintln!("skipped: {program} is missing (Debian: apt install {package})");
    }
    found
}

/// A script of `tests/clients`.
pub fn script(name: &str) -> PathBuf {
    root().join("tests/clients").join(name)
}

/// The directory of the sources.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
