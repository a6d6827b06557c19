//! The checkpoints of a session, in order, and which of them the sandbox is at.

use crate::build_files::{Trees, leave_out};
use crate::git_directory;
use crate::manifest::{Delta, Manifest, Node};
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Files that a checkpoint names while it is new.
const MAX_NAMES: usize = 20;
/// Most checkpoints that are kept; the oldest but the first are removed.
const MAX_CHECKPOINTS: usize = 1000;

/// A recorded state of the sandbox's workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its number in the session, as text; the state before the first turn is `0`.
    pub id: String,
    /// The time when it was made, RFC 3339.
    pub time: String,
    /// The number of files (symlinks count; directories, git's own and what only build tools write do not) that differ
    /// from the one before.
    pub files: u64,
    /// The first of them, where it was made just now.
    #[serde(skip)]
    pub names: Vec<TreePath>,
    /// The number of the prompt that led to it, counting from 1 over the whole session.
    #[serde(default, alias = "wish")]
    pub prompt: u64,
    /// The number of older checkpoints that were removed to make room for it.
    #[serde(default)]
    pub forgotten: usize,
    /// Set if the state that it was made after is not kept any more.
    #[serde(default)]
    pub after_gap: bool,
    /// The checkpoints that the directories are at that were added to the workspace, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
}

/// The result of a look at the directories that were added to the workspace.
#[derive(Debug, Default)]
pub struct OfAdded {
    /// The checkpoints that they are at, in order.
    pub at: Vec<String>,
    /// As in [`Checkpoint`], of those that were made just now.
    pub files: u64,
    pub names: Vec<TreePath>,
    pub forgotten: usize,
}

/// All of them. What each holds lies in the store as its difference from the base.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct History {
    checkpoints: Vec<Checkpoint>,
    /// Index of the one that the sandbox is at.
    at: usize,
    next: u64,
    /// The differences of the sandbox at `at`.
    #[serde(skip)]
    delta: Delta,
}

const FILE: &str = "checkpoints/history.json";

impl History {
    /// A history that begins with the base itself.
    pub fn new() -> Self {
        let first = Checkpoint {
            id: "0".into(),
            time: agent_event::now(),
            files: 0,
            names: Vec::new(),
            prompt: 0,
            forgotten: 0,
            after_gap: false,
            added: Vec::new(),
        };
        Self { checkpoints: vec![first], at: 0, next: 1, delta: Delta::new() }
    }

    /// The history that the store holds, if any.
    pub fn load(store: &Store) -> Result<Option<Self>> {
        let Some(mut history) = store.load::<Self>(FILE)? else { return Ok(None) };
        if history.at >= history.checkpoints.len() {
            return Err(Error::unexpected("the list of checkpoints is damaged"));
        }
        history.delta = history.read(store, history.at)?;
        Ok(Some(history))
    }

