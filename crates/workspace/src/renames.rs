//! Renames: a deleted file and a new one with much of its content.

use crate::changes::{Change, ChangeSet};
use crate::diff::Side;
use crate::manifest::Node;
use crate::store::Store;
use crate::tree_path::TreePath;
use agent_base::hash::Hash;
use agent_diff::hunks;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

/// Percent of its content that a file has to keep, as with git.
const MIN_SIMILARITY: u64 = 50;
/// Largest file whose lines are compared, in bytes. Larger ones are renamed only if nothing in them changed.
const MAX_COMPARED: u64 = 1 << 20;
/// Files on each side whose lines are compared, as many as git compares by default.
const MAX_FILES: usize = 1000;
/// Bytes of all files whose lines are compared.
const MAX_BYTES: u64 = 64 << 20;

/// A file that has another name now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Its former name.
    pub from: TreePath,
    /// Its name now.
    pub to: TreePath,
    /// The share of the content that is the same, in percent.
    pub similarity: u64,
}

/// A file that is gone, or new.
struct Candidate<'a> {
    path: &'a TreePath,
    hash: Hash,
    size: u64,
}

/// The renames in `changes`, by the new name. Each file is part of one at most.
pub fn find(changes: &ChangeSet, store: &Store) -> BTreeMap<TreePath, Rename> {
    let mut gone = candidates(changes, |change| change.after.is_none().then_some(change.before.as_ref())?);
    let mut new = candidates(changes, |change| change.before.is_none().then_some(change.after.as_ref())?);
    let mut found = BTreeMap::new();
    let mut by_hash: HashMap<Hash, Vec<usize>> = HashMap::new();
    gone.iter().enumerate().for_each(|(at, file)| by_hash.entry(file.hash).or_default().push(at));
    let mut taken = BTreeSet::new();
    new.retain(|file| {
        let same: Vec<usize> = by_hash.get(&file.hash).into_iter().flatten().copied().collect();
        let same: Vec<usize> = same.into_iter().filter(|at| !taken.contains(at)).collect();
        // Of several, the one whose name is the same is most likely meant.
        let named = same.iter().find(|at| name(gone[**at].path) == name(file.path));
        let Some(at) = named.or(same.first()).copied() else { return true };
        taken.insert(at);
        insert(&mut found, gone[at].path, file.path, 100);
        false
    });
    gone = gone.into_iter().enumerate().filter(|(at, _)| !taken.contains(at)).map(|(_, file)| file).collect();
    for (from, to, similarity) in similar(&gone, &new, store) {
        insert(&mut found, from, to, similarity);
    }
    found
}

fn insert(found: &mut BTreeMap<TreePath, Rename>, from: &TreePath, to: &TreePath, similarity: u64) {
    found.insert(to.clone(), Rename { from: from.clone(), to: to.clone(), similarity });
}

fn name(path: &TreePath) -> Option<&[u8]> {
    path.names().next_back()
}

/// Files that are not empty: that two of those are alike says nothing.
fn candidates<'a>(
    changes: &'a ChangeSet,
    side: impl Fn(&'a Change) -> Option<&'a Node>,
) -> Vec<Candidate<'a>> {
    let file = |(path, change)| match side(change)? {
        Node::File { hash, size, .. } if *hash != Hash::UNKNOWN && *size > 0 => {
            Some(Candidate { path, hash: *hash, size: *size })
        }
        _ => None,
    };
    changes.changes.iter().filter_map(file).collect()
}

/// The lines of a file by their hash, with the bytes that they take together.
type Bag = HashMap<u64, u64>;

/// Pairs of files with similar lines, the best of each.
fn similar<'a>(
    gone: &[Candidate<'a>],
    new: &[Candidate<'a>],
    store: &Store,
) -> Vec<(&'a TreePath, &'a TreePath, u64)> {
    let bytes: u64 = gone.iter().chain(new).map(|file| file.size.min(MAX_COMPARED)).sum();
    if gone.len().max(new.len()) > MAX_FILES || bytes > MAX_BYTES {
        return Vec::new();
    }
    let state = RandomState::new();
    let bags = |files: &[Candidate<'_>]| files.iter().map(|file| bag(file, store, &state)).collect();
    let (before, after): (Vec<Option<Bag>>, Vec<Option<Bag>>) = (bags(gone), bags(new));
    let mut pairs = Vec::new();
    for (from, old) in gone.iter().zip(&before) {
        for (to, now) in new.iter().zip(&after) {
            let (Some(old), Some(now)) = (old, now) else { continue };
            let largest = from.size.max(to.size);
            // No content in common could make up for this difference in size.
            if from.size.min(to.size) * 100 < largest * MIN_SIMILARITY {
                continue;
            }
            let common: u64 = old.iter().filter_map(|(line, bytes)| Some(*bytes.min(now.get(line)?))).sum();
            let similarity = common * 100 / largest;
            if similarity >= MIN_SIMILARITY {
                pairs.push((similarity, name(from.path) == name(to.path), from.path, to.path));
            }
        }
    }
    pairs.sort_by(|a, b| (b.0, b.1).cmp(&(a.0, a.1)).then_with(|| (a.2, a.3).cmp(&(b.2, b.3))));
    let mut taken = BTreeSet::new();
    pairs.retain(|(_, _, from, to)| {
        let is_free = !taken.contains(from) && !taken.contains(to);
        if is_free {
            taken.extend([*from, *to]);
        }
        is_free
    });
    pairs.into_iter().map(|(similarity, _, from, to)| (from, to, similarity.min(99))).collect()
}

/// `None` where the content is too large, binary, or not kept any more.
fn bag(file: &Candidate<'_>, store: &Store, state: &RandomState) -> Option<Bag> {
    let node = Node::File { hash: file.hash, size: file.size, mode: 0 };
    // What cannot be read is not similar; the diff reports it.
    let side = Side::load(Some(&node), store, MAX_COMPARED).ok()?;
    let Side::Content(content) = &side else { return None };
    if side.is_binary() {
        return None;
    }
    let mut bag = Bag::new();
    for line in hunks::lines(content) {
        *bag.entry(state.hash_one(line)).or_default() += line.len() as u64;
    }
    Some(bag)
}
