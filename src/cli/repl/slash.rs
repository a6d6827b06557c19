//! The slash commands: one table, from which help and completion derive.

use super::written_commands::WrittenCommand;
use super::{Flow, Repl, mcp};
use crate::agent::{Costs, Price};
use crate::cli::ui::input::CommandHelp;
use crate::cli::ui::picker::pick;
use crate::cli::ui::trace::usage_text;
use crate::cli::ui::wrap::{columns_of, hanging};
use crate::cli::{endpoint, hooks};
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::event::Usage;
use crate::mcp::client::Servers;
use crate::sanitise;
use crate::session::hooks::HookLocation;
use futures_util::future::BoxFuture;
use unicode_width::UnicodeWidthStr;

/// A slash command.
pub(super) struct SlashCommand {
    help: CommandHelp,
    pub(super) run: for<'a> fn(&'a mut Repl<'_>, &'a str) -> BoxFuture<'a, Result<Flow>>,
}

/// The keys, after the commands.
const KEYS: &str = "\
Enter sends. Alt+Enter, Ctrl-J and Shift+Enter (where the terminal tells) begin a new line, and so does a line that \
ends in \\ and an open ``` fence. Ctrl-X Ctrl-E or Ctrl-G opens your editor. Tab completes, Ctrl-R searches earlier \
lines. Ctrl-O shows all of the last result. Esc Esc goes back to an earlier prompt. Ctrl-C discards the line, Ctrl-Z \
suspends, Ctrl-D leaves.
While it works: Esc or Ctrl-C stops it. Type the next line: Enter sends it after this turn, Enter again at once, and \
the up arrow brings it back. A command that you run (!CMD) gets every key; Ctrl-] three times kills it.
";
/// Columns of a command with its arguments.
const USAGE: usize = 24;

