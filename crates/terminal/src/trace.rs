//! The debug trace: what happens, one line each, for stderr.

use super::edits::{Edits, counts};
use super::style::{BAD, BOLD, Colours, DIM, GOOD, WARN};
use super::wrap;
use agent_base::count_text::counted;
use agent_base::duration_text::duration_text;
use agent_base::error::{Error, Kind};
use agent_base::sanitise;
use agent_event::{Artifact, Event, PlanStep, Record, StepStatus, Usage};
use anstyle::Style;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;

/// The longest line of the ordinary trace, in columns. `-v` shows the whole.
const COLUMNS: usize = 300;

/// The level of detail of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// `-q`: only failures that are not retried.
    Quiet,
    /// One line an event.
    #[default]
    Normal,
    /// `-v`: whole arguments, results and reasoning.
    Verbose,
}

/// How tool calls are traced: `[ui] trace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceStyle {
    /// `Plain` at a terminal, `Debug` elsewhere.
    #[default]
    Auto,
    /// A line for each call and one for its result, as a debugger and a log want them.
    Debug,
    /// A line for both, and under it what changed.
    Plain,
}

/// Lines that are shown of the output of what failed.
const TAIL_LINES: usize = 5;
/// Columns that a call has in the plain style, however long its result is.
const MIN_CALL: usize = 20;

/// Turns events into the lines of the trace. Everything in them has passed the sanitiser.
#[derive(Debug)]
pub struct Trace {
    verbosity: Verbosity,
    colours: Colours,
    /// The width of the terminal; without one, lines are not broken.
    columns: Option<usize>,
    output: LineCount,
    /// Set if what happens is laid out for the eye: see [`TraceStyle::Plain`].
    is_plain: bool,
    edits: Edits,
    /// The arguments of the calls that run, by their id.
    running: HashMap<String, Value>,
}

/// Lines of the running command's output.
#[derive(Debug, Default)]
struct LineCount {
    ends: u64,
    open: bool,
    seen: bool,
}

impl LineCount {
    fn add(&mut self, data: &str) {
        self.seen = true;
        self.ends += data.bytes().filter(|byte| *byte == b'\n').count() as u64;
        self.open = if data.is_empty() { self.open } else { !data.ends_with('\n') };
    }

    /// The count, or that of `result` if no output was seen live. The first line of the result of a command that exited is
    /// its exit code.
    fn lines_or(&self, result: &str, is_exited: bool) -> u64 {
        match result {
            _ if self.seen => self.ends + u64::from(self.open),
            silent if silent.ends_with("\n(no output)") => 0,
            result => result.lines().skip(usize::from(is_exited)).count() as u64,
        }
    }
}

impl Trace {
    pub fn new(verbosity: Verbosity, colours: Colours) -> Self {
        Self {
            verbosity,
            colours,
            columns: None,
            output: LineCount::default(),
            is_plain: false,
            edits: Edits::default(),
            running: HashMap::new(),
        }
    }

    /// Sets the style in which further calls are traced, by default that for a terminal or for something else.
    pub fn set_style(&mut self, style: TraceStyle, is_terminal: bool) {
        self.is_plain = match style {
            TraceStyle::Auto => is_terminal,
            TraceStyle::Debug => false,
            TraceStyle::Plain => true,
        };
    }

    /// A trace of another session in the same form.
    #[must_use]
    pub fn like_this(&self) -> Self {
        Self { is_plain: self.is_plain, ..Self::new(self.verbosity, self.colours) }
    }

    /// Breaks the lines of further events between words at `columns`, if there are any.
    pub fn set_columns(&mut self, columns: Option<usize>) {
        self.columns = columns;
    }

    pub fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    /// The lines for an event, each ending in a line feed.
    pub fn describe(&mut self, record: &Record) -> Option<String> {
        let event = &record.event;
        if let Event::ToolOutput { data, .. } = event {
            self.output.add(data);
        }
        if let Event::ToolStarted { id, arguments, .. } = event {
            self.running.insert(id.clone(), arguments.clone());
        }
        let mut lines = match self.verbosity {
            Verbosity::Quiet => self.failure(event),
            Verbosity::Normal => self.notable(event).or_else(|| self.ordinary(event)),
            Verbosity::Verbose => {
                self.notable(event).or_else(|| self.ordinary(event)).or_else(|| self.detail(record))
            }
        };
        if self.is_plain && self.verbosity > Verbosity::Quiet {
            self.add_changes(event, &mut lines);
        }
        if let Event::ToolFinished { id, .. } = event {
            self.output = LineCount::default();
            self.running.remove(id);
        }
        lines
    }

