//! The terminal output of a run: the answer on stdout, everything else on stderr.

use super::json::output_error;
use super::markdown::Markdown;
use super::pictures::{ArtifactFiles, Images, Pictures, is_drawable, path_line};
use super::progress::{Hold, Progress};
use super::stderr;
use super::style::{Colours, DIM};
use super::trace::{Trace, TraceStyle, Verbosity, activity, failure_text, transcript_with};
use super::wrap::{columns_of, terminal_columns};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::sanitise::{Sanitiser, plain};
use agent_event::{Artifact, Event, Events, Listener, Record, Subscription};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of output that wait while the screen is held; more is dropped. Little is printed meanwhile.
const MAX_HELD: usize = 64 << 10;

/// Shows events to the user. A cheap handle, whose clones print between the events: each method first waits until
/// every event emitted before is on the screen.
#[derive(Clone)]
pub struct Screen {
    state: Arc<Lock<ScreenState>>,
    progress: Progress,
    subscription: Subscription,
}

/// Shows the events of a session to which the shown one delegates a part of its work.
struct DelegateReader {
    /// Stands before each line.
    prefix: String,
    trace: Trace,
    screen: Screen,
}

/// The reader of the events' queue.
struct ScreenReader(Arc<Lock<ScreenState>>);

struct ScreenState {
    answer: AnswerOutput,
    /// A part of the current message has arrived.
    streamed: bool,
    trace: Trace,
    progress: Progress,
    /// Colours on stderr.
    colours: Colours,
    reasoning: Reasoning,
    pictures: Pictures,
    files: Arc<dyn ArtifactFiles>,
    /// Output for stderr that waits until the last hold is dropped.
    held: String,
    /// Number of live [`HeldScreen`] guards.
    holds: u32,
}

/// Reasoning on its way to stderr: a line at a time with `-v`, else its time and its beginning.
struct Reasoning {
    sanitiser: Sanitiser,
    line: String,
    /// Since when, and its first bytes, where it is not shown as a whole.
    folded: Option<(Instant, String)>,
}

/// Bytes that are kept of the beginning of folded reasoning.
const MAX_FOLDED: usize = 1024;

/// The destination of the model's answers.
enum AnswerOutput {
    /// A terminal: rendered, block by block.
    Rendered {
        markdown: Box<Markdown>,
        /// A part of the current message is on the screen.
        shown: bool,
    },
    /// A file or a pipe: the last answer before [`Screen::settle`] and a line feed, without what controls a terminal: `| tee` and
    /// `| less -R` show it on one.
    /// A message with tool calls is not an answer, an incomplete one is never written, and one that fails its check is
    /// followed by another.
    Raw { last: Option<String> },
    /// `--json` has stdout.
    Hidden,
}

impl Screen {
    /// The screen of `agent run` and the REPL. With `json`, stdout is not used.
    pub fn new(verbosity: Verbosity, json: bool, events: &Events, files: Arc<dyn ArtifactFiles>) -> Self {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let answer = match (json, stdout.is_terminal()) {
            (true, _) => AnswerOutput::Hidden,
            (false, false) => AnswerOutput::Raw { last: None },
            (false, true) => {
                let markdown = Markdown::new(terminal_columns(&stdout), Colours::of(&stdout));
                AnswerOutput::Rendered { markdown: Box::new(markdown), shown: false }
            }
        };
        let progress = if verbosity == Verbosity::Quiet { Progress::hidden() } else { Progress::stderr() };
        let colours = Colours::of(&stderr);
        let mut trace = Trace::new(verbosity, colours);
        trace.set_style(TraceStyle::Auto, stderr.is_terminal());
        let reasoning = Reasoning { sanitiser: Sanitiser::new(false), line: String::new(), folded: None };
        let state = ScreenState {
            answer,
            streamed: false,
            trace,
            progress: progress.clone(),
            colours,
            reasoning,
            pictures: Pictures::default(),
            files,
            held: String::new(),
            holds: 0,
        };
        let state = Arc::new(Lock::new(state));
        let subscription = events.listen(Box::new(ScreenReader(Arc::clone(&state))));
        Self { state, progress, subscription }
    }

    /// The progress display.
    pub fn progress(&self) -> &Progress {
        self.flush();
        &self.progress
    }

    /// Ends a turn: prints the rest of the answer and clears the progress.
    pub fn settle(&self) -> Result<()> {
        self.subscription.flush_blocking()?;
        let mut state = self.state.lock();
        state.progress.clear();
        state.end_reasoning();
        if let AnswerOutput::Raw { last } = &mut state.answer {
            let answer = last.take().unwrap_or_default();
            return state.print(&plain(&answer));
        }
        state.end_message("")
    }

    /// Replaces the answer that a file or pipe gets.
    pub fn replace_answer(&self, text: &str) {
        self.flush();
        if let AnswerOutput::Raw { last } = &mut self.state.lock().answer {
            *last = Some(format!("{text}\n"));
        }
    }

