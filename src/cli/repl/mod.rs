//! `agent`: the REPL. A line is a wish, `!` and a command for the sandbox, or a slash command.

mod network;
mod review;
mod shell;
mod slash;
mod transfer;

use super::apply::{after_failure, after_talk};
use super::open::{Audience, Opened, Opening, finish, with_signals};
use super::past::Past;
use super::refuse::{of_a_run, refuse};
use super::run::answering;
use super::signals::End;
use crate::agent::Stop;
use crate::cli::config::Config;
use crate::cli::options::{Options, ResumeArgs};
use crate::cli::ui::confirm;
use crate::cli::ui::input::{self, Input, Line};
use crate::cli::ui::sanitise;
use crate::cli::ui::screen::Screen;
use crate::cli::ui::style::{BOLD, Colours, DIM};
use crate::cli::ui::trace::failure_text;
use crate::error::{Error, Kind, Result};
use crate::event::Event;
use crate::exit_code::ExitCode;
use crate::log::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens a session and talks, until the person leaves; ends with `session_finished` whatever happens.
pub async fn repl(options: &Options) -> ExitCode {
    let audience = Audience::new(options);
    let mut opened = None;
    let result = start(options, None, &audience, &mut opened).await;
    finish(&audience, opened, &result).await
}

/// Goes on with an earlier session.
pub async fn resume(options: &Options, arguments: ResumeArgs) -> ExitCode {
    let audience = Audience::new(options);
    let mut opened = None;
    let result = match earlier(options, arguments) {
        Ok(past) => start(options, Some(past), &audience, &mut opened).await,
        Err(error) => Err(error),
    };
    finish(&audience, opened, &result).await
}

/// The session that is meant: by its id, the newest of all, or the newest of this workspace.
fn earlier(options: &Options, arguments: ResumeArgs) -> Result<Past> {
    let store = Store::open()?;
    let id = match arguments.id {
        Some(id) => store.find(&id)?,
        None if arguments.last => store.last(None)?,
        None => store.last(Some(&Config::load(options)?.workspace))?,
    };
    Past::open(id)
}

async fn start(
    options: &Options,
    past: Option<Past>,
    audience: &Audience,
    slot: &mut Option<Opened>,
) -> Result<()> {
    if !confirm::is_possible() {
        return Err(Error::usage("the REPL needs a terminal").hint("without one: agent run \"your wish\""));
    }
    refuse(&[("--json", options.json)], "in the REPL", "agent run --json \"your wish\"")?;
    refuse(&of_a_run(options), "in the REPL", "ask for it there, /apply writes; or agent run \"your wish\"")?;
    let options = past.as_ref().map_or_else(|| Ok(options.clone()), |past| past.options(options))?;
    let mut config = Config::load(&options)?;
    let (answering, notices) = answering(&mut config, past.as_ref()).await?;
    let last_prompt = past.as_ref().map(|past| past.history.last_prompt.clone());
    let opening = Opening { config: &config, answering, audience, past, like: None, answer_schema: None };
    let opened = slot.insert(opening.open().await?);
    for text in notices {
        audience.events.emit(Event::Notice { text })?;
    }
    match talk(&config, audience, opened, last_prompt).await {
        Ok(()) => after_talk(&config, audience, opened).await,
        Err(error) => {
            // What `!CMD` did since the last wish is recorded nowhere yet.
            after_failure(&config, audience, opened).await;
            Err(error)
        }
    }
}

/// Talks on an open session, until the person leaves.
async fn talk(
    config: &Config,
    audience: &Audience,
    opened: &mut Opened,
    last_prompt: Option<String>,
) -> Result<()> {
    let at_prompt = Arc::new(AtomicBool::new(false));
    opened.startup.gateway().ask_with(network::ask(audience.screen.clone(), Arc::clone(&at_prompt)));
    let colours = Colours::of(&std::io::stderr());
    let screen = &audience.screen;
    Repl { config, screen, colours, network_note: None, at_prompt, last_prompt, opened }.talk().await
}

/// A conversation at the prompt.
struct Repl<'a> {
    config: &'a Config,
    screen: &'a Screen,
    /// Colours on stderr.
    colours: Colours,
    /// What the model has to be told of the network with the next wish.
    network_note: Option<String>,
    /// Whether the person is writing.
    at_prompt: Arc<AtomicBool>,
    /// What the person said last in the session that is gone on with.
    last_prompt: Option<String>,
    opened: &'a mut Opened,
}

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoOn,
    Leave,
}

