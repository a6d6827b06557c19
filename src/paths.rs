//! Where `agent` keeps its files: the XDG base directories, or one directory named by `AGENT_HOME`.

use crate::error::{Error, Result};
use std::path::PathBuf;

/// `~/.config/agent`: `config.toml`.
pub fn config_dir() -> Result<PathBuf> {
    dir("config", "XDG_CONFIG_HOME", ".config")
}

/// `~/.local/share/agent`: sessions and the REPL's history.
pub fn data_dir() -> Result<PathBuf> {
    dir("data", "XDG_DATA_HOME", ".local/share")
}

/// `~/.cache/agent`: what can be made again.
pub fn cache_dir() -> Result<PathBuf> {
    dir("cache", "XDG_CACHE_HOME", ".cache")
}

/// `$XDG_RUNTIME_DIR/agent`, or a directory below the cache: sockets and the files of running sandboxes.
pub fn runtime_dir() -> Result<PathBuf> {
    match absolute("XDG_RUNTIME_DIR") {
        Some(base) if std::env::var_os("AGENT_HOME").is_none() => Ok(base.join("agent")),
        _ => {
            dir("run", "XDG_CACHE_HOME", ".cache").map(|d| if d.ends_with("run") { d } else { d.join("run") })
        }
    }
}

fn dir(under_agent_home: &str, variable: &str, under_home: &str) -> Result<PathBuf> {
    match std::env::var_os("AGENT_HOME").filter(|home| !home.is_empty()).map(PathBuf::from) {
        Some(base) if base.is_absolute() => return Ok(base.join(under_agent_home)),
        Some(base) => {
            return Err(Error::config(format!("AGENT_HOME={} is no absolute path", base.display()))
                .hint("name the directory from the root on, or leave it out"));
        }
        None => {}
    }
    absolute(variable)
        .or_else(|| absolute("HOME").map(|home| home.join(under_home)))
        .map(|base| base.join("agent"))
        .ok_or_else(|| {
            Error::config("there is no place for files: HOME is not set").hint("set HOME or AGENT_HOME")
        })
}

/// A variable that holds an absolute path. The XDG specification says to ignore any other.
fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
