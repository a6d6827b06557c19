//! Hooks: commands of the user's own that run at fixed moments of a session.
//!
//! They come from the user's configuration alone. In the sandbox, what the model has done there can influence them; what has to hold
//! whatever the model does runs on the host.

mod host;
mod inside;

use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_base::sanitise::one_line;
use agent_base::shorten::head_and_tail;
use agent_event::{Event, Events};
use agent_sandbox::Sandbox;
use agent_workspace::ChangeSet;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The exit code with which a hook blocks what is about to happen.
const BLOCKS: i32 = 2;
/// Bytes of each of its outputs that are kept.
const MAX_OUTPUT: usize = 64 << 10;
/// Characters of a reason, and of what the model reads.
const MAX_SAID: usize = 4_000;
/// Files of an apply that hooks read the names of.
const MAX_FILES: usize = 10_000;
/// The time limit for a hook for which the user sets none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Before the first prompt of a process. What it writes to standard output is a note for the model.
    SessionStart,
    /// Before a tool runs.
    BeforeTool,
    /// After a tool has run.
    AfterTool,
    /// Before changes are written to the user's files.
    BeforeApply,
    /// At the end of a process that worked on the session.
    SessionEnd,
}

impl Moment {
    /// Its name in config.toml and in the JSON that the hook reads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionStart => "session_start",
            Self::BeforeTool => "before_tool",
            Self::AfterTool => "after_tool",
            Self::BeforeApply => "before_apply",
            Self::SessionEnd => "session_end",
        }
    }
}

/// Where a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookLocation {
    /// In the session's sandbox.
    #[default]
    Sandbox,
    /// On this machine, beside config.toml.
    Host,
}

/// A command of the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The moment at which it runs.
    pub moment: Moment,
    /// The command that the shell runs.
    pub command: String,
    /// The side that it runs on.
    pub place: HookLocation,
    /// The tools that it is about; of all where there are none.
    pub tools: Vec<String>,
    /// The time limit for one run.
    pub timeout: Duration,
    /// Set if it blocks also where it fails or takes too long.
    pub required: bool,
}

impl Hook {
    fn is_about(&self, moment: Moment, tool: Option<&str>) -> bool {
        let names_tool =
            tool.is_none_or(|tool| self.tools.is_empty() || self.tools.iter().any(|name| name == tool));
        self.moment == moment && names_tool
    }
}

/// The hooks of a session.
pub struct Hooks {
    list: Vec<Hook>,
    session: String,
    workspace: PathBuf,
    machine: Arc<Machine>,
    events: Arc<Events>,
    /// Failures that the user knows of.
    reported: Lock<HashSet<String>>,
}

/// The exit code of a hook, and its output.
struct Ran {
    /// `None`: it was killed.
    exit_code: Option<i32>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// The output of the hooks of a moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The reason of a hook that blocks what is about to happen.
    pub blocked: Option<String>,
    /// Their standard output.
    pub output: String,
}

impl Hooks {
    /// Those of the session `session` on `workspace`.
    pub fn new(
        list: Vec<Hook>,
        session: String,
        workspace: PathBuf,
        machine: Arc<Machine>,
        events: Arc<Events>,
    ) -> Self {
        Self { list, session, workspace, machine, events, reported: Lock::default() }
    }

    /// All of them.
    pub fn list(&self) -> &[Hook] {
        &self.list
    }

    /// Returns whether there is anything to run.
    pub fn has(&self, moment: Moment, tool: Option<&str>) -> bool {
        self.list.iter().any(|hook| hook.is_about(moment, tool))
    }

    /// Returns whether what there is to run needs a sandbox.
    pub fn needs_sandbox(&self, moment: Moment, tool: Option<&str>) -> bool {
        self.list.iter().any(|hook| hook.is_about(moment, tool) && hook.place == HookLocation::Sandbox)
    }

    /// Runs the hooks of a moment in order, until one blocks. `details` is part of the JSON object that they read; those that
    /// need a sandbox where there is none have failed, but at the end of a session, which may have needed none.
    ///
    /// # Errors
    /// The session's file cannot be written.
    pub async fn run(
        &self,
        moment: Moment,
        tool: Option<&str>,
        details: Value,
        sandbox: Option<&Sandbox>,
    ) -> Result<Said> {
        let mut said = Said::default();
        let mut input = json!({
            "event": moment.as_str(),
            "session": self.session,
            "workspace": self.workspace.display().to_string(),
        });
        if let (Value::Object(input), Value::Object(details)) = (&mut input, details) {
            input.extend(details);
        }
        let input = input.to_string();
        for hook in self.list.iter().filter(|hook| hook.is_about(moment, tool)) {
            let ran = match (hook.place, sandbox) {
                (HookLocation::Host, _) => {
                    host::run(hook, &self.workspace, &self.machine, input.as_bytes()).await
                }
                (HookLocation::Sandbox, Some(sandbox)) => inside::run(hook, sandbox, input.as_bytes()).await,
                (HookLocation::Sandbox, None) if moment == Moment::SessionEnd => continue,
                (HookLocation::Sandbox, None) => Err("there is no sandbox".to_owned()),
            };
            let failure = match ran {
                Ok(Ran { exit_code: Some(BLOCKS), stderr, .. }) => {
                    said.blocked = Some(reason(&stderr));
                    return Ok(said);
                }
                Ok(Ran { exit_code: Some(0), stdout, .. }) => {
                    said.output += &text(&stdout);
                    continue;
                }
                Ok(Ran { exit_code, stderr, .. }) => {
                    let how =
                        exit_code.map_or("it was killed".to_owned(), |code| format!("exit code {code}"));
                    format!("{how}: {}", text(&stderr).trim())
                }
                Err(why) => why,
            };
            if hook.required {
                let command = one_line(&hook.command, 60);
                said.blocked =
                    Some(format!("`{command}` failed, and is required: {}", one_line(&failure, 200)));
                return Ok(said);
            }
            self.report(hook, &failure)?;
        }
        said.output = head_and_tail(said.output.trim(), MAX_SAID).to_string();
        Ok(said)
    }

    /// The failure of a hook that is not required is reported once, and blocks nothing.
    fn report(&self, hook: &Hook, why: &str) -> Result<()> {
        let (command, why) = (one_line(&hook.command, 60), one_line(why, 200));
        let place = if hook.place == HookLocation::Host { "on the host" } else { "in the sandbox" };
        let moment = hook.moment.as_str();
        let text = format!("The hook `{command}` ({moment}, {place}) failed, and holds nothing up: {why}");
        match self.reported.lock().insert(text.clone()) {
            true => self.events.emit(Event::Notice { text }),
            false => Ok(()),
        }
    }
}

impl Said {
    /// Fails where a hook blocks.
    pub fn or_refuse(self, what: &str) -> Result<String> {
        match self.blocked {
            None => Ok(self.output),
            Some(reason) => Err(Error::config(format!("a hook refuses {what}: {reason}"))
                .hint("the hooks are in config.toml; /hooks lists them")),
        }
    }
}

/// Returns what hooks read about an apply.
pub fn of_apply(changes: &ChangeSet) -> Value {
    let files: Vec<String> = changes.changes.keys().take(MAX_FILES).map(ToString::to_string).collect();
    json!({ "changes": changes.counts(), "files": files })
}

fn reason(stderr: &[u8]) -> String {
    match text(stderr).trim() {
        "" => "it gives no reason".to_owned(),
        reason => head_and_tail(reason, MAX_SAID).to_string(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Keeps the beginning of what is written.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_OUTPUT - kept.len().min(MAX_OUTPUT);
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
