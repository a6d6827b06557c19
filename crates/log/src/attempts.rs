//! Attempts of a race that did not win: sessions beside the one that the user continues with.

use super::id::SessionId;
use super::store::Store;
use agent_base::error::{Error, Result};
use agent_base::plain_file::{self, Links};
use std::fs;
use std::io::ErrorKind;

/// The file in an attempt's directory that names the session of the winner.
pub(super) const ATTEMPT: &str = "attempt_of";
/// More bytes than a session's id has.
const MAX_ID_BYTES: u64 = 100;

impl Store {
    /// Notes that `attempt` lost to `winner`: it is not the last session of its workspace, unless it is resumed.
    pub fn mark_attempt(&self, attempt: &SessionId, winner: &SessionId) -> Result<()> {
        let path = self.dir(attempt).join(ATTEMPT);
        fs::write(&path, format!("{winner}\n")).map_err(|error| {
            Error::unexpected(format!("{} could not be written", path.display())).caused_by(error)
        })
    }

    /// The winner of the race that the session lost.
    pub fn attempt_of(&self, id: &SessionId) -> Option<SessionId> {
        let bytes = plain_file::read(&self.dir(id).join(ATTEMPT), MAX_ID_BYTES, Links::Refuse).ok()?;
        SessionId::parse(str::from_utf8(&bytes).ok()?.trim()).ok()
    }

    /// Makes an attempt a session like any other: the user continues it.
    pub fn unmark_attempt(&self, id: &SessionId) -> Result<()> {
        let path = self.dir(id).join(ATTEMPT);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::unexpected(format!("{} could not be removed", path.display())).caused_by(error))
            }
            _ => Ok(()),
        }
    }
}
