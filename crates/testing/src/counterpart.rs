//! Programs of others that drive the binary, which `tests/clients/install` installs.

use super::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The versions of Python that the package in `python/` is for.
pub const PYTHONS: [&str; 3] = ["3.11", "3.12", "3.13"];

/// The Python that has what `requirements` of `tests/clients` name: `protocols`, `novita`, `langchain` or `frameworks`. Without it the test is skipped
/// by name, but not in CI.
pub fn python(requirements: &str) -> Option<PathBuf> {
    client(requirements, "python")
}

/// Python of that version, with what the package's tests need. In CI the versions that the machine does not have are skipped, not all of them.
pub fn python_of(version: &str) -> Option<PathBuf> {
    let is_there = |version: &str| directory(&format!("python-{version}")).join("installed").exists();
    if !is_there(version) && PYTHONS.into_iter().any(is_there) {
        skip::left_out(format!("Python {version} was not found by tests/clients/install python"));
        return None;
    }
    let found = directory(&format!("python-{version}")).join("bin/python");
    installed("python", found)
}

/// A program of a client, by the client's name.
pub fn client(name: &str, program: &str) -> Option<PathBuf> {
    installed(name, directory(name).join("bin").join(program))
}

fn directory(name: &str) -> PathBuf {
    root().join("target/clients").join(name)
}

fn installed(client: &str, program: PathBuf) -> Option<PathBuf> {
    if program.with_file_name("../installed").exists() {
        return Some(program);
    }
    skip::missing(format!("the programs of tests/clients/install {client}"));
    None
}

/// Returns whether `program` can be started; in CI it has to.
pub fn has(program: &str, package: &str) -> bool {
    let found =
        Command::new(program).arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        skip::missing(format!("{program} (Debian: apt install {package})"));
    }
    found
}

/// A script of `tests/clients`.
pub fn script(name: &str) -> PathBuf {
    root().join("tests/clients").join(name)
}

/// The directory of the sources.
pub fn root() -> &'static Path {
    Path::new(crate::ROOT)
}
