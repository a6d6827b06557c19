//! Writing what a session changed into the user's files. The one way for `agent apply`, `/apply`, the end of a run and a race:
//! [`choose`] asks which changes, [`commit_message`] for the message of a commit, [`write`] runs the hooks, writes and has the
//! model learn of it, and [`commit`] commits.

mod branch;
mod by_part;
mod commit;
mod conflicts;
mod decision;
mod whole;

pub use branch::{branch_question, write_branch, written_branch};
pub use commit::commit;
pub use conflicts::resolve;

use super::console::Console;
use super::endpoint::connect_again;
use super::sandbox_settings;
use crate::cli::config::{Config, telemetry};
use crate::cli::options::Options;
use crate::cli::ui::confirm::Reply;
use crate::cli::ui::host_programs::HostPrograms;
use crate::cli::ui::progress::Progress;
use crate::error::{Error, Result};
use crate::log::{History, SessionId, Store, read_records};
use crate::machine::Machine;
use crate::model::{Messages, Request};
use crate::sandbox::Sandbox;
use crate::session::hooks::{Hooks, Moment, of_apply};
use crate::session::{Frontend, OneShot, Session};
use crate::workspace::manifest::Node;
use crate::workspace::notices::listed;
use crate::workspace::resolution::{Resolution, Resolutions};
use crate::workspace::tree_path::TreePath;
use crate::workspace::{Applied, ChangeSet, Workspace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The means of asking the user.
pub struct Dialogue<'a> {
    pub progress: &'a Progress,
    /// The pager and the editor.
    pub programs: HostPrograms,
}

/// The first question to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// About everything.
    Whole,
    /// About each part.
    Parts,
}

/// Asks which of `changes` the user wants to have written; `is_all`: they are all that has changed.
///
/// # Errors
/// [`crate::error::Kind::Interrupted`] if the user answers with Ctrl-C or Ctrl-D: nothing is chosen then.
pub async fn choose(
    changes: &ChangeSet,
    workspace: &Workspace,
    dialogue: &Dialogue<'_>,
    ask: Ask,
    is_all: bool,
) -> Result<ChosenChanges> {
    if ask == Ask::Whole {
        let whole = whole::Whole { changes, workspace, dialogue, is_all };
        match whole.ask().await? {
            Reply::Chosen("yes") => return Ok(ChosenChanges::all(changes.clone())),
            Reply::Chosen("each") => {}
            Reply::Chosen(_) => return Ok(ChosenChanges::all(changes.without_changes())),
            Reply::Words(words) => {
                let said = Some(words);
                return Ok(ChosenChanges { said, ..ChosenChanges::all(changes.without_changes()) });
            }
        }
    }
    by_part::choose(changes, workspace, dialogue).await
}

/// The message of a commit of what was `chosen`: the given one, or one that the session's model proposes and, where somebody
/// can be asked, the user agrees with. `None`: there shall be no commit.
///
/// # Errors
/// Nothing of this can be committed, or the model has proposed no message.
pub async fn commit_message(
    session: &mut Author<'_>,
    files: &Files<'_>,
    chosen: &ChosenChanges,
    given: Option<&str>,
    dialogue: &Dialogue<'_>,
    is_asked: bool,
) -> Result<Option<String>> {
    let draft = commit::Draft::new(files.workspace, chosen, files.machine).await?;
    if let Some(message) = given {
        return commit::cleaned(message).map(Some);
    }
    dialogue.progress.show("the model writes the commit's message");
    let proposed = session.ask_model(&draft.request()).await;
    dialogue.progress.clear();
    commit::agreed(&proposed?, dialogue, is_asked).await
}

/// Writes what was chosen into the user's files, all of it or nothing.
///
/// # Errors
/// A hook refuses it, or a file has changed meanwhile: the error's details are the conflicts.
pub async fn write(session: &mut Author<'_>, files: &Files<'_>, chosen: &ChosenChanges) -> Result<Applied> {
    if files.workspace.is_in_place() {
        return Err(Error::usage("all of it is in your files already (--workspace-mode bind)")
            .hint("/undo or `agent undo` takes back what the last prompt changed"));
    }
    session.run_hooks(&chosen.changes).await?;
    let apply = telemetry::Apply::begin();
    let applied = files.workspace.apply_decided(&chosen.changes, &chosen.resolutions, files.sandbox).await;
    apply.end(session.id(), applied.as_ref().ok().map(|applied| applied.changes), files.machine);
    let applied = applied?;
    files.workspace.take_edited(&chosen.edited, &chosen.changes, &applied, files.sandbox).await?;
    chosen.note_of_written().map_or(Ok(()), |note| session.note(&note))?;
    Ok(applied)
}

