//! Running the tool calls of one message.

use super::Conversation;
use super::Moment;
use super::assist::{AfterCall, BeforeCall, ToolUse};
use super::repetition::{Repetition, Verdict};
use agent_base::error::Error;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_base::secret_scan;
use agent_base::visible::without_tags;
use agent_event::Event;
use agent_event::ToolCall;
use agent_model::Message;
use agent_model::Reply;
use agent_policy::policy::{Action, FileChange};
use agent_tools::Context;
use agent_tools::Registry;
use agent_tools::Tool;
use agent_tools::ToolResult;
use futures_util::future::join_all;
use serde_json::Value;
use std::mem::take;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Calls of one message that run at the same time.
const AT_ONCE: usize = 16;

const AFTER_A_BAD_CALL: &str =
    "error: not run, because the call before it in the same message was not valid; send both again";
const CUT_OFF: &str = "error: your message was cut off at the token limit in the middle of this call; make it shorter, \
                       for example write a file in parts";

impl Conversation {
    /// Runs a call that is not the model's, but of a program that uses the session's sandbox: judged and recorded as the
    /// model's are. Dropping the future cancels it.
    pub async fn call(&self, call: &ToolCall) -> Result<ToolResult> {
        self.run_call(call, &Reply::default()).await.map(|done| done.result)
    }

