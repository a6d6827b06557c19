//! The turn loop: ask the model, run the tools that it calls, return their results, until it answers without a call.

use super::assist::{At, FailedCheck, NewPrompt, PromptHelp};
use super::blank::{is_blank, placeholder};
use super::repetition::{Repetition, Verdict};
use super::{Answer, Conversation, Moment, Spent, Stop};
use agent_base::error::Error;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_event::Event;
use agent_model::Ending;
use agent_model::Message;
use agent_model::Reply;

/// This many messages in a row with only invalid calls end the run.
const MAX_BAD_ROUNDS: u32 = 3;

const CONTINUE: &str = "Continue with the next step, or answer in a sentence.";
const NO_CALL: &str =
    "Your message announced a tool call but contained none. Send the call again, or answer.";
const EMPTY: &str = "Your message was empty. Continue with the next step, or answer.";
const ANOTHER_MODEL: &str = "another model may do better; `agent resume` continues from here";
const ANSWER_CUT_OFF: &str =
    "the model's answer was cut off at the endpoint's limit on the tokens of one answer";
const LONGER_ANSWERS: &str = "let the server give longer answers, or ask for less at a time; `agent resume` and \
                              `agent run --session ID` continue from here";

const UNKNOWN_END: &str =
    "the answer may not be complete; `agent resume` and `agent run --session ID` continue from here";
/// Characters of an endpoint's own word that are repeated.
const MAX_WORD: usize = 100;

/// The signs that the work does not advance.
#[derive(Default)]
struct Watch {
    repetition: Repetition,
    bad_rounds: u32,
    /// Set if an empty message was pointed out to the model.
    was_empty: bool,
    /// Set if a message without the call that it announces was pointed out to the model.
    lacked_calls: bool,
}

/// The consequence of a message of the model's.
enum Next {
    Ask,
    Answer(Answer),
    StartOver,
}

impl Conversation {
    /// Works on one prompt until the model answers without a tool call.
    ///
    /// # Errors
    /// `Interrupted` or `Terminated` if it was stopped (the session can continue), `Limit` if a limit was reached,
    /// else whatever failed. The conversation stays well-formed in every case: each tool call has its result, and each
    /// prompt an answer, if only the part of it that had arrived.
    pub async fn turn(&mut self, text: &str) -> Result<Answer> {
        self.begin(text, true).await
    }

    /// Works on a prompt that a server wrote: what it names is not the user's choice.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn).
    pub async fn turn_of_server(&mut self, text: &str) -> Result<Answer> {
        self.begin(text, false).await
    }

    async fn begin(&mut self, text: &str, is_users: bool) -> Result<Answer> {
        let added = self.put(NewPrompt::Task { text, is_users }).await?;
        if added.may_start_over {
            // An attempt that is given up takes nothing of what was done before the prompt.
            self.checkpoint(Moment::AtEnd).await?;
        }
        added.attached.into_iter().try_for_each(|(name, text)| self.attach(&name, &text))?;
        (self.task_prompt, self.attempt) = (self.prompt + 1, 1);
        self.work_on(text).await
    }

    /// Works on a prompt about the last one, which says what is not right yet.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn).
    pub async fn follow_up(&mut self, text: &str) -> Result<Answer> {
        self.put(NewPrompt::FollowUp).await?;
        self.work_on(text).await
    }

    /// Works on a failed check of the last prompt, with `report` about it. The answer, where the work began anew.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn).
    pub async fn check_failed(&mut self, check: &FailedCheck<'_>, report: String) -> Result<Option<Answer>> {
        let added = self.put(NewPrompt::Check(check)).await?;
        if added.starts_over && self.start_over().await? {
            return self.work().await.map(Some);
        }
        let text = added.instead.map_or(report, |text| self.redacted(text));
        self.work_on(&text).await.map(|_| None)
    }

    /// Returns what becomes of a prompt; nothing, where it is interrupted: then the work on it stops.
    pub(super) async fn put(&self, prompt: NewPrompt<'_>) -> Result<PromptHelp> {
        tokio::select! {
            biased;
            _ = self.interrupt.triggered() => Ok(PromptHelp::default()),
            added = self.setup.assist.prompt(self.at(), prompt) => added,
        }
    }

