//! The hosts and credentials that the user has allowed for a project: kept with the user's sessions, never in the project, which could
//! otherwise allow itself hosts.

use super::list::Entry;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_base::plain_file::{self, Durability, Links};
use serde::{Deserialize, Serialize};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Hosts that are kept for one project.
const MAX_HOSTS: usize = 500;

/// The list of one project.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
    file: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// The project's directory, for those who look into the file.
    root: String,
    hosts: Vec<String>,
    /// Names of credentials.
    #[serde(default)]
    credentials: Vec<String>,
}

impl Project {
    /// That of the project in the directory `root`.
    ///
    /// # Errors
    /// The user has no directory for data.
    pub fn of(root: &Path, machine: &Machine) -> Result<Self> {
        let name = format!("{}.json", Hash::of(root.as_os_str().as_bytes()));
        Ok(Self { root: root.to_owned(), file: machine.data_dir()?.join("networks").join(name) })
    }

    /// The entries; none where the file cannot be read.
    pub fn entries(&self) -> Vec<Entry> {
        self.read().hosts.iter().filter_map(|host| Entry::parse(host).ok()).collect()
    }

    /// Keeps another entry.
    ///
    /// # Errors
    /// The file cannot be written, or has as many as are kept.
    pub fn allow(&self, entry: &Entry) -> Result<()> {
        let (mut kept, entry) = (self.read(), entry.to_string());
        if kept.hosts.contains(&entry) {
            return Ok(());
        }
        if kept.hosts.len() >= MAX_HOSTS {
            return Err(Error::usage(format!("{MAX_HOSTS} hosts are allowed for this project already"))
                .hint(format!("remove some from {}", self.file.display())));
        }
        kept.hosts.push(entry);
        self.write(kept)
    }

    /// The names of the credentials that the user allowed.
    pub fn credentials(&self) -> Vec<String> {
        self.read().credentials
    }

    /// Forgets a host or a credential, by its name. Returns whether it was allowed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&self, name: &str) -> Result<bool> {
        let mut kept = self.read();
        let count = |kept: &Kept| kept.hosts.len() + kept.credentials.len();
        let before = count(&kept);
        kept.hosts.retain(|host| host != name);
        kept.credentials.retain(|known| known != name);
        let is_known = count(&kept) < before;
        if is_known {
            self.write(kept)?;
        }
        Ok(is_known)
    }

    /// Returns whether the user allowed a credential for the project.
    pub fn allows_credential(&self, name: &str) -> bool {
        self.credentials().iter().any(|known| known == name)
    }

    /// Keeps that the user allowed a credential.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn allow_credential(&self, name: &str) -> Result<()> {
        let mut kept = self.read();
        kept.credentials.retain(|known| known != name);
        kept.credentials.push(name.to_owned());
        self.write(kept)
    }

    fn read(&self) -> Kept {
        let bytes = plain_file::read(&self.file, MAX_FILE, Links::Refuse).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    fn write(&self, mut kept: Kept) -> Result<()> {
        kept.root = self.root.display().to_string();
        let text = serde_json::to_vec_pretty(&kept)?;
        let write = || {
            let directory = self.file.parent().ok_or(ErrorKind::NotFound)?;
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            plain_file::replace(&self.file, &text, Durability::Renamed)
        };
        write().map_err(|error| {
            Error::usage(format!("{} cannot be written", self.file.display())).caused_by(error)
        })
    }
}
