//! Slash commands, which work in clients that show no questions too.

use super::proposal::counted;
use super::session::Work;
use super::updates::fence;
use agent_base::count_text;
use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use agent_mcp::client::ServerPrompt;
use agent_network::entries;
use agent_session::Ready;
use agent_workspace::notices::listed;
use agent_workspace::{ChangeSet, diff, risks};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of a diff that is shown as text.
const MAX_DIFF: usize = 200_000;
/// Names of files that are listed.
const NAMED: usize = 30;

/// A command: its name, its arguments, what it does.
const COMMANDS: [(&str, &str, &str); 11] = [
    ("diff", "[PATH…]", "show what the session has changed"),
    ("apply", "[PATH…]", "write the changes to your files"),
    ("undo", "[N]", "undo the last prompt's changes in the sandbox"),
    ("redo", "", "redo what was undone last"),
    ("undo-apply", "", "put your files back as they were before the last apply"),
    ("checkpoints", "", "list the states of the workspace that can be restored"),
    ("network", "[allow|deny HOST,…]", "show or change what the sandbox may reach"),
    ("model", "[NAME]", "show or change the model"),
    ("compact", "", "summarise the conversation"),
    ("clear", "", "clear the conversation; files stay as they are"),
    ("usage", "", "tokens and cost so far"),
];

/// A command that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    name: &'static str,
    arguments: String,
}

impl Written {
    /// Returns whether it writes the user's own files, which is not to end half-way.
    pub fn writes_files(&self) -> bool {
        matches!(self.name, "apply" | "undo-apply")
    }
}

/// The update that lists them, and the prompts of MCP servers as far as they are known.
pub fn available(prompts: &[ServerPrompt]) -> Value {
    let command = |(name, arguments, about): &(&str, &str, &str)| listing(name, arguments, about);
    let prompt = |prompt: &ServerPrompt| {
        let about = format!("{}: {}", prompt.server.settings.name, prompt.about());
        listing(&prompt.command, &prompt.usage(), &about)
    };
    let commands: Vec<Value> = COMMANDS.iter().map(command).chain(prompts.iter().map(prompt)).collect();
    json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands })
}

fn listing(name: &str, arguments: &str, about: &str) -> Value {
    let mut command = json!({ "name": name, "description": about });
    if !arguments.is_empty() {
        command["input"] = json!({ "hint": arguments });
    }
    command
}

/// The prompt of an MCP server that a prompt names, and its arguments: `/mcp__SERVER__PROMPT ARGUMENTS`.
pub fn of_server(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some((name.strip_prefix('/').filter(|name| name.starts_with("mcp__"))?, arguments))
}

/// The command in a prompt. `None` for any other prompt, also one that begins with a path.
pub fn parse(text: &str) -> Option<Result<Written>> {
    let text = text.trim();
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let name = name.strip_prefix('/')?;
    if name.contains('/') || name.is_empty() {
        return None;
    }
    let known = COMMANDS.iter().find(|(known, ..)| *known == name);
    Some(known.map(|(name, ..)| Written { name, arguments: arguments.trim().to_owned() }).ok_or_else(|| {
        let names: Vec<String> = COMMANDS.iter().map(|(name, ..)| format!("/{name}")).collect();
        Error::usage(format!("there is no command /{}", one_line(name, 40)))
            .hint(format!("there are {}", names.join(", ")))
    }))
}