    /// Runs the calls of one message in order; those that follow each other and delegate, or only read, at the same time. Every call
    /// gets a result, whatever happens.
    pub(super) async fn run_tools(&mut self, reply: &Reply, repetition: &mut Repetition) -> Result<Round> {
        let mut round = Round { all_bad: true, verdict: Verdict::Fine, starts_over: false };
        let (mut failure, mut bad) = (None, false);
        let groups = reply.tool_calls.chunk_by(|a, b| self.run_at_once(a, b));
        let groups: Vec<&[ToolCall]> = groups.flat_map(|group| group.chunks(AT_ONCE)).collect();
        for calls in groups {
            let outcomes = match &failure {
                Some(error) => skipped(calls, &not_run(error)),
                // It may build on what the bad call was to do.
                None if bad => skipped(calls, AFTER_A_BAD_CALL),
                None => match self.run_together(calls, reply).await {
                    Ok(outcomes) => outcomes,
                    Err(error) => {
                        let outcomes = skipped(calls, &not_run(&error));
                        failure = Some(error);
                        outcomes
                    }
                },
            };
            for (call, outcome) in calls.iter().zip(outcomes) {
                let text = match outcome {
                    Outcome::Skipped(text) => self.skip_call(call, text)?,
                    Outcome::Ran(Ok(done)) => {
                        round.all_bad &= done.bad;
                        bad |= done.bad;
                        round.starts_over |= done.starts_over;
                        let verdict = repetition.record(&call.name, &call.arguments, &done.fingerprint());
                        round.verdict = worse(round.verdict, verdict);
                        self.send_images(&call.id, &done.result.content);
                        done.text_with_warning(verdict)
                    }
                    Outcome::Ran(Err(error)) => {
                        let text = not_run(&error);
                        failure = failure.or(Some(error));
                        text
                    }
                };
                self.messages.push(Message::Tool { id: call.id.clone(), name: call.name.clone(), text });
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(round),
        }
    }

    /// Returns whether a call is for a tool that delegates.
    fn delegates(&self, call: &ToolCall) -> bool {
        self.setup.tools.get(&call.name).is_some_and(Tool::delegates)
    }

    /// Returns whether the calls of both run at the same time.
    fn run_at_once(&self, a: &ToolCall, b: &ToolCall) -> bool {
        let only_reads = |call: &ToolCall| self.setup.tools.get(&call.name).is_some_and(Tool::only_reads);
        self.delegates(a) && self.delegates(b) || only_reads(a) && only_reads(b)
    }

    /// Runs one call, or several at the same time.
    async fn run_together(&self, calls: &[ToolCall], reply: &Reply) -> Result<Vec<Outcome>> {
        if calls.iter().any(|call| self.delegates(call)) {
            self.record_workspace().await?;
        }
        let run = |call| async move { Outcome::Ran(self.run_call(call, reply).await) };
        Ok(join_all(calls.iter().map(run)).await)
    }

    /// Records the workspace as it is now: what other sessions begin with.
    async fn record_workspace(&self) -> Result<()> {
        let record = async {
            self.setup.environment.sandbox().await?;
            self.checkpoint(Moment::AtEnd).await
        };
        tokio::select! {
            biased;
            stop = self.interrupt.triggered() => Err(stop.error()),
            result = record => result,
        }
    }

    /// The result of a call that is not run, because of an earlier one of the same message.
    fn skip_call(&self, call: &ToolCall, text: String) -> Result<String> {
        self.emit(Event::ToolFinished {
            id: call.id.clone(),
            name: call.name.clone(),
            ok: false,
            exit_code: None,
            duration_ms: 0,
            truncated: false,
            result: text.clone(),
            content: Vec::new(),
            edits: Vec::new(),
        })?;
        Ok(text)
    }

    /// Runs one call, with its events around it.
    async fn run_call(&self, call: &ToolCall, reply: &Reply) -> Result<Done> {
        let parsed = call.arguments.parse();
        let shown = match &parsed {
            Ok((value, _)) => (*value).clone(),
            Err(_) => call.arguments.as_str().into(),
        };
        self.emit(Event::ToolStarted { id: call.id.clone(), name: call.name.clone(), arguments: shown })?;
        let started = Instant::now();
        let done = match (self.setup.tools.get(&call.name), parsed) {
            (None, _) => self.bad_call(call, unknown_tool(&call.name, &self.setup.tools)).await,
            (Some(_), Err(_)) if reply.is_cut_off() => self.bad_call(call, CUT_OFF.to_owned()).await,
            (Some(_), Err(error)) => {
                let text = format!("error: the arguments are not valid JSON: {error}; send them again");
                self.bad_call(call, text).await
            }
            // The end of a message that was cut off is not what the model meant, even if it could be repaired.
            (Some(_), Ok((_, true))) if reply.is_cut_off() => self.bad_call(call, CUT_OFF.to_owned()).await,
            (Some(tool), Ok((value, _))) => {
                let (tool, value) = self.meant(tool, value);
                self.run_if_allowed(tool, &call.id, value).await
            }
        };
        let result = match &done {
            Ok(done) => done.result.clone(),
            Err(error) => ToolResult::failure(not_run(error)),
        };
        self.emit(Event::ToolFinished {
            id: call.id.clone(),
            name: call.name.clone(),
            ok: result.ok,
            exit_code: result.exit_code,
            duration_ms: started.elapsed().as_millis() as u64,
            truncated: result.truncated,
            result: result.text,
            content: result.content,
            edits: result.edits,
        })?;
        done
    }

    /// The outcome of a call that is not valid.
    async fn bad_call(&self, call: &ToolCall, text: String) -> Result<Done> {
        let result = ToolResult::failure(text);
        let call = ToolUse { id: &call.id, tool: &call.name, arguments: &Value::Null };
        self.setup.assist.after_call(self.at(), call, &result).await;
        Ok(Done { bad: true, ..Done::of(result) })
    }

    /// The tool that a call is meant for, and its arguments.
    fn meant<'a>(&'a self, tool: &'a dyn Tool, arguments: &Value) -> (&'a dyn Tool, Value) {
        let meant =
            tool.stands_for(arguments).and_then(|(name, inner)| Some((self.setup.tools.get(&name)?, inner)));
        meant.unwrap_or_else(|| (tool, arguments.clone()))
    }

    /// Runs the call if nothing refuses it.
    async fn run_if_allowed(&self, tool: &dyn Tool, call: &str, arguments: Value) -> Result<Done> {
        match self.judge_call(tool, &arguments).await? {
            None => self.run_tool(tool, call, arguments).await,
            Some(why) => Ok(Done::of(ToolResult::failure(why))),
        }
    }