    /// Shows the events of session number `number` to which the shown one delegates: its trace, with that number before each line.
    pub fn listener_of_delegate(&self, number: u64) -> Box<dyn Listener> {
        let trace = self.state.lock().trace.like_this();
        let prefix = format!("  {number}: ");
        Box::new(DelegateReader { prefix, trace, screen: self.clone() })
    }

    /// Sets the condition under which pictures are drawn.
    pub fn set_images(&self, images: Images) {
        self.state.lock().pictures.images = images;
    }

    /// Sets the style in which tool calls are traced.
    pub fn set_trace(&self, style: TraceStyle) {
        self.state.lock().trace.set_style(style, io::stderr().is_terminal());
    }

    /// Draws an artifact of a session again.
    pub fn show_artifact(&self, session: &str, artifact: &Artifact) {
        self.flush();
        self.state.lock().artifact(session, artifact);
    }

    /// A part of a session, laid out for stderr as it was while it ran.
    pub fn transcript(&self, events: &[Record]) -> String {
        let stderr = io::stderr();
        let (mut trace, colours) = {
            let state = self.state.lock();
            (state.trace.like_this(), state.colours)
        };
        trace.set_columns(columns_of(&stderr));
        let mut markdown = Markdown::new(terminal_columns(&stderr), colours);
        transcript_with(events, trace, |text| markdown.push(text) + &markdown.finish())
    }

    /// Prints sanitised `text` to stderr.
    pub fn say(&self, text: &str) {
        self.flush();
        self.state.lock().say(text);
    }

    /// Prints an error and its hint.
    pub fn failure(&self, error: &Error) {
        self.flush();
        let mut state = self.state.lock();
        let text = failure_text(error, state.colours, columns_of(&io::stderr()));
        state.say(&text);
    }

    /// Prints `text` as a notice, whatever the verbosity.
    pub fn notice(&self, text: &str) {
        self.flush();
        let mut state = self.state.lock();
        state.fit_trace();
        let line = state.trace.notice(text);
        state.say(&line);
    }

    /// Reserves the screen for a prompt or question as long as the guard lives: the progress is cleared and output waits.
    pub fn hold(&self) -> HeldScreen {
        let hold = self.progress().hold();
        self.state.lock().holds += 1;
        HeldScreen { screen: self.clone(), _progress: hold }
    }

    fn flush(&self) {
        // A failure to print is reported by the next event, or by `settle`.
        let _ = self.subscription.flush_blocking();
    }
}

/// Keeps a [`Screen`] still.
pub struct HeldScreen {
    screen: Screen,
    _progress: Hold,
}

impl Drop for HeldScreen {
    fn drop(&mut self) {
        let mut state = self.screen.state.lock();
        state.holds -= 1;
        if state.holds == 0 {
            let waiting = std::mem::take(&mut state.held);
            state.say(&waiting);
        }
    }
}

impl Listener for DelegateReader {
    fn on_event(&mut self, record: &Record, _: &[u8]) -> Result<()> {
        match &record.event {
            Event::ToolStarted { name, arguments, .. } => {
                self.screen.progress().show(&format!(
                    "{}{}",
                    self.prefix.trim_start(),
                    activity(name, arguments)
                ));
            }
            // The event of the other session shows it.
            Event::SessionFinished { .. } => return Ok(()),
            _ => {}
        }
        let columns = columns_of(&io::stderr()).map(|columns| columns.saturating_sub(self.prefix.len()));
        self.trace.set_columns(columns);
        if let Some(lines) = self.trace.describe(record) {
            let prefixed = lines.split_inclusive('\n').map(|line| format!("{}{line}", self.prefix));
            self.screen.say(&prefixed.collect::<String>());
        }
        Ok(())
    }
}

impl Listener for ScreenReader {
    fn on_event(&mut self, record: &Record, _: &[u8]) -> Result<()> {
        self.0.lock().on_event(record)
    }
}

impl ScreenState {
    fn on_event(&mut self, record: &Record) -> Result<()> {
        match &record.event {
            Event::TurnStarted { .. } => self.begin_message(),
            Event::ReasoningDelta { text } => self.reasoning(text),
            Event::TextDelta { text } => {
                self.end_reasoning();
                self.text(text)?;
            }
            Event::Retry { .. } => self.discard()?,
            Event::AssistantMessage { text, tool_calls, .. } => {
                self.end_reasoning();
                self.progress.clear_output();
                self.end_message(text)?;
                if tool_calls.is_empty() {
                    self.progress.clear();
                    self.answer(text)?;
                }
            }
            Event::ToolStarted { name, arguments, .. } => self.progress.show(&activity(name, arguments)),
            Event::ToolOutput { data, .. } => self.progress.output(data),
            Event::ToolFinished { .. } => self.progress.show("thinking…"),
            Event::SessionFinished { .. } => self.progress.clear(),
            _ => {}
        }
        self.fit_trace();
        if let Some(lines) = self.trace.describe(record) {
            self.say(&lines);
        }
        if let Event::Artifact { artifact, .. } = &record.event {
            self.artifact(&record.session, artifact);
        }
        Ok(())
    }

