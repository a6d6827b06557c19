//! `agent apply [ID] [PATH…]`: what a kept session changed, written into the workspace.

use crate::cli::apply::{
    Ask, Author, ChosenChanges, Dialogue, Files, branch_question, choose, commit, commit_message, remarks_on,
    resolve, write, write_branch, written_branch,
};
use crate::cli::config::Config;
use crate::cli::kept_session::{KeptSession, changed, find_idle};
use crate::cli::options::{ChangesArgs, Options};
use crate::cli::print::{counted, print};
use crate::cli::sandbox_settings::object_stores;
use crate::cli::ui::host_programs::HostPrograms;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::{confirm, stderr};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::log::SessionId;
use crate::machine::Machine;
use crate::workspace::commit::Made;
use crate::workspace::tree_path::TreePath;
use crate::workspace::{Applied, ChangeSet, risks};
use clap::Args;
use serde_json::{Value, json};
use std::sync::Arc;

/// `agent apply`
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    changes: ChangesArgs,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Ask about each hunk, as `git add -p` does
    #[arg(short, long, conflicts_with_all = ["yes", "json"])]
    interactive: bool,
    /// Commit what was written, and nothing else, with git of this machine
    #[arg(long)]
    commit: bool,
    /// Write what was committed in the sandbox as a branch of this name, and no file
    #[arg(long, value_name = "NAME", conflicts_with_all = ["interactive", "commit", "all", "paths"])]
    branch: Option<String>,
    /// The commit's message (default: the model proposes one)
    #[arg(short, long, value_name = "MESSAGE", requires = "commit")]
    message: Option<String>,
}

impl ApplyArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.changes])
    }
}

/// The answer where the sandbox had the user's own files.
const IN_PLACE: &str = "All of it is in your files already (--workspace-mode bind); `agent undo` takes back what the last prompt changed.\n";

/// Asks where there is a terminal, and writes.
pub async fn apply(machine: &Arc<Machine>, arguments: ApplyArgs) -> Result<ExitCode> {
    if arguments.interactive && !confirm::is_possible() {
        return Err(Error::usage("--interactive needs a terminal")
            .hint("name the files to apply: agent apply ID PATH…"));
    }
    let options = &arguments.options();
    let (id, paths) = (arguments.changes.id, arguments.changes.paths);
    let kept = find_idle(machine, options, id, paths).await?;
    if let Some(branch) = &arguments.branch {
        return apply_as_branch(machine, options, &kept, branch, arguments.yes).await;
    }
    let changes = changed(&kept, arguments.changes.all).await?;
    changes.messages().for_each(|message| stderr::write(&format!("{message}\n")));
    let is_written = changes.in_place && !arguments.commit;
    if changes.is_empty() || is_written {
        stderr::write(if is_written { IN_PLACE } else { "There is nothing to apply.\n" });
        return report(options, &kept.id, &changes, &Applied::default());
    }
    // A script that calls this means it.
    let is_asked = !arguments.yes && !options.is_json() && confirm::is_possible();
    let dialogue = Dialogue {
        progress: &if options.is_json() { Progress::hidden() } else { Progress::stderr() },
        programs: HostPrograms::new(Arc::clone(machine), kept.workspace.root()),
    };
    let is_all = kept.paths.is_empty();
    let chosen = match is_asked {
        false => {
            warn_unasked(&kept, &changes, is_all)?;
            ChosenChanges::all(changes.clone())
        }
        true => {
            let ask = if arguments.interactive { Ask::Parts } else { Ask::Whole };
            let mut chosen = choose(&changes, &kept.workspace, &dialogue, ask, is_all).await?;
            resolve(&mut chosen, &changes, &kept.workspace, &dialogue, false).await?;
            chosen
        }
    };
    let mut author = Author::Kept { machine, options, id: &kept.id };
    chosen.note_of_refused().map_or(Ok(()), |note| author.note(&note))?;
    let files = Files { machine, workspace: &kept.workspace, sandbox: None };
    let (changes, given) = (&chosen.changes, arguments.message.as_deref());
    let message = match arguments.commit && !changes.is_empty() {
        true => commit_message(&mut author, &files, &chosen, given, &dialogue, is_asked).await?,
        false => None,
    };
    if changes.is_empty() || arguments.commit && message.is_none() {
        stderr::write("Nothing was written.\n");
        return report(options, &kept.id, &changes.without_changes(), &Applied::default());
    }
    let applied = match write(&mut author, &files, &chosen).await {
        Err(error) => return Err(report_conflicts(options, &kept.id, changes, error)?),
        Ok(applied) => applied,
    };
    stderr::write(&format!("{} (`agent undo {}` reverts it)\n", counted(applied.changes), kept.id));
    remarks_on(&applied).for_each(|line| stderr::write(&format!("{line}\n")));
    let Some(message) = message else { return report(options, &kept.id, changes, &applied) };
    let made = commit(&files, &applied, &message).await?;
    made.iter().for_each(say_committed);
    print(options, "", &with_commits(to_json(&kept.id, changes, &applied, json!([])), &made))
}

fn say_committed(made: &Made) {
    made.remarks.iter().for_each(|remark| stderr::write(&format!("{remark}\n")));
    stderr::write(&format!("committed as {}\n", made.name));
}

/// `commit` is the first of them: that of the workspace, where there is one.
fn with_commits(mut applied: Value, made: &[Made]) -> Value {
    let ids: Vec<&str> = made.iter().map(|made| made.id.as_str()).collect();
    applied["commit"] = json!(ids.first());
    if ids.len() > 1 {
        applied["commits"] = json!(ids);
    }
    applied
}

/// Prints how the changes differ from those that were shown last, and their risks, where nobody is asked.
fn warn_unasked(kept: &KeptSession, changes: &ChangeSet, is_all: bool) -> Result<()> {
    let since = kept.workspace.since_shown(changes, is_all)?.summary();
    let risks = risks::summary(changes);
    since.iter().chain(&risks).for_each(|line| stderr::write(&format!("{line}\n")));
    Ok(())
}

/// Shows the commits, asks where there is a terminal, and writes the branch.
async fn apply_as_branch(
    machine: &Arc<Machine>,
    options: &Options,
    kept: &KeptSession,
    branch: &str,
    is_agreed: bool,
) -> Result<ExitCode> {
    let object_stores = object_stores(&Config::load(machine, options)?);
    let commits = kept.workspace.inner_commits(object_stores).await?;
    let changes = kept.workspace.recorded_changes().await?;
    stderr::write(&commits.summary(&changes));
    if !is_agreed && !options.is_json() && confirm::is_possible() {
        let question = branch_question(branch);
        if confirm::ask(&Progress::stderr(), &question, &["yes", "no"]).await? == "no" {
            stderr::write("Nothing was written.\n");
            return Ok(ExitCode::Success);
        }
    }
    let author = Author::Kept { machine, options, id: &kept.id };
    write_branch(&author, &changes, &commits, branch).await?;
    stderr::write(&format!("{}\n", written_branch(branch)));
    let json = json!({
        "session": kept.id, "branch": branch, "commit": commits.id, "commits": commits.subjects.len(),
    });
    print(options, "", &json)
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
    let files = changes.by_directory().filter(|(_, change)| !change.is_directory_only());
    json!({
        "session": id,
        "applied": applied.changes,
        "files": names(&mut files.map(|(path, _)| path)),
        "merged": names(&mut applied.merged.iter()),
        "risks": risks::risks(changes),
        "refused": changes.refused,
        "remarks": changes.remarks,
        "conflicts": conflicts,
    })
}