/// The workspace of the changes, and what is needed to write them.
pub struct Files<'a> {
    pub machine: &'a Arc<Machine>,
    pub workspace: &'a Workspace,
    /// The session's sandbox, where it runs.
    pub sandbox: Option<&'a Sandbox>,
}

/// The session whose changes they are.
pub enum Author<'a> {
    /// It is open here.
    Open(&'a mut Session),
    /// It was kept.
    Kept { machine: &'a Arc<Machine>, options: &'a Options, id: &'a SessionId },
}

impl Author<'_> {
    /// Runs the user's hooks before an apply.
    ///
    /// # Errors
    /// One of them refuses it, or the sandbox that one needs does not start.
    async fn run_hooks(&self, changes: &ChangeSet) -> Result<()> {
        match self {
            Self::Open(session) => session.before_apply(changes).await,
            Self::Kept { machine, options, id } => {
                hooks_of_kept(&Config::load(machine, options)?, id, changes).await
            }
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Open(session) => session.id().as_str(),
            Self::Kept { id, .. } => id.as_str(),
        }
    }

    /// Returns what the model learns with its next prompt.
    pub fn note(&mut self, text: &str) -> Result<()> {
        match self {
            Self::Open(session) => session.conversation.note(text),
            Self::Kept { machine, id, .. } => {
                // What is chosen and written does not depend on a file that cannot be written.
                let _ = Store::open(machine).and_then(|store| store.note(id, text));
                Ok(())
            }
        }
    }

    async fn ask_model(&mut self, messages: &Messages) -> Result<String> {
        match self {
            Self::Open(session) => session.conversation.ask_beside(messages).await,
            Self::Kept { machine, options, id } => {
                ask_model_of_kept(machine, options, id, messages).await.map_err(|error| {
                    let text =
                        format!("nothing was written, because the model has proposed no message: {error}");
                    Error::new(error.kind(), text).hint("name the message: agent apply --commit -m MESSAGE")
                })
            }
        }
    }
}

async fn ask_model_of_kept(
    machine: &Arc<Machine>,
    options: &Options,
    id: &SessionId,
    messages: &Messages,
) -> Result<String> {
    let history = History::of(&read_records(&Store::open(machine)?.events(id))?);
    let connected = connect_again(&history, &mut Config::load(machine, options)?).await?;
    Ok(connected.settings.client.ask(Request::plain(messages), &mut |_| {}).await?.text)
}

/// Runs the hooks of a session that is not open.
async fn hooks_of_kept(config: &Config, id: &SessionId, changes: &ChangeSet) -> Result<()> {
    let moment = Moment::BeforeApply;
    let mut options = Options::default();
    options.verbosity.quiet = true;
    let console = Arc::new(Console::new(&config.machine, &options));
    let (machine, events) = (Arc::clone(&config.machine), Arc::clone(console.events()));
    let hooks = Hooks::new(config.hooks.clone(), id.to_string(), config.workspace.clone(), machine, events);
    if !hooks.has(moment, None) {
        return Ok(());
    }
    let restored = match hooks.needs_sandbox(moment, None) {
        true => Some(restored(config, id, &console).await?),
        false => None,
    };
    let sandbox = restored.as_ref().map(|restored| &restored.sandbox);
    let said = hooks.run(moment, None, of_apply(changes), sandbox).await;
    if let Some(restored) = restored {
        restored.end().await;
    }
    said?.or_refuse("the apply").map(drop)
}

/// A sandbox with the workspace as the session left it.
async fn restored(config: &Config, id: &SessionId, console: &Arc<Console>) -> Result<OneShot> {
    let (settings, _) = sandbox_settings::sandbox(config).await?;
    let directory = Store::open(&config.machine)?.dir(id);
    let workspace = Workspace::load(&directory, Arc::clone(&config.machine))
        .await?
        .ok_or_else(|| Error::unexpected(format!("the workspace of session {id} is gone")))?;
    OneShot::restored(workspace, &settings, &config.machine, Arc::clone(console) as _).await
}

