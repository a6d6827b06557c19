//! `[mcp]` of `config.toml`, as it is written.

use crate::mcp::client::ServerLocation;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[mcp]` of `config.toml`.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpOptions {
    /// The user's servers.
    pub servers: BTreeMap<String, ServerOptions>,
}

/// `[mcp.servers.NAME]` of `config.toml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerOptions {
    /// The program.
    pub command: Option<String>,
    /// The image whose program it is, in place of one of the session's sandbox.
    pub image: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables.
    pub env: BTreeMap<String, String>,
    /// Variables of this machine that it gets, by name.
    pub env_vars: Vec<String>,
    /// Its working directory.
    pub cwd: Option<String>,
    /// The address of a server elsewhere.
    pub url: Option<String>,
    /// The variable of this machine that holds its token.
    pub bearer_token_env_var: Option<String>,
    /// Headers of each request to it.
    pub http_headers: BTreeMap<String, String>,
    /// Headers whose values are variables of this machine.
    pub env_http_headers: BTreeMap<String, String>,
    /// Where the program runs: `sandbox` or `host`.
    #[serde(rename = "where")]
    pub place: Option<PlaceOption>,
    /// The hosts that the program may reach.
    pub network: Vec<String>,
    /// The memory of a sandbox of its own.
    pub memory: Option<String>,
    /// The CPUs of a sandbox of its own.
    pub cpus: Option<f64>,
    /// The processes and threads of a sandbox of its own.
    pub pids: Option<u64>,
    /// How long a call may take without a sign of progress.
    pub timeout: Option<String>,
    /// How long it may take to start.
    pub start_timeout: Option<String>,
    /// Set if it is used (default: yes).
    pub enabled: Option<bool>,
    /// Its tools that are offered (default: all).
    pub enabled_tools: Option<Vec<String>>,
    /// Its tools that are not.
    pub disabled_tools: Vec<String>,
}

/// Where a server's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlaceOption {
    Sandbox,
    Host,
}

impl From<PlaceOption> for ServerLocation {
    fn from(option: PlaceOption) -> Self {
        match option {
            PlaceOption::Sandbox => Self::Sandbox,
            PlaceOption::Host => Self::Host,
        }
    }
}
