//! `agent mcp list`.

use super::workspace_file;
use crate::cli::arguments::DirectoryArg;
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::{Group, Options};
use crate::cli::print::print;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::mcp::client::{Launch, ServerSettings};
use crate::sanitise::one_line;
use clap::Args;
use serde_json::{Value, json};

/// `agent mcp list`
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl ListArgs {
    pub fn options(&self) -> Options {
        let mut options = Options { json: self.json, ..Options::default() };
        self.directory.add_to(&mut options);
        options
    }
}

/// Lists the servers that a session in this directory uses, and those that wait for the user's approval.
pub fn list(options: &Options) -> Result<ExitCode> {
    let config = Config::load(options)?;
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
    let of_workspace = workspace_file::read(&config.workspace, &machine());
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

/// One server, for a terminal.
pub fn line(server: &ServerSettings, remark: &str) -> String {
    let place = match &server.launch {
        Launch::Http { .. } => "remote",
        _ if server.has_own_sandbox() => "own sandbox",
        _ => server.place.as_str(),
    };
    let network = match server.network.is_empty() {
        true => String::new(),
        false => format!("  [{}]", server.network.join(", ")),
    };
    let launch = one_line(&server.launch.to_string(), 120);
    format!("  {:<20} {place:<8} {launch}{}{remark}\n", server.name, one_line(&network, 120))
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
