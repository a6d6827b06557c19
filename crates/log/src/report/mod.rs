//! A report of what a session touched: commands, files, hosts, packages, time and tokens, from its events alone.

pub mod html;
mod packages;
mod text;

pub use packages::Package;

use super::history::{Finished, History};
use agent_event::{Artifact, Changes, Event, Record, SandboxInfo, Usage};
use jiff::Timestamp;
use packages::{Installation, installations};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that a session touched. In chronological order unless noted otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// The session's id.
    pub session: String,
    pub model: String,
    pub base_url: String,
    /// The host directory.
    pub workspace: String,
    pub sandbox: SandboxInfo,
    /// The status of the last run, or `unfinished`.
    pub status: String,
    /// The error message, if it failed.
    pub error: Option<String>,
    /// The time of the first event, RFC 3339.
    pub began: String,
    /// The time of the last event, RFC 3339.
    pub ended: String,
    /// Time spent waiting for the model, in milliseconds.
    pub model_ms: u64,
    /// Time spent in tools, in milliseconds.
    pub tools_ms: u64,
    /// Requests to the model.
    pub turns: u64,
    /// Retried requests.
    pub retries: u64,
    pub usage: Usage,
    /// The changes in the workspace, as `session_finished` reports them.
    pub changes: Changes,
    pub prompts: Vec<String>,
    /// Every command.
    pub commands: Vec<Command>,
    /// Every file that a tool read or wrote, by path. What commands did to files is in `changes`.
    pub files: Vec<File>,
    /// Every host with a connection attempt, by name.
    pub hosts: Vec<Host>,
    /// The tasks that were delegated to other sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delegated: Vec<Delegated>,
    /// Denied actions.
    pub denied: Vec<Denied>,
    /// Packages that commands installed or tried to install.
    pub packages: Vec<Installed>,
    /// Files that tools produced.
    pub artifacts: Vec<Produced>,
    /// Limits that were reached.
    pub limits: Vec<String>,
    /// Checks that ran.
    pub checks: Vec<Check>,
    pub notices: Vec<String>,
}

/// A command that ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Command {
    /// The time when it ended, RFC 3339; empty if it never did.
    pub time: String,
    /// The shell text.
    pub command: String,
    /// Set if it exited with 0.
    pub ok: bool,
    /// Its exit code; `None` if it was killed.
    pub exit_code: Option<i32>,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
}

/// A file that tools touched.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct File {
    /// The path as the model wrote it, relative to the workspace if it is inside.
    pub path: String,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes and edits.
    pub writes: u64,
    /// Number of failed reads and writes.
    pub failures: u64,
}

/// A host with connection attempts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Host {
    /// Its name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Successful connections.
    pub allowed: u64,
    /// Allowed connections that failed or were cut off.
    pub failed: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Bytes sent out.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// A part of the work that was delegated.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Delegated {
    /// The session that did it.
    pub session: String,
    pub task: String,
    /// The files that it was allowed to change; empty for all.
    pub paths: Vec<String>,
    /// The status of its run, or `unfinished`.
    pub status: String,
    /// The error message, if it failed.
    pub error: Option<String>,
    /// Requests to the model.
    pub turns: u64,
    pub usage: Usage,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
    pub changes: Changes,
    /// Number of files that were merged.
    pub merged: u64,
    /// Files that were not, because of conflicts.
    pub conflicts: Vec<String>,
    /// Files that were not, because they are outside of `paths`.
    pub outside: Vec<String>,
    /// The report of that session, where its file is at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<Report>>,
}

/// A denied action.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Denied {
    /// The time, RFC 3339.
    pub time: String,
    /// The action.
    pub what: String,
    /// The rule that denied it.
    pub rule: String,
}

/// A package that a command installed or tried to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Installed {
    #[serde(flatten)]
    pub package: Package,
    /// Set if it was installed; `None` if the command's exit code does not show that.
    pub ok: Option<bool>,
}

/// A file that a tool produced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Produced {
    /// The time, RFC 3339.
    pub time: String,
    #[serde(flatten)]
    pub artifact: Artifact,
}

/// A check that ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The command.
    pub command: String,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
}

impl Report {
    /// The report on the session with these events.
    pub fn on(records: &[Record]) -> Self {
        let history = History::of(records);
        let time = |record: Option<&Record>| record.map(|record| record.time.clone()).unwrap_or_default();
        let finished = history.finished.unwrap_or(Finished {
            status: "unfinished".to_owned(),
            changes: Changes::default(),
            error: None,
        });
        let mut report = Self {
            session: history.session,
            model: history.model,
            base_url: history.base_url,
            workspace: history.workspace,
            sandbox: history.sandbox,
            turns: history.turns,
            usage: history.usage,
            status: finished.status,
            error: finished.error,
            changes: finished.changes,
            began: time(records.first()),
            ended: time(records.last()),
            ..Self::default()
        };
        let mut tally = Tally::default();
        for record in records {
            tally.take(&mut report, record);
        }
        tally.finish(&mut report);
        report
    }

    /// Adds the reports on the sessions that it delegated to, which `report_on` has by their ids.
    pub fn add_delegates(&mut self, report_on: impl Fn(&str) -> Option<Report>) {
        for part in &mut self.delegated {
            part.report = report_on(&part.session).map(Box::new);
        }
    }

    /// Recordings have no endpoint.
    fn model_and_endpoint(&self) -> String {
        if self.base_url.is_empty() {
            self.model.clone()
        } else {
            format!("{} at {}", self.model, self.base_url)
        }
    }

    /// The report as text for a terminal.
    pub fn to_text(&self) -> String {
        text::render(self)
    }