    /// Appends what the event says about files.
    fn add_changes(&mut self, event: &Event, lines: &mut Option<String>) {
        let (columns, colours) = (self.columns, self.colours);
        let changes = match event {
            Event::ToolFinished { edits, .. } if !edits.is_empty() => {
                Some(self.edits.diffs(edits, columns, colours))
            }
            Event::Checkpoint { files, names, .. } => self.edits.others(*files, names, columns, colours),
            _ => None,
        };
        if let Some(changes) = changes {
            lines.get_or_insert_default().push_str(&changes);
        }
    }

    /// `· thought for 2.1 s: the test expects …`, where the trace is for the eye.
    pub(super) fn thought(&self, took_ms: u64, head: &str) -> Option<String> {
        if !self.is_plain || self.verbosity == Verbosity::Quiet || head.trim().is_empty() {
            return None;
        }
        let columns = self.columns.map_or(COLUMNS, |columns| columns.saturating_sub(1));
        let line = format!("· thought for {}: {}", duration_text(took_ms), head.trim_start());
        Some(self.colours.paint(DIM, sanitise::one_line(&line, columns)) + "\n")
    }

    /// Returns what is shown even with `-q`.
    fn failure(&self, event: &Event) -> Option<String> {
        match event {
            Event::LimitReached { limit } => Some(self.tagged(BAD, "LIMIT", &limit_text(limit))),
            Event::CheckFinished { exit_code, .. } if *exit_code != Some(0) => self.notable(event),
            _ => None,
        }
    }

    /// Events with a tag of their own.
    fn notable(&self, event: &Event) -> Option<String> {
        Some(match event {
            Event::Retry { attempt, wait_ms, reason } => {
                let wait = duration_text(*wait_ms);
                self.tagged(WARN, "RETRY", &format!("attempt {attempt} failed, next in {wait}: {reason}"))
            }
            Event::Notice { text } => self.notice(text),
            Event::SecretsRedacted { types, .. } => {
                let types: Vec<String> =
                    types.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
                let text = format!("not sent to the model: {} ([secret: …] in the result)", types.join(", "));
                self.notice(&text)
            }
            Event::Denied { what, rule } => self.tagged(WARN, "DENIED", &format!("{what} ({rule})")),
            Event::Compacted { before, after, .. } => self.tagged(
                WARN,
                "NOTICE",
                &format!("the conversation was shortened from about {before} to {after} tokens"),
            ),
            Event::StartedOver { attempt, .. } => {
                self.notice(&format!("the model kept failing: it starts over (attempt {attempt})"))
            }
            Event::LimitReached { .. } => return self.failure(event),
            Event::CheckFinished { command, exit_code, duration_ms, output } => {
                let (style, how) = match exit_code {
                    Some(0) => (GOOD, "passed".to_string()),
                    Some(code) => (BAD, format!("failed with exit {code}")),
                    None => (BAD, "did not finish".to_string()),
                };
                let command = sanitise::one_line(command, COLUMNS / 2);
                let time = duration_text(*duration_ms);
                self.tagged(style, "CHECK", &format!("{how} in {time}: {command}"))
                    + &self.tail(output, usize::MAX)
            }
            _ => return None,
        })
    }

    /// The line of a notice, whatever the verbosity.
    pub(super) fn notice(&self, text: &str) -> String {
        self.tagged(WARN, "NOTICE", text)
    }