const COMMANDS: &[SlashCommand] = &[
    SlashCommand {
        help: CommandHelp::new("/help", "", "this list"),
        run: |repl, _| Box::pin(async { repl.help() }),
    },
    SlashCommand {
        help: CommandHelp::new("/model", "[NAME]", "change to another model; without a name, pick one"),
        run: |repl, name| Box::pin(repl.model(name)),
    },
    SlashCommand {
        help: CommandHelp::new("/resume", "[ID]", "continue another session of this workspace"),
        run: |repl, id| Box::pin(repl.resume(id)),
    },
    SlashCommand {
        help: CommandHelp::new("/usage", "", "tokens and turns so far"),
        run: |repl, _| Box::pin(async { repl.usage() }),
    },
    SlashCommand {
        help: CommandHelp::new(
            "/add-dir",
            "[DIR[:ro]]",
            "a further directory for the session; with :ro to read it alone",
        ),
        run: |repl, directory| Box::pin(repl.add_dir(directory)),
    },
    SlashCommand {
        help: CommandHelp::new("/upload", "PATH [DEST]", "copy into the sandbox"),
        run: |repl, arguments| Box::pin(repl.upload(arguments)),
    },
    SlashCommand {
        help: CommandHelp::new("/download", "PATH [DEST]", "copy out of the sandbox"),
        run: |repl, arguments| Box::pin(repl.download(arguments)),
    },
    SlashCommand {
        help: CommandHelp::new("/save", "[FILE]", "write the session's events to a file"),
        run: |repl, file| Box::pin(async { repl.save(file) }),
    },
    SlashCommand {
        help: CommandHelp::new("/export", "[html|FILE]", "write the conversation as Markdown or HTML"),
        run: |repl, argument| Box::pin(async { repl.export(argument) }),
    },
    SlashCommand {
        help: CommandHelp::new(
            "/copy",
            "[code]",
            "the last answer, or its last code block, to the clipboard",
        ),
        run: |repl, what| Box::pin(async { repl.copy(what) }),
    },
    SlashCommand {
        help: CommandHelp::new("/context", "", "what fills the model's context window"),
        run: |repl, _| Box::pin(async { repl.context() }),
    },
    SlashCommand {
        help: CommandHelp::new("/diff", "[--all] [PATH…]", "what the session changed in the workspace"),
        run: |repl, paths| Box::pin(repl.diff(paths)),
    },
    SlashCommand {
        help: CommandHelp::new("/last", "[N]", "all of the last result (or the Nth last) in the pager"),
        run: |repl, number| Box::pin(async { repl.last(number) }),
    },
    SlashCommand {
        help: CommandHelp::new(
            "/artifacts",
            "[show|get|open NAME]",
            "the pictures and files that tools produced",
        ),
        run: |repl, arguments| Box::pin(async { repl.artifacts(arguments) }),
    },
    SlashCommand {
        help: CommandHelp::new(
            "/apply",
            "[-i] [--all] [--commit] [PATH…] | --branch NAME",
            "write the changes to your files; -i by hunk",
        ),
        run: |repl, paths| Box::pin(repl.apply(paths)),
    },
    SlashCommand {
        help: CommandHelp::new("/undo", "[N]", "undo the last prompt (or N) in the sandbox"),
        run: |repl, prompts| Box::pin(repl.undo(prompts)),
    },
    SlashCommand {
        help: CommandHelp::new("/redo", "", "redo what was undone last"),
        run: |repl, _| Box::pin(repl.redo()),
    },
    SlashCommand {
        help: CommandHelp::new("/rewind", "[N]", "go back to an earlier prompt, conversation and files"),
        run: |repl, number| Box::pin(repl.rewind(number)),
    },
    SlashCommand {
        help: CommandHelp::new("/checkpoints", "", "the states that /undo restores"),
        run: |repl, _| Box::pin(repl.checkpoints()),
    },
    SlashCommand {
        help: CommandHelp::new(
            "/network",
            "[allow|deny HOST,…]",
            "show or change what the sandbox may reach",
        ),
        run: |repl, arguments| Box::pin(repl.network(arguments)),
    },
    SlashCommand {
        help: CommandHelp::new("/jobs", "", "background jobs, and the ports on which something listens"),
        run: |repl, _| Box::pin(repl.jobs()),
    },
    SlashCommand {
        help: CommandHelp::new(
            "/forward",
            "PORT[:LOCAL]",
            "a server in the sandbox, on this machine's loopback",
        ),
        run: |repl, ports| Box::pin(repl.forward(ports)),
    },
    SlashCommand {
        help: CommandHelp::new(
            "/race",
            "N PROMPT",
            "N attempts at once; the session continues as one of them",
        ),
        run: |repl, arguments| Box::pin(repl.race(arguments)),
    },
    SlashCommand {
        help: CommandHelp::new("/plan", "[accept|off]", "plan first: nothing is changed until you accept"),
        run: |repl, argument| Box::pin(repl.plan(argument)),
    },
    SlashCommand {
        help: CommandHelp::new("/compact", "", "summarise the conversation"),
        run: |repl, _| Box::pin(repl.compact()),
    },
    SlashCommand {
        help: CommandHelp::new("/clear", "", "forget the conversation, keep the sandbox"),
        run: |repl, _| Box::pin(async { repl.clear() }),
    },
    SlashCommand {
        help: CommandHelp::new("/init", "", "let the model write AGENTS.md for this project"),
        run: |_, _| Box::pin(async { Ok(Flow::Prompt(agent_prompts::INIT.to_owned())) }),
    },
    SlashCommand {
        help: CommandHelp::new("/skills", "", "the skills that the model can read"),
        run: |repl, _| Box::pin(async { repl.skills() }),
    },
    SlashCommand {
        help: CommandHelp::new("/hooks", "", "your commands that run at fixed moments"),
        run: |repl, _| Box::pin(async { repl.hooks() }),
    },
    SlashCommand {
        help: CommandHelp::new("/mcp", "[restart NAME]", "the MCP servers, and how they are"),
        run: |repl, arguments| Box::pin(repl.mcp(arguments)),
    },
    SlashCommand {
        help: CommandHelp::new("/exit", "", "leave"),
        run: |_, _| Box::pin(async { Ok(Flow::Leave) }),
    },
];

/// For completion at the prompt.
pub(super) fn helps(written: &[WrittenCommand], servers: &Servers) -> Vec<CommandHelp> {
    let built_in = COMMANDS.iter().map(|command| command.help.clone());
    let of_servers = servers.prompts().into_iter().map(|prompt| mcp::help(&prompt));
    built_in.chain(written.iter().map(WrittenCommand::help)).chain(of_servers).collect()
}

