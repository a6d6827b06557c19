//! The file that says that a session's sandbox is still to be removed, and that no process which resumes the session has taken it over.
//!
//! A removal that has failed is tried again after its session was closed, so any process may resume that session meanwhile, and may
//! continue with the same sandbox that was to be removed. Each attempt locks the file; a process that resumes the session waits for that
//! attempt, and removes the file.

use agent_base::error::{Error, Result};
use agent_base::file_lock::{Attempt, FileLock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time limit for waiting for an attempt that is under way, and the pause between two looks.
const LONGEST: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// The file, as the removal has it.
pub(super) struct Mark {
    path: PathBuf,
    file: File,
}

/// The outcome of an attempt to hold a mark.
pub(super) enum Hold {
    /// Nobody takes the sandbox over until this is dropped.
    Held(FileLock),
    /// Somebody is about to.
    Contended,
    /// The sandbox is another's.
    TakenOver,
}

impl Mark {
    /// Makes the mark at `path`, or takes over the one that a process left there which was killed.
    pub fn make(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }

    /// Tries to keep others from taking the sandbox over.
    pub fn hold(&self) -> Hold {
        match FileLock::attempt(&self.file, &self.path) {
            // It may have been removed before it was locked, and another have been made in its place.
            Ok(Attempt::Locked(lock)) if is_at(&self.file, &self.path) => Hold::Held(lock),
            // Nobody resumes a session whose directory is gone.
            Ok(Attempt::Locked(lock)) if !self.path.parent().is_some_and(Path::exists) => Hold::Held(lock),
            Ok(Attempt::Locked(_)) => Hold::TakenOver,
            Ok(Attempt::Taken | Attempt::TakenElsewhere(_)) | Err(_) => Hold::Contended,
        }
    }

    /// Removes it, while it is held.
    pub fn remove(self) {
        // One that stays is removed by who resumes the session.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns whether `file` is what lies at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: io::Result<fs::Metadata>| found.map(|found| (found.dev(), found.ino())).ok();
    let own = identity(file.metadata());
    own.is_some() && own == identity(fs::symlink_metadata(path))
}

/// Takes over the sandbox of a session whose mark is at `path`: no removal of an earlier process, or of this one, touches it
/// from then on. `true` if it was to be removed.
///
/// # Errors
/// An attempt to remove it does not end.
pub async fn take_over(path: &Path) -> Result<bool> {
    let deadline = Instant::now() + LONGEST;
    let failed = |error: io::Error| {
        Error::sandbox("it is not known whether the session's sandbox is being removed").caused_by(error)
    };
    loop {
        let file = match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(failed)?,
        };
        match FileLock::attempt(&file, path).map_err(failed)? {
            Attempt::Locked(_lock) if is_at(&file, path) => {
                return fs::remove_file(path).map(|()| true).map_err(failed);
            }
            Attempt::Locked(_) => {}
            Attempt::Taken | Attempt::TakenElsewhere(_) if Instant::now() < deadline => sleep(PAUSE).await,
            Attempt::Taken | Attempt::TakenElsewhere(_) => {
                return Err(Error::sandbox(
                    "the session's sandbox is still being removed by another process",
                )
                .hint("resume it again when its engine or API server answers"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_mark_is_taken_over_between_two_attempts_and_never_during_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("removal");
        assert!(!take_over(&path).await.expect("nothing is being removed"));
        let mark = Mark::make(path.clone()).unwrap();
        let Hold::Held(lock) = mark.hold() else { panic!("it is free") };
        let error = take_over(&path).await.unwrap_err();
        assert!(error.to_string().contains("is still being removed"), "{error}");
        drop(lock);
        assert!(take_over(&path).await.expect("no attempt is under way"));
        assert!(!path.exists());
        // Another removal of the same session, by a process that has resumed it.
        let other = Mark::make(path.clone()).unwrap();
        assert!(matches!(mark.hold(), Hold::TakenOver));
        assert!(matches!(other.hold(), Hold::Held(_)));
        other.remove();
        assert!(!path.exists() && matches!(mark.hold(), Hold::TakenOver));
        // The session was removed meanwhile: its sandbox is still to be.
        fs::remove_dir_all(&directory).unwrap();
        assert!(matches!(mark.hold(), Hold::Held(_)));
    }
}
