//! Files that the editor has open: what is not saved there yet, and what it writes itself.

use super::proposal::{NAMED, counted, text_of};
use super::session::Work;
use agent_base::error::{Error, Kind, Result};
use agent_base::sanitise::one_line;
use agent_session::Ready;
use agent_workspace::ChangeSet;
use agent_workspace::changes::Change;
use agent_workspace::diff::Side;
use agent_workspace::manifest::Node;
use agent_workspace::notices::listed;
use agent_workspace::resolution::Resolutions;
use agent_workspace::store::{MAX_IN_MEMORY, Store};
use agent_workspace::tree_path::TreePath;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The largest text that is exchanged with the editor, in bytes.
const MAX_TEXT: usize = 8 << 20;
/// The time limit for the editor to hand out or to write one file.
const FILE_TIMEOUT: Duration = Duration::from_secs(30);
/// Characters of an editor's message that are repeated.
const MAX_MESSAGE: usize = 100;

/// The state of a file that may be open in the editor.
enum Known {
    /// It is new, or has this text.
    Text(Option<String>),
    /// No editor has it as text.
    Binary,
    /// It cannot be compared.
    Opaque,
}

/// The outcome for a file that the editor was to write.
enum Handed {
    Written,
    /// It is on disk already.
    Present,
    /// Not written, for this reason.
    Left(String),
    /// The editor does not answer.
    Silent,
}

impl Work<'_> {
    /// Refuses files that the editor has not saved yet: those edits are the user's too, and writing the file would lose one of the two.
    pub(super) async fn refuse_unsaved(&self, ready: &Ready, changes: &ChangeSet) -> Result<()> {
        if !self.owner.editor.facts.reads_files {
            return Ok(());
        }
        let root = ready.workspace.root();
        let mut unsaved = Vec::new();
        let files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only());
        // What the editor has at a path behind a symlink is another file's, which is not written.
        for (path, change) in files.filter(|(path, _)| !is_behind_symlink(path, changes)) {
            let (file, known) =
                (root.join(path.as_path()), known(change.before.as_ref(), ready.workspace.store())?);
            match known {
                Known::Binary => {}
                Known::Text(saved) => {
                    let text = self.read_in_editor(&file, None).await?;
                    let is_other = |text: String| !is_same(&text, saved.as_deref().unwrap_or_default());
                    unsaved.extend(text.is_some_and(is_other).then(|| path.to_string()));
                }
                Known::Opaque => {
                    let is_open = self.read_in_editor(&file, Some(1)).await?.is_some();
                    unsaved.extend(is_open.then(|| format!("{path} (cannot be compared)")));
                }
            }
        }
        match listed(unsaved.into_iter(), NAMED) {
            None => Ok(()),
            Some(names) => Err(refused(&format!("the editor has other text in {names}"))
                .hint("save or revert these files, then /apply")),
        }
    }

    /// The text of a file, or so many lines of it. `None` where the editor has no such file: then what is on disk counts.
    async fn read_in_editor(&self, path: &Path, lines: Option<u32>) -> Result<Option<String>> {
        let params = json!({ "sessionId": self.session.id(), "path": path, "limit": lines });
        let asked = self.owner.editor.client.request("fs/read_text_file", params);
        match tokio::time::timeout(FILE_TIMEOUT, asked).await {
            Ok(Ok(answer)) => Ok(answer.get("content").and_then(Value::as_str).map(str::to_owned)),
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(refused(&format!(
                "the editor did not say within {} s what it has in {}",
                FILE_TIMEOUT.as_secs(),
                path.display()
            ))
            .hint("try /apply again")),
        }
    }

    /// Hands the text files to the editor one by one; what it cannot take is named.
    pub(super) async fn apply_in_editor(&mut self, ready: &Ready, changes: &ChangeSet) -> Result<String> {
        self.unless_cancelled(self.refuse_unsaved(ready, changes)).await?;
        // Conflicts are those of an apply of ours.
        self.unless_cancelled(ready.workspace.would_write(changes, &Resolutions::new())).await?;
        self.unless_cancelled(self.session.before_apply(changes)).await?;
        let (mut written, mut left, mut stopped) = (changes.without_changes(), Vec::new(), Ok(()));
        let mut files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only());
        for (path, change) in files.by_ref() {
            match self.unless_cancelled(self.write_in_editor(ready, path, change)).await {
                Ok(Handed::Written) => {
                    written.changes.insert(path.clone(), change.clone());
                    left.extend(
                        (change.before.is_some() && change.changes_mode())
                            .then(|| format!("{path} (its permissions)")),
                    );
                }
                Ok(Handed::Present) => {}
                Ok(Handed::Left(why)) => left.push(format!("{path} ({why})")),
                Ok(Handed::Silent) => {
                    left.push(format!("{path} (the editor does not answer)"));
                    break;
                }
                Err(error) => {
                    stopped = Err(error);
                    break;
                }
            }
        }
        left.extend(files.map(|(path, _)| path.to_string()));
        self.note_written(&written, "The user's editor was given these files to review and write")?;
        stopped?;
        let mut text = format!(
            "{} handed to the editor, which writes them as you accept them; /undo-apply does not take that back",
            counted(written.counts())
        );
        if let Some(names) = listed(left.into_iter(), NAMED) {
            text += &format!("\nnot written: {names}");
        }
        Ok(text)
    }

    async fn write_in_editor(&self, ready: &Ready, path: &TreePath, change: &Change) -> Result<Handed> {
        let left = |why: &str| Ok(Handed::Left(why.to_owned()));
        if !matches!(change.after, Some(Node::File { .. })) {
            return left("not a file any more");
        }
        if matches!(change.before, Some(Node::Symlink { .. })) {
            // The editor would write to where it points.
            return left("a symlink on this machine");
        }
        // Looked at by itself and directly before the editor writes: a directory on the way that is a symlink on this machine,
        // whatever the sandbox has made of it, is a conflict then.
        let alone = ChangeSet { changes: [(path.clone(), change.clone())].into(), ..ChangeSet::default() };
        let after = match ready.workspace.would_write(&alone, &Resolutions::new()).await {
            Ok(mut missing) => match missing.changes.remove(path) {
                // With the user's own edits, where it is merged.
                Some(written) => written.after,
                None => return Ok(Handed::Present),
            },
            Err(error) if error.kind() == Kind::Conflict => {
                return left("it is not on this machine as the session knows it");
            }
            Err(error) => return Err(error),
        };
        let side = Side::load(after.as_ref(), ready.workspace.store(), MAX_TEXT as u64)?;
        let Some(text) = text_of(&side) else { return left("not text, or too large") };
        let file = ready.workspace.root().join(path.as_path());
        let params = json!({ "sessionId": self.session.id(), "path": file, "content": text });
        let asked = self.owner.editor.client.request("fs/write_text_file", params);
        Ok(match tokio::time::timeout(FILE_TIMEOUT, asked).await {
            Ok(Ok(_)) => Handed::Written,
            Ok(Err(error)) => Handed::Left(one_line(&error.message, MAX_MESSAGE)),
            Err(_) => Handed::Silent,
        })
    }
}

