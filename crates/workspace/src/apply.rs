//! Writes a change set to the host's tree: first every file is checked, then each is written atomically.
//!
//! Nothing is written where any file conflicts. What the host had is recorded before the first write, so that the
//! same code can restore it; a write that fails half-way is reverted at once.

mod decided;

use crate::changes::{Change, ChangeSet};
use crate::host_dir::{Changed, HostDir, Observed};
use crate::manifest::Node;
use crate::merge::{self, Merged, Ours};
use crate::resolution::{Resolutions, Settled};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::count_text::counted;
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

/// A file that cannot be written because the host's version is not what the session knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path that conflicts.
    pub path: TreePath,
    /// The reason, to stand after a colon.
    pub reason: String,
}

/// A plan that could not be written.
#[derive(Debug)]
pub struct HalfWritten {
    /// The reason.
    pub error: Error,
    /// The changes that are on the host all the same.
    pub left: ChangeSet,
}

/// The steps of an apply, checked against the host.
#[derive(Debug, Default)]
pub struct Plan {
    steps: BTreeMap<TreePath, Step>,
    merged: Vec<TreePath>,
    settled: BTreeMap<TreePath, Settled>,
    /// Set if what is made gets all of its permission bits, because it was there before.
    restores: bool,
}

#[derive(Debug)]
struct Step {
    found: Observed,
    write: Option<Node>,
}

impl Plan {
    /// Checks every change against the host. Conflicts come back all together, as an error of kind
    /// [`Kind::Conflict`]. With `merge`, a file that both sides changed is merged where that is possible without
    /// conflicting lines, and otherwise written as was decided there. Contents that will be overwritten are kept in `store`.
    pub fn check(
        host: &HostDir,
        changes: &ChangeSet,
        store: &Store,
        merge: Option<&Resolutions>,
    ) -> Result<Plan> {
        let (plan, conflicts) = Self::judge(&Check { host, changes, store, merge })?;
        if conflicts.is_empty() { Ok(plan) } else { Err(conflict_error(&conflicts)) }
    }

    /// Judges what of a change can be written, and what conflicts.
    fn judge(check: &Check<'_>) -> Result<(Plan, Vec<Conflict>)> {
        let (mut plan, mut conflicts) = (Plan::default(), Vec::new());
        for (path, change) in &check.changes.changes {
            match check.one(path, change)? {
                Verdict::Done => {}
                Verdict::Conflict(reason) => conflicts.push(Conflict { path: path.clone(), reason }),
                Verdict::Write { step, is_merged } => {
                    if is_merged {
                        plan.merged.push(path.clone());
                        let node = step.write.clone();
                        plan.settled.insert(path.clone(), Settled { on_host: node.clone(), inside: node });
                    }
                    plan.steps.insert(path.clone(), step);
                }
                Verdict::Decided { step, settled } => {
                    step.into_iter().for_each(|step| drop(plan.steps.insert(path.clone(), step)));
                    settled.into_iter().for_each(|settled| drop(plan.settled.insert(path.clone(), settled)));
                }
            }
        }
        Ok((plan, conflicts))
    }

    /// The same plan as one that puts back what was there: with all permission bits, whatever the umask is.
    pub fn restoring(self) -> Self {
        Self { restores: true, ..self }
    }

    /// Files that are about to be separated from their other names, a line each: writing through a hard link would change
    /// a file that may be anywhere.
    pub fn separated(&self) -> impl Iterator<Item = String> {
        let linked = |step: &Step| step.found.links > 1 && is_file(&step.write);
        self.steps.iter().filter(move |(_, step)| linked(step)).map(|(path, step)| {
            let others = step.found.links - 1;
            format!(
                "{path} was a hard link: the former content stays under {}",
                counted(others, "other name")
            )
        })
    }

    /// Files that both sides changed and that were merged.
    pub fn merged(&self) -> &[TreePath] {
        &self.merged
    }

    /// Files that both sides changed, and what each side has of them after the apply.
    pub(crate) fn settled(&self) -> &BTreeMap<TreePath, Settled> {
        &self.settled
    }

