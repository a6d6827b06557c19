//! Help for models that do not see by themselves what went wrong.
//!
//! [`Helper`] is asked by the turn loop at the four moments of [`Assist`]. It decides by what was done and what came of it: calls, their
//! results, files. No rule reads the words of a prompt, so that it does the same in every language and for every task. Each reminder comes
//! once in a prompt, and an answer that is given again stands.

mod failing_line;
mod files;
mod near_miss;
mod observed;
mod overwrite;
mod reminders;
mod syntax;

use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_base::shorten::head_and_tail;
use agent_core::{AfterCall, Assist, At, BeforeCall, FailedCheck, NewPrompt, PromptHelp, ToolUse};
use agent_model::Reply;
use agent_sandbox::Sandbox;
use agent_tools::ToolResult;
use files::{MAX_COMPARED, edited_in_place, named_in, names, relative, text_file};
use futures_util::future::BoxFuture;
use observed::Observed;
use std::path::{Path, PathBuf};

/// Characters of a check's output, and of a file that is shown with it or after a command that left it as it was.
const MAX_OUTPUT: usize = 1_200;
const MAX_SHOWN: usize = 2_500;
/// Files of one call that are parsed.
const MAX_PARSED: usize = 5;

/// Helps the model of one conversation, where it is to be helped.
#[derive(Debug, Default)]
pub struct Helper {
    observed: Lock<Observed>,
}

impl Assist for Helper {
    fn prompt<'a>(&'a self, at: At<'a>, prompt: NewPrompt<'a>) -> BoxFuture<'a, Result<PromptHelp>> {
        Box::pin(async move {
            self.observed.lock().begin(&prompt);
            match prompt {
                NewPrompt::Task { text, is_users } => self.task(at, text, is_users).await,
                NewPrompt::Check(check) if is_helped(at) => Ok(self.check(at, check).await),
                NewPrompt::FollowUp | NewPrompt::Check(_) | NewPrompt::Again => Ok(PromptHelp::default()),
            }
        })
    }

    fn before_call<'a>(&'a self, at: At<'a>, call: ToolUse<'a>) -> BoxFuture<'a, BeforeCall> {
        Box::pin(async move {
            if !is_helped(at) {
                return BeforeCall::Run;
            }
            match at.sandbox().await {
                Some(sandbox) => self.before(&sandbox, at, call).await,
                None => BeforeCall::Run,
            }
        })
    }

    fn after_call<'a>(
        &'a self,
        at: At<'a>,
        call: ToolUse<'a>,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, AfterCall> {
        Box::pin(async move {
            if is_helped(at) { self.after(at, call, result).await } else { AfterCall::default() }
        })
    }

    fn answer(&self, at: At<'_>, reply: &Reply) -> Option<String> {
        let has_schema = at.setup.answer_schema.is_some();
        is_helped(at).then(|| reminders::reminder(&mut self.observed.lock(), reply, has_schema))?
    }
}

/// Returns whether the model is helped, as far as that is known yet.
fn is_helped(at: At<'_>) -> bool {
    at.setup.model.is_assisted()
}

impl Helper {
    async fn task(&self, at: At<'_>, text: &str, is_users: bool) -> Result<PromptHelp> {
        let names = if is_users { names(text) } else { Vec::new() };
        if !names.is_empty() {
            at.learn_model().await?;
        }
        if !is_helped(at) {
            return Ok(PromptHelp::default());
        }
        let attached = if names.is_empty() { Vec::new() } else { named_in(&at, &names, text).await };
        Ok(PromptHelp { attached, may_start_over: true, ..PromptHelp::default() })
    }

    /// The report of a check, without its command: a model would take that for what it is to correct.
    async fn check(&self, at: At<'_>, check: &FailedCheck<'_>) -> PromptHelp {
        let FailedCheck { command, outcome, output } = *check;
        let starts_over = self.observed.lock().fails_again(command, output, true);
        let mut text = format!(
            "The check of the task fails ({outcome}). Its output:\n{}",
            head_and_tail(output.trim(), MAX_OUTPUT)
        );
        if let Some(sandbox) = at.sandbox().await {
            text.extend(failing_line::shown(&sandbox, command, output).await);
            let changed = self.observed.lock().changed.clone();
            if let Some(file) = changed
                && let Some(content) = text_file(&sandbox, &file.to_string_lossy(), MAX_COMPARED).await
            {
                text += &holds(&file, &content);
            }
        }
        text += "\n\nSend the step that corrects it.";
        PromptHelp { instead: Some(text), starts_over, ..PromptHelp::default() }
    }

