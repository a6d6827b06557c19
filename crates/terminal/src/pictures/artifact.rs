//! The stored file of an artifact, for the screen.

use crate::style::{Colours, DIM};
use agent_base::sanitise::one_line;
use agent_event::Artifact;
use agent_picture::Format;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Finds the files of artifacts.
pub trait ArtifactFiles: Send + Sync {
    /// The file of an artifact of `session`; `None` where that keeps none, as a recording.
    fn path(&self, session: &str, artifact: &Artifact) -> Option<PathBuf>;

    /// Its bytes.
    ///
    /// # Errors
    /// Why it cannot be shown.
    fn read(&self, session: &str, artifact: &Artifact) -> Result<Vec<u8>, String>;
}

/// The line that says where a file is, as a link where escape sequences may be written.
pub fn path_line(path: &Path, colours: Colours) -> String {
    let text = one_line(&path.to_string_lossy(), 4096);
    let place = match colours.0 {
        true => format!("\x1b]8;;{}\x1b\\{text}\x1b]8;;\x1b\\", address(path)),
        false => text,
    };
    format!("{}\n", colours.paint(DIM, format_args!("    {place}")))
}

/// Returns whether it is an image that can be drawn.
pub fn is_drawable(artifact: &Artifact) -> bool {
    [Format::Png, Format::Jpeg].iter().any(|format| format.media_type() == artifact.media_type)
}

/// The address of a file of this machine. Terminals compare the host's name with their own.
fn address(path: &Path) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte);
    let escaped = |bytes: &[u8]| -> String {
        bytes
            .iter()
            .map(|byte| if is_plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
            .collect()
    };
    format!("file://{}{}", escaped(host.as_bytes()), escaped(path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_character_that_ends_the_link() {
        let address = address(Path::new("/home/a b/\x1b\\;ü"));
        assert!(
            address.starts_with("file://") && address.ends_with("/home/a%20b/%1B%5C%3B%C3%BC"),
            "{address}"
        );
    }
}
