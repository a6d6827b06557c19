//! Writing what a session changed into the workspace: `agent apply`, and the end of a session.

use super::arguments::ChangesArgs;
use super::choose::{Ask, Chosen, choose};
use super::commit::{self, Draft};
use super::console::{Console, PlainUser};
use super::earlier;
use super::hooks;
use super::print::print;
use super::review::{self, Kept};
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::{confirm, stderr};
use crate::error::{Error, Result};
use crate::event::{Changes, Event};
use crate::exit_code::ExitCode;
use crate::log::{History, SessionId, Store, read_records};
use crate::model::Request;
use crate::session::{Frontend, Ready, Session};
use crate::workspace::notices::listed;
use crate::workspace::tree_path::TreePath;
use crate::workspace::{Applied, ChangeSet};
use clap::Args;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// `agent apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    selection: ChangesArgs,
    /// Try a three-way merge with files that changed meanwhile
    #[arg(long)]
    merge: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Ask about each hunk, as `git add -p` does
    #[arg(short, long, conflicts_with_all = ["yes", "json"])]
    interactive: bool,
    /// Commit what was written, and nothing else, with git of this machine
    #[arg(long)]
    commit: bool,
    /// The commit's message (default: the model proposes one)
    #[arg(short, long, value_name = "MESSAGE", requires = "commit")]
    message: Option<String>,
}

impl ApplyArgs {
    pub fn options(&self) -> Options {
        Options::of(&[&self.selection])
    }
}

/// How long a session that failed may take to look at its sandbox once more.
const LAST_LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// `agent apply [ID] [PATH…]`: asks where there is a terminal, and writes.
pub async fn apply(options: &Options, arguments: ApplyArgs) -> Result<ExitCode> {
    if arguments.interactive && !confirm::is_possible() {
        return Err(Error::usage("--interactive needs a terminal")
            .hint("name the files to apply: agent apply ID PATH…"));
    }
    let (id, paths) = (arguments.selection.id.clone(), arguments.selection.paths.clone());
    let kept = review::find_idle(options, id, paths).await?;
    let changes = kept.workspace.recorded_changes().await?.select(&kept.paths)?;
    changes.messages().for_each(|message| stderr::write(&format!("{message}\n")));
    if changes.is_empty() {
        stderr::write("There is nothing to apply.\n");
        return report(options, &kept.id, &changes, &Applied::default());
    }
    // A script that calls this means it.
    let is_asked = !arguments.yes && !options.json && confirm::is_possible();
    let chosen = match is_asked {
        false => Chosen::all(changes),
        true => {
            let ask = if arguments.interactive { Ask::Parts } else { Ask::Whole };
            choose(&changes, &kept.workspace, &PlainUser, &Progress::stderr(), ask).await?
        }
    };
    if let Some(note) = chosen.note() {
        // A session that cannot be written learns nothing; what is chosen does not depend on it.
        let _ = Store::open(&machine()).and_then(|store| store.note(&kept.id, &note));
    }
    let nothing = Chosen::all(chosen.changes.without_changes());
    if chosen.changes.is_empty() {
        return write(options, &kept, nothing, &arguments, None).await;
    }
    match arguments.commit {
        false => write(options, &kept, chosen, &arguments, None).await,
        true => match message(options, &kept, &chosen.changes, &arguments, is_asked).await? {
            Some(message) => write(options, &kept, chosen, &arguments, Some(message)).await,
            None => write(options, &kept, nothing, &arguments, None).await,
        },
    }
}