    /// Events without a tag of their own.
    fn ordinary(&self, event: &Event) -> Option<String> {
        Some(match event {
            Event::Plan { steps, .. } if steps.is_empty() => return None,
            Event::Plan { steps, .. } => plan_text(steps, self.colours),
            // The plan itself was shown.
            Event::ToolStarted { name, .. } | Event::ToolFinished { name, ok: true, .. }
                if name == "update_plan" =>
            {
                return None;
            }
            Event::ToolStarted { .. } if self.is_plain => return None,
            Event::ToolStarted { name, arguments, .. } => {
                let mut lines = self.debug(&format!("{name} called{}", arguments_text(arguments)));
                if self.is_verbose() {
                    lines.push_str(&self.shortened_arguments(arguments));
                }
                lines
            }
            Event::ToolFinished { id, name, ok, exit_code, result, .. } => {
                let text = self.result_text(event);
                let has_failed = !ok || exit_code.is_some_and(|code| code != 0);
                let mut lines = match self.is_plain {
                    false => self.debug(&format!("{name} result: {text}")),
                    true => self.plain_call(name, self.running.get(id), &text, has_failed),
                };
                if self.is_verbose() {
                    lines.push_str(&self.indented(result));
                } else if has_failed && matches!(name.as_str(), "run_commands" | "run_code") {
                    // The first line tells how it ended.
                    let output = result.split_once('\n').map_or("", |(_, output)| output);
                    lines.push_str(&self.tail(output, TAIL_LINES));
                }
                lines
            }
            Event::Artifact { artifact: Artifact { id, name, media_type, bytes, .. }, .. } => {
                self.debug(&format!("artifact {id}: {name}, {media_type}, {bytes} bytes"))
            }
            // A refused one is reported by `denied`.
            Event::Connection { host, port, allowed: true, reason: Some(reason), .. } => {
                self.debug(&format!("connection to {host}:{port} failed: {reason}"))
            }
            Event::DelegateStarted { delegate, .. } => {
                self.debug(&format!("delegated to session {delegate}"))
            }
            Event::DelegateFinished { .. } => self.delegate_finished(event)?,
            Event::SessionFinished { status, turns, usage, cost, changes, delegated, .. } => {
                let files = changes.added + changes.modified + changes.deleted;
                let mut usage = usage_text(*usage, *cost);
                if let Some(delegated) = delegated {
                    usage += &format!(" (delegated: {})", usage_text(*delegated, None));
                }
                self.debug(&format!(
                    "Session finished: {status} after {}, {usage}, {} changed.",
                    counted(*turns, "turn"),
                    counted(files, "file")
                ))
            }
            _ => return None,
        })
    }

    fn delegate_finished(&self, event: &Event) -> Option<String> {
        let Event::DelegateFinished {
            delegate, status, turns, usage, cost, merged, conflicts, outside, ..
        } = event
        else {
            return None;
        };
        let mut text = format!(
            "session {delegate} {status} after {}, {}: {} merged",
            counted(*turns, "turn"),
            usage_text(*usage, *cost),
            counted(*merged, "file")
        );
        for (names, what) in [(conflicts, "conflict"), (outside, "outside of its paths")] {
            if !names.is_empty() {
                text += &format!(", {} {what}: {}", names.len(), names.join(", "));
            }
        }
        match conflicts.is_empty() && outside.is_empty() {
            true => Some(self.debug(&text)),
            false => Some(self.notice(&text)),
        }
    }

    /// Returns what is shown only with `-v`.
    fn detail(&self, record: &Record) -> Option<String> {
        Some(match &record.event {
            Event::SessionStarted { model, base_url, workspace, sandbox, .. } => {
                let session = &record.session;
                self.debug(&format!(
                    "Session {session}: model {model} at {base_url}, workspace {workspace}, sandbox {}, network {}",
                    sandbox.backend, sandbox.network
                ))
            }
            Event::Connection { host, port, allowed: true, sent, received, duration_ms, .. } => {
                let time = duration_text(*duration_ms);
                self.debug(&format!(
                    "connection to {host}:{port}: {sent} B sent, {received} B received in {time}"
                ))
            }
            Event::TurnStarted { turn } => self.debug(&format!("Turn {turn}")),
            Event::AssistantMessage { usage: Some(usage), .. } => self.debug(&usage_text(*usage, None)),
            Event::Attached { name, text } => self.debug(&format!(
                "@{}: {} attached",
                sanitise::one_line(name, 200),
                counted(text.lines().count(), "line")
            )),
            Event::Note { text } => self.debug(&format!("The model learns with the next prompt: {text}")),
            Event::CredentialUsed { credential, host, method, path } => {
                self.debug(&format!("credential {credential}: {method} {host}{path}"))
            }
            Event::CredentialRefused { credential, host, method, path, reason } => {
                self.debug(&format!("credential {credential} refused: {method} {host}{path}: {reason}"))
            }
            Event::NetworkChanged { hosts } => {
                self.debug(&format!("network: {}", sanitise::one_line(&hosts.join(", "), COLUMNS)))
            }
            Event::Checkpoint { id, files, .. } => {
                self.debug(&format!("Checkpoint {id}: {} changed", counted(*files, "file")))
            }
            _ => return None,
        })
    }

