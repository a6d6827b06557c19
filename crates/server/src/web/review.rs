//! The review in the page: the change in files and hunks, its digest, and the part of it that the user chose.

use super::frame::visible;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::visible::visible_bytes;
use agent_workspace::changes::Change;
use agent_workspace::hunks::Kind;
use agent_workspace::parts::{self, Hunk, Item, TextFile};
use agent_workspace::store::Store;
use agent_workspace::tree_path::TreePath;
use agent_workspace::{ChangeSet, diff, git_patch, risks};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Files that the page lists.
const MAX_FILES: usize = 1_000;
/// Lines that the page shows, of all files and of one.
const MAX_LINES: usize = 20_000;
const MAX_FILE_LINES: usize = 4_000;
/// Bytes of one line.
const MAX_LINE: usize = 2_000;

/// What the user agrees with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The change that was shown.
    pub digest: String,
    /// The number of each file that is taken, with the hunks that are refused. `None`: all files, all hunks.
    #[serde(default)]
    pub files: Option<BTreeMap<usize, BTreeSet<usize>>>,
}

/// What identifies a change: the hash of everything that would be written and of what it replaces.
///
/// # Errors
/// The change cannot be serialised.
pub fn digest(changes: &ChangeSet) -> Result<String> {
    Ok(Hash::of(&serde_json::to_vec(changes)?).to_string())
}

/// The change as the page shows it.
///
/// # Errors
/// A content is missing.
pub fn to_json(changes: &ChangeSet, store: &Store) -> Result<Value> {
    let mut room = MAX_LINES;
    let mut files = Vec::new();
    let items = parts::items(changes, store)?;
    let count = items.len();
    for item in items.iter().take(MAX_FILES) {
        files.push(match item {
            Item::Text(file) => text_file(file, store, &mut room)?,
            Item::Whole(whole) => whole_file(&whole.changes, store, &mut room)?,
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

fn text_file(file: &TextFile, store: &Store, room: &mut usize) -> Result<Value> {
    let mut hunks = Vec::new();
    let mut left = (*room).min(MAX_FILE_LINES);
    let mut is_cut = false;
    for hunk in &file.hunks {
        let HunkLines { lines, is_cut: is_line_cut } = lines(file, hunk);
        is_cut |= is_line_cut;
        if lines.len() > left {
            // Nothing of a file that is not shown whole can be taken hunk by hunk.
            hunks.clear();
            break;
        }
        left -= lines.len();
        hunks.push(json!({"place": visible(&file.place(hunk)), "lines": lines}));
    }
    let shown: usize = hunks.iter().filter_map(|hunk| hunk["lines"].as_array()).map(Vec::len).sum();
    *room -= shown;
    let headline = diff::headline_text(&file.path, &file.change, false);
    let counts = diff::lines(&file.change, store)?;
    Ok(json!({
        "name": visible(&file.path.to_string()),
        "headline": visible(headline.trim_end()),
        "added": counts.map(|(added, _)| added),
        "removed": counts.map(|(_, removed)| removed),
        "is_shown": !hunks.is_empty() && !is_cut,
        "hunks": hunks,
    }))
}

/// The lines of a hunk, and whether one of them is not shown whole.
struct HunkLines {
    lines: Vec<Value>,
    is_cut: bool,
}

fn lines(file: &TextFile, hunk: &Hunk) -> HunkLines {
    let (mut lines, mut is_cut) = (Vec::new(), false);
    file.show(hunk, &mut |line| {
        let mark = match line.kind {
            Kind::Header => "@",
            Kind::Context => " ",
            Kind::Removed => "-",
            Kind::Added => "+",
            Kind::NoNewline => "\\",
        };
        is_cut |= line.text.len() > MAX_LINE;
        lines.push(json!([mark, line_text(line.text)]));
    });
    HunkLines { lines, is_cut }
}

fn line_text(bytes: &[u8]) -> String {
    let cut = bytes.len() > MAX_LINE;
    visible_bytes(&bytes[..bytes.len().min(MAX_LINE)]) + if cut { " …" } else { "" }
}

/// A file that is taken or left as a whole, as one hunk without a choice.
fn whole_file(changes: &ChangeSet, store: &Store, room: &mut usize) -> Result<Value> {
    let mut text = Vec::new();
    let changes = &ChangeSet { changes: changes.changes.clone(), ..ChangeSet::default() };
    diff::write_text(&mut text, changes, store, false)?;
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let (headline, body) = all.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
    let is_shown = body.len() <= (*room).min(MAX_FILE_LINES);
    let shown = if is_shown { body } else { &[] };
    *room -= shown.len();
    let line = |line: &&str| {
        let mark = line.chars().next().filter(|mark| "+-@\\".contains(*mark)).unwrap_or(' ');
        let text = line.strip_prefix(['+', '-', ' ']).unwrap_or(line);
        json!([mark.to_string(), line_text(text.as_bytes())])
    };
    let named = changes.changes.iter().find(|(_, change)| change.after.is_some());
    let named = named.or(changes.changes.iter().next());
    let counts = match named {
        Some((_, change)) if changes.changes.len() == 1 => diff::lines(change, store)?,
        _ => None,
    };
    Ok(json!({
        "name": visible(&named.map(|(path, _)| path.to_string()).unwrap_or_default()),
        "headline": visible(headline),
        "added": counts.map(|(added, _)| added),
        "removed": counts.map(|(_, removed)| removed),
        "is_shown": is_shown && body.iter().all(|line| line.len() <= MAX_LINE),
        "whole": true,
        "hunks": if shown.is_empty() { json!([]) } else { json!([{"place": "", "lines": shown.iter().map(line).collect::<Vec<_>>()}]) },
    }))
}

/// The part of `changes` that `choice` takes.
///
/// # Errors
/// It names a file or hunk that does not exist.
pub fn chosen(changes: &ChangeSet, choice: &Choice, store: &Store) -> Result<ChangeSet> {
    let Some(files) = &choice.files else { return Ok(changes.clone()) };
    let items = parts::items(changes, store)?;
    let mut chosen = changes.without_changes();
    for (number, refused) in files {
        match items.get(*number).filter(|_| *number < MAX_FILES) {
            Some(Item::Whole(whole)) if refused.is_empty() => {
                chosen.changes.extend(whole.changes.changes.clone());
            }
            Some(Item::Text(file)) if refused.iter().all(|hunk| *hunk < file.hunks.len()) => {
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

/// The change of `file` without the refused hunks.
fn taken(file: &TextFile, refused: &BTreeSet<usize>, store: &Store) -> Result<Option<(TreePath, Change)>> {
    if refused.is_empty() {
        return Ok(Some((file.path.clone(), file.change.clone())));
    }
    if refused.len() == file.hunks.len() {
        return Ok(None);
    }
    let hunks = file.hunks.iter().enumerate().filter(|(number, _)| !refused.contains(number));
    let content = file.content(hunks.map(|(_, hunk)| hunk));
    let after = file.node(&content, true, store)?;
    let change = Change { before: file.change.before.clone(), after: Some(after) };
    Ok(Some((file.path.clone(), change)))
}

/// What `git apply` takes.
///
/// # Errors
/// A content is missing.
pub fn patch(changes: &ChangeSet, store: &Store) -> Result<Vec<u8>> {
    let mut patch = Vec::new();
    git_patch::write(&mut patch, changes, store, &mut git_patch::refuse)?;
    Ok(patch)
}
