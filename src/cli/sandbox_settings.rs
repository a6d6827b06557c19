//! The sandboxes of a call: their kind, their content, and what is allowed in them.

use crate::backends::{Chosen, choose};
use crate::cli::config::{Config, credentials};
use crate::error::Result;
use crate::machine::Machine;
use crate::session::{Governance, Notice, Retention, SandboxSettings, WorkspaceSettings};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Limits and policy of the call.
pub fn governance(config: &Config) -> Governance {
    Governance {
        limits: config.limits.clone(),
        bounds: config.bounds,
        rules: config.file.policy.clone(),
        approve: config.file.approve.unwrap_or_default(),
        hooks: config.hooks.clone(),
        servers: config.mcp.servers.clone(),
    }
}

/// The workspace that the call names.
pub fn workspace(config: &Config) -> WorkspaceSettings {
    WorkspaceSettings {
        machine: Arc::clone(&config.machine),
        root: config.workspace.clone(),
        named: config.workspace_named,
        mode: config.sandbox.workspace_mode,
        include: [&config.file.workspace.include[..], &config.options.copy.include].concat(),
        exclude: [&config.file.workspace.exclude[..], &config.options.copy.exclude].concat(),
        object_stores: object_stores(config),
    }
}

/// Where repositories of the user's may take objects from, by `config.toml`.
pub fn object_stores(config: &Config) -> Vec<PathBuf> {
    config.file.git_object_stores.iter().map(|path| in_home(path, &config.machine)).collect()
}

/// A path that may begin with `~`.
fn in_home(path: &Path, machine: &Machine) -> PathBuf {
    match (path.strip_prefix("~"), machine.home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// The sandbox that the call asks for; if it names none, with the reason for this backend.
pub async fn sandbox(config: &Config) -> Result<(SandboxSettings, Option<Notice>)> {
    let asked = config.sandbox.clone();
    let Chosen { backend, reason, is_fallback } =
        choose(asked.choice, asked.image.as_deref(), asked.runtime.as_deref(), &config.machine).await?;
    // That it is not the container is always reported.
    let notice = if is_fallback { Notice::Always } else { Notice::Usual };
    let retention = match config.options.keep.keep {
        true => Retention::Keep { ttl: config.ttl, delete_after: config.delete_after },
        false => Retention::Remove,
    };
    let settings = SandboxSettings {
        image: asked.image,
        runtime: asked.runtime,
        network: asked.network,
        network_origin: asked.network_origin,
        limits: asked.limits,
        retention,
        env: asked.env,
        directory: config.directory.clone(),
        setup: config.setup.setup.clone(),
        credentials: Arc::new(
            credentials::read(&asked.credentials, &config.machine, &config.workspace).await?,
        ),
        ..SandboxSettings::new(backend)
    };
    Ok((settings, reason.map(notice)))
}

/// Returns what a notice says.
pub fn text(notice: Notice) -> String {
    match notice {
        Notice::Usual(text) | Notice::Always(text) => text,
    }
}
