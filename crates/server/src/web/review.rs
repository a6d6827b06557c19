//! The review in the page: the change in files and hunks, its digest, and the part of it that the user chose.

pub mod lines;

use super::conflict::Over;
use super::decisions::Decisions;
use super::frame::visible;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_diff::hunks::Kind;
use agent_workspace::changes::Change;
use agent_workspace::manifest::Node;
use agent_workspace::parts::{self, Hunk, Item, TextFile};
use agent_workspace::store::Store;
use agent_workspace::tree_path::TreePath;
use agent_workspace::{ChangeSet, diff, git_patch, risks};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Files that the page lists.
pub const MAX_FILES: usize = 1_000;
/// Lines that the page shows, of all files and of one.
const MAX_LINES: usize = 20_000;
const MAX_FILE_LINES: usize = 4_000;
/// Lines of a part of a long file.
const MAX_PART: usize = 2_000;
/// Bytes of a picture.
const MAX_PICTURE: u64 = 16 << 20;

/// The changes that the user agrees with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedChanges {
    /// The change that was shown.
    pub digest: String,
    /// The number of each file that is taken, with the ids of the hunks that are refused. `None`: all files, all hunks.
    #[serde(default)]
    pub files: Option<BTreeMap<usize, BTreeSet<String>>>,
    /// The numbers of the files that are written over what the host has instead, because the user decided so; with the version
    /// of the host's that they decided about.
    #[serde(default)]
    pub over: BTreeMap<usize, String>,
}

impl AcceptedChanges {
    /// The paths that are written over what the host has.
    ///
    /// # Errors
    /// A content is missing.
    pub fn written_over(&self, changes: &ChangeSet, store: &Store) -> Result<Over> {
        if self.over.is_empty() {
            return Ok(Over::new());
        }
        let items = parts::items(changes, store)?;
        let of = |(number, seen): (&usize, &String)| {
            let paths = match items.get(*number) {
                Some(Item::Text(file)) => vec![file.path.clone()],
                Some(Item::Whole(whole)) => whole.changes.changes.keys().cloned().collect(),
                None => Vec::new(),
            };
            let seen = seen.clone();
            paths.into_iter().map(move |path| (path, seen.clone()))
        };
        Ok(self.over.iter().flat_map(of).collect())
    }
}

/// Returns what identifies a change: the hash of everything that would be written and of what it replaces.
///
/// # Errors
/// The change cannot be serialised.
pub fn digest(changes: &ChangeSet) -> Result<String> {
    Ok(Hash::of(&serde_json::to_vec(changes)?).to_string())
}

/// The change as the page shows it, with what was decided about it.
///
/// # Errors
/// A content is missing.
pub fn to_json(changes: &ChangeSet, store: &Store, decisions: &Decisions) -> Result<Value> {
    let kind = |risk: &risks::Risk| match &risk.through {
        Some(through) => format!("{}, as {through}", risk.kind),
        None => risk.kind.to_owned(),
    };
    let risks = risks::risks(changes).into_iter().map(|risk| (risk.path.clone(), kind(&risk))).collect();
    let mut page = Page { changes, store, decisions, risks, room: MAX_LINES };
    let mut files = Vec::new();
    let items = parts::items(changes, store)?;
    let count = items.len();
    for item in items.iter().take(MAX_FILES) {
        files.push(match item {
            Item::Text(file) => page.text_file(file)?,
            Item::Whole(whole) => page.whole_file(&whole.changes)?,
        });
    }
    Ok(json!({
        "digest": digest(changes)?,
        "counts": changes.counts(),
        "files": files,
        "more_files": count.saturating_sub(MAX_FILES),
        "risks": risks::by_kind(changes).iter().map(|kind| visible(&kind.text)).collect::<Vec<_>>(),
        "messages": changes.messages().take(100).map(|message| visible(&message)).collect::<Vec<_>>(),
        "in_place": changes.in_place,
    }))
}

/// The state that the files of one answer share.
struct Page<'a> {
    changes: &'a ChangeSet,
    store: &'a Store,
    decisions: &'a Decisions,
    /// By path, who executes it.
    risks: BTreeMap<String, String>,
    /// Lines that may still be shown.
    room: usize,
}