    /// Returns what will be written, as a change set from what the host has now. Its reverse undoes the apply.
    pub fn record(&self) -> ChangeSet {
        // What stays or is replaced by its kind keeps its access control list, what is removed does not get it back.
        let stays = |step: &Step| {
            is_plain_file(&step.write) && is_plain_file(&step.found.node)
                || is_directory(&step.write) && is_directory(&step.found.node)
        };
        let before = |step: &Step| match stays(step) {
            true => step.found.node.clone(),
            false => step.found.restorable(),
        };
        let change = |step: &Step| Change { before: before(step), after: step.write.clone() };
        let changes = self.steps.iter().map(|(path, step)| (path.clone(), change(step))).collect();
        ChangeSet { changes, ..ChangeSet::default() }
    }

    /// Returns whether there is nothing left to write.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Writes. If a step fails, what was written is reverted, but for what has changed on the host since.
    ///
    /// # Errors
    /// A step failed; with what of the plan is on the host all the same, because the way back failed too.
    pub fn write(&self, host: &HostDir, store: &Store) -> Result<(), Box<HalfWritten>> {
        let mut writer = Writer::new(&self.steps, host, store, self.restores);
        let Err(error) = writer.write() else { return Ok(()) };
        let done = std::mem::take(&mut writer.done);
        let mut left = self.record();
        left.changes.retain(|path, _| done.contains(path));
        // The error that led here is the one to show.
        let check = Check { host, changes: &left.reversed(), store, merge: None };
        if let Ok((back, _)) = Self::judge(&check) {
            let _ = Writer { goes_on: true, ..Writer::new(&back.steps, host, store, true) }.write();
        }
        let is_back = |node: Option<&Node>, change: &Change| {
            is_done(node, &Change { before: change.after.clone(), after: change.before.clone() })
        };
        left.changes.retain(|path, change| match observe(host, path, &ChangeSet::default()) {
            Ok(found) => is_done(found.node.as_ref(), change) && !is_back(found.node.as_ref(), change),
            Err(_) => true,
        });
        Err(Box::new(HalfWritten { error, left }))
    }
}

/// The verdict on a change, given what is on the host.
enum Verdict {
    /// The host has it already.
    Done,
    /// It can be written.
    Write { step: Step, is_merged: bool },
    /// The user has decided about it; perhaps that the host keeps what it has.
    Decided { step: Option<Step>, settled: Option<Settled> },
    /// It cannot be written, for this reason.
    Conflict(String),
}

/// A change set that is checked against the host.
struct Check<'a> {
    host: &'a HostDir,
    changes: &'a ChangeSet,
    store: &'a Store,
    /// The decisions about files that cannot be merged; `None`: no files are merged.
    merge: Option<&'a Resolutions>,
}

impl Check<'_> {
    fn one(&self, path: &TreePath, change: &Change) -> Result<Verdict> {
        let found = match observe(self.host, path, self.changes) {
            Ok(found) => found,
            Err(error) => return Ok(Verdict::Conflict(describe(&error))),
        };
        let node = found.node.as_ref();
        if is_done(node, change) {
            return Ok(Verdict::Done);
        }
        let (write, is_merged) = if is_base(node, change) {
            (keep_host_mode(node, change), false)
        } else {
            match self.try_merge(path, node, change)? {
                Merged::Clean(merged) => (Some(not_wider(merged, node, change)), true),
                Merged::Impossible(reason) => return self.as_decided(path, found, change, reason),
            }
        };
        if let Some(reason) = self.cannot_replace(path, node, write.as_ref())? {
            return Ok(Verdict::Conflict(reason));
        }
        Ok(Verdict::Write { step: Step { found, write }, is_merged })
    }

    fn read(&self, path: &TreePath, most: u64) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        self.host.open_file(path)?.take(most).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Merges if that was requested. The reason against it begins with what conflicts.
    fn try_merge(&self, path: &TreePath, found: Option<&Node>, change: &Change) -> Result<Merged> {
        let reason = conflict_reason(found, change);
        if self.merge.is_none() {
            return Ok(Merged::Impossible(reason));
        }
        let read = |most| self.read(path, most);
        let ours = Ours { found, read: &read, other: "the sandbox" };
        Ok(match merge::three_way(&ours, change, self.store)? {
            Merged::Impossible(why) => Merged::Impossible(format!("{reason}, and {why}")),
            clean => clean,
        })
    }

    /// Keeps what the host has, so that it can be restored, and reports if that is not possible.
    fn cannot_replace(
        &self,
        path: &TreePath,
        found: Option<&Node>,
        write: Option<&Node>,
    ) -> Result<Option<String>> {
        match found {
            Some(Node::Directory { .. }) if write.is_some_and(|node| !node.is_directory()) => {
                let stray = stray(self.host, path, self.changes)?;
                Ok(stray.map(|stray| format!("a file takes its place, but the host has {stray} in it")))
            }
            Some(Node::File { hash, .. }) if !self.store.contains(*hash) => {
                let (kept, _) = self.store.put_from(&mut self.host.open_file(path)?)?;
                Ok((kept != *hash)
                    .then(|| "something on the host was writing to it just now: try again".to_owned()))
            }
            _ => Ok(None),
        }
    }
}

