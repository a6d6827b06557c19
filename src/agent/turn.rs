//! The turn loop: ask the model, run the tools that it calls, return their results, until it answers without a call.

use super::nudge::{self, nudge};
use super::repetition::{Repetition, Verdict};
use super::{Answer, Conversation, Moment, Spent, Stop, small_model};
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Events, ToolCall};
use crate::model::dialogue::{self, awaits_answer, well_formed};
use crate::model::{CallForm, Message, Progress, Reply, Request};
use crate::secret_scan;
use crate::tools::{Context, Registry, Tool, ToolResult};
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// This many messages in a row with only invalid calls end the run.
const MAX_BAD_ROUNDS: u32 = 3;

impl Conversation {
    /// Works on one prompt until the model answers without a tool call.
    ///
    /// # Errors
    /// `Interrupted` or `Terminated` if it was stopped (the session can continue), `Limit` if a limit was reached,
    /// else whatever failed. The conversation stays well-formed in every case: each tool call has its result, and each
    /// prompt an answer, if only the part of it that had arrived.
    pub async fn turn(&mut self, text: &str) -> Result<Answer> {
        self.spent = Spent::default();
        self.prompt += 1;
        self.add_prompt(text)?;
        let timer = self.setup.limits.time.map(|time| self.interrupt.after(time));
        let result = self.rounds(text).await;
        if let Some(timer) = timer {
            timer.abort();
        }
        let result = match result {
            Err(error) => {
                // What failed first is what to report.
                let _ = self.keep_stopped(&error);
                Err(error)
            }
            answer => answer,
        };
        let result = self.checkpointed(result).await;
        if let Err(error) = &result
            && self.interrupt.reason() == Some(Stop::OutOfTime)
            && error.kind() == Kind::Limit
        {
            self.emit(Event::LimitReached { limit: "time".to_owned() })?;
        }
        result
    }

    /// Records the changes of a prompt, however it ended. The first failure is returned.
    async fn checkpointed(&mut self, result: Result<Answer>) -> Result<Answer> {
        match self.checkpoint(Moment::AtEnd).await {
            Err(error) if result.is_ok() => Err(error),
            _ => result,
        }
    }

    async fn checkpoint(&self, moment: Moment) -> Result<()> {
        self.setup.environment.checkpoint(self.prompt, moment).await
    }

    fn add_prompt(&mut self, text: &str) -> Result<()> {
        self.emit(Event::UserMessage { text: text.to_owned() })?;
        let written = text;
        let text = self.notes.before(text);
        self.prompts.push(self.prompt, written, &text);
        let images = std::mem::take(&mut self.images);
        if !images.is_empty() {
            self.setup.model.add_images(&text, images);
        }
        self.messages.push(Message::User { text });
        Ok(())
    }

    /// Ends a prompt that failed so that the next one can follow: what had arrived of the answer is kept, with the reason.
    fn keep_stopped(&mut self, error: &Error) -> Result<()> {
        let text = std::mem::take(&mut self.arrived);
        if !awaits_answer(&self.messages) {
            // A call may lack its result if that could not be recorded.
            self.messages = well_formed(std::mem::take(&mut self.messages));
            return Ok(());
        }
        let reason = match error.kind() {
            Kind::Interrupted => "the user stopped this answer here".to_owned(),
            Kind::Terminated => "the session was ended here".to_owned(),
            _ => format!("this ended here without an answer: {error}"),
        };
        self.messages.push(dialogue::stopped(&text, &reason));
        self.messages = well_formed(std::mem::take(&mut self.messages));
        self.emit(Event::AnswerStopped { text, reason })
    }

    async fn rounds(&mut self, prompt: &str) -> Result<Answer> {
        let mut repetition = Repetition::default();
        let (mut bad_rounds, mut nudges, mut progress) = (0, Vec::new(), nudge::Progress::default());
        loop {
            if let Some(reached) = self.spent.reached(&self.setup.limits) {
                self.emit(Event::LimitReached { limit: reached.name.to_owned() })?;
                return Err(reached.error);
            }
            self.compact_if_needed().await?;
            let reply = self.ask_within_window().await?;
            if reply.tool_calls.is_empty() {
                if reply.is_cut_off() {
                    // Half an answer is not an answer, and its tool calls are missing.
                    return Err(self.limit("answer_tokens", ANSWER_CUT_OFF, LONGER_ANSWERS)?);
                }
                match nudge(&reply, self.setup.model.form(), prompt, &progress) {
                    Some(text) if nudges.len() < nudge::MAX_NUDGES && !nudges.contains(&text) => {
                        nudges.push(text.clone());
                        self.emit(Event::Nudge { text: text.clone() })?;
                        self.messages.push(Message::User { text });
                        continue;
                    }
                    _ if reply.text.trim().is_empty() => {
                        return Err(Error::endpoint("the model's answer is empty").hint(ANOTHER_MODEL));
                    }
                    _ => return Ok(Answer { text: reply.text }),
                }
            }
            let round = self.run_tools(&reply, &mut repetition, &mut progress).await?;
            self.checkpoint(Moment::BetweenTurns).await?;
            bad_rounds = if round.all_bad { bad_rounds + 1 } else { 0 };
            if bad_rounds >= MAX_BAD_ROUNDS {
                let message = "the model's tool calls were invalid three times in a row";
                return Err(self.limit("bad_calls", message, ANOTHER_MODEL)?);
            }
            if round.verdict == Verdict::Stop {
                let message = "the model repeats the same calls with the same results";
                return Err(self.limit("repetition", message, ANOTHER_MODEL)?);
            }
        }
    }

