//! The terminal as a session's frontend: the screen, `--json` where asked for, and the user at the keyboard.

use super::artifacts::StoredArtifacts;
use crate::approval::{Answer, Approver, Question};
use crate::cli::options::Options;
use crate::cli::ui::confirm::{self, Choice, Reply};
use crate::cli::ui::json::Json;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::screen::Screen;
use crate::cli::ui::stderr;
use crate::error::Result;
use crate::event::{Event, Events, Listener};
use crate::machine::Machine;
use crate::sanitise::one_line;
use crate::session::{Frontend, Step};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// The frontend of every command that opens a session.
pub struct Console {
    /// The screen that the user sees.
    pub screen: Screen,
    events: Arc<Events>,
    quiet: bool,
    json: bool,
    /// Set if slash commands work.
    is_repl: bool,
    /// Set if the user is there to be asked while something runs.
    asks: bool,
    user: Arc<User>,
}

impl Console {
    /// With the listeners that the options ask for.
    pub fn new(machine: &Arc<Machine>, options: &Options) -> Self {
        Self::with_answers(machine, options, !options.is_json())
    }

    /// That of a command which prints its own result: standard output gets no answers.
    pub fn without_answers(machine: &Arc<Machine>, options: &Options) -> Self {
        Self { asks: confirm::is_possible(), ..Self::with_answers(machine, options, false) }
    }

    fn with_answers(machine: &Arc<Machine>, options: &Options, prints_answers: bool) -> Self {
        let events = Arc::new(Events::new(1));
        if options.is_json() {
            events.listen(Box::new(Json::new(std::io::stdout())));
        }
        let files = Arc::new(StoredArtifacts::new(Arc::clone(machine)));
        let screen = Screen::new(options.verbosity(), !prints_answers, &events, files);
        let user = Arc::new(User {
            screen: screen.clone(),
            answers_about_hosts: AtomicBool::new(false),
            asked: Mutex::default(),
        });
        let (quiet, json) = (options.is_quiet(), options.is_json());
        Self { screen, events, quiet, json, is_repl: false, asks: false, user }
    }

    /// That of the REPL.
    pub fn repl(machine: &Arc<Machine>, options: &Options) -> Self {
        Self { is_repl: true, ..Self::of_run(machine, options) }
    }

    /// That of `agent run`: a user at the terminal can be asked, other than where a recording is played.
    pub fn of_run(machine: &Arc<Machine>, options: &Options) -> Self {
        Self { asks: confirm::is_possible() && !options.is_json(), ..Self::new(machine, options) }
    }

    /// Sets whether the user is asked about hosts that are not on the list. Only while something runs: nobody is interrupted while
    /// writing a prompt.
    pub fn ask_about_hosts(&self, ask: bool) {
        self.user.answers_about_hosts.store(ask, Ordering::Relaxed);
    }

    /// Emits notices.
    pub fn notices(&self, texts: impl IntoIterator<Item = String>) -> Result<()> {
        texts.into_iter().try_for_each(|text| self.events.emit(Event::Notice { text }))
    }
}

impl Frontend for Console {
    fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn approver(&self) -> Option<Arc<dyn Approver>> {
        confirm::is_possible().then(|| Arc::clone(&self.user) as _)
    }

    fn asks_about_network(&self) -> bool {
        self.asks
    }

    fn network_command(&self) -> &'static str {
        if self.is_repl { "/network allow" } else { "--network" }
    }

    fn forward_command(&self) -> &'static str {
        if self.is_repl { "/forward" } else { "agent forward" }
    }

    fn listeners_of_delegate(&self, number: u64) -> Vec<Box<dyn Listener>> {
        let mut listeners = vec![self.screen.listener_of_delegate(number)];
        if self.json {
            listeners.push(Box::new(Json::new(std::io::stdout())));
        }
        listeners
    }

    fn progress(&self, step: Step<'_>) {
        let progress = self.screen.progress();
        match step {
            Step::Pull(what, done, total) => progress.transfer(what, done, total),
            Step::Copy(done, total) => progress.transfer("copying the workspace", done, total),
            Step::Setup(command) => progress.show(&format!("setting up: {}", one_line(command, 60))),
            Step::Check(command) => progress.show(&format!("checking: {}", one_line(command, 60))),
        }
    }

    fn always_notice(&self, text: String) -> Result<()> {
        if self.quiet {
            self.screen.notice(&text);
        }
        self.events.emit(Event::Notice { text })
    }
}

/// The user at the keyboard.
pub struct User {
    screen: Screen,
    answers_about_hosts: AtomicBool,
    /// Held while a question is on the screen: sessions that work at the same time may ask.
    asked: Mutex<()>,
}

impl User {
    async fn answer(&self, question: &Question<'_>) -> Result<Answer> {
        if question.is_of_connection() && !self.answers_about_hosts.load(Ordering::Relaxed) {
            return Ok(Answer::No);
        }
        let _asked = self.asked.lock().await;
        let _held = self.screen.hold();
        ask(self.screen.progress(), question).await
    }
}

impl Approver for User {
    fn ask<'a>(&'a self, question: &'a Question<'a>) -> BoxFuture<'a, Result<Answer>> {
        self.answer(question).boxed()
    }
}

/// Shows what the question is about, and reads the answer.
async fn ask(progress: &Progress, question: &Question<'_>) -> Result<Answer> {
    if let Question::ToolCall(question) = question
        && question.is_cut()
    {
        progress.suspend(|| stderr::write(&format!("{}\n\n", question.what)));
    }
    let answers = question.answers();
    let choices: Vec<Choice> = answers.iter().map(|answer| choice(question, answer)).collect();
    Ok(match confirm::reply(progress, &question.to_string(), &choices, &[]).await? {
        Reply::Chosen(word) => {
            let chosen = answers.iter().zip(&choices).find(|(_, choice)| choice.word == word);
            chosen.map_or(Answer::No, |(answer, _)| answer.clone())
        }
        Reply::Words(words) => Answer::said(&words),
    })
}

/// Returns what the user types for `answer`.
fn choice(question: &Question<'_>, answer: &Answer) -> Choice {
    let about_host = question.is_of_connection();
    let (word, help) = match answer {
        Answer::Once if about_host => ("once", "this time only"),
        Answer::Once => ("yes", "this time"),
        Answer::Always if about_host => ("session", "for the rest of the session"),
        Answer::Always => ("always", "and the same for the rest of the session, without a question"),
        Answer::Project => ("project", "in every session of this project"),
        Answer::Never => {
            ("never", "refused for the rest of the session; what you say in words goes to the model")
        }
        Answer::No | Answer::Said(_) => ("no", "refused; what you say in words goes to the model"),
    };
    Choice { word, help }
}
