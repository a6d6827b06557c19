//! `/race N PROMPT`: several attempts from the state of this session. It continues as the one that the user chooses.

use super::{Flow, Repl};
use crate::batch::race::{AttemptState, RaceRecord};
use crate::cli::endpoint::ManyModels;
use crate::cli::race::{RaceField, hold, rules, size};
use crate::cli::ui::confirm;
use crate::error::{Error, Result};
use crate::log::SessionId;
use crate::model::Limiter;
use crate::session::Resume;
use std::sync::Arc;

/// More answers than this are not asked about by a letter.
const MAX_ATTEMPTS: usize = 9;
const NUMBERS: [&str; MAX_ATTEMPTS] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];

impl Repl<'_> {
    pub(super) async fn race(&mut self, arguments: &str) -> Result<Flow> {
        let (count, prompt) = arguments.split_once(char::is_whitespace).unwrap_or((arguments, ""));
        let count = count.parse().ok().filter(|count| (2..=MAX_ATTEMPTS).contains(count));
        let (Some(count), false) = (count, prompt.trim().is_empty()) else {
            return Err(Error::usage("/race needs a number from 2 to 9 and a prompt")
                .hint("/race 3 fix the failing test"));
        };
        if self.session.plan().is_read_only() {
            return Err(Error::usage("the workspace is read-only until you accept the plan")
                .hint("/plan accept or /plan off first"));
        }
        let mut config = self.config.clone();
        let (models, _) = ManyModels::connect(&config, Arc::new(Limiter::new(count))).await?;
        let (mut rules, _) = rules(&mut config, prompt.trim().to_owned()).await?;
        rules.keeps_home = true;
        let forks: Vec<_> = self.session.forks(count).await?.into_iter().map(Some).collect();
        let model = self.session.conversation.model_name().to_owned();
        let field = RaceField::in_turn(count, &[model], &[]);
        let contestants = field.contestants(&models, config.limits.cost, &forks)?;
        let store = rules.store.clone();
        let record = hold(&config.options, rules, contestants).await?;
        let Some(winner) = self.choose(&record).await? else {
            self.remark(&format!(
                "this session is unchanged; `agent race show {}` compares the attempts",
                record.id
            ));
            return Ok(Flow::Continue);
        };
        record.mark_losers(&store, &winner)?;
        let resume = Resume::open(&store, winner)?;
        self.continue_as(resume).await?;
        self.remark(&format!("this is session {} now", self.session.id()));
        Ok(Flow::Continue)
    }

    /// The session of the attempt that the user chooses.
    async fn choose(&self, record: &RaceRecord) -> Result<Option<SessionId>> {
        let finished = || record.attempts.iter().filter(|attempt| attempt.state == AttemptState::Finished);
        for attempt in &record.attempts {
            let answer = attempt.work.error.as_ref().unwrap_or(&attempt.work.answer);
            let files =
                attempt.work.changes.added + attempt.work.changes.modified + attempt.work.changes.deleted;
            self.screen.say(&format!(
                "{}. {}: {}\n",
                attempt.number,
                size(files, attempt.lines),
                crate::sanitise::one_line(answer, 300)
            ));
        }
        let mut choices: Vec<&'static str> = finished().map(|attempt| NUMBERS[attempt.number - 1]).collect();
        if choices.is_empty() {
            return Ok(None);
        }
        choices.push("none");
        let chosen = confirm::ask(self.screen.progress(), "Continue with which one?", &choices).await?;
        let chosen = finished().find(|attempt| NUMBERS[attempt.number - 1] == chosen);
        chosen.and_then(|attempt| attempt.work.session.as_deref()).map(SessionId::parse).transpose()
    }
}
