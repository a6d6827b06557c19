//! Files that tools produced, stored once by hash beside the session file.

use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::lock::Lock;
use agent_base::paths::{create_error, make_dir};
use agent_base::plain_file::{self, Links};
use agent_base::visible::is_hidden;
use agent_event::Artifact;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of a session's artifacts, inside the session's own.
pub(super) const DIRECTORY: &str = "artifacts";
/// The longest name and the longest media type, in bytes.
const MAX_NAME: usize = 200;
const MAX_MEDIA_TYPE: usize = 100;

/// The limits of the bytes of artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactLimits {
    /// One file.
    pub file: u64,
    /// All files of a session.
    pub session: u64,
    /// All files of all sessions.
    pub all: u64,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self { file: 16 << 20, session: 256 << 20, all: 4 << 30 }
    }
}

/// The artifacts of one session.
#[derive(Debug)]
pub struct Artifacts {
    directory: PathBuf,
    sessions: PathBuf,
    limits: ArtifactLimits,
    /// Bytes in use by the session and by the others; read from the disk when the first artifact is added.
    used: Lock<Option<Used>>,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    session: u64,
    others: u64,
}

impl Artifacts {
    /// The artifacts of the session whose files are in `session`. Nothing is created before the first is added.
    pub fn of_session(session: &Path, limits: ArtifactLimits) -> Self {
        Self {
            directory: session.join(DIRECTORY),
            sessions: session.parent().unwrap_or(session).to_owned(),
            limits,
            used: Lock::new(None),
        }
    }

    /// Stores `bytes`; the same bytes are stored once.
    ///
    /// # Errors
    /// `Usage` where a limit is exceeded, otherwise what the disk reports.
    pub fn add(&self, name: &str, media_type: &str, bytes: &[u8]) -> Result<Artifact> {
        let size = bytes.len() as u64;
        let sha256 = Hash::of(bytes).to_string();
        let mut used = self.used.lock();
        let path = self.directory.join(&sha256);
        if !path.exists() {
            let now = used.unwrap_or_else(|| self.measure());
            check(size, self.limits.file, "one artifact")?;
            check(now.session.saturating_add(size), self.limits.session, "the artifacts of a session")?;
            let all = now.session.saturating_add(now.others).saturating_add(size);
            check(all, self.limits.all, "the artifacts of all sessions")?;
            make_dir(&self.directory)?;
            plain_file::replace_private(&path, bytes).map_err(|error| create_error(&path, error))?;
            *used = Some(Used { session: now.session + size, ..now });
        }
        Ok(Artifact {
            id: sha256[..12].to_owned(),
            name: clean_name(name),
            media_type: clean_media_type(media_type),
            bytes: size,
            sha256,
        })
    }

    /// The file with the bytes of an artifact; `None` if its hash is not one.
    pub fn path(&self, artifact: &Artifact) -> Option<PathBuf> {
        Hash::parse(artifact.sha256.as_bytes()).map(|hash| self.directory.join(hash.to_string()))
    }

    /// The bytes of an artifact.
    ///
    /// # Errors
    /// The file is missing, or is not what was stored.
    pub fn read(&self, artifact: &Artifact) -> Result<Vec<u8>> {
        let hash = Hash::parse(artifact.sha256.as_bytes());
        let (Some(hash), Some(path)) = (hash, self.path(artifact)) else {
            return Err(Error::usage(format!("{:?} is not a valid SHA-256", artifact.sha256)));
        };
        let bytes = plain_file::read(&path, self.limits.file, Links::Refuse).map_err(|error| {
            Error::usage(format!("the artifact {} could not be read", artifact.name)).caused_by(error)
        })?;
        match Hash::of(&bytes) == hash {
            true => Ok(bytes),
            false => Err(Error::usage(format!("the artifact {} was changed on disk", artifact.name))),
        }
    }

    fn measure(&self) -> Used {
        let session = size_of(&self.directory);
        let sessions = fs::read_dir(&self.sessions).into_iter().flatten().flatten();
        let all: u64 = sessions.map(|entry| size_of(&entry.path().join(DIRECTORY))).sum();
        Used { session, others: all.saturating_sub(session) }
    }
}