impl Page<'_> {
    fn text_file(&mut self, file: &TextFile) -> Result<Value> {
        let file_key = key(&[b"file", file.path.as_bytes()]);
        let of_file = self.decisions.of(&file_key);
        let mut all = 0;
        file.hunks.iter().for_each(|hunk| file.show(hunk, &mut |_| all += 1));
        // Nothing of a file that is not shown whole can be taken hunk by hunk.
        let fits = all <= self.room.min(MAX_FILE_LINES);
        let (mut hunks, mut is_cut) = (Vec::new(), false);
        if fits {
            self.room -= all;
            let mut painted = lines::Painted::new(file);
            for hunk in &file.hunks {
                let lines = painted.hunk(file, hunk);
                is_cut |= lines.iter().any(|line| line.is_cut);
                let key = hunk_key(file, hunk);
                // Of a file of which something was refused, only what was taken before is taken.
                let taken = self.decisions.of(&key).unwrap_or(of_file != Some(false));
                let lines: Vec<Value> = lines.into_iter().map(Into::into).collect();
                hunks.push(
                    json!({
                        "place": visible(&file.place(hunk)), "id": hunk_id(hunk), "key": key, "taken": taken, "lines": lines,
                    }),
                );
            }
        }
        let is_shown = fits && !is_cut;
        let content = content_key(&file.path, &file.change)?;
        let taken = (is_shown || self.decisions.of(&content) == Some(true))
            && (!fits || hunks.iter().any(|hunk| hunk["taken"] == true));
        let headlines = file.headlines(false);
        let headline = headlines.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let counts = diff::lines(self.changes, &file.path, &file.change, self.store)?;
        Ok(json!({
            "name": visible(&file.path.to_string()),
            "path": file.path.to_string(),
            "headline": visible(&headline),
            "added": counts.map(|(added, _)| added),
            "removed": counts.map(|(_, removed)| removed),
            "risk": self.risks.get(&file.path.to_string()),
            "key": file_key,
            "content": content,
            "taken": taken,
            "is_refused": self.decisions.of(&file_key) == Some(false),
            "is_shown": is_shown,
            "lines": if fits { 0 } else { all },
            "sides": sides(&file.change),
            "hunks": hunks,
        }))
    }

    /// A file that is taken or left as a whole, as one hunk without a choice.
    fn whole_file(&mut self, changes: &ChangeSet) -> Result<Value> {
        let Some((path, change)) = named(changes) else { return Ok(json!({"name": "", "hunks": []})) };
        let counts = match changes.changes.len() {
            1 => diff::lines(self.changes, path, change, self.store)?,
            _ => None,
        };
        let room = self.room.min(MAX_FILE_LINES);
        let has_colours = counts.is_none_or(|(added, removed)| added + removed <= room as u64);
        let lines::Whole { headline, body } = lines::whole(changes, self.store, has_colours)?;
        let fits = body.len() <= room;
        let is_shown = fits && body.iter().all(|line| !line.is_cut);
        let all = body.len();
        let shown: Vec<Value> = if fits { body.into_iter().map(Into::into).collect() } else { Vec::new() };
        self.room -= shown.len();
        let (file_key, content) = (key(&[b"file", path.as_bytes()]), content_key(path, change)?);
        let is_refused = self.decisions.of(&file_key) == Some(false);
        let taken = !is_refused && self.decisions.of(&content).unwrap_or(is_shown);
        Ok(json!({
            "name": visible(&path.to_string()),
            "path": path.to_string(),
            "headline": visible(&headline),
            "added": counts.map(|(added, _)| added),
            "removed": counts.map(|(_, removed)| removed),
            "risk": self.risks.get(&path.to_string()),
            "key": file_key,
            "content": content,
            "taken": taken,
            "is_refused": self.decisions.of(&file_key) == Some(false),
            "is_shown": is_shown,
            "whole": true,
            "lines": if fits { 0 } else { all },
            "sides": sides(change),
            "hunks": if shown.is_empty() { json!([]) } else { json!([{"place": "", "lines": shown}]) },
        }))
    }
}

/// The file that a change which is taken as a whole is named after: of a rename, the new one.
fn named(changes: &ChangeSet) -> Option<(&TreePath, &Change)> {
    changes.changes.iter().find(|(_, change)| change.after.is_some()).or(changes.changes.iter().next())
}

fn key(parts: &[&[u8]]) -> String {
    Hash::of(parts.join(&b'\0')).to_string()
}