    /// `✓ run  cargo test   exit 0 in 1.2 s, 48 lines`
    fn plain_call(&self, name: &str, arguments: Option<&Value>, result: &str, has_failed: bool) -> String {
        let columns = self.columns.map_or(COLUMNS, |columns| columns.saturating_sub(1));
        let result = sanitise::one_line(result, COLUMNS);
        let room = columns.saturating_sub(wrap::width(&result) + 5).max(MIN_CALL);
        let call = sanitise::one_line(&call_text(name, arguments.unwrap_or(&Value::Null)), room);
        let (mark, style) = if has_failed { ("✗", BAD) } else { ("✓", GOOD.dimmed()) };
        let line = wrap::hanging(&format!("{call}   {result}"), 2, self.columns);
        self.colours.paint(style, format_args!("{mark} {line}")) + "\n"
    }

    /// The last lines of an output, and how many are above them.
    fn tail(&self, output: &str, count: usize) -> String {
        let output = sanitise::plain(output.trim_end());
        let all: Vec<&str> = output.lines().filter(|line| *line != "(no output)").collect();
        let above = all.len().saturating_sub(count);
        let columns = self.columns.map_or(COLUMNS, |columns| columns.saturating_sub(1));
        let more = (above > 0).then(|| format!("  │ … {} above", counted(above, "more line")));
        let lines = all.iter().skip(above).map(|line| format!("  │ {}", line.replace('\t', "    ")));
        let paint = |line: String| self.colours.paint(DIM, sanitise::truncate(&line, columns)) + "\n";
        more.into_iter().chain(lines).map(paint).collect()
    }

    fn is_verbose(&self) -> bool {
        self.verbosity == Verbosity::Verbose
    }

    fn result_text(&self, event: &Event) -> String {
        let Event::ToolFinished { name, ok, exit_code, duration_ms, truncated, result, edits, .. } = event
        else {
            return String::new();
        };
        let time = duration_text(*duration_ms);
        let lines = || {
            let count = self.output.lines_or(result, exit_code.is_some());
            // Of long output only the beginning and the end are delivered live, so there may be more.
            match (truncated, count) {
                (true, _) => format!("{count}+ lines, shortened"),
                (false, 1) => "1 line".to_string(),
                (false, _) => format!("{count} lines"),
            }
        };
        match (exit_code, ok) {
            (Some(code), _) => format!("exit {code} in {time}, {}", lines()),
            (None, false) => {
                let why = result.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
                let seen = if self.output.seen { format!(", {}", lines()) } else { String::new() };
                match why.strip_prefix("error: ") {
                    Some(error) => format!("failed in {time}: {error}{seen}"),
                    // `timed out after 5 s, 5.00 s`: how the command ended, and its time.
                    None if name == "run_commands" => {
                        let how = why.rsplit_once(", ").map_or(why, |(how, _)| how);
                        format!("{how} in {time}{seen}")
                    }
                    None => format!("failed in {time}: {why}{seen}"),
                }
            }
            (None, true) if matches!(name.as_str(), "read_file" | "job_output" | "run_commands") => {
                format!("ok in {time}, {}", lines())
            }
            (None, true) => match edits.as_slice() {
                [edit] if self.is_plain => format!("{} in {time}", counts(edit)),
                _ => format!("ok in {time}"),
            },
        }
    }

    /// The arguments that the first line shortened.
    fn shortened_arguments(&self, arguments: &Value) -> String {
        let Value::Object(arguments) = arguments else { return String::new() };
        let is_shortened = |(name, value): &(&String, &Value)| value_text(name, value) != text_of(value);
        let whole = |(name, value): (&String, &Value)| self.indented(&format!("{name}: {}", text_of(value)));
        arguments.iter().filter(is_shortened).map(whole).collect()
    }