impl Repl<'_> {
    async fn talk(mut self) -> Result<()> {
        let _mode = input::without_control_echo();
        self.welcome();
        let mut end = End::new()?;
        let mut input = Input::open(slash::helps())?;
        let mut interrupts = 0;
        loop {
            let held = self.screen.hold();
            self.at_prompt.store(true, Ordering::Relaxed);
            let (back, line) = unless_over(&mut end, input.read()).await?;
            input = back;
            self.at_prompt.store(false, Ordering::Relaxed);
            drop(held);
            interrupts = if line == Line::Interrupted { interrupts + 1 } else { 0 };
            match line {
                Line::End => return Ok(()),
                Line::Interrupted if interrupts > 1 => self.remark("Ctrl-D or /exit leaves"),
                Line::Interrupted => {}
                Line::Text(text) => {
                    if self.enter(text.trim()).await? == Flow::Leave {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn welcome(&self) {
        let session = &self.opened.session;
        let workspace = self.config.workspace.display().to_string();
        let title = self.colours.paint(BOLD, format_args!("agent {}", env!("CARGO_PKG_VERSION")));
        let model = sanitise::one_line(session.model_name(), 100);
        let backend = self.opened.startup.backend().name();
        self.screen.say(&format!("{title}: {model}, sandbox {backend}\n"));
        self.remark(&sanitise::one_line(&workspace, 200));
        if let Some(wish) = &self.last_prompt {
            let id = &self.opened.id;
            self.remark(&format!("session {id} goes on; you said last: {}", sanitise::one_line(wish, 100)));
        }
        self.remark("/help lists the commands, !CMD runs one in the sandbox, Ctrl-D leaves");
    }

    /// Does what was entered. What fails is said, and the conversation goes on, unless nothing can go on.
    async fn enter(&mut self, text: &str) -> Result<Flow> {
        let result = match text.strip_prefix('!') {
            _ if text.is_empty() => Ok(Flow::GoOn),
            Some(command) => self.interruptible(Entered::Shell(command.trim())).await,
            None => match slash::parse(text) {
                Some(parsed) => match parsed {
                    Ok((command, arguments)) => self.interruptible(Entered::Slash(command, arguments)).await,
                    Err(error) => Err(error),
                },
                None => self.turn(text).await,
            },
        };
        self.screen.settle()?;
        match result {
            Err(error) if matches!(error.kind(), Kind::Terminated | Kind::OutputClosed) => Err(error),
            Err(error) if error.kind() == Kind::Interrupted => {
                self.remark("stopped; the session goes on");
                Ok(Flow::GoOn)
            }
            Err(error) => {
                self.screen.say(&failure_text(&error, self.colours));
                Ok(Flow::GoOn)
            }
            Ok(flow) => Ok(flow),
        }
    }

    /// A wish. The turn itself looks at the interrupt, so that the conversation stays well-formed.
    async fn turn(&mut self, text: &str) -> Result<Flow> {
        let interrupt = self.opened.session.interrupt();
        interrupt.reset();
        let note = self.network_note.take().map(|note| format!("\n\n[network: {note}]")).unwrap_or_default();
        with_signals(interrupt, self.opened.session.turn(&(text.to_owned() + &note)))
            .await
            .map(|_| Flow::GoOn)
    }

    /// Anything else: Ctrl-C drops it, which ends its command in the sandbox.
    async fn interruptible(&mut self, entered: Entered<'_>) -> Result<Flow> {
        let interrupt = self.opened.session.interrupt();
        interrupt.reset();
        let work = async {
            tokio::select! {
                biased;
                stop = interrupt.triggered() => Err(stop.error()),
                result = self.perform(entered) => result,
            }
        };
        with_signals(interrupt.clone(), work).await
    }

    async fn perform(&mut self, entered: Entered<'_>) -> Result<Flow> {
        match entered {
            Entered::Shell(command) => self.shell(command).await.map(|()| Flow::GoOn),
            Entered::Slash(command, arguments) => (command.run)(self, arguments).await,
        }
    }

    /// One dimmed line. `text` must be harmless.
    fn remark(&self, text: &str) {
        self.screen.say(&format!("{}\n", self.colours.paint(DIM, text)));
    }
}

/// What was entered, where it is no wish.
enum Entered<'t> {
    Shell(&'t str),
    Slash(&'static slash::Command, &'t str),
}

/// What `read` gives, unless the end comes first. The end of a terminal is one too, however it is noticed.
async fn unless_over(
    end: &mut End,
    read: impl Future<Output = Result<(Input, Line)>>,
) -> Result<(Input, Line)> {
    let read = tokio::select! {
        read = read => read,
        () = end.wait() => return Err(Stop::Terminated.error()),
    };
    match read {
        Ok((_, Line::End)) | Err(_) if !confirm::is_possible() => Err(Stop::Terminated.error()),
        read => read,
    }
}
