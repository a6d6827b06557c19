//! `/mcp`: the servers whose tools the model may call.

use super::{Flow, Repl};
use crate::cli::ui::input::CommandHelp;
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::mcp::client::{Launch, Server, ServerPrompt, State};
use crate::sanitise::one_line;

/// Columns of a server's prompt that are shown.
const SHOWN: usize = 200;

impl Repl<'_> {
    /// Shows them, or ends one, which then starts anew.
    pub(super) async fn mcp(&mut self, arguments: &str) -> Result<Flow> {
        let servers = self.session.servers().list();
        match arguments.split_once(char::is_whitespace).unwrap_or((arguments, "")) {
            ("", _) => {
                let mut text: String = servers.iter().map(|server| line(server)).collect();
                if text.is_empty() {
                    text = "There are none: `agent mcp add` and `agent mcp import` add them to your config.toml.\n".to_owned();
                }
                self.screen.say(&text);
            }
            ("restart", name) => {
                let server =
                    servers.iter().find(|server| server.settings.name == name.trim()).ok_or_else(|| {
                        Error::usage(format!("there is no MCP server {:?}", one_line(name, 40)))
                            .hint("/mcp lists them")
                    })?;
                server.end().await;
                self.remark("it starts anew with its next call");
            }
            _ => return Err(Error::usage("/mcp lists the servers; /mcp restart NAME restarts one")),
        }
        Ok(Flow::Continue)
    }

    /// Asks a server for the prompt that `text` names.
    pub(super) async fn prompt_of_server(&mut self, text: &str) -> Result<Flow> {
        let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        self.screen.progress().show("asking the MCP server for its prompt");
        let prompt = match self.session.servers().prompt(name.trim_start_matches('/')).await {
            Ok(Some(prompt)) => prompt.text(arguments).await,
            Ok(None) => Err(Error::usage(format!("no MCP server has the prompt {}", one_line(name, 70)))
                .hint("/help lists the prompts of servers; /mcp lists the servers")),
            Err(error) => Err(error),
        };
        self.screen.progress().clear();
        let prompt = prompt?;
        self.remark(&format!(
            "the server's prompt, {} characters: {}",
            prompt.chars().count(),
            one_line(&prompt, SHOWN)
        ));
        Ok(Flow::PromptOfServer(prompt))
    }
}

/// A prompt of a server, for help and completion.
pub(super) fn help(prompt: &ServerPrompt) -> CommandHelp {
    CommandHelp {
        name: format!("/{}", prompt.command).into(),
        arguments: prompt.usage().into(),
        help: format!("{}: {}", prompt.server.settings.name, prompt.about()).into(),
    }
}

fn line(server: &Server) -> String {
    let settings = &server.settings;
    let place = match &settings.launch {
        Launch::Http { .. } => "remote",
        _ if settings.has_own_sandbox() => "own sandbox",
        _ => settings.place.as_str(),
    };
    let state = match server.state() {
        State::Idle => "starts when it is needed".to_owned(),
        State::Running => "runs".to_owned(),
        State::Failed(why) => one_line(&why, 200),
    };
    let tools = server.tools().map(|count| format!("{}, ", counted(count, "tool"))).unwrap_or_default();
    let outside = if settings.is_outside() { "; what it does is in no diff" } else { "" };
    format!("  {:<20} {place:<8} {tools}{state}{outside}\n", settings.name)
}
