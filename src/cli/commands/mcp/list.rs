//! `agent mcp list`.

use super::server_line::line;
use crate::cli::config::Config;
use crate::cli::config::servers::workspace_file;
use crate::cli::options::{DirectoryArg, JsonArg, Options};
use crate::cli::print::print;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::mcp::client::{Launch, ServerSettings};
use clap::Args;
use serde_json::{Value, json};
use std::sync::Arc;

/// `agent mcp list`
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    output: JsonArg,
}

impl ListArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.output])
    }
}

/// Lists the servers that a session in this directory uses, and those that wait for the user's approval.
pub fn list(machine: &Arc<Machine>, arguments: &ListArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let config = Config::load(machine, options)?;
    let (mut text, mut servers) = (String::new(), Vec::new());
    for server in &config.mcp.servers {
        let is_own = config.file.mcp.servers.contains_key(&server.name);
        let source = if is_own { "config.toml" } else { workspace_file::NAME };
        text += &line(server, if is_own { "" } else { " (.mcp.json)" });
        servers.push(entry(server, source));
    }
    for (name, _) in config.file.mcp.servers.iter().filter(|(_, options)| options.enabled == Some(false)) {
        text += &format!("  {name:<20} disabled\n");
        servers.push(json!({ "name": name, "source": "config.toml", "enabled": false }));
    }
    let of_workspace = workspace_file::read(&config.workspace, machine);
    if let Some(Ok(file)) = of_workspace.filter(|file| file.as_ref().is_ok_and(|file| !file.is_approved)) {
        for found in file.found {
            text += &format!("  {:<20} not approved: `agent mcp approve`\n", found.name);
            servers.push(json!({ "name": found.name, "source": workspace_file::NAME, "approved": false }));
        }
    }
    if text.is_empty() {
        text = "There are none: `agent mcp add` and `agent mcp import` add them.\n".to_owned();
    }
    print(options, &text, &json!({ "servers": servers }))
}

fn entry(server: &ServerSettings, source: &str) -> Value {
    let remote = matches!(server.launch, Launch::Http { .. });
    json!({
        "name": server.name,
        "where": if remote { "remote" } else { server.place.as_str() },
        "launch": server.launch.to_string(),
        "network": server.network,
        "source": source,
    })
}