fn check(size: u64, limit: u64, what: &str) -> Result<()> {
    match size <= limit {
        true => Ok(()),
        false => Err(Error::usage(format!("{what} may take {limit} bytes; this would make {size}"))
            .hint("make it smaller, or remove sessions with `agent sessions prune`")),
    }
}

fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// The file name alone, without anything that is not seen or that a terminal or a page would interpret.
fn clean_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut clean = String::new();
    for c in name.chars().map(|c| if is_hidden(c) { '_' } else { c }) {
        if clean.len() + c.len_utf8() > MAX_NAME {
            break;
        }
        clean.push(c);
    }
    if matches!(clean.as_str(), "" | "." | "..") { "unnamed".to_owned() } else { clean }
}

fn clean_media_type(media_type: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+/".contains(c);
    match media_type.len() <= MAX_MEDIA_TYPE && media_type.contains('/') && media_type.chars().all(is_valid) {
        true => media_type.to_ascii_lowercase(),
        false => "application/octet-stream".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifacts(sessions: &Path, session: &str) -> Artifacts {
        let limits = ArtifactLimits { file: 10, session: 15, all: 20 };
        Artifacts::of_session(&sessions.join(session), limits)
    }

    #[test]
    fn the_same_bytes_are_stored_once_and_read_back() {
        let root = tempfile::tempdir().unwrap();
        let artifacts = artifacts(root.path(), "s");
        let first = artifacts.add("a/plot.png", "image/png", b"12345678").unwrap();
        let second = artifacts.add("copy.png", "image/png", b"12345678").unwrap();
        assert_eq!((first.name.as_str(), first.bytes), ("plot.png", 8));
        assert_eq!(first.sha256, second.sha256);
        assert_eq!(artifacts.read(&first).unwrap(), b"12345678");
        assert_eq!(fs::read_dir(root.path().join("s/artifacts")).unwrap().count(), 1);
    }

    #[test]
    fn file_session_and_all_sessions_are_bounded() {
        let root = tempfile::tempdir().unwrap();
        let refused = |artifacts: &Artifacts, bytes: &[u8]| {
            artifacts.add("a", "text/plain", bytes).unwrap_err().to_string()
        };
        let first = artifacts(root.path(), "first");
        assert!(refused(&first, &[0; 11]).starts_with("one artifact may take 10 bytes"));
        first.add("a", "text/plain", &[1; 10]).unwrap();
        assert!(refused(&first, &[2; 6]).starts_with("the artifacts of a session may take 15 bytes"));
        let second = artifacts(root.path(), "second");
        second.add("a", "text/plain", &[3; 9]).unwrap();
        assert!(refused(&second, &[4; 2]).starts_with("the artifacts of all sessions may take 20 bytes"));
        // What is stored already takes no more space.
        second.add("b", "text/plain", &[3; 9]).unwrap();
    }

    #[test]
    fn a_changed_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let artifacts = artifacts(root.path(), "s");
        let artifact = artifacts.add("a", "text/plain", b"right").unwrap();
        fs::write(root.path().join("s/artifacts").join(&artifact.sha256), b"wrong").unwrap();
        assert!(artifacts.read(&artifact).unwrap_err().to_string().contains("was changed on disk"));
        let outside = Artifact { sha256: "../../key".into(), ..artifact };
        assert!(artifacts.read(&outside).is_err());
    }

    #[test]
    fn names_and_media_types_are_made_harmless() {
        for (name, clean) in [
            ("../../etc/passwd", "passwd"),
            ("a\u{1b}[2J.png", "a_[2J.png"),
            ("\u{202e}txt.x.js\u{200b}on", "_txt.x.js_on"),
            ("", "unnamed"),
            ("x/..", "unnamed"),
        ] {
            assert_eq!(clean_name(name), clean);
        }
        assert_eq!(clean_name(&"é".repeat(300)).len(), MAX_NAME);
        assert_eq!(clean_media_type("Image/PNG"), "image/png");
        for media_type in ["", "png", "text/html\r\nX: y", "a/b c"] {
            assert_eq!(clean_media_type(media_type), "application/octet-stream");
        }
    }
}
