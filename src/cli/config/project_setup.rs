//! `[workspace] setup`: in the user's `config.toml`, by project, and in `.agent/config.toml` of a project once the user has approved it.

use super::approvals::Approvals;
use super::network;
use crate::error::{Error, Result};
use crate::hash::Hash;
use crate::machine::Machine;
use crate::plain_file::{self, Links};
use crate::sanitise::one_line;
use crate::session::{LOCK_FILES, ProjectSetup};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The file of a project.
pub const NAME: &str = ".agent/config.toml";
/// The largest one that is read, and the longest command, in bytes.
const MAX_BYTES: u64 = 64 << 10;
const MAX_COMMAND: usize = 4000;
/// What a setup may reach where it does not say.
const DEFAULT_NETWORK: &str = "registries";

/// A setup as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum SetupOptions {
    /// The command alone.
    Command(String),
    /// With what else there is to say.
    Table(SetupTable),
}

/// See [`SetupOptions`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetupTable {
    command: String,
    files: Option<Vec<PathBuf>>,
    network: Option<String>,
}

/// What prepares the workspace of a call.
#[derive(Debug, Clone, Default)]
pub struct ConfiguredSetup {
    /// The setup.
    pub setup: Option<ProjectSetup>,
    /// What the user should know about that of the project.
    pub notice: Option<String>,
}

/// What a project's file asks for.
pub struct Asked {
    /// The setup.
    pub setup: ProjectSetup,
    /// Set if the user has approved it as it is.
    pub is_approved: bool,
    /// Identifies it, in this workspace.
    hash: Hash,
}

/// The setup of the workspace `root`: that of the user's file comes first.
pub(super) fn configured(
    of_user: &BTreeMap<PathBuf, SetupOptions>,
    root: &Path,
    machine: &Machine,
) -> Result<ConfiguredSetup> {
    let is_here = |path: &Path| in_home(path, machine).canonicalize().is_ok_and(|path| path == root);
    if let Some((path, options)) = of_user.iter().find(|(path, _)| is_here(path)) {
        let in_table = |error| Error::config(format!("[workspace.setup] {}: {error}", path.display()));
        return Ok(ConfiguredSetup { setup: Some(setup(options).map_err(in_table)?), notice: None });
    }
    Ok(match read(root, machine) {
        None => ConfiguredSetup::default(),
        Some(Err(error)) => ConfiguredSetup { setup: None, notice: Some(format!("{NAME}: {error}")) },
        Some(Ok(Asked { setup, is_approved: true, .. })) => {
            ConfiguredSetup { setup: Some(setup), notice: None }
        }
        Some(Ok(Asked { setup, .. })) => {
            let notice = format!(
                "{NAME} of this project asks to set it up once with `{}`, which is not done: `agent sandbox setup` shows that and lets \
                 you approve it",
                one_line(&setup.command, 100)
            );
            ConfiguredSetup { setup: None, notice: Some(notice) }
        }
    })
}

/// Reads what the project in `root` asks for, if anything.
pub fn read(root: &Path, machine: &Machine) -> Option<Result<Asked>> {
    let bytes = match plain_file::read(&root.join(NAME), MAX_BYTES + 1, Links::Refuse) {
        Ok(bytes) if bytes.len() as u64 > MAX_BYTES => {
            return Some(Err(Error::config(format!("it is larger than {MAX_BYTES} bytes"))));
        }
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
        Err(error) => return Some(Err(Error::config("it cannot be read").caused_by(error))),
    };
    let table = match toml::from_slice::<toml::Table>(&bytes) {
        Ok(table) => table,
        Err(error) => return Some(Err(Error::config(one_line(&error.to_string(), 300)))),
    };
    let value = table.get("workspace")?.get("setup")?.clone();
    let text = serde_json::to_vec(&value).unwrap_or_else(|_| bytes.clone());
    let hash = Hash::of([root.as_os_str().as_bytes(), b"\0", &text].concat());
    let asked = || {
        let options: SetupOptions = value.try_into().map_err(|_| {
            Error::config("[workspace] setup is neither a command nor a table with command, files, network")
        })?;
        let is_approved = approvals(machine)?.has(hash);
        Ok(Asked { setup: setup(&options)?, is_approved, hash })
    };
    Some(asked())
}

impl Asked {
    /// Approves it as it is, or takes that back.
    ///
    /// # Errors
    /// The approval cannot be stored.
    pub fn approve(&self, is_approved: bool, machine: &Machine) -> Result<()> {
        approvals(machine)?.set(self.hash, is_approved)
    }
}

fn approvals(machine: &Machine) -> Result<Approvals> {
    Approvals::of(machine, "approved-setups")
}

/// A path that may begin with `~`.
fn in_home(path: &Path, machine: &Machine) -> PathBuf {
    match (path.strip_prefix("~"), machine.home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

fn setup(options: &SetupOptions) -> Result<ProjectSetup> {
    let (command, files, named) = match options {
        SetupOptions::Command(command) => (command, None, None),
        SetupOptions::Table(table) => (&table.command, table.files.clone(), table.network.as_deref()),
    };
    if command.trim().is_empty() || command.len() > MAX_COMMAND || command.contains('\0') {
        return Err(Error::config(format!("the command is empty, or longer than {MAX_COMMAND} bytes")));
    }
    let files = files.unwrap_or_else(|| LOCK_FILES.iter().map(PathBuf::from).collect());
    let is_plain = |file: &PathBuf| file.components().all(|part| matches!(part, Component::Normal(_)));
    if let Some(file) = files.iter().find(|file| !is_plain(file) || file.as_os_str().is_empty()) {
        let named = one_line(&file.display().to_string(), 100);
        return Err(Error::config(format!("{named} is not the path of a file in the workspace")));
    }
    let network = network(named.unwrap_or(DEFAULT_NETWORK))?;
    Ok(ProjectSetup { command: command.clone(), files, network })
}
