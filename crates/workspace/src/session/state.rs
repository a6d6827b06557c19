//! What changes about a session's workspace while it is used.

use super::records::{AppliedRecord, Skipped};
use crate::base::Base;
use crate::history::History;
use crate::host_changes::HostView;
use crate::manifest::{Delta, Manifest};
use crate::scan::Scanner;
use crate::selection::{LeftOut, Selection};
use crate::tree_path::TreePath;
use crate::withheld::Search;
use agent_sandbox::WorkspaceMount;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The state of a workspace, behind its lock.
pub struct SessionState {
    pub mount: WorkspaceMount,
    /// The directory that lies under what the sandbox writes.
    pub beneath: Option<PathBuf>,
    /// Set if the sandbox has copies of the files that git does not ignore, also where the mount shows the others.
    pub copies: bool,
    /// The look for what of the ignored files the sandbox is not to see, until it is filled.
    pub search: Option<Search>,
    /// The ignored paths that the sandbox does not see.
    pub withheld: BTreeSet<TreePath>,
    /// Paths that are left out since the sandbox began, and that an overlay did not show when they were to be hidden.
    pub out_of_sight: BTreeMap<TreePath, LeftOut>,
    /// The host's tree as [`super::Workspace::reopen`] found it.
    pub found: Option<Selection>,
    /// The state of the host's tree at the last look; `None` until a process that attached to a running sandbox has
    /// looked.
    pub view: Option<HostView>,
    pub base: Base,
    /// Set if [`SessionState::base`] is still to be read: it is large, and a fork is ready before anybody needs it.
    pub is_unread: bool,
    /// Set if the base holds edits of the host's that its record does not. A process that ends before it is written finds them
    /// again by looking at the host.
    pub has_unsaved_edits: bool,
    /// The `.git` of a fresh sandbox, where the workspace's repository does not lie in it as a whole.
    pub own_git: Option<Manifest>,
    pub scanner: Scanner,
    pub history: History,
    /// Differences of the sandbox from the base when the session began; empty unless it is a branch of another one.
    pub origin: Delta,
    /// Differences of the host from the base that an apply wrote.
    pub accepted: Delta,
    pub applied: Vec<AppliedRecord>,
    /// The entries of a running sandbox that differ from what is recorded, because none was attached when that changed.
    pub awaited: Delta,
    /// The differences from the base that no prompt under way has made, where the sandbox writes straight into the host's
    /// tree.
    pub before_prompt: Delta,
    /// The findings of the last look beside the changes.
    pub skipped: Skipped,
}

/// A tree of at least this many paths is freed on a thread of its own.
const LARGE_PATHS: usize = 10_000;

impl Drop for SessionState {
    fn drop(&mut self) {
        // Freeing a large tree takes long, and a process that ends would wait for it.
        if self.base.nodes.len() >= LARGE_PATHS {
            let tree = (std::mem::take(&mut self.base), self.found.take());
            // Where no thread can be started, it is freed here.
            let _ = std::thread::Builder::new().spawn(move || drop(tree));
        }
    }
}

impl SessionState {
    /// That of a workspace in which nothing has happened yet.
    pub fn new(mount: WorkspaceMount, base: Base, scanner: Scanner) -> Self {
        Self {
            copies: mount == WorkspaceMount::Empty,
            mount,
            beneath: None,
            search: None,
            withheld: BTreeSet::new(),
            out_of_sight: BTreeMap::new(),
            found: None,
            view: None,
            base,
            is_unread: false,
            has_unsaved_edits: false,
            own_git: None,
            scanner,
            history: History::new(),
            origin: Delta::new(),
            accepted: Delta::new(),
            applied: Vec::new(),
            awaited: Delta::new(),
            before_prompt: Delta::new(),
            skipped: Skipped::default(),
        }
    }
}