    /// The checkpoints, oldest first.
    pub fn list(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    /// The index of the one that the sandbox is at.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns what the sandbox has otherwise than the base, at the current checkpoint.
    pub fn delta(&self) -> &Delta {
        &self.delta
    }

    /// Records a state, a difference from `base`, unless it is the current one, or differs in git's indices alone, which
    /// `git status` writes: those are recorded with the next change. It belongs to `prompt`, or to that of
    /// the current checkpoint. What had been undone can no longer be redone.
    pub fn record(
        &mut self,
        delta: Delta,
        base: &Manifest,
        prompt: Option<u64>,
        store: &Store,
    ) -> Result<Option<Checkpoint>> {
        if self.differing(&delta).all(git_directory::is_index) {
            return Ok(None);
        }
        let trees = Trees { base, accepted: &Delta::new(), delta: &delta, store };
        let names = leave_out(self.files_differing(&delta, base), &trees);
        let files = names.len() as u64;
        self.push(delta, files, names, prompt, store).map(Some)
    }

    /// Notes where the directories are that were added to the workspace, whose own checkpoint `found` was made just now or is not needed:
    /// in the current checkpoint, or, where they have changed since, in a further one.
    pub fn name_added(
        &mut self,
        found: Option<Checkpoint>,
        of_added: OfAdded,
        prompt: Option<u64>,
        store: &Store,
    ) -> Result<Option<Checkpoint>> {
        let OfAdded { at, files, mut names, forgotten } = of_added;
        let begins = |ids: &[String]| ids.iter().all(|id| id == "0");
        let known = &self.current().added;
        let is_known =
            *known == at || known.len() < at.len() && at.starts_with(known) && begins(&at[known.len()..]);
        let made = match found {
            None if is_known => return Ok(None),
            Some(mut made) => {
                made.files += files;
                made.names.append(&mut names);
                made.names.truncate(MAX_NAMES);
                made
            }
            None => self.push(self.delta.clone(), files, names, prompt, store)?,
        };
        let mut made = Checkpoint { added: at, forgotten: made.forgotten + forgotten, ..made };
        if let Some(current) = self.checkpoints.get_mut(self.at) {
            // Older ones may have been removed since it was made.
            made.after_gap |= current.after_gap;
            *current = made.clone();
        }
        store.save(FILE, self)?;
        Ok(Some(made))
    }

    /// The checkpoint that the sandbox is at.
    pub fn current(&self) -> &Checkpoint {
        &self.checkpoints[self.at]
    }

    /// The index and the state of the checkpoint `id`.
    ///
    /// # Errors
    /// It is not kept any more.
    pub fn find(&self, id: &str, store: &Store) -> Result<(usize, Delta)> {
        let index = self.checkpoints.iter().position(|checkpoint| checkpoint.id == id).ok_or_else(|| {
            Error::usage("an added directory is not kept any more as it was then: it took too much space")
                .hint("`agent diff` shows what the session changed; your own files are untouched until you apply it")
        })?;
        Ok((index, self.read(store, index)?))
    }

    /// Adds a checkpoint after the current one.
    fn push(
        &mut self,
        delta: Delta,
        files: u64,
        mut names: Vec<TreePath>,
        prompt: Option<u64>,
        store: &Store,
    ) -> Result<Checkpoint> {
        names.truncate(MAX_NAMES);
        let checkpoint = Checkpoint {
            id: self.next.to_string(),
            time: agent_event::now(),
            files,
            names,
            prompt: prompt.unwrap_or(self.checkpoints[self.at].prompt),
            forgotten: 0,
            after_gap: false,
            added: self.current().added.clone(),
        };
        store.save(&delta_file(&checkpoint), &delta)?;
        let mut next = self.clone();
        next.checkpoints.truncate(self.at + 1);
        next.checkpoints.push(checkpoint.clone());
        let dropped = (next.checkpoints.len() > MAX_CHECKPOINTS).then(|| remove(&mut next.checkpoints, 1));
        next.at = next.checkpoints.len() - 1;
        next.next += 1;
        next.delta = delta;
        store.save(FILE, &next)?;
        *self = next;
        dropped.iter().try_for_each(|dropped| store.remove(&delta_file(dropped)))?;
        Ok(checkpoint)
    }

    /// The files (no directories, nothing of git's own) in which the current state differs from `delta`.
    pub fn files_differing(&self, delta: &Delta, base: &Manifest) -> Vec<TreePath> {
        let is_directory = |state: &Delta, path| {
            let node = state.get(path).map_or_else(|| base.get(path), Option::as_ref);
            node.is_none_or(Node::is_directory)
        };
        let files = self
            .differing(delta)
            .filter(|path| !path.names().any(|name| name == b".git"))
            .filter(|path| !is_directory(delta, *path) || !is_directory(&self.delta, *path));
        let mut files: Vec<TreePath> = files.cloned().collect();
        files.sort();
        files
    }

    /// Returns what is not in `delta` as it is in the current state.
    fn differing<'a>(&'a self, delta: &'a Delta) -> impl Iterator<Item = &'a TreePath> {
        let paths = delta.keys().chain(self.delta.keys().filter(|path| !delta.contains_key(*path)));
        paths.filter(|path| delta.get(*path) != self.delta.get(*path))
    }

    /// Returns what each checkpoint holds.
    pub fn deltas(&self, store: &Store) -> Result<Vec<Delta>> {
        (0..self.checkpoints.len()).map(|index| self.read(store, index)).collect()
    }

    /// Forgets the oldest checkpoint that is neither the first nor the one that the sandbox is at; `false` where there is
    /// none.
    pub fn forget_oldest(&mut self, store: &Store) -> Result<bool> {
        let Some(index) = (1..self.checkpoints.len()).find(|index| *index != self.at) else {
            return Ok(false);
        };
        let mut next = self.clone();
        let forgotten = remove(&mut next.checkpoints, index);
        next.at -= usize::from(index < self.at);
        store.save(FILE, &next)?;
        *self = next;
        store.remove(&delta_file(&forgotten)).map(|()| true)
    }

    /// Replaces what the checkpoints beside the current one hold of files by what `carry` returns for them.
    pub fn carry(
        &mut self,
        base: &Manifest,
        carry: &dyn Fn(&TreePath, &Node) -> Result<Option<Node>>,
        store: &Store,
    ) -> Result<()> {
        let others = self.checkpoints.iter().enumerate();
        for (index, checkpoint) in others.filter(|(index, other)| *index != self.at && other.id != "0") {
            let mut delta = self.read(store, index)?;
            let mut carried = Vec::new();
            for (path, node) in &delta {
                if let Some(node) = node
                    && let Some(new) = carry(path, node)?
                {
                    carried.push((path.clone(), new));
                }
            }
            if carried.is_empty() {
                continue;
            }
            for (path, node) in carried {
                match base.get(&path) == Some(&node) {
                    true => delta.remove(&path),
                    false => delta.insert(path, Some(node)),
                };
            }
            store.save(&delta_file(checkpoint), &delta)?;
        }
        Ok(())
    }

    /// The index and the state `steps` back (or forward, where negative).
    pub fn seek(&self, steps: i64, store: &Store) -> Result<(usize, Delta)> {
        let wanted = i64::try_from(self.at).ok().and_then(|at| at.checked_sub(steps));
        let index = wanted
            .and_then(|index| usize::try_from(index).ok())
            .filter(|index| *index < self.checkpoints.len());
        let Some(index) = index else {
            let (word, count) =
                if steps > 0 { ("undo", self.at) } else { ("redo", self.checkpoints.len() - 1 - self.at) };
            return Err(Error::usage(match count {
                0 => format!("there is nothing to {word}"),
                1 => format!("there is only one step to {word}"),
                _ => format!("there are only {count} steps to {word}"),
            }));
        };
        Ok((index, self.read(store, index)?))
    }

    /// Notes that the sandbox is at checkpoint `index` now, which is `delta`.
    pub fn move_to(&mut self, index: usize, delta: Delta, store: &Store) -> Result<()> {
        self.at = index.min(self.checkpoints.len() - 1);
        self.delta = delta;
        store.save(FILE, self)
    }

    fn read(&self, store: &Store, index: usize) -> Result<Delta> {
        if self.checkpoints[index].id == "0" {
            return Ok(Delta::new());
        }
        let file = delta_file(&self.checkpoints[index]);
        store.load(&file)?.ok_or_else(|| Error::unexpected(format!("the checkpoint {file} is gone")))
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

/// Removes a checkpoint; the one after it records that.
fn remove(checkpoints: &mut Vec<Checkpoint>, index: usize) -> Checkpoint {
    let forgotten = checkpoints.remove(index);
    if let Some(next) = checkpoints.get_mut(index) {
        next.after_gap = true;
    }
    forgotten
}

fn delta_file(checkpoint: &Checkpoint) -> String {
    format!("checkpoints/{}.json", checkpoint.id)
}
