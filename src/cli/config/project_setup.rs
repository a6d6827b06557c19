//! `[workspace] setup` as it is written, in the user's `config.toml` and in a project's `.agent/config.toml`.

use super::network;
use crate::error::{Error, Result};
use crate::sanitise::one_line;
use crate::session::{LOCK_FILES, ProjectSetup};
use serde::Deserialize;
use std::path::{Component, PathBuf};

/// The longest command, in bytes.
const MAX_COMMAND: usize = 4000;
/// The network that a setup may reach where it does not say.
pub(super) const DEFAULT_NETWORK: &str = "registries";

/// A setup as it is written.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum SetupOptions {
    /// The command alone.
    Command(String),
    /// With what else there is to say.
    Table(SetupTable),
}

/// See [`SetupOptions`].
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetupTable {
    pub(super) command: String,
    pub(super) files: Option<Vec<PathBuf>>,
    pub(super) network: Option<String>,
}

/// The setup that `options` describe.
///
/// # Errors
/// The command is empty or too long, a file is outside of the workspace, or the network is none.
pub(super) fn setup(options: &SetupOptions) -> Result<ProjectSetup> {
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
