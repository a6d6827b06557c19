//! The offers of servers when they were last asked, so that a session need not start them to know.

use super::settings::ServerSettings;
use crate::protocol::{Era, PromptDescription, ToolDescription};
use agent_base::paths::make_dir;
use agent_base::plain_file::{self, Links};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// The offer of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Offer {
    /// The era that it speaks.
    pub era: Era,
    /// Its tools.
    pub tools: Vec<ToolDescription>,
    /// Its prompts. Without a default, so that a file of an earlier version is asked for again.
    pub prompts: Vec<PromptDescription>,
    /// Set if it has resources.
    pub resources: bool,
    /// Its instructions.
    pub instructions: Option<String>,
}

/// The cache of all servers of a user.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Below `agent`'s directory for files that can be made again.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.join("mcp") }
    }

    /// Returns what this server offered. Blocking, a small file.
    pub fn read(&self, server: &ServerSettings) -> Option<Offer> {
        let bytes = plain_file::read(&self.path(server), MAX_BYTES, Links::Refuse).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Keeps what this server offers. What cannot be written is asked for again.
    pub fn write(&self, server: &ServerSettings, offer: &Offer) {
        let Ok(bytes) = serde_json::to_vec(offer) else { return };
        if bytes.len() as u64 > MAX_BYTES || make_dir(&self.directory).is_err() {
            return;
        }
        let _ = plain_file::replace_private(&self.path(server), &bytes);
    }

    /// Forgets what this server offered.
    pub fn remove(&self, server: &ServerSettings) {
        let _ = fs::remove_file(self.path(server));
    }

    fn path(&self, server: &ServerSettings) -> PathBuf {
        self.directory.join(format!("{}.json", server.fingerprint()))
    }
}
