//! The guest program: embedded by `build.rs`, or the one that `AGENT_GUEST` names.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::PathBuf;

/// Built from `src/guest`; empty where the build machine could not.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));

/// The variable that names a ready-made guest.
const VARIABLE: &str = "AGENT_GUEST";

/// The guest, a static Linux executable.
///
/// # Errors
///
/// `AGENT_GUEST` names something that cannot be read, or there is no embedded guest (on other systems than Linux,
/// without the musl target).
pub fn bytes() -> Result<Cow<'static, [u8]>> {
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        return std::fs::read(&path).map(Cow::Owned).map_err(|error| {
            Error::config(format!("{VARIABLE} names {}, which cannot be read", path.display()))
                .hint(format!("unset {VARIABLE}, or name a guest built for the sandbox's Linux"))
                .caused_by(error)
        });
    }
    if EMBEDDED.is_empty() {
        return Err(Error::config("this build of agent has no guest in it")
            .hint(format!("name one built on Linux with {VARIABLE}=/path/to/guest")));
    }
    Ok(Cow::Borrowed(EMBEDDED))
}

/// A short hash of the guest's bytes: 12 hexadecimal digits. Files and volumes that hold a guest are named by it.
///
/// # Errors
///
/// Those of [`bytes()`].
pub fn id() -> Result<String> {
    let digest = Sha256::digest(bytes()?);
    Ok(digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}
