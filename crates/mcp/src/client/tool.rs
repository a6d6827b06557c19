//! A server's tool, as the model calls it.

use super::names::tool_name;
use super::result;
use super::schema;
use super::server::Server;
use crate::protocol::ToolDescription;
use agent_base::error::Result;
use agent_base::sanitise::{one_line, plain};
use agent_base::secret_scan;
use agent_base::shorten::head_and_tail;
use agent_base::visible::without_tags;
use agent_event::Stream;
use agent_policy::policy::Action;
use agent_sandbox::Output;
use agent_tools::{Context, Tool, ToolResult};
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::sync::Arc;

/// Characters of a description.
const MAX_DESCRIPTION: usize = 2_000;

/// A server's tool.
pub struct ServerTool {
    name: String,
    /// Its name at the server.
    own_name: String,
    description: String,
    parameters: Value,
    server: Arc<Server>,
}

impl ServerTool {
    /// The tool that `server` describes so.
    pub fn new(server: &Arc<Server>, described: &ToolDescription) -> Self {
        let name = tool_name(&server.settings.name, &described.name);
        let about = described.description.as_deref().or(described.title.as_deref()).unwrap_or_default();
        let description = match about.trim() {
            "" => format!("{} of the MCP server {}", one_line(&described.name, 100), server.settings.name),
            about => {
                // What a server says of itself is sent with every request, whatever the user's settings are.
                let about = without_tags(plain(about).into_owned());
                let about = secret_scan::redact(&about).map_or(about, |redacted| redacted.text);
                head_and_tail(&about, MAX_DESCRIPTION).into_owned()
            }
        };
        Self {
            name,
            own_name: described.name.clone(),
            description,
            parameters: schema::of_arguments(&described.input_schema),
            server: Arc::clone(server),
        }
    }

    /// The name of its server.
    pub fn server_name(&self) -> &str {
        &self.server.settings.name
    }
}

impl Tool for ServerTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> Value {
        self.parameters.clone()
    }

    fn action<'a>(&'a self, arguments: &'a Value) -> Option<Action<'a>> {
        let is_on_host = self.server.settings.place == super::ServerLocation::Host;
        Some(Action::Tool { name: &self.name, arguments, is_on_host })
    }

    /// Discards what the server holds (an open database, a position): it belongs to what was undone.
    fn discard_state(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async {
            let is_inside = !self.server.settings.is_outside();
            let ended = is_inside && self.server.end().await;
            ended.then(|| {
                format!("The MCP server {} starts anew with its next call.", self.server.settings.name)
            })
        })
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move {
            let mut live = context.live_output();
            let mut on_progress = |text: String| {
                // A session file that cannot be written fails at the end of the call.
                let _ = live.emit(Output::Data(Stream::Stdout, format!("{}\n", plain(&text)).as_bytes()));
            };
            let longest = context.bounds.max_timeout;
            let answer = self.server.call(&self.own_name, &arguments, longest, &mut on_progress).await?;
            result::of_call(context, &self.server.settings.name, answer).await
        })
    }
}
