//! The end of a turn: one question with all that it changed, and what the user decides.

use super::session::{ApplyMode, Work};
use super::updates::text_content;
use crate::rpc::with_hint;
use agent_base::error::{Error, Kind, Result};
use agent_base::visible::visible_bytes;
use agent_event::Changes;
use agent_session::Ready;
use agent_workspace::changes::Change;
use agent_workspace::diff::{self, Side};
use agent_workspace::manifest::Node;
use agent_workspace::notices::listed;
use agent_workspace::reviewed::Reviewed;
use agent_workspace::{ChangeSet, risks};
use serde_json::{Value, json};
use std::path::Path;

/// The largest file whose text is shown, in bytes, and the most of all of them.
const MAX_SHOWN: u64 = 1 << 20;
const MAX_ALL: usize = 8 << 20;
/// Files that are shown; the others are counted.
const MAX_FILES: usize = 300;
/// Names of files that a note for the model lists.
pub(super) const NAMED: usize = 30;

const APPLY: (&str, &str, &str) = ("apply", "Apply", "allow_once");
const ALWAYS: (&str, &str, &str) =
    ("apply_always", "Apply, and do not ask again in this session", "allow_always");
const IN_EDITOR: (&str, &str, &str) =
    ("apply_in_editor", "Apply through the editor (review by hunk)", "allow_once");
const KEEP: (&str, &str, &str) = ("keep", "Keep in the sandbox", "reject_once");
const UNDO: (&str, &str, &str) = ("undo_turn", "Undo this turn in the sandbox", "reject_once");