/// The changes that the user chose.
#[derive(Debug)]
pub struct ChosenChanges {
    /// The changes to write.
    pub changes: ChangeSet,
    /// The files whose hunks the user edited, as the sandbox gets them: with what was not chosen.
    edited: BTreeMap<TreePath, Node>,
    /// The parts that were refused with a reason.
    refused: Vec<RefusedPart>,
    /// The decisions about files that the user has changed in the same lines.
    resolutions: Resolutions,
    /// The words that the user said in place of an answer.
    said: Option<String>,
}

/// A part of the changes that the user did not want, and why.
#[derive(Debug)]
struct RefusedPart {
    /// `src/main.rs, lines 10-14`
    place: String,
    reason: String,
    /// The lines of the hunk as a diff; empty for what has none.
    diff: String,
}

/// Returns what is to be known of how the files were written, a line each.
pub fn remarks_on(applied: &Applied) -> impl Iterator<Item = String> {
    let merged = listed(applied.merged.iter().map(ToString::to_string), NAMED);
    let merged = merged.map(|names| format!("merged with your edits: {names}"));
    merged.into_iter().chain(applied.separated.iter().cloned())
}

/// Names of files that a note for the model lists.
pub const NAMED: usize = 30;
/// Characters of the hunks that the model is shown again, of each and of all.
const MAX_DIFF: usize = 4_000;
const MAX_DIFFS: usize = 20_000;

impl ChosenChanges {
    /// All of `changes`.
    pub fn all(changes: ChangeSet) -> Self {
        let (edited, refused) = (BTreeMap::new(), Vec::new());
        Self { changes, edited, refused, resolutions: Resolutions::new(), said: None }
    }

    /// The prompt that asks the model to revise what was refused with a reason; `None` where nothing was.
    pub fn prompt(&self) -> Option<String> {
        if let Some(said) = &self.said {
            return Some(format!(
                "I reviewed your changes and wrote none of them to my own files; they are still in the sandbox. {said}"
            ));
        }
        let refused = self.refused_parts().map(|parts| {
            format!(
                "I reviewed your changes, and wrote to my own files only what I agree with. I refused these parts, which are \
                 still in the sandbox; please revise them there:{parts}"
            )
        });
        let revised = self.decided(Resolution::Revise).map(|names| {
            format!(
                "I have edited the same lines as you in these files: {names}. In the sandbox they now have both versions between \
                 conflict markers: after <<<<<<< is mine, before >>>>>>> is yours. Please replace each such place by lines that do \
                 what both of us meant, and leave no marker."
            )
        });
        let parts: Vec<String> = refused.into_iter().chain(revised).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// Returns what the model learns of the refused parts where it is not asked now.
    pub fn note_of_refused(&self) -> Option<String> {
        if let Some(said) = &self.said {
            return Some(format!("The user was asked whether to write the changes, and said: {said}"));
        }
        Some(format!("The user refused these parts of the changes:{}", self.refused_parts()?))
    }

    /// Returns what the model learns of what was written.
    fn note_of_written(&self) -> Option<String> {
        let kept = |path: &&TreePath| {
            let decided = self.resolutions.get(*path).map(|decided| decided.resolution);
            !matches!(decided, Some(Resolution::Ours | Resolution::Revise))
        };
        let written = listed(self.changes.changes.keys().filter(kept).map(ToString::to_string), NAMED);
        let written =
            written.map(|names| format!("The user wrote these changes to their own files: {names}."));
        let ours = self.decided(Resolution::Ours);
        let ours = ours.map(|names| {
            format!("They kept their own version of these, which the sandbox has too now: {names}.")
        });
        let markers = self.decided(Resolution::Markers);
        let markers = markers.map(|names| {
            format!("These have both versions between conflict markers, also in the sandbox: {names}.")
        });
        let edited = listed(self.edited.keys().map(ToString::to_string), NAMED);
        let edited = edited.map(|names| format!("They edited hunks of these, also in the sandbox: {names}."));
        let said: Vec<String> = [written, ours, markers, edited].into_iter().flatten().collect();
        (!said.is_empty()).then(|| said.join(" "))
    }

    /// The files that were decided like this.
    fn decided(&self, as_this: Resolution) -> Option<String> {
        let those = self.resolutions.iter().filter(|(_, decided)| decided.resolution == as_this);
        listed(those.map(|(path, _)| path.to_string()), NAMED)
    }

    fn refused_parts(&self) -> Option<String> {
        let mut text = String::new();
        let mut left = MAX_DIFFS;
        for RefusedPart { place, reason, diff } in &self.refused {
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
