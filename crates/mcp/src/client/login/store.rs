//! Where logins are kept: a file of the user's for each server.

use agent_base::error::{Error, Result};
use agent_base::file_lock::{Attempt, FileLock};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_base::paths::make_dir;
use agent_base::plain_file::{self, Links};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use url::Url;

/// The largest file, in bytes.
const MAX_FILE: u64 = 256 << 10;
/// The time limit for another process to refresh a token.
const LOCK_TIMEOUT: Duration = Duration::from_secs(45);
/// The interval of looks whether it has.
const LOCK_TICK: Duration = Duration::from_millis(50);

/// The logins of a user.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

/// A login: what is sent to the server, and what it takes to get another token.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The server's address, for those who look into the file.
    pub server: String,
    /// The resource that tokens are asked for.
    pub resource: Url,
    pub token_endpoint: Url,
    pub client_id: String,
    pub client_secret: Option<String>,
    pub access_token: String,
    pub refresh_token: Option<String>,
    /// In seconds since 1970.
    pub expires_at: Option<u64>,
}

impl Store {
    /// Below `agent`'s directory for data.
    ///
    /// # Errors
    /// The user has no such directory.
    pub fn of(machine: &Machine) -> Result<Self> {
        Ok(Self { directory: machine.data_dir()?.join("mcp-logins") })
    }

    /// Forgets the login to a server, after a refresh of it that is under way. Returns whether there was one.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub async fn remove(&self, server: &Url) -> Result<bool> {
        let _lock = self.lock(server).await?;
        let path = self.path(server);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => {
                Err(Error::config(format!("{} cannot be removed", path.display())).caused_by(error))
            }
        }
    }

    pub(super) fn read(&self, server: &Url) -> Option<Kept> {
        let bytes = plain_file::read(&self.path(server), MAX_FILE, Links::Refuse).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn write(&self, server: &Url, kept: &Kept) -> Result<()> {
        make_dir(&self.directory)?;
        let (path, bytes) = (self.path(server), serde_json::to_vec_pretty(kept)?);
        plain_file::replace_private(&path, &bytes)
            .map_err(|error| Error::config(format!("{} cannot be written", path.display())).caused_by(error))
    }

    /// Held while a token is refreshed, and while the file changes: many servers take a token for refreshing only once.
    pub(super) async fn lock(&self, server: &Url) -> Result<FileLock> {
        make_dir(&self.directory)?;
        let path = self.path(server).with_extension("lock");
        let failed = |error| Error::config(format!("{} cannot be locked", path.display())).caused_by(error);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        let last = Instant::now() + LOCK_TIMEOUT;
        loop {
            match FileLock::attempt(&file, &path).map_err(failed)? {
                Attempt::Locked(lock) => return Ok(lock),
                _ if Instant::now() > last => return Err(failed(ErrorKind::TimedOut.into())),
                _ => sleep(LOCK_TICK).await,
            }
        }
    }

    fn path(&self, server: &Url) -> PathBuf {
        self.directory.join(format!("{}.json", Hash::of(server.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn a_login_is_the_users_alone_and_belongs_to_one_address() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store { directory: directory.path().join("logins") };
        let (server, other) =
            (Url::parse("https://a.test/mcp").unwrap(), Url::parse("https://b.test/mcp").unwrap());
        let kept = Kept {
            server: server.to_string(),
            resource: server.clone(),
            token_endpoint: server.clone(),
            client_id: "c".into(),
            client_secret: None,
            access_token: "secret".into(),
            refresh_token: None,
            expires_at: None,
        };
        store.write(&server, &kept).unwrap();
        assert_eq!(fs::metadata(store.path(&server)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&store.directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(store.read(&server).is_some() && store.read(&other).is_none());
        let lock = store.lock(&server).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(200), store.lock(&server)).await.is_err());
        let removed = tokio::time::timeout(Duration::from_millis(200), store.remove(&server));
        assert!(removed.await.is_err() && store.read(&server).is_some(), "it waits for the refresh");
        drop(lock);
        assert!(store.remove(&server).await.unwrap() && !store.remove(&server).await.unwrap());
    }
}
