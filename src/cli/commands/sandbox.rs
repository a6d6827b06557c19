//! `agent sandbox`: the sandboxes that exist.

use super::sandbox_setup::{self, SetupArgs};
use crate::backends::{KINDS, SandboxChoice};
use crate::cli::choices;
use crate::cli::options::{ClusterArgs, GlobalJsonArg, Options};
use crate::cli::print::print;
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sandbox::{Backend, Listed};
use crate::sanitise::one_line;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::sync::Arc;

/// `agent sandbox`
#[derive(Debug, Args)]
pub struct SandboxArgs {
    #[command(flatten)]
    output: GlobalJsonArg,
    /// Look at this backend alone
    #[arg(long, global = true, value_parser = choices::sandbox(), value_name = "NAME", help_heading = "Sandbox")]
    sandbox: Option<SandboxChoice>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The subcommand
    #[command(subcommand)]
    command: SandboxCommand,
}

impl SandboxArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.output])
    }
}

/// Subcommands for the sandboxes that exist.
#[derive(Debug, Subcommand)]
enum SandboxCommand {
    /// List them
    List,
    /// Freeze one, memory intact where its backend keeps that
    Pause {
        /// The session's id
        id: String,
    },
    /// Resume a paused one, or start a stopped one that is kept
    Resume {
        /// The session's id
        id: String,
    },
    /// End and remove one
    Rm {
        /// The session's id
        id: String,
    },
    /// Show and approve what the project is set up with once
    Setup(SetupArgs),
}

/// A sandbox, and where it is.
type FoundSandbox = (Arc<dyn Backend>, Listed);

/// Lists them, or performs the command on one.
pub async fn sandbox(machine: &Arc<Machine>, arguments: SandboxArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    arguments.cluster.keep(machine);
    if let SandboxCommand::Setup(arguments) = &arguments.command {
        return sandbox_setup::setup(machine, arguments).await;
    }
    let found = all(machine, arguments.sandbox).await?;
    let (id, done) = match arguments.command {
        SandboxCommand::List | SandboxCommand::Setup(_) => return list(options, &found),
        SandboxCommand::Pause { id } => {
            let (backend, listed) = find(&found, &id)?;
            backend.pause(&listed.session).await?;
            (listed.session.clone(), "paused")
        }
        SandboxCommand::Resume { id } => {
            let (backend, listed) = find(&found, &id)?;
            backend.resume(&listed.session).await?;
            (listed.session.clone(), "running")
        }
        SandboxCommand::Rm { id } => {
            let (backend, listed) = find(&found, &id)?;
            backend.destroy(&listed.session).await?;
            (listed.session.clone(), "removed")
        }
    };
    print(options, &format!("{done} {id}\n"), &json!({ "session": id, "state": done }))
}

/// The sandboxes of every backend that can be used here, or of the one that was named.
async fn all(machine: &Arc<Machine>, choice: Option<SandboxChoice>) -> Result<Vec<FoundSandbox>> {
    let named = match choice {
        Some(SandboxChoice::Named(name)) => Some(name),
        Some(SandboxChoice::Auto) | None => None,
    };
    let mut found = Vec::new();
    for kind in KINDS.iter().filter(|kind| named.is_none_or(|name| name == kind.name)) {
        let backend = match kind.connect(machine).await {
            Err(error) if named.is_some() => return Err(error),
            Err(_) => continue,
            Ok(backend) => backend,
        };
        // What should be gone by now is not listed; what cannot be removed is.
        let _ = backend.sweep().await;
        let listed = match backend.list().await {
            // One that is far away hides nothing of the others.
            Err(error) if named.is_none() && !kind.is_automatic() => {
                stderr::write(&format!("not listed: {}\n", one_line(&error.to_string(), 400)));
                continue;
            }
            listed => listed?,
        };
        found.extend(listed.into_iter().map(|listed| (Arc::clone(&backend), listed)));
    }
    Ok(found)
}

/// The one whose session begins with `id`.
fn find<'a>(found: &'a [FoundSandbox], id: &str) -> Result<&'a FoundSandbox> {
    let mut matching = found.iter().filter(|(_, listed)| listed.session.starts_with(id));
    match (matching.next(), matching.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => {
            Err(Error::usage(format!("there is no sandbox of a session {id}"))
                .hint("see `agent sandbox list`"))
        }
        (Some(_), Some(_)) => {
            Err(Error::usage(format!("several sandboxes begin with {id}")).hint("say more of it"))
        }
    }
}

/// A date of RFC 3339 for display.
fn minute(date: &str) -> String {
    one_line(date, 30).chars().take("2026-01-01T00:00".len()).collect::<String>().replace('T', " ")
}

fn list(options: &Options, found: &[FoundSandbox]) -> Result<ExitCode> {
    let json: Vec<Value> = found
        .iter()
        .map(|(backend, Listed { session, id, state, created, expires })| {
            json!({ "session": session, "backend": backend.name(), "id": id, "state": state.as_str(), "created": created,
                "expires": expires })
        })
        .collect();
    let line = |(backend, listed): &FoundSandbox| {
        let Listed { session, state, created, expires, .. } = listed;
        let until = expires.as_ref().map(|date| format!(", until {}", minute(date))).unwrap_or_default();
        let (session, state) = (one_line(session, 64), state.as_str());
        format!("{session:<24} {:<7} {state:<8} {}{until}\n", backend.name(), minute(created))
    };
    let words: String = found.iter().map(line).collect();
    print(options, if words.is_empty() { "there are no sandboxes\n" } else { &words }, &json)
}