/// A plan on its way to the disk.
struct Writer<'a> {
    steps: &'a BTreeMap<TreePath, Step>,
    host: &'a HostDir,
    store: &'a Store,
    restores: bool,
    /// Paths that were touched, so that they can be restored.
    done: BTreeSet<&'a TreePath>,
    /// Directories that were not there.
    made: BTreeSet<&'a TreePath>,
    /// Set if a step that fails does not end it.
    goes_on: bool,
}

impl<'a> Writer<'a> {
    fn new(steps: &'a BTreeMap<TreePath, Step>, host: &'a HostDir, store: &'a Store, restores: bool) -> Self {
        Self { steps, host, store, restores, done: BTreeSet::new(), made: BTreeSet::new(), goes_on: false }
    }

    /// Removals first, deepest first; then directories, then files, and the modes of directories at the very end.
    fn write(&mut self) -> Result<()> {
        for (path, step) in self.steps.iter().rev() {
            let removed = self.remove(path, step);
            self.done_or_left(removed)?;
        }
        for (path, step) in self.steps {
            if is_directory(&step.write) && !is_directory(&step.found.node) {
                let made = self.touch(path, |host| make_directories(host, path));
                let is_made = self.done_or_left(made)?;
                self.made.extend((is_made == Some(true)).then_some(path));
            }
        }
        for (path, step) in self.steps {
            if is_file(&step.write) {
                let written = self.write_file(path, step);
                self.done_or_left(written)?;
            }
        }
        for (path, step) in self.steps.iter().rev() {
            let Some(Node::Directory { mode }) = step.write else { continue };
            // What was there may have been a file, with a mode of its own.
            let former = step.found.node.as_ref().filter(|node| node.is_directory()).and_then(Node::mode);
            // One that somebody else has made meanwhile is theirs.
            if is_directory(&step.found.node) || self.made.contains(path) && self.sets_mode(mode) {
                let set = self.touch(path, |host| host.set_directory_mode(path, mode, former));
                self.done_or_left(set)?;
            }
        }
        let parents: BTreeSet<_> = self.steps.keys().map(TreePath::parent).collect();
        parents.iter().try_for_each(|parent| self.host.sync(parent.as_ref())).map_err(Error::from)
    }

    /// The result of a step; nothing where it failed and the others are to be done all the same.
    fn done_or_left<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(_) if self.goes_on => Ok(None),
            result => result.map(Some),
        }
    }

    fn remove(&mut self, path: &TreePath, step: &Step) -> Result<()> {
        if is_file(&step.found.node) && !is_file(&step.write) {
            self.touch(path, |host| host.remove_file(path, &step.found))
        } else if is_directory(&step.found.node) && !is_directory(&step.write) {
            self.touch(path, |host| remove_directory(host, path, step.write.is_some()))
        } else {
            Ok(())
        }
    }

    fn write_file(&mut self, path: &TreePath, step: &Step) -> Result<()> {
        let store = self.store;
        let sets_mode = |mode| is_plain_file(&step.found.node) || self.sets_mode(mode);
        let is_new = matches!(step.write, Some(Node::File { mode, .. }) if !sets_mode(mode));
        self.touch(path, |host| write_node(host, store, path, step, is_new))
    }

    /// Returns whether something new gets exactly these permission bits: as with git the executable bit is taken, and the umask decides
    /// about the others; what is nobody else's stays so, and what its owner may not write.
    fn sets_mode(&self, mode: u32) -> bool {
        self.restores || mode & 0o077 == 0 || mode & 0o200 == 0
    }

    fn touch<T>(&mut self, path: &TreePath, act: impl FnOnce(&HostDir) -> io::Result<T>) -> Result<T> {
        let acted = act(self.host);
        let is_touched = !acted.as_ref().is_err_and(Changed::is);
        if let Some((path, _)) = self.steps.get_key_value(path).filter(|_| is_touched) {
            self.done.insert(path);
        }
        acted.map_err(|error| cannot_write(path, error))
    }
}

