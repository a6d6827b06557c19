//! The turn loop: ask the model, run the tools that it calls, return their results, until it answers without a call.

use super::nudge::{self, Reminder, nudge};
use super::repetition::{Repetition, Verdict};
use super::second_opinion::Opinion;
use super::{Answer, Conversation, Moment, Spent, Stop};
use super::{asked, calculation, guesses, program_input, progress, small_model, unfinished};
use agent_base::error::{Error, Kind, Result};
use agent_event::CallForm;
use agent_event::{Event, Events};
use agent_model::dialogue::{self, awaits_answer, well_formed};
use agent_model::{Message, Progress, Reply, Request};
use agent_sandbox::{Sandbox, WORKSPACE};
use std::path::Path;

/// This many messages in a row with only invalid calls end the run.
const MAX_BAD_ROUNDS: u32 = 3;

/// What shows that the work does not advance.
#[derive(Default)]
struct Watch {
    repetition: Repetition,
    bad_rounds: u32,
    reminders: nudge::Sent,
    opinion: Opinion,
}

impl Conversation {
    /// Works on one prompt until the model answers without a tool call.
    ///
    /// # Errors
    /// `Interrupted` or `Terminated` if it was stopped (the session can continue), `Limit` if a limit was reached,
    /// else whatever failed. The conversation stays well-formed in every case: each tool call has its result, and each
    /// prompt an answer, if only the part of it that had arrived.
    pub async fn turn(&mut self, text: &str) -> Result<Answer> {
        self.task = text.to_owned();
        if self.setup.model.form() == CallForm::Compact {
            // An attempt that is given up takes nothing of what was done before the prompt.
            self.checkpoint(Moment::AtEnd).await?;
        }
        (self.task_prompt, self.attempt) = (self.prompt + 1, 1);
        self.progress = progress::Progress::default();
        self.follow_up(text).await
    }

    /// Works on a prompt about the last one, which says what is not right yet.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn).
    pub async fn follow_up(&mut self, text: &str) -> Result<Answer> {
        self.prompt += 1;
        self.progress.failures = progress::Failures::default();
        self.add_prompt(text)?;
        self.work().await
    }

    /// Works on the conversation as it is, which ends with a prompt.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn).
    pub async fn work(&mut self) -> Result<Answer> {
        self.turns = 0;
        self.setup.shared.prompt.reset();
        let timer = self.setup.limits.time.map(|time| self.interrupt.after(time));
        let result = self.rounds().await;
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

    pub(super) async fn checkpoint(&self, moment: Moment) -> Result<()> {
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
            self.close_gaps();
            return Ok(());
        }
        let reason = match error.kind() {
            Kind::Interrupted => "the user stopped this answer here".to_owned(),
            Kind::Terminated => "the session was ended here".to_owned(),
            _ => format!("this ended here without an answer: {error}"),
        };
        self.messages.push(dialogue::stopped(&text, &reason));
        self.close_gaps();
        self.emit(Event::AnswerStopped { text, reason })
    }

    fn close_gaps(&mut self) {
        let formed = well_formed(self.messages.to_vec());
        if formed[..] != self.messages[..] {
            self.messages = formed.into();
        }
    }

    async fn rounds(&mut self) -> Result<Answer> {
        let mut watch = Watch::default();
        loop {
            if let Some(answer) = self.round(&mut watch).await? {
                return Ok(answer);
            }
            if self.keeps_failing() && self.start_over().await? {
                watch = Watch { opinion: watch.opinion, ..Watch::default() };
            }
        }
    }

    pub(super) fn spent_on_prompt(&self) -> Spent {
        Spent { turns: self.turns, ..self.setup.shared.prompt.spent() }
    }

    /// One request to the model, and what it asks for; its answer, where that is one.
    async fn round(&mut self, watch: &mut Watch) -> Result<Option<Answer>> {
        if let Some(reached) = self.spent_on_prompt().reached(&self.setup.limits) {
            self.emit(Event::LimitReached { limit: reached.name.to_owned() })?;
            return Err(reached.error);
        }
        self.compact_if_needed().await?;
        let reply = self.ask_within_window().await?;
        if reply.tool_calls.is_empty() {
            let mut reminder = self.reminder(&reply).await;
            if reminder.is_none() {
                reminder = self.second_opinion(&mut watch.opinion, &reply.text).await?;
            }
            if let Some(reminder) = reminder.as_ref().filter(|reminder| watch.reminders.take(reminder)) {
                self.progress.failures.doubts += usize::from(reminder.is_doubt);
                let text = reminder.text.clone();
                self.emit(Event::Nudge { text: text.clone() })?;
                self.messages.push(Message::User { text });
                return Ok(None);
            }
            return self.ended_by(reply, reminder).map(Some);
        }
        let round = self.run_tools(&reply, &mut watch.repetition).await?;
        watch.reminders.stepped();
        self.checkpoint(Moment::BetweenTurns).await?;
        watch.bad_rounds = if round.all_bad { watch.bad_rounds + 1 } else { 0 };
        if watch.bad_rounds >= MAX_BAD_ROUNDS {
            let message = "the model's tool calls were invalid three times in a row";
            return Err(self.limit("bad_calls", message, ANOTHER_MODEL)?);
        }
        if round.verdict == Verdict::Stop {
            let message = "the model repeats the same calls with the same results";
            return Err(self.limit("repetition", message, ANOTHER_MODEL)?);
        }
        Ok(None)
    }