/// The command that `text` names, and its arguments. `None` for a prompt: text that does not start with a slash, or
/// that starts with a path.
pub(super) fn parse(text: &str) -> Option<Result<(&'static SlashCommand, &str)>> {
    let (name, arguments) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if !name.starts_with('/') || name[1..].contains('/') {
        return None;
    }
    let command = COMMANDS.iter().find(|command| command.help.name == name);
    Some(command.map(|command| (command, arguments.trim())).ok_or_else(|| unknown(name)))
}

/// The names that other agents have for some of the commands.
const ELSEWHERE: [(&str, &str); 16] = [
    ("/quit", "/exit"),
    ("/q", "/exit"),
    ("/new", "/clear"),
    ("/reset", "/clear"),
    ("/compress", "/compact"),
    ("/summarize", "/compact"),
    ("/cost", "/usage"),
    ("/status", "/usage"),
    ("/stats", "/usage"),
    ("/tokens", "/usage"),
    ("/sessions", "/resume"),
    ("/chat", "/resume"),
    ("/models", "/model"),
    ("/commit", "/apply --commit"),
    ("/restore", "/rewind"),
    ("/run", "!CMD"),
];

fn unknown(name: &str) -> Error {
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == name).map(|(_, ours)| *ours);
    let distance = |command: &&SlashCommand| strsim::damerau_levenshtein(&command.help.name, name);
    let nearest = COMMANDS.iter().min_by_key(distance).filter(|nearest| distance(nearest) <= 2);
    let hint = match elsewhere.or(nearest.map(|nearest| &*nearest.help.name)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "/help lists the commands".to_owned(),
    };
    Error::usage(format!("there is no command {}", sanitise::one_line(name, 40))).hint(hint)
}

impl Repl<'_> {
    fn help(&self) -> Result<Flow> {
        let shell = CommandHelp::new("!CMD", "", "run a command in the sandbox");
        let columns = columns_of(&std::io::stderr());
        let mut text = String::new();
        for help in helps(&self.written, self.session.servers()).into_iter().chain([shell]) {
            let usage = format!("{} {}", help.name, help.arguments);
            // What is longer than its column has a line of its own.
            let between =
                if usage.width() > USAGE { format!("\n{:>1$}", "", USAGE + 3) } else { " ".to_owned() };
            text += &format!("  {usage:<USAGE$}{between}{}\n", hanging(&help.help, USAGE + 3, columns));
        }
        for line in KEYS.lines() {
            text += &format!("{}\n", hanging(line, 0, columns));
        }
        self.screen.say(&text);
        Ok(Flow::Continue)
    }

    async fn model(&mut self, name: &str) -> Result<Flow> {
        if !name.is_empty() {
            return self.change_model(name).await;
        }
        self.screen.progress().show("listing the models");
        let names = self.session.conversation.models().await?;
        self.screen.progress().clear();
        let current = self.session.conversation.model_name();
        let mark = |name: &String| format!("{name}{}", if name == current { " (in use)" } else { "" });
        let lines: Vec<String> = names.iter().map(mark).collect();
        let selected = names.iter().position(|name| name == current).unwrap_or(0);
        match pick(self.screen.progress(), "Which model?", &lines, selected).await? {
            Some(number) if names[number] != current => self.change_model(&names[number]).await,
            _ => Ok(Flow::Continue),
        }
    }

    async fn change_model(&mut self, name: &str) -> Result<Flow> {
        let mut config = self.config.clone();
        config.options.model.model = Some(name.to_owned());
        let model = endpoint::connect(&config).await?.settings;
        // An endpoint that does not list its models may serve this one all the same.
        let listed = model.client.models().await.unwrap_or_default();
        self.session.set_model(model)?;
        self.remark(&format!("model: {}", sanitise::one_line(name, 100)));
        if !listed.is_empty() && !listed.iter().any(|model| model == name) {
            let distance = |model: &&String| strsim::damerau_levenshtein(model, name);
            let nearest =
                listed.iter().min_by_key(distance).filter(|model| distance(model) <= name.len() / 3);
            let meant = nearest.map_or_else(
                || "/model lists them".to_owned(),
                |model| format!("did you mean {}?", sanitise::one_line(model, 100)),
            );
            self.remark(&format!("it is not among the models that the endpoint lists; {meant}"));
        }
        Ok(Flow::Continue)
    }

    fn usage(&self) -> Result<Flow> {
        let conversation = &self.session.conversation;
        let total = conversation.total();
        let usage = usage_text(total.usage, conversation.cost());
        self.screen.say(&format!("{}, {usage}\n", counted(total.turns, "turn")));
        if total.usage.cached + total.usage.written > 0 {
            self.screen.say(&by_kind(total.usage, conversation.price()));
        }
        Ok(Flow::Continue)
    }

    fn skills(&self) -> Result<Flow> {
        let skills = self.session.skills();
        let mut text = String::new();
        for skill in &skills.list {
            let whose = if skill.is_own { "yours" } else { "this project's" };
            text +=
                &format!("  {:<24} {whose}: {}\n", skill.name, sanitise::one_line(&skill.description, 100));
        }
        for left_out in &skills.left_out {
            text += &format!("  left out: {}\n", sanitise::one_line(left_out, 200));
        }
        if text.is_empty() {
            text +=
                "no skills; one is .agents/skills/NAME/SKILL.md, of the project or of your home directory\n";
        }
        self.say_lines(&text);
        Ok(Flow::Continue)
    }

    fn hooks(&self) -> Result<Flow> {
        let mut text = String::new();
        for hook in self.session.hooks().list() {
            let place = if hook.place == HookLocation::Host { "host" } else { "sandbox" };
            let command = sanitise::one_line(&hook.command, 100);
            text += &format!("  {:<14} {place:<8} {command}\n", hook.moment.as_str());
        }
        for ignored in hooks::of_repository(&self.config.workspace) {
            text += &format!("  ignored, because the repository asks for it: {ignored}\n");
        }
        if text.is_empty() {
            text += "no hooks; [[hooks]] in your config.toml defines them\n";
        }
        self.say_lines(&text);
        Ok(Flow::Continue)
    }

    /// Shows lines, broken between words where the window is narrow. `text` must be sanitised.
    fn say_lines(&self, text: &str) {
        self.screen.say(&format!("{}\n", hanging(text, 0, columns_of(&std::io::stderr()))));
    }

    async fn compact(&mut self) -> Result<Flow> {
        self.screen.progress().show("summarising…");
        let is_shorter = self.session.conversation.compact().await?;
        self.screen.progress().clear();
        if !is_shorter {
            self.remark("a summary would not be shorter: the conversation stays as it is");
        }
        Ok(Flow::Continue)
    }

    fn clear(&mut self) -> Result<Flow> {
        self.session.conversation.clear()?;
        self.remark("the conversation was cleared; sandbox and workspace stay as they are");
        Ok(Flow::Continue)
    }
}

