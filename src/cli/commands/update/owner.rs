//! Who put the program where it is: `install.sh` left a receipt, and package managers have marks of their own.

use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::machine::Machine;
use crate::plain_file::{self, Durability, Links, replace};
use std::path::{Path, PathBuf};

/// The name of the receipt in the data directory.
const NAME: &str = "installed";
/// Bytes of a receipt, and of a package manager's list of files.
const MAX_RECEIPT: u64 = 16 << 10;
const MAX_LIST: u64 = 1 << 20;

/// The notes of `install.sh`: four lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The program.
    pub program: PathBuf,
    /// The address of the releases.
    pub releases: String,
    /// The hash of the archive that it came in.
    pub archive: Hash,
    /// The public key of the releases, in minisign's form; empty where they are not signed with one.
    pub key: String,
}

impl Receipt {
    /// The receipt of this program.
    ///
    /// # Errors
    /// Something else installed it.
    pub fn of(program: &Path, machine: &Machine) -> Result<Self> {
        let path = machine.data_dir()?.join(NAME);
        let text = plain_file::read(&path, MAX_RECEIPT, Links::Refuse).ok();
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
        match text.as_deref().and_then(parse).filter(|receipt| receipt.is_of(program)) {
            Some(receipt) => Ok(receipt),
            None => Err(foreign(program)),
        }
    }

    /// Notes that this archive was installed.
    pub fn keep(&self, archive: Hash, machine: &Machine) -> Result<()> {
        let Self { program, releases, key, .. } = self;
        let text = format!("{}\n{releases}\n{archive}\n{key}\n", program.display());
        Ok(replace(&machine.data_dir()?.join(NAME), text.as_bytes(), Durability::Synced)?)
    }

    fn is_of(&self, program: &Path) -> bool {
        self.program.canonicalize().is_ok_and(|path| path == program)
    }
}

fn parse(text: &str) -> Option<Receipt> {
    let mut lines = text.lines();
    let (program, releases) = (PathBuf::from(lines.next()?), lines.next()?.to_owned());
    let archive = Hash::parse(lines.next()?.as_bytes())?;
    Some(Receipt { program, releases, archive, key: lines.next().unwrap_or_default().to_owned() })
}

/// Says who updates a program that `install.sh` did not install.
fn foreign(program: &Path) -> Error {
    let refuse = |owner: &str| Error::usage(format!("{} is {owner}", program.display()));
    let components: Vec<_> = program.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    let is_below = |name: &str| components.iter().any(|component| component == name);
    let prefix = program.parent().and_then(Path::parent).unwrap_or(program);
    if is_below("node_modules") {
        return refuse("npm's").hint("npm install --global agentsandbox@latest");
    }
    if is_below("Cellar") {
        return refuse("Homebrew's").hint("brew upgrade agentsandbox");
    }
    if is_in_wheel(prefix) {
        return refuse("part of the Python package agentsandbox").hint(
            "pip install --upgrade agentsandbox, uv tool upgrade agentsandbox or pipx upgrade agentsandbox",
        );
    }
    if is_in_list(Path::new("/var/lib/dpkg/info/agentsandbox.list"), program) {
        return refuse("the Debian package's")
            .hint("install the .deb of the new release: sudo apt install ./agentsandbox_….deb");
    }
    if prefix.join(".crates.toml").exists() {
        return refuse("cargo's").hint("cargo install --locked --force, from the sources that it came from");
    }
    refuse("not what install.sh installed")
        .hint("replace it as you installed it, or run install.sh of a release, which `agent update` then keeps up to date")
}

/// Returns whether a Python environment has the package, whose wheel brings the program.
fn is_in_wheel(prefix: &Path) -> bool {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let pythons =
        entries(prefix.join("lib")).filter(|entry| entry.file_name().to_string_lossy().starts_with("python"));
    let is_ours = |name: &str| name.starts_with("agentsandbox-") && name.ends_with(".dist-info");
    pythons
        .flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.path().join(name)))
        .flat_map(entries)
        .any(|entry| is_ours(&entry.file_name().to_string_lossy()))
}

fn is_in_list(list: &Path, program: &Path) -> bool {
    let listed = plain_file::read(list, MAX_LIST, Links::Follow).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed).into_owned();
    listed.lines().any(|line| Path::new(line) == program)
}
