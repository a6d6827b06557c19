//! The key that clients of `agent serve` show.

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::paths;
use crate::server::e2b::Secret;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The variable that holds the key.
const KEY_VARIABLE: &str = "AGENT_SERVE_KEY";
/// The shortest key that is accepted.
const MIN_KEY: usize = 16;

/// The key of this user's servers.
///
/// # Errors
/// The variable or the file does not hold a valid key, or the file cannot be used.
pub fn key(machine: &Machine) -> Result<Secret> {
    let is_valid = |key: &str| {
        key.len() >= MIN_KEY && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if let Some(key) = std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()) {
        return match is_valid(&key) {
            true => Ok(Secret::new(key)),
            false => Err(Error::config(format!("{KEY_VARIABLE} does not hold a valid key"))
                .hint(format!("use at least {MIN_KEY} letters, digits and underscores"))),
        };
    }
    let directory = machine.data_dir()?.join("serve");
    paths::make_dir(&directory)?;
    let path = directory.join("key");
    match std::fs::read_to_string(&path) {
        // The SDKs that check a key's form refuse it.
        Ok(key) if is_of_older_build(key.trim()) => {
            std::fs::remove_file(&path).map_err(|error| unusable(&path, error))?;
        }
        Ok(key) if is_valid(key.trim()) => return Ok(Secret::new(key.trim())),
        Ok(_) => {
            return Err(Error::config(format!("{} does not hold a valid key", path.display()))
                .hint("remove the file: a new key is made"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(unusable(&path, error)),
    }
    let key = Secret::generate("e2b_")?;
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(key.reveal().as_bytes()));
    written.map_err(|error| unusable(&path, error))?;
    Ok(key)
}

fn unusable(path: &Path, error: std::io::Error) -> Error {
    Error::config(format!("{} cannot be used", path.display()))
        .caused_by(error)
        .hint(format!("or set {KEY_VARIABLE}"))
}

/// Returns whether an older build made it: 32 letters and digits that are not hexadecimal.
fn is_of_older_build(key: &str) -> bool {
    key.strip_prefix("e2b_").is_some_and(|rest| {
        rest.len() == 32 && rest.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
    })
}
