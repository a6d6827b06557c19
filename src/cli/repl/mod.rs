//! `agent`: the REPL. A line is a prompt, `!` and a command for the sandbox, or a slash command.

mod add_dir;
mod artifacts;
mod changes;
mod context;
mod copy;
mod earlier;
mod export;
mod file_names;
mod jobs;
mod last;
mod mcp;
mod network;
mod plan;
mod race;
mod resume;
mod rewind;
mod shell;
mod slash;
mod status;
mod transfer;
mod written_commands;

use super::console::Console;
use super::endpoint::{self, Connected};
use super::first_start;
use super::open::{StartingPoint, drive, open, resumed_options};
use super::refuse::{of_a_run, refuse};
use super::session_end::{after_failure, after_repl};
use super::signals::{End, until_interrupted, with_signals};
use crate::agent::Stop;
use crate::cli::config::Config;
use crate::cli::options::Options;
use crate::cli::ui::confirm;
use crate::cli::ui::input::{CommandHelp, Input, InputLine, PROMPT};
use crate::cli::ui::notify::{self, Title};
use crate::cli::ui::screen::Screen;
use crate::cli::ui::style::{BOLD, Colours, DIM, HEADING};
use crate::cli::ui::terminal::mode::{self, TerminalMode};
use crate::cli::ui::typing::Typing;
use crate::cli::ui::wrap::{columns_of, hanging};
use crate::error::{Error, Kind, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::plain_file::{self, Links};
use crate::sanitise;
use crate::session::{MAX_IMAGE, Resume, Session};
use file_names::WorkspaceFiles;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};

/// The REPL on a new session, which begins with `prompt`; ends with `session_finished` whatever happens.
pub async fn repl(machine: &Arc<Machine>, options: &Options, prompt: Option<String>) -> ExitCode {
    drive(options, Console::repl(machine, options), async |console, slot| {
        start(machine, options, None, prompt, console, slot).await
    })
    .await
}

/// The REPL on a session, which begins with `prompt`.
pub async fn start(
    machine: &Arc<Machine>,
    options: &Options,
    resume: Option<Resume>,
    prompt: Option<String>,
    console: &Arc<Console>,
    slot: &mut Option<Session>,
) -> Result<()> {
    if !confirm::is_possible() {
        let of_session = resume.map_or_else(String::new, |resume| format!(" --session {}", resume.id));
        let hint = format!("without one: agent run{of_session} \"your task\"");
        return Err(Error::usage("the REPL needs a terminal").hint(hint));
    }
    refuse(&[("--json", options.is_json())], "in the REPL", "agent run --json \"your task\"")?;
    refuse(&of_a_run(options), "in the REPL", "ask for it there, /apply writes; or agent run \"your task\"")?;
    let mut config = Config::load(machine, &resumed_options(machine, resume.as_ref(), options)?)?;
    if resume.is_none() {
        first_start::choose(&mut config, console).await?;
    }
    let Connected { settings, notices } = endpoint::model(&mut config, resume.as_ref()).await?;
    let session = slot.insert(open(&config, settings, StartingPoint::of(resume), console).await?);
    console.notices(notices)?;
    if options.plan.plan {
        session.begin_plan().await?;
    }
    let repl = Repl {
        config: &config,
        console,
        screen: &console.screen,
        colours: Colours::of(&std::io::stderr()),
        written: written_commands::written(machine, &config.workspace),
        typing: Typing::of(prompt),
        images: Vec::new(),
        session,
        forwarded: jobs::Forwarded::default(),
        has_told_of_ignored: AtomicBool::new(false),
    };
    match repl.run().await {
        Ok(()) => {
            jobs::report_end(console, session).await?;
            after_repl(console, session).await
        }
        Err(error) => {
            // Changes by `!CMD` since the last prompt are not recorded yet.
            after_failure(console, session).await;
            Err(error)
        }
    }
}

/// A conversation at the prompt.
struct Repl<'a> {
    config: &'a Config,
    console: &'a Arc<Console>,
    screen: &'a Screen,
    /// Colours on stderr.
    colours: Colours,
    /// The commands that the user and the project wrote.
    written: Vec<written_commands::WrittenCommand>,
    /// The text that was typed and not sent.
    typing: Typing,
    /// The images that were pasted into the line that is being handled.
    images: Vec<PathBuf>,
    session: &'a mut Session,
    forwarded: jobs::Forwarded,
    /// Set if the user knows that ignored files stay in the sandbox.
    has_told_of_ignored: AtomicBool,
}

/// The next step of the REPL.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Flow {
    Continue,
    /// With this prompt.
    Prompt(String),
    /// With this prompt, which an MCP server wrote.
    PromptOfServer(String),
    Leave,
}