    /// What a message without a call comes to after which no reminder is sent.
    fn ended_by(&self, reply: Reply, reminder: Option<Reminder>) -> Result<Answer> {
        if reply.is_cut_off() {
            // Half an answer is not an answer, and its tool calls are missing.
            return Err(self.limit("answer_tokens", ANSWER_CUT_OFF, LONGER_ANSWERS)?);
        }
        if reply.text.trim().is_empty() {
            return Err(Error::endpoint("the model's answer is empty").hint(ANOTHER_MODEL));
        }
        if let Some(why) = reminder.and_then(|reminder| reminder.unfinished) {
            let message = format!("the model ended with an answer, but the task is not done: {why}");
            return Err(self.limit("unfinished", &message, ANOTHER_MODEL)?);
        }
        Ok(Answer { text: reply.text })
    }

    /// What is sent in place of accepting a message without a call.
    async fn reminder(&self, reply: &Reply) -> Option<Reminder> {
        let (form, prompt, progress) = (self.setup.model.form(), self.task.as_str(), &self.progress);
        if reply.is_cut_off() {
            return (form == CallForm::Compact).then(Reminder::cut_off);
        }
        let is_compact = form == CallForm::Compact && !reply.text.trim().is_empty();
        if is_compact
            && guesses::file_for_answer(prompt).is_some()
            && !guesses::has_looked(prompt, &self.messages)
        {
            return Some(nudge::not_looked(prompt));
        }
        if is_compact
            && asked::asks_for_output(prompt)
            && let Some(printed) = &progress.printed
            && let Ok(sandbox) = self.setup.environment.sandbox().await
            && let Some((program, step)) = unfinished::uncalled_function(&sandbox, prompt, printed).await
        {
            return Some(nudge::calls_nothing(prompt, printed, &program, &step));
        }
        if is_compact
            && let Some(reminder) = calculation::reminder(prompt, &reply.text, progress, &self.messages)
        {
            return Some(reminder);
        }
        let reminder = nudge(reply, form, prompt, progress);
        if is_compact
            && reminder.is_none()
            && let Ok(sandbox) = self.setup.environment.sandbox().await
            && let Some(file) = unfinished::unchanged_file(&sandbox, prompt, &self.messages).await
        {
            return Some(nudge::unchanged(&file, prompt));
        }
        if reminder.is_some() || form != CallForm::Compact || !progress.changed {
            return reminder;
        }
        let sandbox = self.setup.environment.sandbox().await.ok()?;
        let names = asked::files_asked_for(prompt);
        for name in &names {
            let found = sandbox.stat(&Path::new(WORKSPACE).join(name)).await;
            if found.is_err_and(|error| error.kind() == Kind::InSandbox) {
                return Some(nudge::missing_file(name, prompt, &reply.text, progress));
            }
        }
        if let Some(program) = unfinished::untried_examples(&sandbox, &self.messages).await {
            return Some(nudge::untried_examples(&program));
        }
        if let Some((path, error)) = small_model::invalid_json(&sandbox, &progress.written).await {
            return Some(nudge::invalid_json(&path, &error));
        }
        if let Some(reminder) = self.other_than_asked(&sandbox, &reply.text).await {
            return Some(reminder);
        }
        let unused = match small_model::unread_file(prompt, &self.messages) {
            None => small_model::unused_file(&sandbox, &names, &self.messages).await,
            unread => unread,
        };
        unused.map(Reminder::new)
    }

    /// The reminder that what was written, printed or answered is not what the prompt asks for.
    async fn other_than_asked(&self, sandbox: &Sandbox, answer: &str) -> Option<Reminder> {
        let prompt = self.task.as_str();
        if let Some((file, content)) = guesses::more_than_number(sandbox, prompt).await {
            return Some(nudge::more_than_number(&file, &content));
        }
        if let Some((file, other)) = guesses::whole_in_place_of_part(sandbox, prompt).await {
            return Some(nudge::whole_in_place_of_part(&file, &other));
        }
        if let Some(printed) = &self.progress.printed {
            if let Some(file) = guesses::printed_whole(sandbox, prompt, printed).await {
                return Some(nudge::printed_whole(prompt, printed, &file));
            }
            if let Some(reminder) = program_input::not_of_the_task(sandbox, prompt, printed).await {
                return Some(reminder);
            }
        }
        let written = &self.progress.written;
        if let Some((script, command, right)) = guesses::counts_long_list(sandbox, prompt, written).await {
            return Some(nudge::counts_long_list(&script, &command, &right));
        }
        if let Some(miscount) = guesses::miscounted(sandbox, prompt, &self.messages).await {
            return Some(nudge::miscounted(&miscount));
        }
        let (file, content) = guesses::differing_file(sandbox, prompt, answer).await?;
        Some(nudge::differs_from_answer(&file, &content, answer))
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
            attempt: self.attempt,
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
        let mut reply = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            reply = self.setup.model.ask(request, &mut on_progress) => reply?,
        };
        emitted?;
        if reply.is_cut_off()
            && let Some(usage) = reply.usage.as_mut().filter(|usage| usage.input == 0)
        {
            // An answer that was stopped has no count of the server's.
            usage.input = self.window.used(&self.messages);
        }
        self.arrived.clear();
        self.turns += 1;
        self.setup.shared.prompt.add(reply.usage, self.setup.price);
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
}

const ANOTHER_MODEL: &str = "another model may do better; `agent resume` continues from here";
const ANSWER_CUT_OFF: &str =
    "the model's answer was cut off at the endpoint's limit on the tokens of one answer";
const LONGER_ANSWERS: &str = "let the server give longer answers, or ask for less at a time; `agent resume` and \
                              `agent run --session ID` continue from here";

/// Turns the model's progress into events.
pub(super) fn report(events: &Events, model: &str, progress: Progress<'_>) -> Result<()> {
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