    fn limit(&self, name: &str, message: &str, hint: &str) -> Result<Error> {
        self.emit(Event::LimitReached { limit: name.to_owned() })?;
        Ok(Error::new(Kind::Limit, message).hint(hint))
    }

    /// One request to the model; its message becomes part of the conversation.
    pub(super) async fn ask(&mut self) -> Result<Reply> {
        self.emit(Event::TurnStarted { turn: self.total.turns + 1 })?;
        let request = Request {
            messages: &self.messages,
            tools: self.setup.tools.specs(),
            answer_schema: self.setup.answer_schema.as_ref(),
        };
        let (events, model) = (&self.setup.events, self.setup.model.name());
        let (mut emitted, arrived) = (Ok(()), &mut self.arrived);
        arrived.clear();
        let mut on_progress = |progress: Progress<'_>| {
            match progress {
                Progress::Text(text) => arrived.push_str(text),
                Progress::Retry { .. } => arrived.clear(),
                _ => {}
            }
            if emitted.is_ok() {
                emitted = report(events, model, progress);
            }
        };
        let reply = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            reply = self.setup.model.ask(request, &mut on_progress) => reply?,
        };
        emitted?;
        self.arrived.clear();
        self.spent.add(reply.usage, self.setup.price);
        self.total.add(reply.usage, self.setup.price);
        if let Some(usage) = reply.usage {
            self.window.count(usage.input, &self.messages);
        }
        self.emit(Event::AssistantMessage {
            text: reply.text.clone(),
            reasoning: reply.reasoning.clone(),
            tool_calls: reply.tool_calls.clone(),
            finish_reason: reply.finish_reason.clone(),
            usage: reply.usage,
        })?;
        self.messages.push(Message::Assistant {
            text: reply.text.clone(),
            reasoning: reply.reasoning.clone(),
            tool_calls: reply.tool_calls.clone(),
        });
        Ok(reply)
    }

    /// Runs the calls of one message in order. Every call gets a result, whatever happens.
    async fn run_tools(
        &mut self,
        reply: &Reply,
        repetition: &mut Repetition,
        progress: &mut nudge::Progress,
    ) -> Result<Round> {
        let mut round = Round { all_bad: true, verdict: Verdict::Fine };
        let (mut failure, mut bad) = (None, false);
        for call in &reply.tool_calls {
            let text = match &failure {
                Some(error) => self.skip_call(call, not_run(error))?,
                // It may build on what the bad call was to do.
                None if bad => self.skip_call(call, AFTER_A_BAD_CALL.to_owned())?,
                None => match self.run_call(call, reply).await {
                    Ok(done) => {
                        round.all_bad &= done.bad;
                        bad = done.bad;
                        progress.record(call, done.result.ok);
                        let verdict = repetition.record(&call.name, &call.arguments, &done.fingerprint());
                        round.verdict = worse(round.verdict, verdict);
                        self.send_images(&call.id, &done.result.content);
                        done.text_with_warning(verdict)
                    }
                    Err(error) => {
                        let text = not_run(&error);
                        failure = Some(error);
                        text
                    }
                },
            };
            self.messages.push(Message::Tool { id: call.id.clone(), name: call.name.clone(), text });
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(round),
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
            (None, _) => Ok(Done::bad(unknown_tool(&call.name, &self.setup.tools))),
            (Some(_), Err(_)) if reply.is_cut_off() => Ok(Done::bad(CUT_OFF.to_owned())),
            (Some(_), Err(error)) => {
                Ok(Done::bad(format!("error: the arguments are not valid JSON: {error}; send them again")))
            }
            // The end of a message that was cut off is not what the model meant, even if it could be repaired.
            (Some(_), Ok((_, true))) if reply.is_cut_off() => Ok(Done::bad(CUT_OFF.to_owned())),
            (Some(tool), Ok((value, _))) => self.run_if_allowed(tool, &call.id, value.clone()).await,
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
        })?;
        done
    }

    /// Runs the call if the policy allows it, or the user if the policy asks.
    async fn run_if_allowed(&self, tool: &dyn Tool, call: &str, arguments: Value) -> Result<Done> {
        let action = tool.action(&arguments);
        if let Some(why) = self.setup.environment.refusal(action.as_ref()) {
            return Ok(Done { result: ToolResult::failure(why), bad: false });
        }
        let denial = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            denial = self.setup.gate.check(action) => denial?,
        };
        if let Some(denial) = denial {
            self.emit(Event::Denied { what: denial.what, rule: denial.rule })?;
            return Ok(Done { result: ToolResult::failure(denial.message), bad: false });
        }
        let blocked = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            blocked = self.setup.environment.before_tool(tool.name(), &arguments) => blocked?,
        };
        match blocked {
            None => self.run_tool(tool, call, arguments).await,
            Some(reason) => {
                self.emit(Event::Denied { what: tool.name().to_owned(), rule: format!("a hook: {reason}") })?;
                let text = format!("error: not run, because a hook of the user's refuses it: {reason}");
                Ok(Done { result: ToolResult::failure(text), bad: false })
            }
        }
    }

    async fn run_tool(&self, tool: &dyn Tool, call: &str, arguments: Value) -> Result<Done> {
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
            let mut result = self.call_tool(tool, context, arguments.clone()).await?;
            if let Some(said) = self.setup.environment.after_tool(tool.name(), &arguments, &result).await? {
                result.text += &format!("\n\n[a hook of the user's says: {said}]");
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
            if self.setup.bounds.redact_secrets
                && let Some(redacted) = secret_scan::redact(&result.text)
            {
                events.emit(Event::SecretsRedacted { id: call.to_owned(), types: redacted.types })?;
                result.text = redacted.text;
            }
            Ok::<_, Error>(result)
        };
        // Dropping the tool's future kills what it runs inside the sandbox.
        tokio::select! {
            biased;
            stop = self.interrupt.triggered() => Err(stop.error()),
            result = run => Ok(Done { result: result?, bad: false }),
        }
    }
}