    /// Judges a call of `tool`; the user is shown the changes of files that it would make.
    async fn judge_call(&self, tool: &dyn Tool, arguments: &Value) -> Result<Option<String>> {
        let changes = async {
            // A sandbox that does not start is reported by the call itself.
            match self.setup.environment.sandbox().await {
                Ok(sandbox) => tool.changes(&sandbox, arguments).await,
                Err(_) => Vec::new(),
            }
        };
        self.judge_with(tool.name(), tool.action(arguments), arguments, changes).await
    }

    /// Judges what a call of `tool` would do: by the policy, by the user where the policy asks, and by the hooks before a tool.
    /// Why it must not be done, for the one who called.
    pub async fn judge(
        &self,
        tool: &str,
        action: Option<Action<'_>>,
        arguments: &Value,
    ) -> Result<Option<String>> {
        self.judge_with(tool, action, arguments, std::future::ready(Vec::new())).await
    }

    async fn judge_with(
        &self,
        tool: &str,
        action: Option<Action<'_>>,
        arguments: &Value,
        changes: impl Future<Output = Vec<FileChange>>,
    ) -> Result<Option<String>> {
        if let Some(why) = self.setup.environment.refusal(action.as_ref()) {
            return Ok(Some(why));
        }
        let denial = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            denial = self.setup.gate.check_with(action, changes) => denial?,
        };
        if let Some(denial) = denial {
            self.emit(Event::Denied { what: denial.what, rule: denial.rule })?;
            return Ok(Some(denial.message));
        }
        let blocked = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            blocked = self.setup.environment.before_tool(tool, arguments) => blocked?,
        };
        let Some(reason) = blocked else { return Ok(None) };
        self.emit(Event::Denied { what: tool.to_owned(), rule: format!("a hook: {reason}") })?;
        Ok(Some(format!("error: not run, because a hook of the user's refuses it: {reason}")))
    }

    /// Returns what the user's hooks say after a tool, as a note behind its result.
    pub async fn said_after(
        &self,
        tool: &str,
        arguments: &Value,
        result: &ToolResult,
    ) -> Result<Option<String>> {
        let said = tokio::select! {
            biased;
            // A tool that delegates has ended by itself, and its result counts.
            _ = self.interrupt.triggered() => None,
            said = self.setup.environment.after_tool(tool, arguments, result) => said?,
        };
        Ok(said.map(|said| format!("[a hook of the user's says: {said}]")))
    }

    async fn run_tool(&self, tool: &dyn Tool, call: &str, mut arguments: Value) -> Result<Done> {
        let run = async {
            let sandbox = self.setup.environment.sandbox().await?;
            let events = &*self.setup.events;
            let context = Context {
                sandbox: &sandbox,
                events,
                artifacts: &self.setup.artifacts,
                call,
                reach: &*self.setup.environment,
                bounds: self.setup.bounds,
            };
            let mut done = self.call_tool(tool, context, &mut arguments).await?;
            let result = &mut done.result;
            if let Some(said) = self.said_after(tool.name(), &arguments, result).await? {
                result.text += &format!("\n\n{said}");
            }
            // Programs seldom show why the proxy refused a connection.
            if let Some(note) = self.setup.environment.explain(&result.text) {
                result.text += &format!("\n\n{note}");
            }
            if !self.knows_files.swap(true, Ordering::Relaxed)
                && let Some(note) = self.setup.environment.about_files().await
            {
                result.text += &format!("\n\n{note}");
            }
            result.text = without_tags(take(&mut result.text));
            if self.setup.bounds.redact_secrets
                && let Some(redacted) = secret_scan::redact(&result.text)
            {
                events.emit(Event::SecretsRedacted { id: call.to_owned(), types: redacted.types })?;
                result.text = redacted.text;
            }
            if self.setup.bounds.redact_secrets {
                // The model does not read it, but it is in the session file.
                for edit in &mut result.edits {
                    edit.diff = secret_scan::redact(&edit.diff)
                        .map_or_else(|| take(&mut edit.diff), |redacted| redacted.text);
                }
            }
            Ok::<_, Error>(done)
        };
        if tool.delegates() {
            return run.await;
        }
        // Dropping the tool's future kills what it runs inside the sandbox.
        tokio::select! {
            biased;
            stop = self.interrupt.triggered() => Err(stop.error()),
            done = run => done,
        }
    }

    /// Calls the tool, and asks before and after that who helps the model. The arguments become those that it ran with.
    async fn call_tool(&self, tool: &dyn Tool, context: Context<'_>, arguments: &mut Value) -> Result<Done> {
        let assist = &self.setup.assist;
        let (id, name) = (context.call, tool.name());
        match assist.before_call(self.at(), ToolUse { id, tool: name, arguments }).await {
            BeforeCall::Run => {}
            BeforeCall::Refuse(why) => return Ok(Done::of(ToolResult::failure(why))),
            BeforeCall::Instead(meant) => {
                // What was judged is what the model sent.
                if let Some(why) = self.judge_call(tool, &meant).await? {
                    return Ok(Done::of(ToolResult::failure(why)));
                }
                *arguments = meant;
            }
        }
        let mut result = tool.call(context, arguments.clone()).await?;
        let call = ToolUse { id, tool: name, arguments };
        let AfterCall { note, starts_over } = assist.after_call(self.at(), call, &result).await;
        result.text += &note;
        Ok(Done { starts_over, ..Done::of(result) })
    }
}