fn is_directory(node: &Option<Node>) -> bool {
    matches!(node, Some(Node::Directory { .. }))
}

fn is_plain_file(node: &Option<Node>) -> bool {
    matches!(node, Some(Node::File { .. }))
}

fn is_file(node: &Option<Node>) -> bool {
    matches!(node, Some(Node::File { .. } | Node::Symlink { .. }))
}

/// Returns what the host has. A name below something that this change set turns into a directory is not there yet.
fn observe(host: &HostDir, path: &TreePath, changes: &ChangeSet) -> io::Result<Observed> {
    let becomes_directory = |path: TreePath| {
        changes.changes.get(&path).is_some_and(|change| {
            change.after.as_ref().is_some_and(Node::is_directory)
                && !change.before.as_ref().is_some_and(Node::is_directory)
        })
    };
    match host.observe(path) {
        Err(error)
            if error.kind() == io::ErrorKind::NotADirectory && path.ancestors().any(becomes_directory) =>
        {
            Ok(Observed::nothing())
        }
        observed => observed,
    }
}

/// Returns whether the host already has what would be written.
pub(super) fn is_done(found: Option<&Node>, change: &Change) -> bool {
    match (found, &change.after) {
        (None, None) => true,
        (Some(found), Some(after)) => {
            let is_made = change.before.is_none() && has_mode_of(found, after);
            found.same_content(after) && (found.mode() == after.mode() || !change.changes_mode() || is_made)
        }
        _ => false,
    }
}

/// Returns whether something that was made has the permission bits that it was made for, as far as the umask left them.
fn has_mode_of(found: &Node, made: &Node) -> bool {
    let is_executable = |node: &Node| node.mode().is_some_and(|mode| mode & 0o100 != 0);
    is_executable(found) == is_executable(made)
}

/// Returns whether the host still has what the change starts from.
pub(super) fn is_base(found: Option<&Node>, change: &Change) -> bool {
    match (found, &change.before) {
        (None, None) => true,
        // A directory that was made meanwhile is kept; only its mode is set.
        (Some(Node::Directory { .. }), None) => change.after.as_ref().is_some_and(Node::is_directory),
        (None, Some(Node::Directory { .. })) => change.after.as_ref().is_some_and(Node::is_directory),
        (Some(found), Some(before)) => {
            let mode_matters = change.after.is_some() && change.changes_mode() && !before.is_directory();
            found.same_content(before) && (!mode_matters || found.mode() == before.mode())
        }
        _ => false,
    }
}

/// Returns what is written: with the host's own permission bits where the change is not about them.
pub(super) fn keep_host_mode(found: Option<&Node>, change: &Change) -> Option<Node> {
    let after = change.after.clone()?;
    let after = match change.mode_over(found.and_then(Node::mode)) {
        Some(mode) => after.with_mode(mode),
        None => after,
    };
    Some(not_wider(after, found, change))
}

/// Restricts what is to be written to whom the host's own version is for, where the user has changed that since the
/// session took it. What becomes executable is so for whom may read it.
fn not_wider(node: Node, found: Option<&Node>, change: &Change) -> Node {
    let (Some(mode), Some(found)) = (node.mode(), found.and_then(Node::mode)) else { return node };
    match change.before.as_ref().and_then(Node::mode) {
        Some(before) if before == found => node,
        _ => node.with_mode(mode & (found | (found & 0o444) >> 2)),
    }
}

