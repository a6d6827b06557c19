//! The private directory of a local sandbox, and what can be learnt from it about the sandbox's life.
//!
//! `~/.local/share/agent/sandboxes/SESSION/` (`machines` for virtual machines), mode 0700. Not below the runtime directory, which is memory on most systems:
//! workspaces are large, and one that is kept has to survive a reboot. The launcher's part of the layout is described in
//! `src/guest/launch.rs`.

use crate::layer::{self, Contents};
use crate::ownership::{Ownership, ProcessId, sandbox_name};
use crate::project;
use crate::{Copied, State};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::paths;
use agent_base::plain_file::{self, Durability};
use agent_event::Limits;
use agent_wire::launch_spec::{self, LaunchSpec};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The private directory of one session's sandbox.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
}

/// The record of a sandbox, as JSON in `sandbox.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// RFC 3339.
    pub created: String,
    /// The owner.
    pub ownership: Ownership,
    /// Its limits.
    pub limits: Limits,
}

impl Directory {
    /// The directory of `session`, whether it exists or not. Refuses what is not a session id, since it becomes a path.
    pub fn of(machine: &Machine, store: &str, session: &str) -> Result<Self> {
        sandbox_name(session)?;
        Ok(Self { path: all(machine, store)?.join(session) })
    }

    /// Every directory that is there.
    pub fn list(machine: &Machine, store: &str) -> Result<Vec<(String, Self)>> {
        let entries = match fs::read_dir(all(machine, store)?) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            other => {
                other.map_err(|error| Error::sandbox("the sandboxes cannot be listed").caused_by(error))?
            }
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names
            .filter_map(|name| Self::of(machine, store, &name).ok().map(|directory| (name, directory)))
            .collect())
    }

    /// Makes it, empty, with the directories that the launcher expects. The writable ones belong to `ids`.
    pub fn make(&self, record: &Record, writable: &[&str], ids: (u32, u32)) -> Result<()> {
        let failed = |error| self.error("cannot be made", error);
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        if let Some(parent) = self.path.parent().filter(|parent| !parent.is_dir()) {
            DirBuilder::new().mode(0o700).recursive(true).create(parent).map_err(failed)?;
            paths::place_apart(parent);
        }
        builder.create(&self.path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Error::sandbox(format!("session {} already has a sandbox", self.session()))
            }
            _ => failed(error),
        })?;
        self.write("sandbox.json", &serde_json::to_vec(record)?)?;
        builder.create(self.join("root")).map_err(failed)?;
        for name in writable {
            self.make_writable(Path::new(name), ids).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes the directory that the kernel works in where `$HOME` is an overlay.
    pub fn make_home_work(&self, ids: (u32, u32)) -> Result<()> {
        self.make_writable(Path::new("home-work"), ids).map_err(|error| self.error("cannot be made", error))
    }

    fn make_writable(&self, name: &Path, ids: (u32, u32)) -> io::Result<()> {
        let path = self.path.join(name);
        DirBuilder::new().mode(0o755).create(&path)?;
        std::os::unix::fs::chown(&path, Some(ids.0), Some(ids.1))
    }

    /// Writes down what the launcher is to make.
    pub fn write_spec(&self, spec: &LaunchSpec) -> Result<()> {
        self.write(launch_spec::FILE, &spec.encode())
    }

    /// Returns what the launcher was asked to make.
    pub fn spec(&self) -> Option<LaunchSpec> {
        LaunchSpec::decode(&fs::read(self.join(launch_spec::FILE)).ok()?).ok()
    }

    /// Returns what is written down; `None` in the moment of its making, or after damage.
    pub fn record(&self) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.join("sandbox.json")).ok()?).ok()
    }

    /// The launcher and the sandbox's first process, where the sandbox has started.
    pub fn processes(&self) -> Option<(ProcessId, ProcessId)> {
        let text = fs::read_to_string(self.join("processes")).ok()?;
        let mut lines = text.lines().map(|line| line.parse().ok());
        lines.next().flatten().zip(lines.next().flatten())
    }

    /// The sandbox's first process, where it runs.
    pub fn running(&self) -> Option<ProcessId> {
        self.processes().map(|(_, first)| first).filter(|first| first.is_alive())
    }

    /// Returns whether it is left over, when the sandbox is in `state`.
    pub fn is_left_over(&self, state: State) -> bool {
        self.record().map_or_else(|| self.is_old(), |record| record.ownership.is_left_over(state))
    }

    /// Returns whether it was made more than a minute ago: then it is no longer about to be filled.
    fn is_old(&self) -> bool {
        let made = fs::symlink_metadata(&self.path).and_then(|metadata| metadata.modified());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age.as_secs() > 60))
    }

    /// Copies what the sandbox has written into the new directory `into`, if its workspace is an overlay.
    pub async fn copy_layers(&self, into: &Path) -> Result<Copied> {
        if self.spec().is_none_or(|spec| spec.overlay.is_none()) {
            return Ok(Copied::default());
        }
        let copied = async {
            layers(&self.path, into, None, Contents::Copied).await?;
            let (private, into) = (self.path.clone(), into.to_owned());
            tokio::task::spawn_blocking(move || project::copy_caches(&private, &into))
                .await
                .map_err(io::Error::other)?
        };
        copied.await.map_err(|error| self.error("cannot be copied", error))?;
        Ok(Copied { workspace: true, home: true })
    }

    /// Begins with what another sandbox had written, as [`Directory::copy_layers`] left it in `layer`.
    pub async fn take_over(&self, layer: &Path, owner: (u32, u32)) -> Result<()> {
        let taken = layers(layer, &self.path, Some(owner), Contents::Linked).await;
        taken.map_err(|error| self.error("cannot be filled from that of another sandbox", error))
    }

    /// Opens it, so that its socket can be named by a short path whatever its own length (addresses hold 107 bytes).
    pub fn socket(&self) -> Result<(File, PathBuf)> {
        let directory = File::open(&self.path)
            .map_err(|_| Error::sandbox(format!("session {} has no running sandbox", self.session())))?;
        let socket = PathBuf::from(format!("/proc/self/fd/{}/socket", directory.as_raw_fd()));
        Ok((directory, socket))
    }

    pub fn exists(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn session(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Writes a file whole or not at all.
    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        plain_file::replace(&self.join(name), content, Durability::Renamed)
            .map_err(|error| self.error("cannot be written to", error))
    }

    fn error(&self, what: &str, error: std::io::Error) -> Error {
        Error::sandbox(format!("the sandbox's directory {} {what}", self.path.display())).caused_by(error)
    }
}

/// Copies both layers that are in `from`, where `to` has nothing in them yet.
async fn layers(from: &Path, to: &Path, owner: Option<(u32, u32)>, contents: Contents) -> io::Result<()> {
    let (from, to) = (from.to_owned(), to.to_owned());
    let copy = move || {
        [layer::UPPER, layer::HOME].into_iter().filter(|name| from.join(name).is_dir()).try_for_each(|name| {
            match fs::remove_dir(to.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            layer::copy(&from.join(name), &to.join(name), owner, contents)
        })
    };
    tokio::task::spawn_blocking(copy).await.map_err(io::Error::other)?
}

/// Returns the directory that holds the private directories of all sandboxes of a kind.
fn all(machine: &Machine, store: &str) -> Result<PathBuf> {
    Ok(machine.data_dir()?.join(store))
}
