//! `/diff`, `/apply`, `/undo`, `/redo` and `/checkpoints`: what the session changed in the workspace.

use super::{Flow, Repl};
use crate::cli::apply::{
    Ask, Author, Dialogue, Files, NAMED, branch_question, choose, commit, commit_message, remarks_on,
    resolve, write, write_branch, written_branch,
};
use crate::cli::kept_session::within;
use crate::cli::print::counted;
use crate::cli::sandbox_settings::object_stores;
use crate::cli::ui::confirm;
use crate::cli::ui::style::BOLD;
use crate::error::{Error, Result};
use crate::sanitise;
use crate::session::Ready;
use crate::workspace::notices::listed;
use crate::workspace::tree_path::TreePath;
use crate::workspace::{ChangeSet, Checkpoint, Restored, diff, risks};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Repl<'_> {
    /// Without a pager; `agent diff` has one.
    pub(super) async fn diff(&mut self, paths: &str) -> Result<Flow> {
        let mut words = split(paths)?;
        let all = take_flag(&mut words, &["--all"]);
        let is_all = words.is_empty();
        let (ready, changes) = self.changes(words, all).await?;
        let mut text = Vec::new();
        if let Some(risks) = risks::summary(&changes) {
            writeln!(text, "{risks}\n")?;
        }
        diff::write_text(&mut text, &changes, ready.workspace.store(), self.colours.0)?;
        self.screen.say(&String::from_utf8_lossy(&text));
        ready.workspace.record_shown(&changes, is_all)?;
        if changes.is_empty() {
            self.remark("nothing has changed");
        }
        Ok(Flow::Continue)
    }

    /// Shows the summary and asks, with `-i` about each hunk; a conflict writes nothing. What is refused with a reason is the
    /// model's next prompt.
    pub(super) async fn apply(&mut self, arguments: &str) -> Result<Flow> {
        let mut words = split(arguments)?;
        let ask = match take_flag(&mut words, &["-i", "--interactive"]) {
            true => Ask::Parts,
            false => Ask::Whole,
        };
        let all = take_flag(&mut words, &["--all"]);
        let commits = take_flag(&mut words, &["--commit"]);
        let given = take_value(&mut words, &["-m", "--message"])?;
        if let Some(branch) = take_value(&mut words, &["--branch"])? {
            return self.write_branch(&branch).await;
        }
        if given.is_some() && !commits {
            return Err(Error::usage("-m is the message of a commit").hint("/apply --commit -m MESSAGE"));
        }
        refuse_options(&words)?;
        let is_all = words.is_empty();
        let (ready, changes) = self.changes(words, all).await?;
        if changes.is_empty() {
            self.remark("there is nothing to apply");
            return Ok(Flow::Continue);
        }
        let dialogue = Dialogue { progress: self.screen.progress(), programs: self.config.programs() };
        let mut chosen = choose(&changes, &ready.workspace, &dialogue, ask, is_all).await?;
        resolve(&mut chosen, &changes, &ready.workspace, &dialogue, true).await?;
        let next = chosen.prompt().map_or(Flow::Continue, Flow::Prompt);
        if chosen.changes.is_empty() {
            self.remark("nothing was written");
            return Ok(self.announced(next));
        }
        let (machine, sandbox) = (&self.config.machine, Some(&ready.sandbox));
        let files = Files { machine, workspace: &ready.workspace, sandbox };
        let mut author = Author::Open(self.session);
        let message = match commits {
            true => commit_message(&mut author, &files, &chosen, given.as_deref(), &dialogue, true).await?,
            false => None,
        };
        if commits && message.is_none() {
            self.remark("nothing was written");
            return Ok(Flow::Continue);
        }
        let applied = write(&mut author, &files, &chosen).await?;
        self.remark(&format!("written: {}", counted(applied.changes)));
        remarks_on(&applied).for_each(|line| self.remark(&line));
        if let Some(message) = message {
            let made = commit(&files, &applied, &message).await?;
            made.iter().flat_map(|made| &made.remarks).for_each(|remark| self.remark(remark));
            let names: Vec<&str> = made.iter().map(|made| made.name.as_str()).collect();
            let names = names.join(", ");
            self.remark(&format!("committed as {names}"));
            self.note(&format!("The user committed them as {names}: {message}"))?;
        }
        Ok(self.announced(next))
    }

    /// Writes what was committed in the sandbox as a branch.
    async fn write_branch(&mut self, branch: &str) -> Result<Flow> {
        let ready = self.ready().await?;
        // What is not recorded yet is part of it.
        let changes = ready.workspace.changes(&ready.sandbox).await?;
        let commits = ready.workspace.inner_commits(object_stores(self.config)).await?;
        self.screen.say(&commits.summary(&changes));
        self.screen.settle()?;
        if confirm::ask(self.screen.progress(), &branch_question(branch), &["yes", "no"]).await? == "no" {
            self.remark("nothing was written");
            return Ok(Flow::Continue);
        }
        write_branch(&Author::Open(self.session), &changes, &commits, branch).await?;
        self.remark(&written_branch(branch));
        self.note(&format!("The user took the commits of the sandbox as the branch {branch}."))?;
        Ok(Flow::Continue)
    }

    /// Says that the model is asked again.
    fn announced(&self, next: Flow) -> Flow {
        if next != Flow::Continue {
            self.remark("the model is asked to revise them");
        }
        next
    }

    pub(super) async fn undo(&mut self, prompts: &str) -> Result<Flow> {
        let prompts = match prompts {
            "" => 1,
            count => count.parse().map_err(|_| Error::usage("/undo takes the number of prompts to undo"))?,
        };
        match self.session.undo(prompts).await? {
            Some((Restored { checkpoint, files }, undone)) => {
                let only = match undone < prompts {
                    true => format!("; {undone} undone, there were no more"),
                    false => String::new(),
                };
                let in_place = self.ready().await?.workspace.is_in_place();
                match listed(files.iter().map(ToString::to_string), NAMED).filter(|_| in_place) {
                    Some(names) => self.remark(&format!("taken back in your files: {names}{only}")),
                    None => {
                        self.remark(&format!("the workspace is at checkpoint {}{only}", words(&checkpoint)))
                    }
                }
                let what = match undone {
                    1 => "the changes of the last prompt".to_owned(),
                    count => format!("the changes of the last {count} prompts"),
                };
                self.note_restored(&format!("The user undid {what}"), &files)?;
                if !in_place {
                    self.offer_undo_of_apply(&files).await?;
                }
            }
            None => self.remark("there is nothing to undo"),
        }
        Ok(Flow::Continue)
    }

    /// After an undo in the sandbox of `files` that an apply has written: says that the user's own files are as before, and
    /// offers to take that apply back.
    async fn offer_undo_of_apply(&mut self, files: &[TreePath]) -> Result<()> {
        let ready = self.ready().await?;
        let written = ready.workspace.last_written().await;
        let both = written.iter().filter(|path| files.contains(path)).map(ToString::to_string);
        let Some(names) = listed(both, NAMED) else { return Ok(()) };
        self.remark(&format!(
            "this undid it in the sandbox; your own files still have what /apply wrote: {names}"
        ));
        let question = "Take the last apply back in your own files too?";
        self.screen.settle()?;
        if confirm::ask(self.screen.progress(), question, &["yes", "no"]).await? != "yes" {
            return Ok(());
        }
        let changes = ready.workspace.undo_apply().await?;
        self.remark(&format!("taken back in your files: {}", counted(changes)));
        self.note("The user took back what was written to their own files last.")
    }

    pub(super) async fn redo(&mut self) -> Result<Flow> {
        let Restored { checkpoint, files } = self.session.checkpoints().redo().await?;
        self.remark(&format!("the workspace is at checkpoint {}", words(&checkpoint)));
        self.note_restored("The user redid what they had undone", &files)?;
        Ok(Flow::Continue)
    }

    pub(super) async fn checkpoints(&mut self) -> Result<Flow> {
        let (list, position) = self.ready().await?.workspace.checkpoints().await;
        let mut text = String::new();
        for (index, checkpoint) in list.iter().enumerate() {
            let line = format!("{} {}\n", if index == position { "*" } else { " " }, words(checkpoint));
            text += &if index == position { self.colours.paint(BOLD, line) } else { line };
        }
        self.screen.say(&text);
        Ok(Flow::Continue)
    }

    fn note_restored(&mut self, what: &str, files: &[TreePath]) -> Result<()> {
        match listed(files.iter().map(ToString::to_string), NAMED) {
            Some(names) => self.note(&format!("{what}: these files in the sandbox changed: {names}.")),
            None => self.note(&format!("{what}.")),
        }
    }

    async fn changes(&self, paths: Vec<String>, all: bool) -> Result<(Arc<Ready>, ChangeSet)> {
        let paths: Vec<PathBuf> = paths.into_iter().map(PathBuf::from).collect();
        let ready = self.ready().await?;
        let named = self.config.options.directory.workspace.as_deref();
        let paths = within(&ready.workspace, named, &self.config.directory, &paths)?;
        let changes = ready.workspace.changes(&ready.sandbox).await?;
        let mut once = changes.clone();
        // It is the same each time.
        let changes =
            match once.take_remark_on_ignored() && self.has_told_of_ignored.swap(true, Ordering::Relaxed) {
                true => once,
                false => changes,
            };
        let changes = if all { changes.with_build_files() } else { changes };
        Ok((ready, changes.select(&paths)?))
    }

    async fn ready(&self) -> Result<Arc<Ready>> {
        self.screen.progress().show("waiting for the sandbox");
        let ready = self.session.startup().ready().await?;
        self.screen.progress().clear();
        Ok(ready)
    }
}