impl Repl<'_> {
    async fn run(mut self) -> Result<()> {
        let _mode = TerminalMode::working();
        let _signals = job_control(self.screen.clone())?;
        self.welcome().await;
        self.session.prepare_prompt();
        let mut end = End::new()?;
        self.session.servers().remember().await;
        let directory = self.config.machine.data_dir()?;
        let (editing, programs) = (self.config.file.ui.editing, self.config.programs());
        let names = WorkspaceFiles::new(&self.config.workspace, &self.config.directory);
        let mut input = Input::open(self.helps(), editing, &directory, programs, Arc::new(names))?;
        let mut interrupts = 0;
        let has_title = self.config.file.ui.title.unwrap_or(true) && !self.config.options.is_quiet();
        let title = if has_title { Title::save() } else { None };
        loop {
            title.iter().for_each(|title| title.show(&self.title("")));
            let line = match self.typing.pop() {
                Some(line) => self.echo(line),
                None => self.read(&mut input, &mut end).await?,
            };
            self.images = input.take_images();
            notify::saw_input();
            interrupts = if line == InputLine::Interrupted { interrupts + 1 } else { 0 };
            match line {
                InputLine::End => return Ok(()),
                InputLine::Interrupted if interrupts > 1 => self.remark("Ctrl-D or /exit leaves"),
                InputLine::Interrupted => {}
                InputLine::Rewind(text) => {
                    self.typing.set_text(&text);
                    self.enter("/rewind").await?;
                }
                InputLine::ShowLast(text) => {
                    self.typing.set_text(&text);
                    self.enter("/last").await?;
                }
                InputLine::Text(text) => {
                    title.iter().for_each(|title| title.show(&self.title(" …")));
                    if self.enter(text.trim()).await? == Flow::Leave {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits for a line at the prompt, which begins with what was typed before.
    async fn read(&mut self, input: &mut Input, end: &mut End) -> Result<InputLine> {
        let text = self.typing.take_text();
        self.console.ask_about_hosts(false);
        let status = self.status().await;
        // Servers may have been asked for their prompts since.
        input.set_commands(self.helps());
        let held = self.screen.hold();
        let line = unless_terminated(end, input.read(&text, status)).await?;
        self.console.ask_about_hosts(true);
        drop(held);
        Ok(line)
    }

    fn helps(&self) -> Vec<CommandHelp> {
        slash::helps(&self.written, self.session.servers())
    }

    /// A line that waited in the queue, shown as if it were typed now.
    fn echo(&self, line: String) -> InputLine {
        let shown = sanitise::plain(&line).replace('\n', "\n  ");
        self.screen.say(&format!("{}{shown}\n", self.colours.paint(HEADING, PROMPT)));
        InputLine::Text(line)
    }

    /// `agent: project`, and what it does.
    fn title(&self, doing: &str) -> String {
        let workspace = self.config.workspace.file_name().unwrap_or_default();
        format!("agent: {}{doing}", workspace.to_string_lossy())
    }

    async fn welcome(&self) {
        let workspace = self.config.workspace.display().to_string();
        let title = self.colours.paint(BOLD, format_args!("agent {}", env!("CARGO_PKG_VERSION")));
        let model = sanitise::one_line(self.session.conversation.model_name(), 100);
        let backend = self.session.startup().backend().name();
        self.screen.say(&format!("{title}: {model}, sandbox {backend}\n"));
        self.remark(&sanitise::one_line(&workspace, 200));
        match self.session.is_resumed() {
            true => self.show_resumed(),
            false => self.remark_on_unapplied().await,
        }
        self.remark_on_plan();
        self.remark("/help lists the commands, !CMD runs one in the sandbox, Ctrl-D leaves");
    }

    /// Handles one line. A failure is reported, and the REPL continues if it can.
    async fn enter(&mut self, text: &str) -> Result<Flow> {
        let result = match text.strip_prefix('!') {
            _ if text.is_empty() => Ok(Flow::Continue),
            Some(command) => {
                let command = command.trim();
                let result = self.interruptible(Entered::Shell(command)).await;
                match &result {
                    Err(error) if error.kind() == Kind::Interrupted => {
                        self.note(&format!("The user ran `{command}` in the sandbox and stopped it."))?;
                    }
                    _ => {}
                }
                result
            }
            None => match (slash::parse(text), written_commands::expand(&self.written, text)) {
                (Some(Ok((command, arguments))), _) => {
                    self.interruptible(Entered::Slash(command, arguments)).await
                }
                (Some(Err(_)), Some(prompt)) => Ok(Flow::Prompt(prompt)),
                (Some(Err(_)), None) if text.starts_with("/mcp__") => {
                    self.interruptible(Entered::PromptOfServer(text)).await
                }
                (Some(Err(error)), None) => Err(error),
                (None, _) => self.turn(text, PromptAuthor::User).await,
            },
        };
        let mut result = result;
        // What is said about a plan is a prompt too, and leads to the next plan.
        loop {
            result = match result {
                Ok(Flow::Prompt(prompt)) => self.turn(&prompt, PromptAuthor::User).await,
                Ok(Flow::PromptOfServer(prompt)) => self.turn(&prompt, PromptAuthor::Server).await,
                _ => break,
            };
        }
        self.screen.settle()?;
        notify::notify(match &result {
            Ok(_) => "the turn has ended",
            Err(_) => "the turn has failed",
        });
        match result {
            Err(error) if matches!(error.kind(), Kind::Terminated | Kind::OutputClosed) => Err(error),
            Err(error) if error.kind() == Kind::Interrupted => {
                self.remark("stopped; the session continues");
                Ok(Flow::Continue)
            }
            Err(error) => {
                self.screen.failure(&error);
                Ok(Flow::Continue)
            }
            Ok(flow) => Ok(flow),
        }
    }

    /// A prompt. The turn itself observes the interrupt, so that the conversation stays well-formed.
    async fn turn(&mut self, text: &str, author: PromptAuthor) -> Result<Flow> {
        for image in std::mem::take(&mut self.images) {
            self.attach(&image)?;
        }
        let interrupt = self.session.conversation.interrupt();
        interrupt.reset();
        let updates = self.session.plan().updates();
        let (started, before) = (Instant::now(), self.session.conversation.total());
        let progress = self.screen.progress().clone();
        let stop = || interrupt.trigger(Stop::Interrupted);
        let work = async {
            let session = &mut *self.session;
            let answer = async {
                match author {
                    PromptAuthor::User => session.prompt(text).await,
                    PromptAuthor::Server => session.prompt_of_program(text).await,
                }
            };
            tokio::select! {
                biased;
                answer = answer => answer,
                never = self.typing.listen(&progress, &stop) => match never {},
            }
        };
        let result = with_signals(interrupt.clone(), work).await;
        self.typing.end(&progress, interrupt.reason().is_some());
        self.report_prompt(started, &before).await?;
        result?;
        self.ask_about_plan(updates).await
    }

    /// Sends an image of this machine, which the user has pasted, with the prompt.
    fn attach(&mut self, image: &Path) -> Result<()> {
        let name = image.file_name().unwrap_or_default().to_string_lossy();
        let bytes = plain_file::read(image, MAX_IMAGE + 1, Links::Follow)
            .map_err(|error| Error::usage(format!("{} cannot be read", image.display())).caused_by(error))?;
        self.session.attach_image(&name, &bytes)
    }

    /// Anything else: Ctrl-C drops its future, which kills its command in the sandbox.
    async fn interruptible(&mut self, entered: Entered<'_>) -> Result<Flow> {
        let interrupt = self.session.conversation.interrupt();
        interrupt.reset();
        until_interrupted(interrupt, self.perform(entered)).await
    }

    async fn perform(&mut self, entered: Entered<'_>) -> Result<Flow> {
        match entered {
            Entered::Shell(command) => self.shell(command).await.map(|()| Flow::Continue),
            Entered::Slash(command, arguments) => (command.run)(self, arguments).await,
            Entered::PromptOfServer(text) => self.prompt_of_server(text).await,
        }
    }

    /// Tells the model with the next prompt what the user did.
    fn note(&mut self, text: &str) -> Result<()> {
        self.session.conversation.note(text)
    }

    /// A dimmed line, or several where the window is narrow. `text` must be sanitised.
    fn remark(&self, text: &str) {
        let text = hanging(text, 0, columns_of(&std::io::stderr()));
        self.screen.say(&format!("{}\n", self.colours.paint(DIM, text)));
    }
}

/// A line that is not a prompt.
enum Entered<'t> {
    Shell(&'t str),
    Slash(&'static slash::SlashCommand, &'t str),
    PromptOfServer(&'t str),
}

/// The author of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromptAuthor {
    User,
    Server,
}

/// The result of `read`, unless the process is terminated first. A closed terminal counts as termination, whether it is
/// seen as a signal, an end of input or an error.
async fn unless_terminated(
    end: &mut End,
    read: impl Future<Output = Result<InputLine>>,
) -> Result<InputLine> {
    let read = tokio::select! {
        read = read => read,
        () = end.wait() => return Err(Stop::Terminated.error()),
    };
    match read {
        Ok(InputLine::End) | Err(_) if !confirm::is_possible() => Err(Stop::Terminated.error()),
        read => read,
    }
}

/// Has Ctrl-Z stop the process with the terminal as a shell expects it, and `fg` continue with it as it was. Listens until
/// the result is dropped.
fn job_control(screen: Screen) -> Result<JobControl> {
    let receive =
        |kind| signal(kind).map_err(|error| Error::unexpected("signals cannot be received").caused_by(error));
    // Between two lines Ctrl-C ends nothing.
    let interrupt = receive(SignalKind::interrupt())?;
    let mut stop = receive(SignalKind::from_raw(libc::SIGTSTP))?;
    let mut resume = receive(SignalKind::from_raw(libc::SIGCONT))?;
    Ok(JobControl(tokio::spawn(async move {
        let _interrupt = interrupt;
        loop {
            tokio::select! {
                _ = stop.recv() => {
                    let _paused = screen.progress().pause();
                    mode::suspend(&mut resume).await;
                }
                _ = resume.recv() => mode::set_again(),
            }
        }
    })))
}

struct JobControl(tokio::task::JoinHandle<()>);

impl Drop for JobControl {
    fn drop(&mut self) {
        self.0.abort();
    }
}