    /// The report as one HTML page that needs no network. `read` has the bytes of an artifact; images are in the page.
    pub fn to_html(&self, read: impl Fn(&Artifact) -> Option<Vec<u8>>) -> String {
        html::page(self, &read)
    }
}

/// State between events.
#[derive(Default)]
struct Tally {
    requested_at: Option<Timestamp>,
    /// The running tools, by the id of their call.
    running: BTreeMap<String, (String, Value)>,
    files: BTreeMap<String, File>,
    hosts: BTreeMap<(String, u16), Host>,
}

impl Tally {
    fn take(&mut self, report: &mut Report, record: &Record) {
        let time = record.time.clone();
        match record.event.clone() {
            Event::UserMessage { text } => report.prompts.push(text),
            Event::TurnStarted { .. } => self.requested_at = time.parse().ok(),
            Event::AssistantMessage { .. } => {
                let waited = self.requested_at.take().zip(time.parse::<Timestamp>().ok());
                let waited =
                    waited.map_or(0, |(requested, answered)| answered.duration_since(requested).as_millis());
                report.model_ms = report.model_ms.saturating_add(u64::try_from(waited).unwrap_or(0));
            }
            Event::Retry { .. } => report.retries += 1,
            Event::Notice { text } => report.notices.push(text),
            Event::ToolStarted { id, name, arguments } => {
                self.running.insert(id, (name, arguments));
            }
            Event::ToolFinished { id, ok, exit_code, duration_ms, .. } => {
                report.tools_ms = report.tools_ms.saturating_add(duration_ms);
                if let Some((name, arguments)) = self.running.remove(&id) {
                    self.tool(report, &name, &arguments, Some(Ended { time, ok, exit_code, duration_ms }));
                }
            }
            Event::DelegateStarted { delegate, task, paths, .. } => report.delegated.push(Delegated {
                session: delegate,
                task,
                paths,
                status: "unfinished".to_owned(),
                ..Delegated::default()
            }),
            event @ Event::DelegateFinished { .. } => end_part(report, event),
            Event::Denied { what, rule } => report.denied.push(Denied { time, what, rule }),
            Event::Connection { host, port, allowed, sent, received, reason, .. } => {
                let entry =
                    self.hosts.entry((host.clone(), port)).or_insert(Host { host, port, ..Host::default() });
                *match (allowed, reason) {
                    (true, None) => &mut entry.allowed,
                    (true, Some(_)) => &mut entry.failed,
                    (false, _) => &mut entry.refused,
                } += 1;
                entry.sent = entry.sent.saturating_add(sent);
                entry.received = entry.received.saturating_add(received);
            }
            Event::Artifact { artifact, .. } => report.artifacts.push(Produced { time, artifact }),
            Event::LimitReached { limit } => report.limits.push(limit),
            Event::CheckFinished { command, exit_code, duration_ms, .. } => {
                report.checks.push(Check { command, exit_code, duration_ms });
            }
            _ => {}
        }
    }

    fn tool(&mut self, report: &mut Report, name: &str, arguments: &Value, ended: Option<Ended>) {
        let ok = ended.as_ref().is_some_and(|ended| ended.ok);
        let text = |key: &str| arguments.get(key).and_then(Value::as_str);
        match name {
            "run_commands" => {
                let command = text("command").unwrap_or_default().to_owned();
                let outcome = |installation: &Installation| installation.outcome(ended.as_ref()?.ok);
                let packages = installations(&command).into_iter().map(|installation| Installed {
                    ok: outcome(&installation),
                    package: installation.package,
                });
                report.packages.extend(packages);
                let ended = ended.unwrap_or_default();
                let Ended { time, exit_code, duration_ms, .. } = ended;
                report.commands.push(Command { time, command, ok, exit_code, duration_ms });
            }
            "read_file" => self.file(text("path"), ok, |file| file.reads += 1),
            "write_file" | "edit_file" => self.file(text("path"), ok, |file| file.writes += 1),
            "write_files" => {
                let files = arguments.get("files").and_then(Value::as_array).into_iter().flatten();
                for file in files {
                    self.file(file.get("path").and_then(Value::as_str), ok, |file| file.writes += 1);
                }
            }
            _ => {}
        }
    }

    fn file(&mut self, path: Option<&str>, ok: bool, touch: impl Fn(&mut File)) {
        let Some(path) = path else { return };
        let path = path.strip_prefix("/workspace/").unwrap_or(path);
        let path = path.strip_prefix("./").unwrap_or(path).to_owned();
        let file = self.files.entry(path.clone()).or_insert(File { path, ..File::default() });
        if ok { touch(file) } else { file.failures += 1 }
    }

    fn finish(mut self, report: &mut Report) {
        // Tools that were running when the session was killed.
        for (name, arguments) in std::mem::take(&mut self.running).into_values() {
            self.tool(report, &name, &arguments, None);
        }
        report.files = self.files.into_values().collect();
        report.hosts = self.hosts.into_values().collect();
    }
}

/// Notes how a delegated part ended.
fn end_part(report: &mut Report, event: Event) {
    if let Event::DelegateFinished {
        delegate,
        status,
        turns,
        usage,
        duration_ms,
        changes,
        merged,
        conflicts,
        outside,
        error,
        ..
    } = event
        && let Some(part) = report.delegated.iter_mut().find(|part| part.session == delegate)
    {
        (part.status, part.error, part.turns, part.usage) = (status, error, turns, usage);
        (part.duration_ms, part.changes, part.merged) = (duration_ms, changes, merged);
        (part.conflicts, part.outside) = (conflicts, outside);
    }
}

/// The outcome of a tool's run.
#[derive(Default)]
struct Ended {
    time: String,
    ok: bool,
    exit_code: Option<i32>,
    duration_ms: u64,
}
