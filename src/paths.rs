//! Where `agent` keeps its files: the XDG base directories, or one directory named by `AGENT_HOME`.

use crate::error::{Error, Result};
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// `~/.config/agent`: `config.toml`.
pub fn config_dir() -> Result<PathBuf> {
    dir("config", "XDG_CONFIG_HOME", ".config")
}

/// `~/.local/share/agent`: sessions and the REPL's history.
pub fn data_dir() -> Result<PathBuf> {
    dir("data", "XDG_DATA_HOME", ".local/share")
}

/// `~/.cache/agent`: files that can be recreated.
pub fn cache_dir() -> Result<PathBuf> {
    dir("cache", "XDG_CACHE_HOME", ".cache")
}

/// Creates a directory and its parents, accessible to this user only.
///
/// # Errors
/// `Config` if the directory cannot be created there: the home is missing, read-only or not owned by the user.
pub fn make_dir(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| create_error(path, error))
}

/// The error for a file or directory that could not be created in `path`.
pub fn create_error(path: &Path, error: io::Error) -> Error {
    let message = format!("{} could not be created", path.display());
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::AlreadyExists
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem => Error::config(message).caused_by(error).hint(
            "agent keeps its sessions and its cache in the home directory: \
             set AGENT_HOME to a directory that you can write to",
        ),
        _ => Error::unexpected(message).caused_by(error),
    }
}

fn dir(under_agent_home: &str, variable: &str, under_home: &str) -> Result<PathBuf> {
    match std::env::var_os("AGENT_HOME").filter(|home| !home.is_empty()).map(PathBuf::from) {
        Some(base) if base.is_absolute() => return Ok(base.join(under_agent_home)),
        Some(base) => {
            return Err(Error::config(format!("AGENT_HOME={} is not an absolute path", base.display()))
                .hint("use an absolute path, or unset it"));
        }
        None => {}
    }
    absolute(variable)
        .or_else(|| absolute("HOME").map(|home| home.join(under_home)))
        .map(|base| base.join("agent"))
        .ok_or_else(|| {
            Error::config("no directory for sessions: HOME is not set").hint("set HOME or AGENT_HOME")
        })
}

/// A variable that holds an absolute path. The XDG specification says to ignore any other.
fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
