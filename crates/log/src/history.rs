//! The state of a session, rebuilt from its events.

use agent_event::{AddedDirectory, CallForm};
use agent_event::{Artifact, Changes, Event, PlanStep, Record, SandboxInfo, Usage};
use agent_model::Message;
use agent_model::dialogue::{self, Notes, well_formed};
use agent_model::prompted::Prompts;

/// Everything that is needed to resume a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    pub session: String,
    /// The session whose model delegated to this one.
    pub parent: Option<String>,
    /// The model that was used last.
    pub model: String,
    pub base_url: String,
    /// The workspace on the host.
    pub workspace: String,
    /// The directory of it that commands start in.
    pub directory: String,
    /// The directories beside the workspace.
    pub added: Vec<AddedDirectory>,
    /// The sandbox of the last run.
    pub sandbox: SandboxInfo,
    /// The list of hosts as the user has changed it, if they did.
    pub network: Option<Vec<String>>,
    /// The conversation, without the system prompt, well-formed (see [`dialogue`]).
    pub messages: Vec<Message>,
    /// The artifacts of tool calls, by the call, oldest first.
    pub artifacts: Vec<(String, Artifact)>,
    /// Notes that the model gets with the next prompt.
    pub notes: Notes,
    /// The form of the tool calls that was chosen last, and for which model.
    pub form: Option<(String, CallForm)>,
    /// Number of prompts.
    pub prompts: u64,
    /// Those that the conversation can go back to.
    pub prompted: Prompts,
    pub last_prompt: String,
    /// Requests made so far.
    pub turns: u64,
    /// Tokens used so far, by sessions that it delegated to as well.
    pub usage: Usage,
    /// The checkpoints' ids, oldest first.
    pub checkpoints: Vec<String>,
    /// The plan's steps, and whether the workspace is read-only until the user accepts it; `None` where there was no plan.
    pub plan: Option<(Vec<PlanStep>, bool)>,
    /// The outcome of the last run; `None` if it is running or was killed.
    pub finished: Option<Finished>,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// `completed`, `interrupted`, … as in the event.
    pub status: String,
    /// The changes in the workspace.
    pub changes: Changes,
    /// The error message, if it failed.
    pub error: Option<String>,
}

impl History {
    /// Replays `records` in order.
    pub fn of(records: &[Record]) -> Self {
        let mut history = Self::default();
        for record in records {
            history.take(record);
        }
        history.messages = well_formed(std::mem::take(&mut history.messages));
        history
    }

    fn take_prompt(&mut self, written: String) {
        self.finished = None;
        self.prompts += 1;
        self.last_prompt.clone_from(&written);
        let text = self.notes.before(&written);
        self.prompted.push(self.prompts, &written, &text);
        self.messages.push(Message::User { text });
    }

    fn take(&mut self, record: &Record) {
        match record.event.clone() {
            Event::SessionStarted {
                model, base_url, workspace, directory, added, sandbox, parent, ..
            } => {
                self.finished = None;
                // A later run of it is the user's.
                self.parent = self.parent.take().or(parent);
                (self.session, self.model, self.base_url) = (record.session.clone(), model, base_url);
                (self.workspace, self.directory, self.added, self.sandbox) =
                    (workspace, directory, added, sandbox);
            }
            Event::UserMessage { text } => self.take_prompt(text),
            Event::Note { text } => self.notes.push(&text),
            Event::Attached { name, text } => self.notes.attach(&name, &text),
            Event::AnswerStopped { text, reason } => {
                self.messages.push(dialogue::stopped(&text, &reason));
            }
            Event::Nudge { text } => self.messages.push(Message::User { text }),
            Event::CallForm { model, form, .. } => self.form = Some((model, form)),
            Event::TurnStarted { turn } => {
                self.finished = None;
                self.turns = self.turns.max(turn);
            }
            Event::AssistantMessage { text, reasoning, tool_calls, usage, opaque, .. } => {
                self.usage.add(usage.unwrap_or_default());
                self.messages.push(Message::Assistant { text, reasoning, tool_calls, opaque });
            }
            Event::DelegateFinished { usage, .. } => self.usage.add(usage),
            Event::ToolFinished { id, name, result, .. } => {
                self.messages.push(Message::Tool { id, name, text: result });
            }
            Event::Artifact { artifact, tool_call } => self.artifacts.push((tool_call, artifact)),
            Event::Compacted { messages, .. } => {
                // A compaction that cannot be parsed is ignored: the longer conversation is still valid.
                if let Ok(messages) = serde_json::from_value::<Vec<Message>>(messages) {
                    self.messages = messages;
                    self.messages.retain(|message| !matches!(message, Message::System { .. }));
                }
            }
            Event::Cleared {} => {
                self.messages.clear();
                self.artifacts.clear();
                self.prompted.clear();
                self.notes.clear();
            }
            Event::NetworkChanged { hosts } => self.network = Some(hosts),
            Event::Plan { steps, read_only } => self.plan = Some((steps, read_only)),
            Event::Rewound { prompt } => drop(self.prompted.rewind(prompt, &mut self.messages)),
            Event::StartedOver { prompt, .. } => self.prompted.back_to(prompt, &mut self.messages),
            Event::Checkpoint { id, .. } => self.checkpoints.push(id),
            Event::SessionFinished { status, changes, error, .. } => {
                self.finished = Some(Finished { status, changes, error });
            }
            _ => {}
        }
    }
}
