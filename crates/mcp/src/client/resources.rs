//! The resources of all servers, by two tools.

use super::result;
use super::server::Server;
use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use agent_policy::policy::Action;
use agent_tools::{Context, Tool, ToolResult, arguments};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Resources of one server that are listed.
const MAX_LISTED: usize = 200;

/// `mcp_list_resources`.
pub struct ListResources(pub Vec<Arc<Server>>);

/// `mcp_read_resource`.
pub struct ReadResource(pub Vec<Arc<Server>>);

#[derive(Deserialize, JsonSchema)]
struct List {
    /// The server; without it, all of them.
    server: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// The server.
    server: String,
    /// The address, as the list has it.
    uri: String,
}

impl Tool for ListResources {
    fn name(&self) -> &str {
        "mcp_list_resources"
    }

    fn description(&self) -> &str {
        agent_prompts::tools::MCP_LIST_RESOURCES
    }

    fn parameters(&self) -> Value {
        arguments::schema::<List>()
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move {
            let List { server } = arguments::read(&arguments)?;
            let servers = match &server {
                Some(name) => vec![named(&self.0, name)?],
                None => self.0.iter().collect(),
            };
            let mut text = String::new();
            for server in servers {
                text += &format!("{}:\n", server.settings.name);
                match server.resources().await {
                    Ok(resources) => {
                        for resource in resources.iter().take(MAX_LISTED) {
                            let about = resource.description.as_deref().unwrap_or(&resource.name);
                            text += &format!("  {} {}\n", one_line(&resource.uri, 500), one_line(about, 200));
                        }
                        if resources.len() > MAX_LISTED {
                            text += &format!("  and {} more\n", resources.len() - MAX_LISTED);
                        }
                    }
                    Err(error) => text += &format!("  {error}\n"),
                }
            }
            result::of_text(context, "resources", text).await
        })
    }
}

impl Tool for ReadResource {
    fn name(&self) -> &str {
        "mcp_read_resource"
    }

    fn description(&self) -> &str {
        agent_prompts::tools::MCP_READ_RESOURCE
    }

    fn parameters(&self) -> Value {
        arguments::schema::<Read>()
    }

    fn action<'a>(&'a self, arguments: &'a Value) -> Option<Action<'a>> {
        let named = arguments.get("server").and_then(Value::as_str);
        let server = named.and_then(|name| self.0.iter().find(|server| server.settings.name == name));
        let is_on_host = server.is_some_and(|server| server.settings.place == super::ServerLocation::Host);
        Some(Action::Tool { name: self.name(), arguments, is_on_host })
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move {
            let Read { server, uri } = arguments::read(&arguments)?;
            let contents = named(&self.0, &server)?.read(&uri, context.bounds.max_timeout).await?;
            result::of_resource(context, &server, &contents).await
        })
    }
}

fn named<'a>(servers: &'a [Arc<Server>], name: &str) -> Result<&'a Arc<Server>> {
    servers.iter().find(|server| server.settings.name == name).ok_or_else(|| {
        let known: Vec<&str> = servers.iter().map(|server| server.settings.name.as_str()).collect();
        Error::usage(format!(
            "there is no server {:?} with resources: {}",
            one_line(name, 50),
            known.join(", ")
        ))
    })
}
