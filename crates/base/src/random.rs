//! Random bytes and texts that nobody can guess.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fs::File;
use std::io::Read;

/// `N` bytes of the kernel's.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::unexpected("no random bytes could be read").caused_by(error))?;
    Ok(bytes)
}

/// `N` bytes of the kernel's, as base64url.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn text<const N: usize>() -> Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(bytes::<N>()?))
}
