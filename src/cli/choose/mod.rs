//! Choosing what of a session's changes is written: all, none, or each part on its own.

mod decision;
mod review;

use crate::approval::{Answer, Approver, Question};
use crate::cli::ui::progress::Progress;
use crate::error::Result;
use crate::workspace::manifest::Node;
use crate::workspace::tree_path::TreePath;
use crate::workspace::{ChangeSet, Workspace, diff, risks};
use std::collections::BTreeMap;
use std::io::Write;

/// What the user chose.
#[derive(Debug)]
pub struct Chosen {
    /// What is written.
    pub changes: ChangeSet,
    /// The files whose hunks the user edited, as the sandbox gets them: with what was not chosen.
    pub edited: BTreeMap<TreePath, Node>,
    /// The parts that were refused with a reason.
    pub refused: Vec<Refused>,
}

/// A part of the changes that the user did not want, and why.
#[derive(Debug)]
pub struct Refused {
    /// `src/main.rs, lines 10-14`
    place: String,
    reason: String,
    /// The lines of the hunk as a diff; empty for what has none.
    diff: String,
}

/// How the user is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// About everything first.
    Whole,
    /// About each part.
    Parts,
}

/// Which of `changes` the user wants to have written.
///
/// # Errors
/// [`crate::error::Kind::Interrupted`] if the user answers with Ctrl-C or Ctrl-D: nothing is chosen then.
pub async fn choose(
    changes: &ChangeSet,
    workspace: &Workspace,
    user: &dyn Approver,
    progress: &Progress,
    ask: Ask,
) -> Result<Chosen> {
    if ask == Ask::Whole {
        let summary = summary(changes, workspace)?;
        match user.ask(&Question::Apply { summary: &summary }).await? {
            Answer::Once => return Ok(Chosen::all(changes.clone())),
            Answer::Each => {}
            Answer::Always | Answer::No | Answer::Never => {
                return Ok(Chosen::all(changes.without_changes()));
            }
        }
    }
    review::review(changes, workspace, progress).await
}

/// The files of `changes` and what is risky about them, as lines for the user.
fn summary(changes: &ChangeSet, workspace: &Workspace) -> Result<String> {
    let mut shown = Vec::new();
    diff::write_stat(&mut shown, changes, workspace.store())?;
    if let Some(risks) = risks::summary(changes) {
        writeln!(shown, "{risks}")?;
    }
    Ok(String::from_utf8_lossy(&shown).into_owned())
}

/// Characters of the hunks that the model is shown again, of each and of all.
const MAX_DIFF: usize = 4_000;
const MAX_DIFFS: usize = 20_000;

impl Chosen {
    /// All of `changes`.
    pub fn all(changes: ChangeSet) -> Self {
        Self { changes, edited: BTreeMap::new(), refused: Vec::new() }
    }

    /// The prompt that asks the model to revise what was refused with a reason; `None` where nothing was.
    pub fn prompt(&self) -> Option<String> {
        let parts = self.refused_parts()?;
        Some(format!(
            "I reviewed your changes, and wrote to my own files only what I agree with. I refused these parts, which are \
             still in the sandbox; please revise them there:{parts}"
        ))
    }

    /// What the model learns of the refused parts where it is not asked now.
    pub fn note(&self) -> Option<String> {
        Some(format!("The user refused these parts of the changes:{}", self.refused_parts()?))
    }

    fn refused_parts(&self) -> Option<String> {
        let mut text = String::new();
        let mut left = MAX_DIFFS;
        for Refused { place, reason, diff } in &self.refused {
            text += &format!("\n\n{place}: {reason}");
            let room = left.min(MAX_DIFF);
            if !diff.is_empty() && diff.len() <= room {
                text += &format!("\n```diff\n{diff}```");
                left -= diff.len();
            }
        }
        (!text.is_empty()).then_some(text)
    }
}