impl Conversation {
    /// Calls the tool; with small models, with what they would have to look up first.
    async fn call_tool(&self, tool: &dyn Tool, context: Context<'_>, arguments: Value) -> Result<ToolResult> {
        if self.setup.model.form() != CallForm::Compact {
            return tool.call(context, arguments).await;
        }
        let (sandbox, messages) = (context.sandbox, &self.messages);
        if let Some(refusal) = small_model::refuse_overwrite(sandbox, tool.name(), &arguments, messages).await
        {
            return Ok(ToolResult::failure(refusal));
        }
        let mut result = tool.call(context, arguments.clone()).await?;
        if !result.ok
            && let Some(files) =
                small_model::named_files(sandbox, tool.name(), &arguments, &result.text, messages).await
        {
            result.text += &files;
        }
        Ok(result)
    }
}

const ANOTHER_MODEL: &str = "another model may do better; `agent resume` continues from here";
const ANSWER_CUT_OFF: &str =
    "the model's answer was cut off at the endpoint's limit on the tokens of one answer";
const LONGER_ANSWERS: &str = "let the server give longer answers, or ask for less at a time; `agent resume` and \
                              `agent run --session ID` continue from here";
const AFTER_A_BAD_CALL: &str =
    "error: not run, because the call before it in the same message was not valid; send both again";
const CUT_OFF: &str = "error: your message was cut off at the token limit in the middle of this call; make it shorter, \
                       for example write a file in parts";

/// The outcome of the calls of one message.
struct Round {
    /// Whether none of them was valid.
    all_bad: bool,
    verdict: Verdict,
}

/// The outcome of one call.
struct Done {
    result: ToolResult,
    /// Whether the call itself was invalid: no such tool, or arguments that are not valid.
    bad: bool,
}

impl Done {
    fn bad(text: String) -> Self {
        Self { result: ToolResult::failure(text), bad: true }
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

/// Turns the model's progress into events.
fn report(events: &Events, model: &str, progress: Progress<'_>) -> Result<()> {
    events.emit(match progress {
        Progress::Text(text) => Event::TextDelta { text: text.to_owned() },
        Progress::Reasoning(text) => Event::ReasoningDelta { text: text.to_owned() },
        Progress::Notice(text) => Event::Notice { text: text.to_owned() },
        Progress::Form { form, reason } => {
            events.emit(Event::Notice {
                text: format!("tools are offered in the {form} form: {reason} ([models.NAME] form in config.toml sets it)"),
            })?;
            Event::CallForm { model: model.to_owned(), form, reason: reason.to_owned() }
        }
        Progress::Retry { attempt, wait, reason } => {
            Event::Retry { attempt, wait_ms: wait.as_millis() as u64, reason: reason.to_owned() }
        }
    })
}