/// Writes what was chosen, commits it with `message`, and reports both.
async fn write(
    options: &Options,
    kept: &Kept,
    chosen: Chosen,
    arguments: &ApplyArgs,
    message: Option<String>,
) -> Result<ExitCode> {
    let changes = &chosen.changes;
    if changes.is_empty() {
        stderr::write("Nothing was written.\n");
        return report(options, &kept.id, changes, &Applied::default());
    }
    hooks::before_apply(options, &kept.id, changes).await?;
    let applied = match kept.workspace.apply(changes, arguments.merge, None).await {
        Err(error) => return Err(report_conflicts(options, &kept.id, changes, error)?),
        Ok(applied) => applied,
    };
    kept.workspace.take_edited(&chosen.edited, &chosen.changes, &applied, None).await?;
    stderr::write(&format!("{} (`agent undo {}` reverts it)\n", counted(applied.changes), kept.id));
    if let Some(note) = note(&chosen) {
        // It is written, whether or not the session learns of it.
        let _ = Store::open(&machine()).and_then(|store| store.note(&kept.id, &note));
    }
    for path in &applied.merged {
        stderr::write(&format!("merged with the host's version: {path}\n"));
    }
    let Some(message) = message else { return report(options, &kept.id, changes, &applied) };
    let made = commit::commit(&kept.workspace, &applied, &message).await?;
    made.remarks.iter().for_each(|remark| stderr::write(&format!("{remark}\n")));
    stderr::write(&format!("committed as {}\n", made.name));
    let mut json = to_json(&kept.id, changes, &applied, json!([]));
    json["commit"] = json!(made.id);
    print(options, "", &json)
}

/// The message of the commit: the given one, or one that the session's model proposes. `None` if the user wants no commit.
async fn message(
    options: &Options,
    kept: &Kept,
    changes: &ChangeSet,
    arguments: &ApplyArgs,
    is_asked: bool,
) -> Result<Option<String>> {
    let draft = Draft::new(&kept.workspace, changes, arguments.merge).await?;
    if let Some(message) = &arguments.message {
        return commit::cleaned(message).map(Some);
    }
    let progress = if options.json { Progress::hidden() } else { Progress::stderr() };
    progress.show("the model writes the commit's message");
    let proposed = proposed(options, &kept.id, &draft).await.map_err(|error| {
        let text = format!("nothing was written, because the model has proposed no message: {error}");
        Error::new(error.kind(), text).hint("name the message: agent apply --commit -m MESSAGE")
    });
    progress.clear();
    commit::agreed(&proposed?, &kept.workspace, &progress, is_asked).await
}

async fn proposed(options: &Options, id: &SessionId, draft: &Draft) -> Result<String> {
    let history = History::of(&read_records(&Store::open(&machine())?.events(id))?);
    let connected = earlier::connect(&history, &mut Config::load(options)?).await?;
    let messages = draft.request();
    let request = Request::plain(&messages);
    Ok(connected.model.ask(request, &mut |_| {}).await?.text)
}

/// Names of files that a note for the model lists.
const NAMED: usize = 30;

/// What the model learns of an apply.
pub fn note(chosen: &Chosen) -> Option<String> {
    let names = listed(chosen.changes.changes.keys().map(ToString::to_string), NAMED)?;
    let edited = listed(chosen.edited.keys().map(ToString::to_string), NAMED);
    let edited = edited.map(|names| format!(" They edited hunks of these, also in the sandbox: {names}."));
    Some(format!("The user wrote these changes to their own files: {names}.{}", edited.unwrap_or_default()))
}

/// With `--json`, what was done.
fn report(options: &Options, id: &SessionId, changes: &ChangeSet, applied: &Applied) -> Result<ExitCode> {
    print(options, "", &to_json(id, changes, applied, json!([])))
}

/// With `--json`, that nothing was done, and why; gives back the failure to end with.
fn report_conflicts(options: &Options, id: &SessionId, changes: &ChangeSet, error: Error) -> Result<Error> {
    if let Some(conflicts) = error.known_details() {
        let nothing = (changes.without_changes(), Applied::default());
        print(options, "", &to_json(id, &nothing.0, &nothing.1, conflicts.clone()))?;
    }
    Ok(error)
}

fn to_json(id: &SessionId, changes: &ChangeSet, applied: &Applied, conflicts: Value) -> Value {
    let names = |paths: &mut dyn Iterator<Item = &TreePath>| -> Vec<String> {
        paths.map(ToString::to_string).collect()
    };
    let files = changes.changes.iter().filter(|(_, change)| !change.is_directory_only());
    json!({
        "session": id,
        "applied": applied.changes,
        "files": names(&mut files.map(|(path, _)| path)),
        "merged": names(&mut applied.merged.iter()),
        "refused": changes.refused,
        "remarks": changes.remarks,
        "conflicts": conflicts,
    })
}

