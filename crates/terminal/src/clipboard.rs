//! The clipboard of the user's terminal, which works over SSH too (OSC 52).

use super::stderr;
use agent_base::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes that are copied at most: terminals ignore a longer sequence without a word.
const MAX_BYTES: usize = 74_994;

/// Has the terminal put `text` into its clipboard. Whether it does that is not known: some ask, some have it switched off.
///
/// # Errors
/// The text is too long for that.
pub fn copy(text: &str) -> Result<()> {
    if text.len() > MAX_BYTES {
        return Err(Error::usage(format!("{} bytes are too many for the terminal's clipboard", text.len()))
            .hint("/copy code takes the last code block alone, /export writes a file"));
    }
    stderr::write(&format!("\x1b]52;c;{}\x07", STANDARD.encode(text)));
    Ok(())
}
