//! The few files that the sandbox itself needs in an image: a sorted list of entries that can be hashed and packed.

use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_sandbox::{HOME, WORKSPACE, bootstrap, sandbox_ids, seccomp};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The path of the guest inside.
pub(super) const GUEST: &str = "/.agent/guest";

/// The path inside of the system call filters that the guest installs.
pub(super) const FILTERS: &str = "/.agent/filters";

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// A directory of root's.
    Directory,
    /// A directory of the user's who works inside.
    OwnDirectory,
    /// A directory of root's that everybody may write to. What is mounted there takes its mode.
    SharedDirectory,
    /// A file of root's, readable by all.
    File(Vec<u8>),
    /// The guest's program.
    Guest,
    /// A symlink and what it says.
    Symlink(PathBuf),
}

/// Entries by absolute path. Parents sort before what is below them.
#[derive(Debug, Clone)]
pub(super) struct Skeleton {
    entries: BTreeMap<PathBuf, Node>,
    guest: Cow<'static, [u8]>,
}

impl Skeleton {
    /// Returns what every image gets: the guest, its system call filters, `/run`, the workspace, and the home.
    pub(super) fn base(machine: &Machine) -> Result<Self> {
        let mut skeleton = Self { entries: BTreeMap::new(), guest: bootstrap::bytes(machine)? };
        skeleton.add(GUEST, Node::Guest);
        if bootstrap::is_for_this_processor(machine)? {
            skeleton.add(FILTERS, Node::File(seccomp::filters()?));
        }
        // runc gives a tmpfs the mode of the image's directory, whatever its own options say.
        skeleton.add("/run", Node::SharedDirectory);
        skeleton.add(WORKSPACE, Node::OwnDirectory);
        skeleton.add(HOME, Node::OwnDirectory);
        Ok(skeleton)
    }

    /// Adds an entry and the directories above it; what is there already stays.
    pub(super) fn add(&mut self, path: impl AsRef<Path>, node: Node) {
        let path = path.as_ref();
        for above in path.ancestors().skip(1).filter(|above| above.parent().is_some()) {
            self.entries.entry(above.to_owned()).or_insert(Node::Directory);
        }
        self.entries.entry(path.to_owned()).or_insert(node);
    }

    /// A short name for exactly these entries, this guest and this user.
    pub(super) fn id(&self, also: &[&str]) -> String {
        // Debug text escapes quotes and newlines, so two different lists never read the same.
        let text = format!("{:?} {:?} {} {also:?}", self.entries, sandbox_ids(), bootstrap::id(&self.guest));
        Hash::of(text).short(8)
    }

    /// The entries as a tar archive.
    pub(super) fn tar(&self) -> Result<Vec<u8>> {
        self.pack().map_err(|error| Error::unexpected("the image could not be packed").caused_by(error))
    }

    fn pack(&self) -> anyhow::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, node) in &self.entries {
            let inside = path.strip_prefix("/")?;
            let mut header = tar::Header::new_ustar();
            let (uid, gid) = match node {
                Node::OwnDirectory => sandbox_ids(),
                _ => (0, 0),
            };
            header.set_uid(uid.into());
            header.set_gid(gid.into());
            header.set_mode(match node {
                Node::SharedDirectory => 0o1777,
                Node::File(_) => 0o644,
                _ => 0o755,
            });
            let data: &[u8] = match node {
                Node::Directory | Node::OwnDirectory | Node::SharedDirectory => {
                    header.set_entry_type(tar::EntryType::Directory);
                    &[]
                }
                Node::Symlink(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    archive.append_link(&mut header, inside, target)?;
                    continue;
                }
                Node::File(data) => data,
                Node::Guest => &self.guest,
            };
            header.set_size(data.len() as u64);
            archive.append_data(&mut header, inside, data)?;
        }
        Ok(archive.into_inner()?)
    }
}
