//! What an earlier session determines for a call that resumes it, or that uses its sandbox.

use super::endpoint::{self, Connected};
use crate::backends::{SandboxChoice, by_name};
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::error::{Error, Result};
use crate::log::{History, Store, read_records};
use crate::sandbox::Sandbox;
use crate::session::{Resume, check_workspace};
use std::path::PathBuf;

/// The options, with what the session had where the call does not name something else. A session stays with the workspace
/// it was started on.
///
/// # Errors
/// The call names another workspace with `-C`.
pub fn options(resume: &Resume, options: &Options) -> Result<Options> {
    if let Some(named) = &options.workspace {
        check_workspace(&resume.id, &resume.history, named)?;
    }
    let sandbox = &resume.history.sandbox;
    // A backend that this version does not know is replaced by the automatic choice.
    let backend = sandbox.backend.parse().ok();
    let workspace = Some(&resume.history.workspace).filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut options = options.clone();
    options.workspace = workspace.or(options.workspace);
    // Stronger isolation stays, unless the user chooses a backend that has none.
    if !options.sandbox.is_some_and(SandboxChoice::lacks_runtimes) {
        options.runtime = options.runtime.or_else(|| sandbox.runtime.clone());
    }
    options.sandbox = options.sandbox.or(backend);
    options.image = options.image.or_else(|| sandbox.image.clone().filter(|image| image != "host"));
    Ok(options)
}

/// The session's model, where the endpoint is the same and the call does not name another model.
pub async fn connect(history: &History, config: &mut Config) -> Result<Connected> {
    let connected = endpoint::connect(config).await?;
    let History { base_url, model, .. } = history;
    if config.options.model.is_some() || model.is_empty() || connected.base_url != *base_url {
        return Ok(connected);
    }
    config.options.model = Some(model.clone());
    endpoint::connect(config).await
}

/// The sandbox of a session that still runs.
///
/// # Errors
/// It does not run, or `-C` names another workspace.
pub async fn attach(id: &str, options: &Options) -> Result<Sandbox> {
    let store = Store::open(&machine())?;
    let id = store.find(id)?;
    let history = History::of(&read_records(&store.events(&id))?);
    if let Some(named) = &options.workspace {
        check_workspace(&id, &history, named)?;
    }
    let backend = by_name(&history.sandbox.backend, &machine()).await?;
    crate::session::attach(backend.as_ref(), &id).await
}

/// Refuses the flags that describe how a sandbox is created: a session's exists already.
pub fn refuse_sandbox_flags(options: &Options) -> Result<()> {
    let given = [
        ("--workspace-mode", options.workspace_mode.is_some()),
        ("--include", !options.include.is_empty()),
        ("--exclude", !options.exclude.is_empty()),
        ("--sandbox", options.sandbox.is_some()),
        ("--image", options.image.is_some()),
        ("--runtime", options.runtime.is_some()),
        ("--network", options.network.is_some()),
        ("--memory", options.memory.is_some()),
        ("--cpus", options.cpus.is_some()),
        ("--pids", options.pids.is_some()),
        ("--disk", options.disk.is_some()),
        ("--keep", options.keep),
        ("--ttl", options.ttl.is_some()),
        ("--delete-after", options.delete_after.is_some()),
    ];
    let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    let hint = match flag {
        // The session's own process judges its connections.
        "--network" => {
            "allow the host with /network in that session's REPL, or leave -s out for a fresh sandbox"
        }
        _ => "leave it out, or leave -s out for a fresh sandbox",
    };
    Err(Error::usage(format!("{flag} has no effect on the sandbox of another session")).hint(hint))
}
