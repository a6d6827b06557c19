//! The sandboxes of a call: their kind, their content, and what is allowed in them.

use crate::backends::{Chosen, choose};
use crate::cli::config::{Config, SandboxConfig, credentials};
use crate::error::Result;
use crate::session::{Governance, Notice, Retention, SandboxSettings, WorkspaceSettings};
use crate::workspace::AddedDirectory;
use std::path::PathBuf;
use std::sync::Arc;

/// Limits and policy of the call.
pub fn governance(config: &Config) -> Governance {
    Governance {
        limits: config.limits.clone(),
        bounds: config.bounds,
        rules: config.file.policy.clone().with_project(&config.project.settings.rules),
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
        exclude: [
            &config.file.workspace.exclude[..],
            &config.project.settings.exclude,
            &config.options.copy.exclude,
        ]
        .concat(),
        object_stores: object_stores(config),
    }
}

/// Returns the directories from which repositories of the user's may take objects, by `config.toml`.
pub fn object_stores(config: &Config) -> Vec<PathBuf> {
    config.file.git_object_stores.iter().map(|path| config.machine.in_home(path)).collect()
}

/// The sandbox that the call asks for; if it names none, with the reason for this backend.
pub async fn sandbox(config: &Config) -> Result<(SandboxSettings, Option<Notice>)> {
    let asked = config.sandbox.clone();
    let (Chosen { backend, reason, is_fallback }, image) = chosen(config).await?;
    // That it is not the container is always reported.
    let notice = if is_fallback { Notice::Always } else { Notice::Usual };
    let retention = match config.options.keep.keep {
        true => Retention::Keep { ttl: config.ttl, delete_after: config.delete_after },
        false => Retention::Remove,
    };
    let settings = SandboxSettings {
        image,
        runtime: asked.runtime,
        docker: asked.docker,
        network: asked.network,
        network_origin: asked.network_origin,
        limits: asked.limits,
        retention,
        env: with_variables(asked.env, &config.project.settings.env),
        directory: config.directory.clone(),
        setup: config.project.settings.setup.clone(),
        credentials: Arc::new(
            credentials::read(&asked.credentials, &config.machine, &config.workspace).await?,
        ),
        offered: Arc::new(credentials::unread(&asked.offered, &config.machine, &config.workspace)?),
        added: added(config)?,
        ..SandboxSettings::new(backend)
    };
    Ok((settings, reason.map(notice)))
}

/// The directories beside the workspace: those of the call, and those of the user's configuration that do not overlap the workspace or
/// one of them. Where the call is about one directory, none of these is written to.
fn added(config: &Config) -> Result<Vec<AddedDirectory>> {
    let named = |text: &String| AddedDirectory::named(text, &config.machine);
    let mut added: Vec<AddedDirectory> = Vec::new();
    for directory in config.options.copy.add_dir.iter().map(named) {
        let directory = directory?;
        if !added.contains(&directory) {
            added.push(directory);
        }
    }
    let is_alone = config.file.delegate.unwrap_or(false)
        || config.sandbox.workspace_mode == crate::workspace::Mode::Bind;
    for directory in config.file.workspace.add_dir.iter().map(named) {
        let directory = directory.map_err(|error| error.context("add_dir in config.toml"))?;
        let is_there = added.iter().any(|other| directory.overlaps(&other.path));
        if !is_there && !directory.overlaps(&config.workspace) && (directory.read_only || !is_alone) {
            added.push(directory);
        }
    }
    Ok(added)
}

/// Settings for `what`, which writes to one directory: those of the user's configuration are left out.
///
/// # Errors
/// The call names one that could be written to.
pub fn for_one_directory(settings: &mut SandboxSettings, config: &Config, what: &str) -> Result<()> {
    if config.options.copy.add_dir.is_empty() {
        settings.added.retain(|added| added.read_only);
    }
    settings.refuse_written(what)
}

/// The backend, and the image of its sandboxes. That of the project is used where the call names none and the backend has images.
async fn chosen(config: &Config) -> Result<(Chosen, Option<String>)> {
    let SandboxConfig { choice, image, runtime, .. } = &config.sandbox;
    let with = |image: Option<String>| async move {
        let chosen = choose(*choice, image.as_deref(), runtime.as_deref(), &config.machine).await?;
        Ok((chosen, image))
    };
    let Some(of_project) = config.project.settings.image.clone().filter(|_| image.is_none()) else {
        return with(image.clone()).await;
    };
    match with(Some(of_project.clone())).await {
        Err(_) => {
            let (mut chosen, image) = with(None).await?;
            let named = format!(
                "the project's image {of_project} is not used: it needs --sandbox docker, and an engine"
            );
            let reason =
                chosen.reason.take().map_or_else(|| named.clone(), |reason| format!("{reason}; {named}"));
            Ok((Chosen { reason: Some(reason), ..chosen }, image))
        }
        done => done,
    }
}

/// The variables of the call, and those of the project that it does not name.
fn with_variables(mut env: Vec<(String, String)>, of_project: &[(String, String)]) -> Vec<(String, String)> {
    let added = of_project.iter().filter(|(name, _)| !env.iter().any(|(named, _)| named == name));
    let added: Vec<(String, String)> = added.cloned().collect();
    env.extend(added);
    env
}

/// Returns what a notice says.
pub fn text(notice: Notice) -> String {
    match notice {
        Notice::Usual(text) | Notice::Always(text) => text,
    }
}
