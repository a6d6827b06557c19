//! The hooks that a repository would like to have.

use crate::count_text::counted;
use crate::plain_file::{self, Links};
use crate::sanitise::one_line;
use crate::session::Notice;
use std::path::Path;

/// The file in which a repository might write hooks. They are never run.
const OF_REPOSITORY: &str = ".agent/config.toml";
const MAX_BYTES: u64 = 64 << 10;
const MAX_LISTED: usize = 20;

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
            "{OF_REPOSITORY} of this repository names {}, ignored here: /hooks lists them, and your own config.toml is the place for \
             hooks",
            counted(count, "hook")
        ))
    })
}