/// Of a hunk: its file and its lines that changed, wherever they are.
fn hunk_key(file: &TextFile, hunk: &Hunk) -> String {
    let mut parts = vec![b"hunk".to_vec(), file.path.as_bytes().to_vec()];
    file.show(hunk, &mut |line| match line.kind {
        Kind::Removed => parts.push([b"-", line.text].concat()),
        Kind::Added => parts.push([b"+", line.text].concat()),
        _ => {}
    });
    key(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Returns what tells a hunk from all others of its file, however that is divided: where its lines are.
fn hunk_id(hunk: &Hunk) -> String {
    let place = |(old, new): (Range<usize>, Range<usize>)| {
        format!("{}-{}+{}-{}", old.start, old.end, new.start, new.end)
    };
    hunk.ranges().map(place).collect::<Vec<_>>().join(" ")
}

/// Of what a file will have.
fn content_key(path: &TreePath, change: &Change) -> Result<String> {
    Ok(key(&[b"content", path.as_bytes(), &serde_json::to_vec(&change.after)?]))
}

/// The sides of a change that are files.
fn sides(change: &Change) -> Vec<&'static str> {
    let sides = [("before", &change.before), ("after", &change.after)];
    sides
        .into_iter()
        .filter(|(_, node)| matches!(node, Some(Node::File { .. })))
        .map(|(side, _)| side)
        .collect()
}

/// Lines of a file that is too long to be shown at once, from the one numbered `from` on.
///
/// # Errors
/// There is no such file in the change.
pub fn part(changes: &ChangeSet, number: usize, from: usize, store: &Store) -> Result<Value> {
    let lines = match item(changes, number, store)? {
        Item::Text(file) => {
            let mut painted = lines::Painted::new(&file);
            file.hunks.iter().flat_map(|hunk| painted.hunk(&file, hunk)).collect()
        }
        Item::Whole(whole) => lines::whole(&whole.changes, store, true)?.body,
    };
    let lines: Vec<Value> = lines.into_iter().skip(from).take(MAX_PART).map(Into::into).collect();
    Ok(json!({"lines": lines}))
}

/// The content of a file of the change, before it or after it.
///
/// # Errors
/// There is no such file in the change, or it is too large.
pub fn content(changes: &ChangeSet, number: usize, is_before: bool, store: &Store) -> Result<Vec<u8>> {
    let item = item(changes, number, store)?;
    let change = match &item {
        Item::Text(file) => Some(&file.change),
        Item::Whole(whole) => named(&whole.changes).map(|(_, change)| change),
    };
    match change.and_then(|change| if is_before { change.before.as_ref() } else { change.after.as_ref() }) {
        Some(Node::File { hash, size, .. }) if *size <= MAX_PICTURE && *hash != Hash::UNKNOWN => {
            store.read(*hash)
        }
        Some(Node::File { .. }) => {
            Err(Error::usage("the file is too large to be shown").hint("download the patch"))
        }
        _ => Err(Error::usage("there is no file on this side of the change")),
    }
}

/// The change of one file alone.
///
/// # Errors
/// There is no such file in the change.
pub fn one_file(changes: &ChangeSet, number: usize, store: &Store) -> Result<ChangeSet> {
    let mut one = changes.without_changes();
    match item(changes, number, store)? {
        Item::Text(file) => one.changes.extend([(file.path.clone(), file.change.clone())]),
        Item::Whole(whole) => one.changes.extend(whole.changes.changes.clone()),
    }
    Ok(one)
}

fn item(changes: &ChangeSet, number: usize, store: &Store) -> Result<Item> {
    let items = parts::items(changes, store)?;
    items
        .into_iter()
        .take(MAX_FILES)
        .nth(number)
        .ok_or_else(|| Error::usage("the change does not have such a file").hint("load the page again"))
}

/// The part of `changes` that `choice` takes.
///
/// # Errors
/// It names a file or hunk that does not exist.
pub fn chosen(changes: &ChangeSet, choice: &AcceptedChanges, store: &Store) -> Result<ChangeSet> {
    let Some(files) = &choice.files else { return Ok(changes.clone()) };
    let items = parts::items(changes, store)?;
    let mut chosen = changes.without_changes();
    for (number, refused) in files {
        match items.get(*number).filter(|_| *number < MAX_FILES) {
            Some(Item::Whole(whole)) if refused.is_empty() => {
                chosen.changes.extend(whole.changes.changes.clone());
            }
            Some(Item::Text(file)) if has_all(file, refused) => {
                chosen.changes.extend(taken(file, refused, store)?);
            }
            _ => {
                return Err(Error::usage("the choice names a part that the change does not have")
                    .hint("load the page again"));
            }
        }
    }
    let directories = parts::directories(changes, &chosen);
    chosen.changes.extend(directories);
    Ok(chosen)
}

/// Returns whether a file has all of these hunks. It is compared anew, and may be divided in another way.
fn has_all(file: &TextFile, ids: &BTreeSet<String>) -> bool {
    let own: BTreeSet<String> = file.hunks.iter().map(hunk_id).collect();
    ids.is_subset(&own)
}

/// The change of `file` without the refused hunks.
fn taken(file: &TextFile, refused: &BTreeSet<String>, store: &Store) -> Result<Option<(TreePath, Change)>> {
    if refused.is_empty() {
        return Ok(Some((file.path.clone(), file.change.clone())));
    }
    if refused.len() == file.hunks.len() {
        return Ok(None);
    }
    let content = file.content(file.hunks.iter().filter(|hunk| !refused.contains(&hunk_id(hunk))))?;
    let after = file.node(&content, true, store)?;
    let change = Change { before: file.change.before.clone(), after: Some(after) };
    Ok(Some((file.path.clone(), change)))
}

/// Returns what `git apply` takes.
///
/// # Errors
/// A content is missing.
pub fn patch(changes: &ChangeSet, store: &Store) -> Result<Vec<u8>> {
    let mut patch = Vec::new();
    git_patch::write(&mut patch, changes, store, &mut git_patch::refuse)?;
    Ok(patch)
}