/// The tokens by what the endpoint's cache did with them, and what each kind costs where prices are configured.
fn by_kind(usage: Usage, price: Option<Price>) -> String {
    let costs = price.map(|price| price.of(usage));
    let part = |tokens: u64, what: &str, of: fn(&Costs) -> f64| match &costs {
        Some(costs) => format!("{tokens} {what} for {:.4}", of(costs)),
        None => format!("{tokens} {what}"),
    };
    let parts = [
        part(usage.cached, "read from the endpoint's cache", |costs| costs.cached),
        part(usage.written, "written to it", |costs| costs.written),
        part(usage.fresh(), "others in", |costs| costs.fresh),
        part(usage.output, "out", |costs| costs.output),
    ];
    format!("{}\n", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, parse};

    #[test]
    fn a_slash_command_has_a_name_and_arguments() {
        let (command, arguments) = parse("/model  gpt-5 ").unwrap().unwrap();
        assert_eq!((&*command.help.name, arguments), ("/model", "gpt-5"));
    }

    #[test]
    fn a_prompt_may_begin_with_a_path() {
        assert!(parse("/etc/hosts is odd").is_none());
        assert!(parse("fix the tests").is_none());
    }

    #[test]
    fn an_unknown_command_gets_the_nearest_suggested() {
        let hint = |text| parse(text).unwrap().err().unwrap().hint_text().unwrap().to_owned();
        assert_eq!(hint("/modle"), "did you mean /model?");
        assert_eq!(hint("/frobnicate"), "/help lists the commands");
    }

    #[test]
    fn names_are_unique_and_every_command_says_what_it_does() {
        for (index, command) in COMMANDS.iter().enumerate() {
            assert!(command.help.name.starts_with('/') && !command.help.help.is_empty());
            assert!(COMMANDS[..index].iter().all(|other| other.help.name != command.help.name));
        }
    }
}