/// The outcome of the calls of one message.
pub(super) struct Round {
    /// Set if none of them was valid.
    pub all_bad: bool,
    pub verdict: Verdict,
    /// Set if the work on the task is to begin anew.
    pub starts_over: bool,
}

/// The outcome of one call.
enum Outcome {
    Ran(Result<Done>),
    /// It was not run; this is its result.
    Skipped(String),
}

fn skipped(calls: &[ToolCall], text: &str) -> Vec<Outcome> {
    calls.iter().map(|_| Outcome::Skipped(text.to_owned())).collect()
}

/// The outcome of one call.
struct Done {
    result: ToolResult,
    /// Set if the call itself was invalid: no such tool, or arguments that are not valid.
    bad: bool,
    starts_over: bool,
}

impl Done {
    fn of(result: ToolResult) -> Self {
        Self { result, bad: false, starts_over: false }
    }

    /// The result without the duration in a command's first line, which is never the same twice.
    fn fingerprint(&self) -> String {
        let text = &self.result.text;
        let body = match self.result.exit_code {
            Some(_) => text.split_once('\n').map_or("", |(_, body)| body),
            None => text,
        };
        format!("{:?} {body}", self.result.exit_code)
    }

    fn text_with_warning(self, verdict: Verdict) -> String {
        match verdict {
            Verdict::Fine => self.result.text,
            Verdict::Warn | Verdict::Stop => format!(
                "{}\n\n[note from agent: you have made the same calls with the same results several times; \
                 try something else, or answer]",
                self.result.text
            ),
        }
    }
}

fn worse(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        (Verdict::Stop, _) | (_, Verdict::Stop) => Verdict::Stop,
        (Verdict::Warn, _) | (_, Verdict::Warn) => Verdict::Warn,
        _ => Verdict::Fine,
    }
}

/// The result of a call that did not run to its end.
fn not_run(error: &Error) -> String {
    match error.kind() {
        Kind::Interrupted | Kind::Terminated => {
            "error: interrupted by the user before it was done".to_owned()
        }
        _ => format!("error: not done: {error}"),
    }
}

fn unknown_tool(name: &str, tools: &Registry) -> String {
    let known: Vec<&str> = tools.specs().iter().map(|tool| tool.name.as_str()).collect();
    if name.is_empty() {
        return format!(
            "error: this call cannot be read: it names no tool; the tools are {}",
            known.join(", ")
        );
    }
    let name: String = name.chars().take(100).collect();
    format!("error: there is no tool {name:?}; the tools are {}", known.join(", "))
}