    pub(super) fn at(&self) -> At<'_> {
        At { setup: &self.setup, messages: &self.messages }
    }

    async fn work_on(&mut self, text: &str) -> Result<Answer> {
        self.prompt += 1;
        self.add_prompt(text)?;
        self.work().await
    }

    /// Works on the conversation as it is, which ends with a prompt.
    async fn work(&mut self) -> Result<Answer> {
        self.turns = 0;
        self.setup.shared.prompt.reset();
        let timer = self.setup.limits.time.map(|time| self.interrupt.after(time));
        let result = self.rounds().await;
        if let Some(timer) = timer {
            timer.abort();
        }
        if let Err(error) = &result {
            // What failed first is what to report.
            let _ = self.keep_stopped(error);
        }
        // The changes of a prompt are recorded, however it ended.
        let result = match self.checkpoint(Moment::AtEnd).await {
            Err(error) if result.is_ok() => Err(error),
            _ => result,
        };
        if let Err(error) = &result
            && self.interrupt.reason() == Some(Stop::OutOfTime)
            && error.kind() == Kind::Limit
        {
            self.emit(Event::LimitReached { limit: "time".to_owned() })?;
        }
        result
    }

    pub(super) async fn checkpoint(&self, moment: Moment) -> Result<()> {
        self.setup.environment.checkpoint(self.prompt, moment).await
    }

    pub(super) fn spent_on_prompt(&self) -> Spent {
        Spent { turns: self.turns, ..self.setup.shared.prompt.spent() }
    }

    async fn rounds(&mut self) -> Result<Answer> {
        let mut watch = Watch::default();
        loop {
            match self.round(&mut watch).await? {
                Next::Answer(answer) => return Ok(answer),
                Next::StartOver if self.start_over().await? => watch = Watch::default(),
                Next::Ask | Next::StartOver => {}
            }
        }
    }

    /// One request to the model, and what it asks for.
    async fn round(&mut self, watch: &mut Watch) -> Result<Next> {
        if let Some(reached) = self.spent_on_prompt().reached(&self.setup.limits) {
            self.emit(Event::LimitReached { limit: reached.name.to_owned() })?;
            return Err(reached.error);
        }
        self.compact_if_needed().await?;
        let reply = self.ask_within_window().await?;
        if reply.tool_calls.is_empty() {
            let Some(text) = self.asked_on(&reply, watch) else {
                // Some servers end every answer as if a call followed: of them this is asked once in a session.
                self.announces_always |= watch.lacked_calls && reply.lacks_calls();
                return self.ended_by(reply).map(Next::Answer);
            };
            self.emit(Event::Nudge { text: text.clone() })?;
            self.messages.push(Message::User { text });
            return Ok(Next::Ask);
        }
        let round = self.run_tools(&reply, &mut watch.repetition).await?;
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
        Ok(if round.starts_over { Next::StartOver } else { Next::Ask })
    }

    /// Returns the question for the model instead of accepting a message without a call; `None` to accept it.
    fn asked_on(&self, reply: &Reply, watch: &mut Watch) -> Option<String> {
        let nothing = match is_blank(&reply.text) {
            true => Some(EMPTY.to_owned()),
            false => {
                placeholder(&reply.text).map(|text| format!("Your message was only {text:?}. {CONTINUE}"))
            }
        };
        if let Some(text) = nothing.filter(|_| !reply.is_cut_off()) {
            let was_empty = std::mem::replace(&mut watch.was_empty, true);
            return (!was_empty).then_some(text);
        }
        if reply.lacks_calls() && !self.announces_always && !std::mem::replace(&mut watch.lacked_calls, true)
        {
            return Some(NO_CALL.to_owned());
        }
        self.setup.assist.answer(self.at(), reply)
    }

    /// Decides how a turn without a tool call ends.
    fn ended_by(&self, reply: Reply) -> Result<Answer> {
        if reply.is_cut_off() {
            // Half an answer is not an answer, and its tool calls are missing.
            return Err(self.limit("answer_tokens", ANSWER_CUT_OFF, LONGER_ANSWERS)?);
        }
        if is_blank(&reply.text) {
            return Err(Error::endpoint("the model's answer is empty").hint(ANOTHER_MODEL));
        }
        if let Some(text) = placeholder(&reply.text) {
            return Err(Error::endpoint(format!("the model's answer is only {text:?}")).hint(ANOTHER_MODEL));
        }
        if let (Ending::Unknown, Some(word)) = (reply.ending(), &reply.finish_reason) {
            let word: String = word.chars().take(MAX_WORD).collect();
            let message =
                format!("the endpoint ended the model's answer for a reason that is not known: {word:?}");
            return Err(Error::endpoint(message).hint(UNKNOWN_END));
        }
        Ok(Answer { text: reply.text })
    }

    fn limit(&self, name: &str, message: &str, hint: &str) -> Result<Error> {
        self.emit(Event::LimitReached { limit: name.to_owned() })?;
        Ok(Error::new(Kind::Limit, message).hint(hint))
    }
}
