//! Many tools: the model searches them, and calls what it finds, so that their descriptions are not in every request.

use super::result;
use super::tool::ServerTool;
use agent_base::error::{Error, Result};
use agent_tools::{Context, Tool, ToolResult, arguments};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Tools that a search describes.
const MAX_FOUND: usize = 10;

/// `mcp_search_tools`.
pub struct SearchTools {
    tools: Vec<Arc<ServerTool>>,
    description: String,
}

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// Words of what the tool should do, or its name.
    query: String,
}

impl SearchTools {
    /// A search through these.
    pub fn new(tools: Vec<Arc<ServerTool>>) -> Self {
        let servers: Vec<String> = servers(&tools);
        let description = format!(
            "{} There are {} tools, of: {}.",
            agent_prompts::tools::MCP_SEARCH_TOOLS.trim(),
            tools.len(),
            servers.join(", ")
        );
        Self { tools, description }
    }

    fn found(&self, query: &str) -> Vec<&Arc<ServerTool>> {
        let words: Vec<String> = query.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
        let mut scored: Vec<(usize, &Arc<ServerTool>)> = self
            .tools
            .iter()
            .map(|tool| {
                (score(&tool.name().to_lowercase(), &tool.description().to_lowercase(), &words), tool)
            })
            .filter(|(score, _)| *score > 0)
            .collect();
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        scored.into_iter().take(MAX_FOUND).map(|(_, tool)| tool).collect()
    }
}

/// A word in the name counts more than one in the description.
fn score(name: &str, description: &str, words: &[String]) -> usize {
    let of_word = |word: &String| match word.len() {
        0 | 1 => 0,
        _ => 3 * usize::from(name.contains(word.as_str())) + usize::from(description.contains(word.as_str())),
    };
    words.iter().map(of_word).sum()
}

fn servers(tools: &[Arc<ServerTool>]) -> Vec<String> {
    let mut servers: Vec<String> = tools.iter().map(|tool| tool.server_name().to_owned()).collect();
    servers.dedup();
    servers
}

impl Tool for SearchTools {
    fn name(&self) -> &str {
        "mcp_search_tools"
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn parameters(&self) -> Value {
        arguments::schema::<Search>()
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move {
            let Search { query } = arguments::read(&arguments)?;
            let found = self.found(&query);
            if found.is_empty() {
                let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
                let text = format!("no tool fits; their names are:\n{}", names.join("\n"));
                return result::of_text(context, "tools", text).await;
            }
            let described = found.into_iter().map(|tool| {
                json!({ "tool": tool.name(), "description": tool.description(), "arguments": tool.parameters() })
                    .to_string()
            });
            let text = described.collect::<Vec<_>>().join("\n");
            result::of_text(context, "tools", text).await
        })
    }
}

/// `mcp_call_tool`: it stands for the tool that is named.
pub struct CallFound;

#[derive(Deserialize, JsonSchema)]
struct Call {
    /// The name of the tool, as the search has it.
    tool: String,
    /// Its arguments.
    arguments: serde_json::Map<String, Value>,
}

impl Tool for CallFound {
    fn name(&self) -> &str {
        "mcp_call_tool"
    }

    fn description(&self) -> &str {
        agent_prompts::tools::MCP_CALL_TOOL
    }

    fn parameters(&self) -> Value {
        arguments::schema::<Call>()
    }

    fn stands_for(&self, arguments: &Value) -> Option<(String, Value)> {
        let Call { tool, arguments } = arguments::read(arguments).ok()?;
        Some((tool, Value::Object(arguments)))
    }

    fn run<'a>(&'a self, _: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move {
            let Call { tool, .. } = arguments::read(&arguments)?;
            Err(Error::usage(format!("there is no tool {tool:?}: search with mcp_search_tools")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::score;

    #[test]
    fn a_word_in_the_name_counts_more() {
        let words = ["issue".to_owned(), "a".to_owned()];
        assert_eq!(score("mcp__github__create_issue", "Creates an issue", &words), 4);
        assert_eq!(score("mcp__github__list", "Lists issues", &words), 1);
        assert_eq!(score("mcp__git__status", "Shows a status", &words), 0);
    }
}