    fn indented(&self, text: &str) -> String {
        let mut lines = String::new();
        for line in sanitise::plain(text).lines() {
            let _ = writeln!(lines, "{}", self.colours.paint(DIM, format_args!("    {line}")));
        }
        lines
    }

    fn debug(&self, text: &str) -> String {
        if self.is_plain {
            let text = wrap::hanging(&sanitise::one_line(text, COLUMNS), 0, self.columns);
            return self.colours.paint(DIM, text) + "\n";
        }
        let text = wrap::hanging(&sanitise::one_line(text, COLUMNS), "[DEBUG] ".len(), self.columns);
        self.colours.paint(DIM, format_args!("[DEBUG] {text}")) + "\n"
    }

    fn tagged(&self, style: Style, tag: &str, text: &str) -> String {
        let columns = if self.is_verbose() { usize::MAX } else { COLUMNS };
        let text = wrap::hanging(&sanitise::one_line(text, columns), tag.len() + 3, self.columns);
        format!("{} {text}\n", self.colours.paint(style, format_args!("[{tag}]")))
    }
}

/// The steps of a plan, one a line.
pub fn plan_text(steps: &[PlanStep], colours: Colours) -> String {
    let mut text = String::new();
    for step in steps {
        let line = |mark: &str| format!("  {mark} {}", sanitise::one_line(&step.text, COLUMNS));
        let line = match step.status {
            StepStatus::Completed => colours.paint(DIM, line("✓")),
            StepStatus::InProgress => colours.paint(BOLD, line("›")),
            StepStatus::Pending => line("·"),
        };
        text += &line;
        text.push('\n');
    }
    text
}

/// A call in a few words, not sanitised: `run  cargo test`.
pub fn call_text(name: &str, arguments: &Value) -> String {
    let verb = match name {
        "run_commands" => "run",
        "run_code" => "code",
        "read_file" => "read",
        "write_file" | "write_files" => "write",
        "edit_file" => "edit",
        "job_output" => "job",
        "job_kill" => "kill",
        other => other,
    };
    let field = |name: &str| arguments.get(name).map(text_of);
    let subject = match name {
        "run_code" => {
            let code = field("code").unwrap_or_default();
            Some(format!("{} {}", field("language").unwrap_or_default(), code.trim()))
        }
        "write_files" => arguments.get("files").map(|files| value_text("files", files)),
        _ => ["command", "path", "job"].into_iter().find_map(field),
    };
    let subject = subject.unwrap_or_else(|| match arguments {
        Value::Null => String::new(),
        Value::Object(map) if map.is_empty() => String::new(),
        other => other.to_string(),
    });
    format!("{verb}  {subject}").trim_end().to_owned()
}

/// ` with name: value, …` on one line, with the size of a file in place of its content.
fn arguments_text(arguments: &Value) -> String {
    match arguments {
        Value::Object(map) if map.is_empty() => String::new(),
        Value::Object(map) => {
            let describe = |(name, value): (&String, &Value)| format!("{name}: {}", value_text(name, value));
            format!(" with {}", map.iter().map(describe).collect::<Vec<_>>().join(", "))
        }
        Value::Null => String::new(),
        other => format!(" with {}", text_of(other)),
    }
}

fn value_text(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) if matches!(name, "data" | "old" | "new") => size_text(text),
        Value::Array(files) if name == "files" => {
            let paths = files.iter().filter_map(|file| file.get("path")?.as_str());
            let shown = paths.take(5).map(|path| sanitise::one_line(path, 60)).collect::<Vec<_>>();
            let more = if files.len() > shown.len() { ", …" } else { "" };
            format!("{}{more} ({})", shown.join(", "), files.len())
        }
        other => sanitise::one_line(&text_of(other), COLUMNS / 2),
    }
}

