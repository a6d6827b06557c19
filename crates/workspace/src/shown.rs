//! The parts of a change that the user has seen, so that nothing else is written in its place.
//!
//! A process in the sandbox may write between the look that a diff showed and the look that an apply writes.

use crate::changes::{Change, ChangeSet};
use crate::notices::listed;
use crate::tree_path::TreePath;
use agent_base::error::Result;
use agent_base::hash::Hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Names that a summary lists.
const NAMED: usize = 30;
/// The record's file.
pub(crate) const SHOWN: &str = "shown.json";

/// Each path that was shown, with the hash of its change.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Shown {
    /// Set if everything that had changed then is among them.
    is_all: bool,
    paths: BTreeMap<TreePath, Hash>,
    /// The number of times that something was shown.
    #[serde(default)]
    pub(crate) looks: u64,
}

/// The differences of a change from the one that was shown.
#[derive(Debug, Default)]
pub struct SinceShown {
    /// Changes that were not shown like this.
    pub changed: ChangeSet,
    /// Paths that were shown, and are not part of the change any more.
    pub gone: Vec<TreePath>,
}

impl SinceShown {
    /// Returns whether the change is the one that was shown.
    pub fn is_empty(&self) -> bool {
        self.changed.changes.is_empty() && self.gone.is_empty()
    }

    /// The names, in a line or two; `None` where the change is the one that was shown.
    pub fn summary(&self) -> Option<String> {
        let names =
            |paths: &mut dyn Iterator<Item = &TreePath>| listed(paths.map(ToString::to_string), NAMED);
        let sentences = [
            names(&mut self.changed.changes.keys())
                .map(|names| format!("not as the last diff showed it: {names}")),
            names(&mut self.gone.iter())
                .map(|names| format!("in the last diff, but not changed any more: {names}")),
        ];
        let text = sentences.into_iter().flatten().collect::<Vec<_>>().join("\n");
        (!text.is_empty()).then_some(text)
    }
}

impl Shown {
    /// Adds what was shown now; `is_all`: the whole change, of which nothing else counts any more.
    pub(crate) fn add(&mut self, changes: &ChangeSet, is_all: bool) -> Result<()> {
        self.looks += 1;
        if is_all {
            *self = Self { is_all, paths: BTreeMap::new(), looks: self.looks };
        }
        for (path, change) in &changes.changes {
            self.paths.insert(path.clone(), digest(change)?);
        }
        Ok(())
    }

    /// Removes what was written. Once nothing is left of what was shown, it says nothing about what changes later.
    pub(crate) fn forget(&mut self, written: &ChangeSet) {
        self.paths.retain(|path, _| !written.changes.contains_key(path));
        self.is_all &= !self.paths.is_empty();
    }

    /// Returns what of `changes` was not shown as it is now. `is_all`: they are the whole change.
    pub(crate) fn since(&self, changes: &ChangeSet, is_all: bool) -> Result<SinceShown> {
        let mut since = SinceShown { changed: changes.without_changes(), ..SinceShown::default() };
        for (path, change) in &changes.changes {
            let is_same = match self.paths.get(path) {
                Some(shown) => *shown == digest(change)?,
                None => !self.is_all,
            };
            if !is_same {
                since.changed.changes.insert(path.clone(), change.clone());
            }
        }
        if is_all {
            let gone = self.paths.keys().filter(|path| !changes.changes.contains_key(*path));
            since.gone = gone.cloned().collect();
        }
        Ok(since)
    }
}

fn digest(change: &Change) -> Result<Hash> {
    Ok(Hash::of(&serde_json::to_vec(change)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Node;

    /// What was made after a part had been written was taken for seen.
    #[test]
    fn what_is_new_after_a_part_was_written_was_not_shown() {
        let changes = |paths: &[(&str, u64)]| {
            let change = |(path, size): &(&str, u64)| {
                let after = Some(Node::File { hash: Hash::UNKNOWN, size: *size, mode: 0o644 });
                (TreePath::new(path.as_bytes()).expect("a path"), Change { before: None, after })
            };
            ChangeSet { changes: paths.iter().map(change).collect(), ..ChangeSet::default() }
        };
        let mut shown = Shown::default();
        shown.add(&changes(&[("a", 1), ("b", 1)]), true).expect("a record");
        shown.forget(&changes(&[("a", 1)]));
        let since = shown.since(&changes(&[("b", 1), ("c", 1)]), true).expect("a comparison");
        assert_eq!(since.summary().as_deref(), Some("not as the last diff showed it: c"));
        shown.forget(&changes(&[("b", 1)]));
        assert!(shown.since(&changes(&[("d", 1)]), true).expect("a comparison").is_empty(), "a new change");
    }
}