fn refused(why: &str) -> Error {
    Error::new(Kind::Conflict, format!("nothing was written: {why}"))
}

/// Returns whether a directory on the way to `path` is a symlink on this machine, in whose place the session has put a directory.
fn is_behind_symlink(path: &TreePath, changes: &ChangeSet) -> bool {
    let is_symlink = |path: TreePath| {
        changes.changes.get(&path).is_some_and(|change| matches!(change.before, Some(Node::Symlink { .. })))
    };
    path.ancestors().any(is_symlink)
}

/// Returns what is on disk, as far as an editor could have it.
fn known(before: Option<&Node>, store: &Store) -> Result<Known> {
    Ok(match before {
        Some(Node::Symlink { .. } | Node::Directory { .. }) => Known::Binary,
        node => match Side::load(node, store, MAX_IN_MEMORY)? {
            Side::Absent => Known::Text(None),
            side => match side.text() {
                Some(text) if text.len() <= MAX_TEXT => Known::Text(Some(text)),
                None if side.is_unreadable() => Known::Binary,
                _ => Known::Opaque,
            },
        },
    })
}

/// Returns whether two texts are the same but for what editors do to a text by opening it: line ends, a mark at the beginning, the
/// line feed at the end.
fn is_same(a: &str, b: &str) -> bool {
    let plain = |text: &str| {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    };
    a == b || plain(a) == plain(b)
}
