//! The stored file of an artifact, for the screen.

use crate::cli::machine;
use crate::cli::ui::style::{Colours, DIM};
use crate::event::Artifact;
use crate::log::{ArtifactLimits, Artifacts, SessionId, Store};
use crate::picture::Format;
use crate::sanitise::one_line;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An artifact of a session that this user has.
pub struct Kept<'a> {
    artifact: &'a Artifact,
    artifacts: Artifacts,
    path: PathBuf,
}

impl<'a> Kept<'a> {
    /// That of the session `id`; `None` where it keeps none, as a recording.
    pub fn of(id: &str, artifact: &'a Artifact) -> Option<Self> {
        let directory = Store::open(&machine()).ok()?.dir(&SessionId::parse(id).ok()?);
        let artifacts = Artifacts::of_session(&directory, ArtifactLimits::default());
        let path = artifacts.path(artifact)?;
        Some(Self { artifact, artifacts, path })
    }

    /// Whether it is an image that can be drawn.
    pub fn is_image(&self) -> bool {
        is_drawable(self.artifact)
    }

    /// Its bytes.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        self.artifacts.read(self.artifact).map_err(|error| error.to_string())
    }

    /// The line that says where it is, as a link where escape sequences may be written.
    pub fn line(&self, colours: Colours) -> String {
        let path = one_line(&self.path.to_string_lossy(), 4096);
        let place = match colours.0 {
            true => format!("\x1b]8;;{}\x1b\\{path}\x1b]8;;\x1b\\", address(&self.path)),
            false => path,
        };
        format!("{}\n", colours.paint(DIM, format_args!("    {place}")))
    }
}

/// Whether it is an image that can be drawn.
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