    /// Draws an image, and prints where the file is.
    fn artifact(&mut self, session: &str, artifact: &Artifact) {
        if self.trace.verbosity() == Verbosity::Quiet {
            return;
        }
        let Some(path) = self.files.path(session, artifact) else { return };
        // A picture does not wait while a question is on the screen.
        if is_drawable(artifact) && self.holds == 0 {
            match self.files.read(session, artifact).and_then(|bytes| self.pictures.draw(bytes)) {
                Ok(Some(picture)) => self.say(&picture),
                Ok(None) => {}
                Err(why) => {
                    let line = self.trace.notice(&format!("{} is not shown: {why}", artifact.name));
                    self.say(&line);
                }
            }
        }
        self.say(&path_line(&path, self.colours));
    }

    /// The terminal may have been resized since the last event.
    fn fit_trace(&mut self) {
        self.trace.set_columns(columns_of(&io::stderr()));
    }

    fn begin_message(&mut self) {
        self.progress.show("thinking…");
        if let AnswerOutput::Rendered { markdown, .. } = &mut self.answer {
            markdown.resize(terminal_columns(&io::stdout()));
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        if !std::mem::replace(&mut self.streamed, true) {
            self.progress.show("writing…");
        }
        let AnswerOutput::Rendered { markdown, shown } = &mut self.answer else {
            self.progress.output(text);
            return Ok(());
        };
        let rendered = markdown.push(text);
        if rendered.is_empty() {
            self.progress.output(text);
            return Ok(());
        }
        *shown = true;
        // Text that is not rendered yet is shown beneath the spinner.
        self.progress.clear_output();
        self.progress.output(markdown.pending());
        self.print(&rendered)
    }

    /// Ends a message. `text` is the whole of it, for an endpoint that does not stream.
    fn end_message(&mut self, text: &str) -> Result<()> {
        let streamed = std::mem::take(&mut self.streamed);
        let AnswerOutput::Rendered { markdown, shown } = &mut self.answer else { return Ok(()) };
        let mut rendered = if streamed { String::new() } else { markdown.push(text) };
        rendered.push_str(&markdown.finish());
        *shown = false;
        self.print(&rendered)
    }

    /// Drops the part of a message that has arrived: the request is retried.
    fn discard(&mut self) -> Result<()> {
        self.end_reasoning();
        self.progress.show("waiting to retry…");
        self.streamed = false;
        let AnswerOutput::Rendered { markdown, shown } = &mut self.answer else { return Ok(()) };
        let rest = markdown.finish();
        if std::mem::take(shown) {
            self.print(&rest)?;
            let note = self.colours.paint(DIM, "(the answer is incomplete and is requested again)");
            self.say(&(note + "\n"));
        }
        Ok(())
    }

    fn answer(&mut self, text: &str) -> Result<()> {
        if let AnswerOutput::Raw { last } = &mut self.answer {
            *last = Some(format!("{text}\n"));
        }
        Ok(())
    }

    /// Shows reasoning beneath the spinner; with `-v`, prints it.
    fn reasoning(&mut self, text: &str) {
        if self.trace.verbosity() < Verbosity::Verbose {
            let (_, head) = self.reasoning.folded.get_or_insert_with(|| (Instant::now(), String::new()));
            if head.len() < MAX_FOLDED {
                head.extend(text.chars().take(MAX_FOLDED));
            }
            return self.progress.output(text);
        }
        let Reasoning { sanitiser, line, .. } = &mut self.reasoning;
        sanitiser.push(text, line);
        if let Some(end) = line.rfind('\n') {
            let complete: String = line.drain(..=end).collect();
            self.say_reasoning(&complete);
        }
    }

    fn end_reasoning(&mut self) {
        if let Some((since, head)) = self.reasoning.folded.take()
            && let Some(line) = self.trace.thought(since.elapsed().as_millis() as u64, &head)
        {
            self.say(&line);
        }
        let Reasoning { sanitiser, line, .. } = &mut self.reasoning;
        sanitiser.finish(line);
        let rest = std::mem::take(line);
        self.say_reasoning(&rest);
    }

    fn say_reasoning(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let text = self.colours.paint(DIM, text.trim_end());
            self.say(&(text + "\n"));
        }
    }

    fn print(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let write = || {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        };
        self.progress.suspend(write).map_err(output_error)
    }

    fn say(&mut self, text: &str) {
        match self.holds {
            0 if text.is_empty() => {}
            0 => self.progress.suspend(|| stderr::write(text)),
            _ if self.held.len() < MAX_HELD => self.held.push_str(text),
            _ => {}
        }
    }
}