/// The end of `agent run`: with `--apply` the change is written, a user at a terminal is asked, and otherwise
/// a message names the command that writes it later.
pub async fn after_run(config: &Config, console: &Console, session: &mut Session) -> Result<()> {
    let Some(ready) = ready(session).await? else { return Ok(()) };
    let changes = ready.workspace.changes(&ready.sandbox).await?;
    for message in changes.messages() {
        // What is refused is not written, and that is always reported.
        match changes.remarks.contains(&message) {
            true => console.events().emit(Event::Notice { text: message })?,
            false => console.always_notice(message)?,
        }
    }
    if changes.is_empty() || changes.in_place {
        return report_unwritten(console, session, ready.workspace.root(), &changes);
    }
    let wanted = if config.options.apply {
        Chosen::all(changes.clone())
    } else if confirm::is_possible() {
        console.screen.settle()?;
        let progress = console.screen.progress();
        choose(&changes, &ready.workspace, console.user(), progress, Ask::Whole).await?
    } else {
        Chosen::all(ChangeSet::default())
    };
    wanted.note().map_or(Ok(()), |note| session.conversation.note(&note))?;
    if wanted.changes.is_empty() {
        return report_unwritten(console, session, ready.workspace.root(), &changes);
    }
    session.before_apply(&wanted.changes).await?;
    let applied = ready.workspace.apply(&wanted.changes, false, Some(&ready.sandbox)).await?;
    let sandbox = Some(&ready.sandbox);
    ready.workspace.take_edited(&wanted.edited, &wanted.changes, &applied, sandbox).await?;
    let text = format!("{}, written to {}", counted(applied.changes), config.workspace.display());
    console.events().emit(Event::Notice { text })?;
    note(&wanted).map_or(Ok(()), |note| session.conversation.note(&note))
}

/// The end of the REPL: reports how to write later what is not written yet.
pub async fn after_repl(console: &Console, session: &Session) -> Result<()> {
    let Some(ready) = ready(session).await? else { return Ok(()) };
    let changes = match ready.workspace.changes(&ready.sandbox).await {
        Ok(changes) => changes,
        // What was recorded is there even where the sandbox is not any more.
        Err(_) => ready.workspace.recorded_changes().await?,
    };
    report_unwritten(console, session, ready.workspace.root(), &changes)
}

/// The end of a run or of the REPL that failed, reached a limit or was terminated: what the sandbox holds is recorded once
/// more, and what is not written is reported.
pub async fn after_failure(console: &Console, session: &Session) {
    let Some(ready) = session.startup().if_ready() else { return };
    let changes = match timeout(LAST_LOOK_TIMEOUT, ready.workspace.changes(&ready.sandbox)).await {
        Ok(Ok(changes)) => Ok(changes),
        Ok(Err(_)) | Err(_) => ready.workspace.recorded_changes().await,
    };
    // The failure that led here is the one to end with.
    let _ = changes.and_then(|changes| report_unwritten(console, session, ready.workspace.root(), &changes));
}

/// The sandbox, where it may hold a change.
async fn ready(session: &Session) -> Result<Option<Arc<Ready>>> {
    match session.startup().if_ready() {
        Some(ready) => Ok(Some(ready)),
        // An earlier run of the session may have changed something.
        None if session.is_resumed() => session.startup().ready().await.map(Some),
        // No tool ran, so nothing changed.
        None => Ok(None),
    }
}

/// Reports what is not written, and how to write it later.
fn report_unwritten(console: &Console, session: &Session, root: &Path, changes: &ChangeSet) -> Result<()> {
    let (counted, id) = (counted(changes.counts()), session.id());
    if changes.is_empty() {
        return Ok(());
    }
    console.always_notice(match changes.in_place {
        true => format!(
            "{counted}, in {} already (--workspace-mode bind): `agent diff {id}` shows it",
            root.display()
        ),
        false => format!(
            "{counted}; nothing is written yet: `agent diff {id}` shows it, `agent apply {id}` writes it, \
             `agent resume {id}` continues"
        ),
    })
}

/// `1 file added, 2 modified, 0 deleted`
pub fn counted(changes: Changes) -> String {
    let Changes { added, modified, deleted } = changes;
    let plural = if added == 1 { "" } else { "s" };
    format!("{added} file{plural} added, {modified} modified, {deleted} deleted")
}