/// Something in a host directory that the change set does not remove.
fn stray(host: &HostDir, directory: &TreePath, changes: &ChangeSet) -> Result<Option<TreePath>> {
    for name in host.list(Some(directory))? {
        let path = [directory.as_bytes(), b"/", &name].concat();
        let Ok(path) = TreePath::new(&path) else { return Ok(Some(directory.clone())) };
        let removed = changes.changes.get(&path).is_some_and(|change| change.after.is_none());
        if !removed {
            return Ok(Some(path));
        }
        if changes
            .changes
            .get(&path)
            .is_some_and(|change| change.before.as_ref().is_some_and(Node::is_directory))
            && let Some(stray) = stray(host, &path, changes)?
        {
            return Ok(Some(stray));
        }
    }
    Ok(None)
}

/// A directory that is not empty stays, unless something else has to take its place: what is in it is the host's.
fn remove_directory(host: &HostDir, path: &TreePath, must_go: bool) -> io::Result<()> {
    match host.remove_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && !must_go => Ok(()),
        result => result,
    }
}

/// Makes a directory and those above it. Returns whether it was not there.
fn make_directories(host: &HostDir, path: &TreePath) -> io::Result<bool> {
    let above: Vec<_> = path.ancestors().collect();
    for directory in above.iter().rev() {
        host.make_directory(directory)?;
    }
    host.make_directory(path)
}

fn write_node(host: &HostDir, store: &Store, path: &TreePath, step: &Step, is_new: bool) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        make_directories(host, &parent)?;
    }
    // A directory that was there has just been removed.
    let removed = Observed::nothing();
    let former = if is_directory(&step.found.node) { &removed } else { &step.found };
    match &step.write {
        Some(Node::File { hash, mode, .. }) => {
            let mut content = store.open_blob(*hash).map_err(io::Error::other)?;
            match is_new {
                true => host.write_plain_file(path, &mut content, mode & 0o100 != 0, former),
                false => host.write_file(path, &mut content, *mode, former),
            }
        }
        Some(Node::Symlink { target }) => host.write_symlink(path, target, former),
        Some(Node::Directory { .. }) | None => Ok(()),
    }
}

fn conflict_reason(found: Option<&Node>, change: &Change) -> String {
    match (found, &change.before) {
        (Some(_), None) => "the host has a file there that the session does not know".to_owned(),
        (None, Some(_)) => "it was deleted on the host".to_owned(),
        (_, Some(Node::File { hash: Hash::UNKNOWN, .. })) => {
            "it had changed on the host before the session first changed it".to_owned()
        }
        _ => "it changed on the host since the session took it".to_owned(),
    }
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotADirectory => {
            "a file or symlink on the host takes the place of a directory above it".to_owned()
        }
        _ => error.to_string(),
    }
}

fn cannot_write(path: &TreePath, error: io::Error) -> Error {
    if Changed::is(&error) {
        return conflict_error(&[Conflict { path: path.clone(), reason: error.to_string() }]);
    }
    Error::unexpected(format!("{path} could not be written on the host")).caused_by(error)
}

/// Most conflicts that are listed by name.
const MAX_LISTED: usize = 50;

fn conflict_error(conflicts: &[Conflict]) -> Error {
    let named: Vec<_> =
        conflicts.iter().map(|conflict| (conflict.path.to_string(), conflict.reason.clone())).collect();
    conflicts_error(&named)
}

/// The error about conflicts, each a path that is safe to show and a reason.
pub(crate) fn conflicts_error(conflicts: &[(String, String)]) -> Error {
    let mut message = match conflicts {
        [_] => "nothing was written, because a file conflicts".to_owned(),
        _ => format!("nothing was written, because {} files conflict", conflicts.len()),
    };
    for (path, reason) in conflicts.iter().take(MAX_LISTED) {
        message.push_str(&format!("\n  {path}: {reason}"));
    }
    if conflicts.len() > MAX_LISTED {
        message.push_str(&format!("\n  and {} more", conflicts.len() - MAX_LISTED));
    }
    let each = conflicts.iter().map(|(path, reason)| json!({ "path": path, "reason": reason }));
    Error::new(Kind::Conflict, message).details(each.collect())
}
