//! What `diff`, `apply` and `undo` have in common: finding the session's workspace, and asking the person.

use crate::cli::Options;
use crate::error::{Error, Kind, Result};
use crate::session::{SessionId, Store};
use crate::ui::confirm;
use crate::ui::progress::Progress;
use crate::ui::style::Colours;
use crate::workspace::{ChangeSet, Workspace, diff, store};
use std::io::stderr;
use std::path::{Path, PathBuf};

/// The workspace of a kept session, and the paths that were named.
pub struct Kept {
    /// The session.
    pub id: SessionId,
    /// Its workspace.
    pub workspace: Workspace,
    /// Paths within it.
    pub paths: Vec<PathBuf>,
}

/// Finds the session that `id` begins, or the newest of the workspace. What is no session but comes first is a path:
/// `agent diff src/main.rs` need not name the session.
pub async fn find(options: &Options, id: Option<String>, paths: Vec<PathBuf>) -> Result<Kept> {
    let sessions = Store::open()?;
    let named = id.as_deref().map(|id| sessions.find(id));
    let (id, paths) = match (named, id) {
        (Some(Ok(found)), _) => (found, paths),
        (Some(Err(error)), Some(id)) if !looks_like_path(&id) => return Err(error),
        (_, path) => {
            let paths = path.map(PathBuf::from).into_iter().chain(paths).collect();
            (sessions.last(Some(&directory(options)?))?, paths)
        }
    };
    let workspace = Workspace::load(&sessions.dir(&id)).await?.ok_or_else(|| {
        Error::usage(format!("the session {id} ended before it had a workspace"))
            .hint("see `agent sessions list`")
    })?;
    Ok(Kept { id, workspace, paths })
}

/// The same, for what writes: a session that is running keeps its own books.
pub async fn find_idle(options: &Options, id: Option<String>, paths: Vec<PathBuf>) -> Result<Kept> {
    let kept = find(options, id, paths).await?;
    if Store::open()?.is_running(&kept.id) {
        return Err(Error::new(Kind::Usage, format!("the session {} is running", kept.id))
            .hint("use /apply there, or wait until it has ended"));
    }
    Ok(kept)
}

/// A session's id begins with its date; a file that only the sandbox has cannot be looked for here.
fn looks_like_path(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        || text.contains(['/', '.'])
        || Path::new(text).symlink_metadata().is_ok()
}

fn directory(options: &Options) -> Result<PathBuf> {
    let directory = options.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    directory.canonicalize().map_err(|error| {
        Error::usage(format!("{} cannot be the workspace", directory.display())).caused_by(error)
    })
}

/// Shows a summary on stderr and asks: all of it, none of it, or each file on its own.
pub async fn ask(changes: &ChangeSet, store: &store::Store, progress: &Progress) -> Result<ChangeSet> {
    let mut summary = Vec::new();
    diff::write_stat(&mut summary, changes, store)?;
    progress.suspend(|| eprint!("{}", String::from_utf8_lossy(&summary)));
    match confirm::ask(progress, "Apply?", &["yes", "no", "each"]).await? {
        "yes" => Ok(changes.clone()),
        "each" => ask_each(changes, store, progress).await,
        _ => Ok(changes.without_changes()),
    }
}

async fn ask_each(changes: &ChangeSet, store: &store::Store, progress: &Progress) -> Result<ChangeSet> {
    let mut chosen = changes.without_changes();
    for (path, change) in &changes.changes {
        // A directory goes with its files: those that are written make theirs, and an empty one is no loss.
        if change.is_directory_only() {
            continue;
        }
        let one = ChangeSet { changes: [(path.clone(), change.clone())].into(), ..ChangeSet::default() };
        let mut shown = Vec::new();
        diff::write_for_people(&mut shown, &one, store, Colours::of(&stderr()).0)?;
        progress.suspend(|| eprint!("{}", String::from_utf8_lossy(&shown)));
        if confirm::ask(progress, &format!("Apply {path}?"), &["yes", "no"]).await? == "yes" {
            chosen.changes.extend(one.changes);
        }
    }
    Ok(chosen)
}