    async fn before(&self, sandbox: &Sandbox, at: At<'_>, call: ToolUse<'_>) -> BeforeCall {
        if let Some(command) = call.text("command").filter(|_| call.tool == "run_commands") {
            let files = edited_in_place(sandbox, command).await;
            self.observed.lock().keep(call.id, files);
            return BeforeCall::Run;
        }
        let is_change = ["write_file", "edit_file"].contains(&call.tool);
        let Some(path) = call.text("path").filter(|_| is_change) else { return BeforeCall::Run };
        let Some(content) = text_file(sandbox, path, MAX_COMPARED).await else { return BeforeCall::Run };
        if let Some(why) = overwrite::refuse(call, &content, at.messages) {
            return BeforeCall::Refuse(why);
        }
        let edit = call.text("old").zip(call.text("new")).filter(|_| call.tool == "edit_file");
        let repaired = edit.and_then(|(old, new)| near_miss::repaired(&content, old, new));
        self.observed.lock().keep(call.id, vec![(PathBuf::from(path), content)]);
        match repaired {
            Some((old, new)) => {
                let mut meant = call.arguments.clone();
                (meant["old"], meant["new"]) = (old.into(), new.into());
                BeforeCall::Instead(meant)
            }
            None => BeforeCall::Run,
        }
    }

    async fn after(&self, at: At<'_>, call: ToolUse<'_>, result: &ToolResult) -> AfterCall {
        // A call that could not be read needs none.
        let sandbox = if call.arguments.is_object() { at.sandbox().await } else { None };
        let (note, is_idle) = match &sandbox {
            Some(sandbox) => self.note(sandbox, call, result).await,
            None => (String::new(), false),
        };
        AfterCall { note, starts_over: self.observed.lock().record(call, result, is_idle) }
    }

    /// Returns what the result of a call does not say, and whether the call left as they are the files that it was to change.
    async fn note(&self, sandbox: &Sandbox, call: ToolUse<'_>, result: &ToolResult) -> (String, bool) {
        let before = self.observed.lock().before.remove(call.id).unwrap_or_default();
        let command = call.text("command").filter(|_| call.tool == "run_commands");
        let mut note = String::new();
        let is_idle = result.ok && is_as_before(sandbox, &before).await;
        if let Some((file, content)) = before.first().filter(|_| is_idle) {
            note += match command {
                Some(_) => "\n\nNothing has changed: the expression matches no line.",
                None => "\n\nNothing has changed: the file held exactly this before.",
            };
            note += &command.map(|_| holds(file, content)).unwrap_or_default();
        }
        if result.ok && !is_idle {
            for path in observed::written(call).into_iter().take(MAX_PARSED) {
                if let Some(error) = syntax::error(sandbox, path).await {
                    note += &format!("\n\n{path} has a syntax error:\n{error}");
                }
            }
        }
        if let Some(command) = command.filter(|command| observed::is_failure(Some(command), result)) {
            note.extend(failing_line::shown(sandbox, command, &result.text).await);
        }
        (note, is_idle)
    }
}

/// Returns whether files, of which there are some, hold what they held before.
async fn is_as_before(sandbox: &Sandbox, before: &[(PathBuf, String)]) -> bool {
    for (path, content) in before {
        let now = text_file(sandbox, &path.to_string_lossy(), MAX_COMPARED).await;
        if now.as_ref() != Some(content) {
            return false;
        }
    }
    !before.is_empty()
}

fn holds(file: &Path, content: &str) -> String {
    let shown = relative(&file.to_string_lossy()).unwrap_or_else(|| file.to_owned());
    format!("\n\n{} holds:\n{}", shown.display(), head_and_tail(content.trim_end(), MAX_SHOWN))
}
