//! `agent apply --commit` and `/apply --commit`: a commit of what an apply wrote.

use super::{ChosenChanges, Dialogue, Files};
use crate::cli::ui::{confirm, editor, stderr};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::model::{Message, Messages};
use crate::visible::without_tags;
use crate::workspace::commit::{CommitPlan, Made};
use crate::workspace::{Applied, ChangeSet, Workspace, diff};
use crate::{sanitise, secret_scan};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of the diff that the model is shown.
const MAX_DIFF: usize = 24_000;
/// Characters of a message.
const MAX_MESSAGE: usize = 4_000;

/// A commit that is possible, before anything is written.
pub struct Draft {
    subjects: String,
    diff: String,
}

impl Draft {
    /// Looks whether what an apply of what was `chosen` is going to write can be committed.
    pub async fn new(workspace: &Workspace, chosen: &ChosenChanges, machine: &Arc<Machine>) -> Result<Self> {
        if chosen.changes.in_place {
            // Its configuration names programs that git runs.
            return Err(Error::usage(
                "the sandbox can change this repository itself (--workspace-mode bind)",
            )
            .hint("look at .git/config, and commit with git"));
        }
        let written = workspace.would_write(&chosen.changes, &chosen.resolutions).await?;
        let mut diff = Vec::new();
        diff::write_text(&mut diff, &written, workspace.store(), false)?;
        let (plans, remarks) = plans(workspace, written, machine).await?;
        if plans.iter().all(CommitPlan::is_empty) {
            let remarks = plans.iter().flat_map(CommitPlan::remarks).chain(&remarks);
            let why = remarks.map(|remark| format!("\n  {remark}")).collect::<String>();
            return Err(Error::usage(format!("nothing of this can be committed{why}"))
                .hint("apply it without --commit"));
        }
        let mut diff = String::from_utf8_lossy(&diff).into_owned();
        if diff.len() > MAX_DIFF {
            let end = (0..=MAX_DIFF).rev().find(|at| diff.is_char_boundary(*at)).unwrap_or_default();
            diff.truncate(end);
            diff.push_str("\n[the rest of the diff is left out]\n");
        }
        let subjects = plans.iter().map(CommitPlan::subjects).collect();
        Ok(Self { subjects: for_model(subjects), diff: for_model(diff) })
    }

    /// Returns what the model is asked for a message.
    pub fn request(&self) -> Messages {
        let earlier = match self.subjects.trim() {
            "" => String::new(),
            subjects => format!("Earlier subjects:\n{subjects}\n\n"),
        };
        Messages::from(vec![
            Message::System { text: agent_prompts::COMMIT_MESSAGE.trim().to_owned() },
            Message::User { text: format!("{earlier}The diff:\n{}", self.diff) },
        ])
    }
}

/// Text of the repository without its secrets, and without what a model reads and nobody sees.
fn for_model(text: String) -> String {
    without_tags(secret_scan::redact(&text).map_or(text, |redacted| redacted.text))
}

/// The message that the user wants, of a proposed one: shown, and where somebody can be asked, agreed with or edited. `None`:
/// there shall be no commit.
pub async fn agreed(proposed: &str, dialogue: &Dialogue<'_>, is_asked: bool) -> Result<Option<String>> {
    let progress = dialogue.progress;
    let mut message = cleaned(proposed)?;
    loop {
        let shown: String = message.lines().map(|line| format!("    {line}\n")).collect();
        progress.suspend(|| stderr::write(&format!("The message of the commit:\n\n{shown}\n")));
        if !is_asked {
            return Ok(Some(message));
        }
        match confirm::ask(progress, "Commit with this message?", &["yes", "no", "edit"]).await? {
            "yes" => return Ok(Some(message)),
            "edit" => {
                let _hold = progress.hold();
                let edited = editor::edit(message.into_bytes(), ".txt", &dialogue.programs).await?;
                message = cleaned(&String::from_utf8_lossy(&edited))?;
            }
            _ => return Ok(None),
        }
    }
}

/// A model's or a user's message without what does not belong into one.
pub fn cleaned(text: &str) -> Result<String> {
    let text = sanitise::plain(text.trim());
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("```")).collect();
    let text = lines.join("\n");
    let text = text.trim().trim_matches('"').trim();
    let text: String = text.chars().take(MAX_MESSAGE).collect();
    match text.is_empty() {
        true => Err(Error::usage("the commit has no message").hint("name one: --commit -m MESSAGE")),
        false => Ok(text),
    }
}

/// Commits what `applied` wrote: one commit in each repository that it wrote to.
///
/// # Errors
/// git failed; the files are written all the same, and the error says that.
pub async fn commit(files: &Files<'_>, applied: &Applied, message: &str) -> Result<Vec<Made>> {
    let plans = plans(files.workspace, applied.written.clone(), files.machine).await;
    let message = format!("{}\n", message.trim_end());
    let mut made: Vec<Made> = Vec::new();
    let committed = async {
        let (plans, remarks) = plans?;
        for plan in plans.into_iter().filter(|plan| !plan.is_empty()) {
            let message = message.clone();
            made.push(blocking(move || plan.commit(&message)).await?);
        }
        made.iter_mut().take(1).for_each(|made| made.remarks.extend(remarks.clone()));
        Ok(())
    };
    let committed: Result<()> = committed.await;
    let names: Vec<&str> = made.iter().map(|made| made.name.as_str()).collect();
    let so_far = if names.is_empty() { String::new() } else { format!(" (but for {})", names.join(", ")) };
    committed.map_err(|error| {
        let text = format!("the files are written, but not committed{so_far}: {error}");
        Error::new(error.kind(), text).hint("commit them with git, or take the apply back with agent undo")
    })?;
    Ok(made)
}

/// The commits of what is written, one for each directory, and remarks about directories where none is possible.
async fn plans(
    workspace: &Workspace,
    written: ChangeSet,
    machine: &Arc<Machine>,
) -> Result<(Vec<CommitPlan>, Vec<String>)> {
    let (mut plans, mut remarks, mut failed) = (Vec::new(), Vec::new(), None);
    for (root, written) in workspace.by_root(&written) {
        let (root, store, machine): (PathBuf, _, _) =
            (root.to_owned(), workspace.store().clone(), Arc::clone(machine));
        let name = root.display().to_string();
        match blocking(move || CommitPlan::new(&root, &written, &store, &machine)).await {
            Ok(plan) => plans.push(plan),
            Err(error) => {
                remarks.push(format!("{name} is not committed: {error}"));
                failed = failed.or(Some(error));
            }
        }
    }
    match failed {
        Some(error) if plans.is_empty() => Err(error),
        _ => Ok((plans, remarks)),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::unexpected("git could not be run").caused_by(error))?
}

#[cfg(test)]
mod tests {
    use super::cleaned;

    #[test]
    fn a_message_has_no_fences_quotes_or_escapes() {
        assert_eq!(
            cleaned("```\nAdd a \x1b[31mflag\n\nIt helps.\n```\n").unwrap(),
            "Add a flag\n\nIt helps."
        );
        assert_eq!(cleaned("\"Add a flag\"").unwrap(), "Add a flag");
        assert!(cleaned("```\n```").is_err());
    }
}
