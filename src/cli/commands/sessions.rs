//! `agent sessions`: the sessions that were kept.

use crate::cli::kept_session::end_sandbox;
use crate::cli::options::{DirectoryArg, GlobalJsonArg, Options};
use crate::cli::print::print;
use crate::cli::ui::stderr;
use crate::cli::ui::style::Colours;
use crate::cli::ui::trace::transcript;
use crate::cli::ui::wrap::columns_of;
use crate::cli::working_directory::WorkingDirectory;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::log::list::{Summary, parse_age, to_text};
use crate::log::report::Report;
use crate::log::{ArtifactLimits, Artifacts, SessionId, Store, read_records, verify};
use crate::machine::Machine;
use crate::sanitise::one_line;
use clap::{Args, Subcommand};
use serde_json::json;
use std::sync::Arc;

/// `agent sessions`
#[derive(Debug, Args)]
pub struct SessionsArgs {
    #[command(flatten)]
    output: GlobalJsonArg,
    /// Whole arguments and results in what is shown
    #[arg(short, long, global = true, help_heading = "Output")]
    verbose: bool,
    /// Without one: list
    #[command(subcommand)]
    command: Option<SessionsCommand>,
}

impl SessionsArgs {
    fn options(&self) -> Options {
        let mut options = Options::of(&[&self.output]);
        options.verbosity.verbose = self.verbose;
        options
    }
}

/// Subcommands for the kept sessions.
#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List those of this workspace, the newest first
    List {
        /// Those of all workspaces
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        directory: DirectoryArg,
    },
    /// Show one
    Show {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Remove one, with its sandbox and the sessions that it delegated to
    Rm {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Remove old ones
    Prune {
        /// Older than this: 12h, 7d
        #[arg(long, value_name = "TIME", default_value = "30d")]
        older_than: String,
    },
    /// Find changed, missing or reordered lines
    Verify {
        /// Its id, or the beginning of it
        id: String,
    },
    /// The commands, files, hosts, packages, time and tokens of the session
    Report {
        /// Its id, or the beginning of it
        id: String,
        /// As one HTML file that needs no network
        #[arg(long)]
        html: bool,
    },
}

/// Lists them, or does what was asked for.
pub async fn sessions(machine: &Arc<Machine>, arguments: SessionsArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let store = Store::open(machine)?;
    let here = SessionsCommand::List { all: false, directory: DirectoryArg::default() };
    match arguments.command.unwrap_or(here) {
        SessionsCommand::List { all, directory } => list(machine, options, &store, all, &directory),
        SessionsCommand::Show { id } => show(options, &store, store.find(&id)?),
        SessionsCommand::Rm { id } => remove(machine, options, &store, store.find(&id)?).await,
        SessionsCommand::Prune { older_than } => prune(machine, options, &store, &older_than).await,
        SessionsCommand::Verify { id } => check(options, &store, store.find(&id)?),
        SessionsCommand::Report { id, html } => {
            let id = store.find(&id)?;
            let mut report = Report::on(&read_records(&store.events(&id))?);
            report.add_delegates(|delegate| {
                let id = SessionId::parse(delegate).ok()?;
                read_records(&store.events(&id)).ok().map(|records| Report::on(&records))
            });
            let artifacts = Artifacts::of_session(&store.dir(&id), ArtifactLimits::default());
            let text = match html {
                true => report.to_html(|artifact| artifacts.read(artifact).ok()),
                false => report.to_text(),
            };
            print(options, &text, &report)
        }
    }
}

fn list(
    machine: &Arc<Machine>,
    options: &Options,
    store: &Store,
    all: bool,
    named: &DirectoryArg,
) -> Result<ExitCode> {
    let mut list = if all { store.list()? } else { Vec::new() };
    if !all {
        for directory in WorkingDirectory::of(machine, named)?.own() {
            list.extend(store.list_of(&directory)?);
        }
    }
    if list.is_empty() && !options.is_json() {
        let elsewhere = store.ids()?.len();
        let others = match elsewhere {
            0 => String::new(),
            count => format!(" of this workspace; `agent sessions list --all` lists {count} of others"),
        };
        stderr::write(&format!("There are no sessions yet{others}.\n"));
    }
    let text = match all {
        false => to_text(&list, columns()),
        true => by_workspace(&list),
    };
    print(options, &text, &list)
}

fn columns() -> Option<usize> {
    columns_of(&std::io::stdout())
}

/// The sessions below the names of their workspaces, in the order of the newest session of each.
fn by_workspace(list: &[Summary]) -> String {
    let mut groups: Vec<(&str, Vec<Summary>)> = Vec::new();
    for summary in list {
        match groups.iter_mut().find(|(workspace, _)| *workspace == summary.workspace) {
            Some((_, group)) => group.push(summary.clone()),
            None => groups.push((&summary.workspace, vec![summary.clone()])),
        }
    }
    let text = |(workspace, group): (&str, Vec<Summary>)| {
        let name =
            if workspace.is_empty() { "without a workspace".to_owned() } else { one_line(workspace, 200) };
        format!("{name}\n{}", to_text(&group, columns()))
    };
    groups.into_iter().map(text).collect()
}

/// Shows what can be read; a damaged file is an error all the same.
fn show(options: &Options, store: &Store, id: SessionId) -> Result<ExitCode> {
    let shown = store.show(id);
    print(options, &transcript(&shown.events, options.verbosity(), Colours::of(&std::io::stdout())), &shown)?;
    match shown.summary.error {
        Some(error) if shown.summary.status == "broken" => Err(Error::unexpected(error)),
        _ => Ok(ExitCode::Success),
    }
}

async fn remove(machine: &Arc<Machine>, options: &Options, store: &Store, id: SessionId) -> Result<ExitCode> {
    let mut removed = vec![store.summary(id)];
    removed.extend(
        store.delegates_of(std::slice::from_ref(&removed[0].id))?.into_iter().map(|id| store.summary(id)),
    );
    for summary in &removed {
        store.remove(&summary.id)?;
        end_sandbox(machine, &summary.sandbox, &summary.id).await;
    }
    print_removed(options, &removed)
}

async fn prune(machine: &Arc<Machine>, options: &Options, store: &Store, age: &str) -> Result<ExitCode> {
    let removed = store.prune(parse_age(age)?)?;
    for summary in &removed {
        end_sandbox(machine, &summary.sandbox, &summary.id).await;
    }
    print_removed(options, &removed)
}

fn print_removed(options: &Options, removed: &[Summary]) -> Result<ExitCode> {
    let ids: Vec<&SessionId> = removed.iter().map(|summary| &summary.id).collect();
    let words: String = ids.iter().map(|id| format!("removed {id}\n")).collect();
    print(options, &words, &json!({"removed": ids}))
}

fn check(options: &Options, store: &Store, id: SessionId) -> Result<ExitCode> {
    let verdict = verify(&store.events(&id))?;
    let words = match (&verdict.fault, &verdict.note) {
        (Some(_), _) => String::new(),
        (None, Some(note)) => format!("{id}: {} lines are as they were written, but {note}\n", verdict.lines),
        (None, None) => format!("{id}: all {} lines are as they were written\n", verdict.lines),
    };
    print(options, &words, &verdict)?;
    verdict.into_result().map(|_| ExitCode::Success)
}