impl Work<'_> {
    /// Proposes what the session has changed and the user has not decided about yet.
    pub(super) async fn propose(&mut self) -> Result<()> {
        let Some(ready) = self.session.startup().if_ready() else { return Ok(()) };
        let changes = ready.workspace.changes(&ready.sandbox).await?;
        let mode = self.owner.mode();
        if changes.is_empty() || changes.in_place || mode == ApplyMode::Never || self.owner.is_kept(&changes)
        {
            return Ok(());
        }
        self.decide(&ready, &changes, mode == ApplyMode::Auto).await
    }

    /// Shows `changes` as one call, asks unless `is_agreed`, and does what the user chose.
    pub(super) async fn decide(&mut self, ready: &Ready, changes: &ChangeSet, is_agreed: bool) -> Result<()> {
        let call = self.owner.next_proposal();
        let root = ready.workspace.root().to_owned();
        let title = title(changes, ready)?;
        let (blocks, left_out) = blocks(changes, ready, &root)?;
        let mut shown = json!({
            "toolCallId": call, "title": title, "kind": "edit", "status": "pending",
            "content": blocks, "locations": locations(changes, &root),
        });
        shown["sessionUpdate"] = "tool_call".into();
        self.update(shown.clone()).await?;
        ready.workspace.record_shown(&changes.without(&left_out), false)?;
        if let Some(asked) = shown.as_object_mut() {
            asked.remove("sessionUpdate");
        }
        let choice = match is_agreed {
            true => Some(APPLY.0),
            false => {
                let mut options = vec![APPLY, ALWAYS];
                options.extend(self.owner.editor.facts.writes_files.then_some(IN_EDITOR));
                options.extend([KEEP, UNDO]);
                match self.owner.editor.choose(shown, &options).await {
                    Ok(choice) => choice,
                    Err(stop) => {
                        let text = "cancelled: nothing was written, and it stays in the sandbox";
                        return self.report(&call, Err(Error::new(stop.kind(), text))).await;
                    }
                }
            }
        };
        let done = match choice {
            Some("apply") => self.apply(ready, changes).await,
            Some("apply_always") => {
                self.owner.set_mode(ApplyMode::Auto);
                let applied = self.apply(ready, changes).await;
                self.mode_changed().await?;
                applied
            }
            Some("apply_in_editor") => self.apply_in_editor(ready, changes).await,
            Some("undo_turn") => self.undo_turn().await,
            _ => {
                self.owner.keep(changes.clone());
                Ok(format!(
                    "not written: it stays in the sandbox (/apply writes it, and so does `agent apply {}`)",
                    self.session.id()
                ))
            }
        };
        self.report(&call, done).await
    }

    /// Ends the call with what was done. A conflict is the user's to resolve, and no failure of the turn.
    async fn report(&mut self, call: &str, done: Result<String>) -> Result<()> {
        let (status, text, failure) = match done {
            Ok(text) => ("completed", text, None),
            Err(error) if matches!(error.kind(), Kind::Conflict | Kind::Usage) => {
                ("failed", with_hint(&error), None)
            }
            Err(error) => ("failed", with_hint(&error), Some(error)),
        };
        let update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status,
            "content": [text_content(&text)],
        });
        self.update(update).await?;
        failure.map_or(Ok(()), Err)
    }

    /// Writes all of it, or nothing.
    async fn apply(&mut self, ready: &Ready, changes: &ChangeSet) -> Result<String> {
        self.unless_cancelled(self.refuse_unsaved(ready, changes)).await?;
        self.unless_cancelled(self.session.before_apply(changes)).await?;
        let applied = ready.workspace.apply(changes, Some(&ready.sandbox)).await?;
        self.note_written(changes, "The user wrote these changes to their own files")?;
        let merged = listed(applied.merged.iter().map(ToString::to_string), NAMED);
        let merged = merged.map(|names| format!("\nmerged with your edits: {names}")).unwrap_or_default();
        Ok(format!("{}, written to {}{merged}", counted(applied.changes), ready.workspace.root().display()))
    }

    async fn undo_turn(&mut self) -> Result<String> {
        Ok(match self.session.undo(1).await? {
            Some((restored, _)) => {
                let names = listed(restored.files.iter().map(ToString::to_string), NAMED).unwrap_or_default();
                self.session.conversation.note(&format!(
                    "The user undid the changes of the last prompt: these files in the sandbox changed: {names}."
                ))?;
                format!("undone in the sandbox: {names} (/redo restores it)")
            }
            None => "there is nothing to undo".to_owned(),
        })
    }

    pub(super) fn note_written(&mut self, changes: &ChangeSet, what: &str) -> Result<()> {
        match listed(changes.changes.keys().map(ToString::to_string), NAMED) {
            Some(names) => self.session.conversation.note(&format!("{what}: {names}.")),
            None => Ok(()),
        }
    }
}