fn size_text(text: &str) -> String {
    match text.lines().count() {
        0 | 1 => format!("{} bytes", text.len()),
        lines => format!("{} bytes in {lines} lines", text.len()),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn limit_text(limit: &str) -> String {
    match limit {
        "turns" => "the limit on turns is reached".to_string(),
        "tokens" => "the limit on tokens is reached".to_string(),
        "cost" => "the limit on cost is reached".to_string(),
        "time" => "the limit on time is reached".to_string(),
        "repetition" => "the model repeats the same calls".to_string(),
        "connections" => "the limit on connections is reached: further ones are refused".to_string(),
        "connections_at_once" => {
            "too many connections are open at once: further ones are refused".to_string()
        }
        "network_bytes" => "the limit on network bytes is reached: further traffic is refused".to_string(),
        "disk" => "the limit on the sandbox's disk is reached".to_string(),
        "memory" => "the limit on the sandbox's memory is reached".to_string(),
        "bad_calls" => "the model's tool calls cannot be read".to_string(),
        "answer_tokens" => "the answer is cut off at the endpoint's maximum length".to_string(),
        other => format!("a limit is reached: {other}"),
    }
}

/// `2400 tokens in (2000 cached, 83 %), 68 out, cost 0.0123`
pub fn usage_text(usage: Usage, cost: Option<f64>) -> String {
    let cost = cost.map(|cost| format!(", cost {cost:.4}")).unwrap_or_default();
    let share = usage.cached.saturating_mul(100) / usage.input.max(1);
    let cached =
        if usage.cached > 0 { format!(" ({} cached, {share} %)", usage.cached) } else { String::new() };
    format!("{} tokens in{cached}, {} out{cost}", usage.input, usage.output)
}

/// `3.2 s · 2400 tokens in (2000 cached, 83 %), 68 out, cost 0.0123 · 2 files to apply`: what a prompt took, and what it led to.
pub fn prompt_text(took_ms: u64, usage: Usage, cost: Option<f64>, files: u64) -> String {
    let mut parts = vec![duration_text(took_ms), usage_text(usage, cost)];
    parts.extend((files > 0).then(|| format!("{} to apply", counted(files, "file"))));
    parts.join(" · ")
}

/// The error message and its hint, broken between words at `columns`. Empty if the reader of the output has closed it, as
/// pipes end that way.
pub fn failure_text(error: &Error, colours: Colours, columns: Option<usize>) -> String {
    if error.kind() == Kind::OutputClosed {
        return String::new();
    }
    let labelled = |style: Style, label: &str, text: &str| {
        let text = wrap::hanging(&sanitise::plain(text), label.len() + 1, columns);
        format!("{} {text}\n", colours.paint(style, label))
    };
    let hint = error.hint_text().map(|hint| labelled(BOLD, "hint:", hint));
    labelled(BAD.bold(), "error:", &error.to_string()) + &hint.unwrap_or_default()
}

/// The name under which progress shows a running tool.
pub(super) fn activity(name: &str, arguments: &Value) -> String {
    let subject = ["command", "path", "job", "task"].iter().find_map(|key| arguments.get(key)).map(text_of);
    match (name, subject) {
        ("run_commands", Some(command)) => format!("running {}", sanitise::one_line(&command, COLUMNS)),
        (name, Some(subject)) => {
            format!("{} {}", sanitise::one_line(name, 40), sanitise::one_line(&subject, COLUMNS))
        }
        (name, None) => sanitise::one_line(name, 40),
    }
}

/// The session as it was printed while it ran: prompts, answers, and the trace between them.
pub fn transcript(events: &[Record], verbosity: Verbosity, colours: Colours) -> String {
    transcript_with(events, Trace::new(verbosity, colours), |text| sanitise::plain(text).into_owned())
}

/// As [`transcript`], with this trace and with answers as `answer` lays them out.
pub(super) fn transcript_with(
    events: &[Record],
    mut trace: Trace,
    mut answer: impl FnMut(&str) -> String,
) -> String {
    let colours = trace.colours;
    let ended = |text: String| if text.ends_with('\n') { text } else { text + "\n" };
    let text = events.iter().filter_map(|record| match &record.event {
        Event::UserMessage { text } => {
            Some(format!("{}\n", colours.paint(BOLD, format!("> {}", sanitise::plain(text)))))
        }
        Event::AnswerStopped { text, reason } => {
            Some(format!("{}\n", sanitise::plain(format!("{text}\n[{reason}]").trim_start())))
        }
        Event::AssistantMessage { text, .. } if !text.is_empty() => {
            Some(ended(answer(text)) + &trace.describe(record).unwrap_or_default())
        }
        _ => trace.describe(record),
    });
    text.collect()
}