/// Refuses what looks like an option of `/apply` and is none.
fn refuse_options(words: &[String]) -> Result<()> {
    match words.iter().find(|word| word.starts_with('-')) {
        None => Ok(()),
        Some(option) => {
            let error = Error::usage(format!("/apply has no option {}", sanitise::one_line(option, 40)));
            Err(error.hint("/apply [-i] [--all] [--commit [-m MESSAGE]] [PATH…], or /apply --branch NAME"))
        }
    }
}

/// Returns whether one of `names` is among `words`, from which it is removed.
fn take_flag(words: &mut Vec<String>, names: &[&str]) -> bool {
    let count = words.len();
    words.retain(|word| !names.contains(&word.as_str()));
    words.len() < count
}

/// Returns what follows one of `names` among `words`, from which both are removed.
fn take_value(words: &mut Vec<String>, names: &[&str]) -> Result<Option<String>> {
    let Some(at) = words.iter().position(|word| names.contains(&word.as_str())) else { return Ok(None) };
    let name = words.remove(at);
    match at < words.len() {
        true => Ok(Some(words.remove(at))),
        false => Err(Error::usage(format!("{name} needs a value")).hint("/apply --commit -m \"MESSAGE\"")),
    }
}

fn split(arguments: &str) -> Result<Vec<String>> {
    shell_words::split(arguments).map_err(|_| Error::usage("a quotation mark is not closed"))
}

/// `2 (prompt 1, 3 files changed)`
fn words(checkpoint: &Checkpoint) -> String {
    let Checkpoint { id, files, prompt, .. } = checkpoint;
    match (id.as_str(), *files) {
        ("0", _) => "0 (the beginning of the session)".to_owned(),
        (_, 1) => format!("{id} (prompt {prompt}, 1 file changed)"),
        _ => format!("{id} (prompt {prompt}, {files} files changed)"),
    }
}