pub(super) fn text_of(side: &Side) -> Option<String> {
    match side {
        Side::Content(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

/// A text as the editor shows it: an editor's diff hides what other reviews show. Line ends are the editor's to show.
fn visible_text(text: &[u8]) -> String {
    visible_bytes(text).replace("␍\n", "\r\n")
}

/// `Apply 3 files (+41 −7)`
fn title(changes: &ChangeSet, ready: &Ready) -> Result<String> {
    let (mut files, mut added, mut removed) = (0, 0, 0);
    for (path, change) in changes.changes.iter().filter(|(_, change)| !change.is_directory_only()) {
        files += 1;
        if let Some((plus, minus)) = diff::lines(changes, path, change, ready.workspace.store())? {
            (added, removed) = (added + plus, removed + minus);
        }
    }
    let plural = if files == 1 { "" } else { "s" };
    Ok(format!("Apply {files} file{plural} (+{added} −{removed})"))
}

/// A diff for each text file; the rest in words, of which that for which there is no room is given back.
fn blocks(changes: &ChangeSet, ready: &Ready, root: &Path) -> Result<(Vec<Value>, ChangeSet)> {
    let (mut blocks, mut words, mut bytes) = (Vec::new(), String::new(), 0);
    let mut left_out = changes.without_changes();
    if let Some(risks) = risks::summary(changes) {
        words += &format!("{risks}\n");
    }
    let files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only());
    for (path, change) in files {
        let has_room = blocks.len() < MAX_FILES && bytes < MAX_ALL;
        let reviewed = Reviewed::new(changes, path, change);
        let shown = if has_room { shown(reviewed, ready, root)? } else { ShownFile::No };
        let remarks = match shown {
            ShownFile::Diff(block, size, remarks) => {
                bytes += size;
                blocks.push(block);
                let changes_mode = change.changes_mode() && change.before.is_some() && change.after.is_some();
                if remarks.is_empty() && !changes_mode {
                    continue;
                }
                remarks
            }
            ShownFile::InWords(remarks) => remarks,
            ShownFile::No => {
                left_out.changes.insert(path.clone(), change.clone());
                Vec::new()
            }
        };
        words += &format!("{}\n", diff::in_words(path, change));
        remarks.iter().for_each(|remark| words += &format!("  ({remark})\n"));
    }
    let directories = changes.changes.iter().filter(|(_, change)| change.is_directory_only());
    if let Some(names) = listed(directories.map(|(path, change)| diff::in_words(path, change)), NAMED) {
        words += &format!("{names}\n");
    }
    changes.messages().for_each(|message| words += &format!("{message}\n"));
    if let Some(names) = listed(left_out.changes.keys().map(ToString::to_string), NAMED) {
        words += &format!("too much to show here: {names}\n");
    }
    blocks.extend((!words.is_empty()).then(|| text_content(words.trim_end())));
    Ok((blocks, left_out))
}

/// The form in which one file is shown.
enum ShownFile {
    /// By its diff, the bytes of that, and remarks about it.
    Diff(Value, usize, Vec<String>),
    /// As much as there is to say of what is not text.
    InWords(Vec<String>),
    /// By its name alone: it is too large.
    No,
}

fn shown(reviewed: Reviewed<'_>, ready: &Ready, root: &Path) -> Result<ShownFile> {
    let (store, Change { before, after }) = (ready.workspace.store(), reviewed.change);
    // An editor shows a target as the text of a file.
    let is_symlink = |node: &Option<Node>| matches!(node, Some(Node::Symlink { .. }));
    if is_symlink(before) || is_symlink(after) {
        return Ok(ShownFile::InWords(Vec::new()));
    }
    let old = Side::load(before.as_ref(), store, MAX_SHOWN)?;
    let new = Side::load(after.as_ref(), store, MAX_SHOWN)?;
    let texts = reviewed.texts(&old, &new, store);
    let is_removal = new == Side::Absent;
    if new == Side::NotShown || old == Side::NotShown && is_removal {
        return Ok(ShownFile::No);
    }
    let (Some(new_text), false) = (texts.new, texts.old.is_none() && is_removal || old == new) else {
        return Ok(ShownFile::InWords(texts.remarks));
    };
    let kind = match (&old, &new) {
        (Side::Absent, _) => "add",
        (_, Side::Absent) => "delete",
        _ => "modify",
    };
    let old_text = texts.old.filter(|_| old != Side::Absent).map(|text| visible_text(&text));
    let new_text = visible_text(&new_text);
    let size = old_text.as_ref().map_or(0, String::len) + new_text.len();
    let block = json!({
        "type": "diff", "path": root.join(reviewed.path.as_path()), "oldText": old_text, "newText": new_text,
        "_meta": { "kind": kind },
    });
    Ok(ShownFile::Diff(block, size, texts.remarks))
}

fn locations(changes: &ChangeSet, root: &Path) -> Vec<Value> {
    let files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only()).take(MAX_FILES);
    files.map(|(path, _)| json!({ "path": root.join(path.as_path()) })).collect()
}

/// `1 file added, 2 modified, 0 deleted`
pub fn counted(changes: Changes) -> String {
    let Changes { added, modified, deleted } = changes;
    let plural = if added == 1 { "" } else { "s" };
    format!("{added} file{plural} added, {modified} modified, {deleted} deleted")
}