impl Work<'_> {
    /// Asks an MCP server for the text of a prompt, unless the turn is cancelled meanwhile.
    pub(super) async fn prompt_of_server(&self, name: &str, arguments: &str) -> Result<String> {
        let ask = async {
            match self.session.servers().prompt(name).await? {
                Some(prompt) => prompt.text(arguments).await,
                None => Err(Error::usage(format!("no MCP server has the prompt {}", one_line(name, 70)))
                    .hint("the commands of this session list the prompts of servers once these were asked")),
            }
        };
        self.unless_cancelled(ask).await
    }

    /// Does what a command says.
    pub(super) async fn command(&mut self, Written { name, arguments }: Written) -> Result<()> {
        match name {
            "diff" => self.show_diff(&arguments).await,
            "apply" => self.apply_now(&arguments).await,
            "undo" => self.undo(&arguments).await,
            "redo" => {
                let restored = self.session.checkpoints().redo().await?;
                let names = listed(restored.files.iter().map(ToString::to_string), NAMED).unwrap_or_default();
                self.noted(&format!("The user redid what they had undone: {names}.")).await
            }
            "undo-apply" => {
                let changes = self.unless_cancelled(self.ready()).await?.workspace.undo_apply().await?;
                self.noted(&format!(
                    "The user took the last apply back in their own files: {}.",
                    counted(changes)
                ))
                .await
            }
            "checkpoints" => self.checkpoints().await,
            "network" => self.network(&arguments).await,
            "model" => self.model(&arguments).await,
            "compact" => match self.session.conversation.compact().await? {
                true => self.say("The conversation was summarised.").await,
                false => self.say("A summary would not be shorter: the conversation stays as it is.").await,
            },
            "clear" => {
                self.session.conversation.clear()?;
                self.say("The conversation was cleared; sandbox and workspace stay as they are.").await
            }
            _ => self.usage().await,
        }
    }

    async fn ready(&self) -> Result<Arc<Ready>> {
        self.session.startup().ready().await
    }

    async fn changes(&self, paths: &str) -> Result<(Arc<Ready>, ChangeSet)> {
        let words = shell_words::split(paths).map_err(|_| Error::usage("a quotation mark is not closed"))?;
        let ready = self.ready().await?;
        let relative = |word: String| {
            let path = PathBuf::from(word);
            ready.sandbox.in_workspace(&path).unwrap_or(path)
        };
        let paths: Vec<PathBuf> = words.into_iter().map(relative).collect();
        let changes = ready.workspace.changes(&ready.sandbox).await?.select(&paths)?;
        Ok((ready, changes))
    }

    async fn show_diff(&mut self, paths: &str) -> Result<()> {
        let (ready, changes) = self.changes(paths).await?;
        if changes.is_empty() {
            return self.say("Nothing has changed.").await;
        }
        let diff::Excerpt { text, left_out } = diff::excerpt(&changes, ready.workspace.store(), MAX_DIFF)?;
        let names = listed(left_out.changes.keys().map(ToString::to_string), NAMED);
        let rest = names.map_or_else(String::new, |names| {
            let id = self.session.id();
            format!("\nNot shown, or not to the end: {names}; `agent diff {id}` shows all of it")
        });
        let messages: String = changes.messages().map(|message| format!("{message}\n")).collect();
        let risks = risks::summary(&changes).map(|risks| format!("{risks}\n\n")).unwrap_or_default();
        // Names are of the sandbox: within the fence they are text.
        let text = format!("{messages}{}{rest}", text.trim_end());
        let fence = fence(&text);
        ready.workspace.record_shown(&changes.without(&left_out), paths.trim().is_empty())?;
        self.say(&format!("{risks}{fence}diff\n{text}\n{fence}")).await
    }

    /// Applies the changes: who writes this has decided, unless they are not what the last diff showed.
    async fn apply_now(&mut self, paths: &str) -> Result<()> {
        let (ready, changes) = self.unless_cancelled(self.changes(paths)).await?;
        match changes.is_empty() {
            true => self.say("There is nothing to apply.").await,
            false => {
                let is_all = paths.trim().is_empty();
                let is_agreed = ready.workspace.since_shown(&changes, is_all)?.is_empty();
                self.decide(&ready, &changes, is_agreed).await
            }
        }
    }

    async fn undo(&mut self, prompts: &str) -> Result<()> {
        let prompts = match prompts {
            "" => 1,
            count => count.parse().map_err(|_| Error::usage("/undo takes the number of prompts to undo"))?,
        };
        match self.session.undo(prompts).await? {
            Some((restored, undone)) => {
                let names = listed(restored.files.iter().map(ToString::to_string), NAMED).unwrap_or_default();
                self.noted(&format!(
                    "The user undid the changes of the last {} in the sandbox: {names}.",
                    count_text::counted(undone, "prompt")
                ))
                .await
            }
            None => self.say("There is nothing to undo.").await,
        }
    }

    async fn checkpoints(&mut self) -> Result<()> {
        let (list, position) = self.ready().await?.workspace.checkpoints().await;
        let mut text = String::new();
        for (index, checkpoint) in list.iter().enumerate() {
            let here = if index == position { " (here)" } else { "" };
            text += &format!(
                "* {}: prompt {}, {} changed{here}\n",
                checkpoint.id,
                checkpoint.prompt,
                count_text::counted(checkpoint.files, "file")
            );
        }
        self.say(&text).await
    }

    async fn network(&mut self, arguments: &str) -> Result<()> {
        let gateway = Arc::clone(self.session.startup().gateway());
        if gateway.is_full() {
            return self.say("The sandbox has the engine's ordinary network; there is no list.").await;
        }
        let (verb, hosts) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
        match verb {
            "" => {}
            "allow" => {
                let hosts = entries(hosts)?;
                gateway.change(|rules| hosts.into_iter().for_each(|entry| rules.allow(entry)));
                let ready = self.ready().await?;
                gateway.attach(&ready.sandbox).await?;
            }
            "deny" => {
                let hosts = entries(hosts)?;
                gateway.change(|rules| hosts.into_iter().for_each(|entry| rules.deny(entry)));
            }
            _ => {
                return Err(Error::usage(
                    "/network shows the list; /network allow HOST,… and /network deny HOST,… change it",
                ));
            }
        }
        let words = gateway.rules().words();
        let words =
            if words.is_empty() { "nothing but its own loopback".to_owned() } else { words.join(", ") };
        match verb {
            "" => self.say(&format!("The sandbox may reach: {words}.")).await,
            _ => {
                self.options_changed().await?;
                self.noted(&format!("The user changed what the sandbox may reach: {words}.")).await
            }
        }
    }

    async fn model(&mut self, name: &str) -> Result<()> {
        if !name.is_empty() {
            self.session.set_model(self.opener.model(name).await?)?;
            self.owner.model_is(name);
            self.options_changed().await?;
        }
        let model = one_line(self.session.conversation.model_name(), 100);
        self.say(&format!("The model is {model}.")).await
    }

    async fn usage(&mut self) -> Result<()> {
        let total = self.session.conversation.total();
        let cost = self.session.conversation.cost().map(|cost| format!(", {cost:.4}")).unwrap_or_default();
        let (input, output) = (total.usage.input, total.usage.output);
        self.say(&format!(
            "{}, {input} tokens in, {output} out{cost}.",
            count_text::counted(total.turns, "turn")
        ))
        .await
    }

    /// Tells the model and the user the same.
    async fn noted(&mut self, text: &str) -> Result<()> {
        self.session.conversation.note(text)?;
        self.say(text).await
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_prompt_may_begin_with_a_path() {
        assert!(parse("/etc/hosts is odd").is_none());
        assert!(parse("fix it").is_none());
        assert!(parse("/").is_none());
    }

    #[test]
    fn a_command_has_arguments() {
        let command = parse(" /apply  src/a.rs ").unwrap().unwrap();
        assert_eq!((command.name, &*command.arguments), ("apply", "src/a.rs"));
        assert!(parse("/nothing").unwrap().is_err());
    }
}
