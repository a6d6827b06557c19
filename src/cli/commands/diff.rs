//! `agent diff [ID] [PATH…]`: what a session changed.

use crate::cli::kept_session::{KeptSession, MAX_OTHERS, changed, find, unapplied_elsewhere};
use crate::cli::options::{ChangesArgs, Options};
use crate::cli::print::{counted, print};
use crate::cli::ui::host_programs::HostPrograms;
use crate::cli::ui::style::Colours;
use crate::cli::ui::{pager, stderr};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::log::SessionId;
use crate::machine::Machine;
use crate::sanitise;
use crate::workspace::manifest::Node;
use crate::workspace::store::Store;
use crate::workspace::{ChangeSet, diff, git_patch, renames, risks};
use clap::Args;
use serde_json::{Value, json};
use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::sync::Arc;

/// `agent diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    #[command(flatten)]
    changes: ChangesArgs,
    /// How many lines changed in each file
    #[arg(long, conflicts_with_all = ["name_only", "patch"])]
    stat: bool,
    /// Only the names
    #[arg(long, conflicts_with = "patch")]
    name_only: bool,
    /// In the format that `git apply` takes
    #[arg(long)]
    patch: bool,
    /// Only what other programs will execute: CI, hooks, build scripts, new executables, symlinks
    #[arg(long, conflicts_with_all = ["stat", "name_only", "patch"])]
    risks: bool,
}

impl DiffArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.changes])
    }
}

/// Prints the change, through the user's pager if stdout is a terminal.
pub async fn diff(machine: &Arc<Machine>, arguments: DiffArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let kept = find(machine, options, arguments.changes.id, arguments.changes.paths).await?;
    let changes = changed(&kept, arguments.changes.all).await?;
    let store = kept.workspace.store();
    if options.is_json() {
        if arguments.patch {
            return Err(Error::usage("--json and --patch exclude each other").hint("leave one of them out"));
        }
        return print(options, "", &to_json(&kept.id, &changes, store)?);
    }
    report_others(machine, &kept).await;
    if !arguments.stat && !arguments.name_only && !arguments.risks {
        // A session that cannot be written to can be looked at all the same.
        let _ = kept.workspace.record_shown(&changes, kept.paths.is_empty());
    }
    if arguments.name_only {
        risks::summary(&changes).iter().for_each(|risks| stderr::write(&format!("{risks}\n")));
    }
    let color = Colours::of(&stdout()).0;
    let write = |out: &mut dyn Write| {
        if arguments.stat {
            diff::write_stat(out, &changes, store)?;
            risks::summary(&changes).map_or(Ok(()), |risks| Ok(writeln!(out, "{risks}")?))
        } else if arguments.name_only {
            diff::write_names(out, &changes)
        } else if arguments.patch {
            git_patch::write(out, &changes, store, &mut git_patch::refuse)
        } else if arguments.risks {
            write_risks(out, &changes)
        } else {
            if let Some(risks) = risks::summary(&changes) {
                writeln!(out, "{risks}\n")?;
            }
            diff::write_text(out, &changes, store, color)
        }
    };
    // A patch may contain control characters, which only a program gets unchanged; the other formats are sanitised.
    if stdout().is_terminal() {
        let write = |out: &mut dyn Write| -> Result<()> {
            let mut text = Vec::new();
            write(&mut text)?;
            match arguments.patch {
                true => out.write_all(sanitise::plain(&String::from_utf8_lossy(&text)).as_bytes())?,
                false => out.write_all(&text)?,
            }
            Ok(())
        };
        let mut text = Vec::new();
        write(&mut text)?;
        let programs = HostPrograms::new(Arc::clone(machine), kept.workspace.root());
        if !pager::page(&programs, &text)? {
            stdout().lock().write_all(&text)?;
        }
        return Ok(ExitCode::Success);
    }
    let mut out = BufWriter::new(stdout().lock());
    write(&mut out)?;
    out.flush()?;
    Ok(ExitCode::Success)
}

/// Says on stderr which other sessions here have changes that are not applied.
async fn report_others(machine: &Arc<Machine>, kept: &KeptSession) {
    // The diff itself does not depend on it.
    for (id, changes) in
        unapplied_elsewhere(machine, kept.workspace.root(), &kept.id, MAX_OTHERS).await.unwrap_or_default()
    {
        let counted = counted(changes);
        stderr::write(&format!(
            "Session {id} has changes here too that are not applied: {counted} (`agent diff {id}`)\n"
        ));
    }
}

/// The output of `agent diff --json`; `docs/reference/events.md` describes its fields.
fn to_json(id: &SessionId, changes: &ChangeSet, store: &Store) -> Result<Value> {
    let mode = |node: &Option<Node>| node.as_ref().and_then(Node::mode).map(|mode| format!("{mode:03o}"));
    let renames = renames::find(changes, store);
    let mut files = Vec::new();
    for (path, change) in changes.by_directory().filter(|(_, change)| !change.is_directory_only()) {
        let is_file = |node: &Option<Node>| node.as_ref().is_some_and(|node| !node.is_directory());
        let kind = match (is_file(&change.before), is_file(&change.after)) {
            (false, _) => "added",
            (_, false) => "deleted",
            _ => "modified",
        };
        let lines = diff::lines(changes, path, change, store)?;
        files.push(json!({
            "path": path.to_string(),
            "change": kind,
            "lines_added": lines.map(|(added, _)| added),
            "lines_removed": lines.map(|(_, removed)| removed),
            "mode_before": mode(&change.before),
            "mode_after": mode(&change.after),
            "renamed_from": renames.get(path).map(|rename| rename.from.to_string()),
        }));
    }
    Ok(json!({
        "session": id,
        "changes": changes.counts(),
        "files": files,
        "risks": risks::risks(changes),
        "refused": changes.refused,
        "remarks": changes.remarks,
    }))
}

fn write_risks(out: &mut dyn Write, changes: &ChangeSet) -> Result<()> {
    for risk in risks::risks(changes) {
        writeln!(out, "{} ({})", risk.named(), risk.kind)?;
    }
    Ok(())
}
