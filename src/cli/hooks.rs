//! The user's hooks where no session is open, and those that a repository would like to have.

use super::open;
use crate::cli::config::Config;
use crate::cli::console::Console;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::error::{Error, Result};
use crate::log::SessionId;
use crate::plain_file::{self, Links};
use crate::sanitise::one_line;
use crate::session::hooks::{Hooks, Moment, of_apply};
use crate::session::{Frontend, Notice, OneShot};
use crate::workspace::{ChangeSet, Workspace};
use std::path::Path;
use std::sync::Arc;

/// Where a repository might write hooks. They are never run.
const OF_REPOSITORY: &str = ".agent/config.toml";
const MAX_BYTES: u64 = 64 << 10;
const MAX_LISTED: usize = 20;

/// Runs the hooks before changes of the session `id`, which is not open, are written.
///
/// # Errors
/// One of them refuses it, or the sandbox that one needs does not start.
pub async fn before_apply(options: &Options, id: &SessionId, changes: &ChangeSet) -> Result<()> {
    let config = Config::load(options)?;
    let moment = Moment::BeforeApply;
    let console = Arc::new(Console::new(&Options { quiet: true, ..Options::default() }));
    let events = Arc::clone(console.events());
    let workspace = config.workspace.clone();
    let hooks = Hooks::new(config.hooks.clone(), id.to_string(), workspace, machine(), events);
    if !hooks.has(moment, None) {
        return Ok(());
    }
    let restored = match hooks.needs_sandbox(moment, None) {
        true => Some(restored(&config, id, &console).await?),
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
    let (settings, _) = open::sandbox(config).await?;
    let directory = crate::log::Store::open(&machine())?.dir(id);
    let workspace = Workspace::load(&directory, machine())
        .await?
        .ok_or_else(|| Error::unexpected(format!("the workspace of session {id} is gone")))?;
    OneShot::restored(workspace, &settings, &machine(), Arc::clone(console) as _).await
}

/// The hooks that the repository asks for, a line each.
pub fn of_repository(workspace: &Path) -> Vec<String> {
    let read = || {
        let bytes = plain_file::read(&workspace.join(OF_REPOSITORY), MAX_BYTES, Links::Refuse).ok()?;
        let table: toml::Table = toml::from_slice(&bytes).ok()?;
        let hooks = table.get("hooks")?.as_array()?.clone();
        let command = |hook: &toml::Value| Some(one_line(hook.get("command")?.as_str()?, 100));
        let commands = hooks.iter().take(MAX_LISTED).map(command);
        Some(
            commands
                .map(|command| command.unwrap_or_else(|| "a hook without a command".to_owned()))
                .collect(),
        )
    };
    read().unwrap_or_default()
}

/// The notice about them.
pub fn notice(workspace: &Path) -> Option<Notice> {
    let count = of_repository(workspace).len();
    (count > 0).then(|| {
        Notice::Usual(format!(
            "{OF_REPOSITORY} of this repository names {count} hook(s), which are ignored: /hooks lists them, and your own \
             config.toml is the place for hooks"
        ))
    })
}
