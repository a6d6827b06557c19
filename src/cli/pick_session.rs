//! Picking a session of a workspace at the terminal.

use crate::cli::ui::picker::pick;
use crate::cli::ui::progress::Progress;
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::log::{SessionId, Store};
use std::path::Path;

/// Sessions that are looked at.
const MAX_SESSIONS: usize = 200;

/// The session of `workspace` that the user picks, but `except`; where there is only one, that. `None`: none was picked.
///
/// # Errors
/// There is none.
pub async fn pick_session(
    store: &Store,
    workspace: &Path,
    except: Option<&SessionId>,
    progress: &Progress,
) -> Result<Option<SessionId>> {
    let mut ids = store.of_workspace(workspace)?;
    ids.retain(|id| Some(id) != except);
    ids.truncate(MAX_SESSIONS);
    if ids.len() < 2 {
        return match ids.pop() {
            Some(id) => Ok(Some(id)),
            None if except.is_some() => Err(Error::usage("there is no other session of this workspace")
                .hint("`agent sessions list --all` lists those of other workspaces")),
            // Its message says where the next ones are.
            None => store.last(Some(workspace)).map(Some),
        };
    }
    let line = |id: &SessionId| {
        let summary = store.summary(id.clone());
        let updated = summary.updated.get(..16).unwrap_or(&summary.updated).replace('T', " ");
        format!(
            "{updated}  {:<11} {:>9}  {}  {id}",
            summary.status,
            counted(summary.turns, "turn"),
            summary.preview
        )
    };
    let lines: Vec<String> = ids.iter().map(line).collect();
    let picked = pick(progress, "Which session?", &lines, 0).await?;
    Ok(picked.map(|number| ids.swap_remove(number)))
}
