//! The guest's program, as it goes into sandboxes.

use crate::error::{Error, Result};
use std::borrow::Cow;

/// The program.
pub fn bytes() -> Result<Cow<'static, [u8]>> {
    let path = std::env::var_os("AGENT_GUEST")
        .ok_or_else(|| Error::sandbox("no guest was built in").hint("AGENT_GUEST names a ready-made one"))?;
    std::fs::read(path)
        .map(Cow::Owned)
        .map_err(|error| Error::sandbox("the guest cannot be read").caused_by(error))
}

/// A short name for exactly this program.
pub fn id() -> String {
    std::env::var_os("AGENT_GUEST").unwrap_or_default().to_string_lossy().into_owned()
}
