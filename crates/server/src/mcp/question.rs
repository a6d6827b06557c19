//! Questions to the user of a client: what they show, and to what an answer belongs.

use super::Caller;
use super::client_sandbox::ClientSandbox;
use super::request::Request;
use crate::random_token;
use agent_base::error::Result;
use agent_base::head_writer::HeadWriter;
use agent_base::sanitise::one_line;
use agent_base::visible::Visible;
use agent_mcp::protocol::Era;
use agent_session::Ready;
use agent_workspace::{ChangeSet, Workspace, diff, risks};
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of the diff that a question shows, and of the list of what it does not show.
const MAX_DIFF: usize = 16 << 10;
const MAX_LIST: usize = 2 << 10;
/// Files in that list.
const LISTED: usize = 30;
/// Characters of a client's message that are repeated.
const MAX_MESSAGE: usize = 200;

/// The question that a user is asked.
pub struct Proposal {
    message: Visible,
    /// The subject: the words of a list, or changes.
    words: String,
    changes: ChangeSet,
    unseen: Option<Unseen>,
}

/// The changes that the question does not show all of.
struct Unseen {
    workspace: Arc<Workspace>,
    changes: ChangeSet,
    /// The number of times that the user had looked at a diff elsewhere when the question began.
    looks: u64,
}

impl Unseen {
    /// Returns whether the user has looked at a diff since, and seen something else than what would be written.
    fn is_other(&self) -> Result<bool> {
        Ok(self.workspace.looks()? != self.looks
            && !self.workspace.since_shown(&self.changes, false)?.is_empty())
    }
}

impl Proposal {
    /// Makes the question whether to write these changes.
    ///
    /// # Errors
    /// A content is missing.
    pub fn of_changes(place: &ClientSandbox, ready: &Ready, changes: ChangeSet) -> Result<Self> {
        let workspace = &ready.workspace;
        let store = workspace.store();
        let counts = changes.counts();
        let mut text = format!(
            "Write these changes to {}? {} added, {} modified, {} deleted.\n",
            workspace.root().display(),
            counts.added,
            counts.modified,
            counts.deleted
        );
        let looks = workspace.looks()?;
        let since = workspace.since_shown(&changes, false)?.summary();
        since.into_iter().chain(risks::summary(&changes)).for_each(|line| text += &format!("{line}\n"));
        let diff::Excerpt { text: shown, left_out } = diff::excerpt(&changes, store, MAX_DIFF)?;
        text += &format!("\n{shown}");
        if !left_out.is_empty() {
            text += &format!("\nNot shown here, or not to the end:\n{}", listed(&left_out, store)?);
            text += &format!(
                "`agent diff {}` in a terminal shows all of it. What is written is exactly what this question is about.\n",
                place.session.id()
            );
        }
        let is_cut = !left_out.is_empty();
        let unseen = is_cut.then(|| Unseen { workspace: Arc::clone(workspace), changes: left_out, looks });
        Ok(Self { message: Visible::of(text), words: "apply".to_owned(), changes, unseen })
    }

    /// Makes the question whether programs may connect to hosts.
    pub fn of_hosts(hosts: &str) -> Self {
        let text =
            format!("Allow programs in the sandbox to connect to {hosts} for the rest of this session?");
        Self {
            message: Visible::of(text),
            words: format!("network {hosts}"),
            changes: ChangeSet::default(),
            unseen: None,
        }
    }
}

/// The first files with their counts, and how many more there are.
fn listed(changes: &ChangeSet, store: &agent_workspace::store::Store) -> Result<String> {
    let first = changes.changes.iter().take(LISTED).map(|(path, change)| (path.clone(), change.clone()));
    let first = ChangeSet { changes: first.collect(), ..changes.without_changes() };
    let mut list = HeadWriter::new(MAX_LIST);
    diff::write_stat(&mut list, &first, store)?;
    let list = list.into_text();
    // Without the sum of these, and the end of a line that is cut.
    let lines: Vec<&str> = list.lines().collect();
    let shown = &lines[..lines.len().saturating_sub(1)];
    // Both names of a rename are one line, and directories are none.
    let listed = if list.len() < MAX_LIST { first.changes.len() } else { shown.len() };
    let more = changes.changes.len().saturating_sub(listed);
    let more = if more > 0 { format!("and {more} more\n") } else { String::new() };
    Ok(shown.iter().map(|line| format!("{line}\n")).collect::<String>() + &more)
}

/// The answer of the client's user.
pub enum Asked {
    Yes,
    No,
    /// Yes, but the user has looked at something else meanwhile than what would be written.
    Stale,
    /// The client has to come back with the answer.
    Question(Value),
    /// The client cannot ask.
    Nobody,
    /// It could not this time.
    Failed(String),
}

/// Asks the client's user. An answer counts for exactly what was asked, once.
///
/// # Errors
/// The record of what the user looked at cannot be read.
pub async fn ask(
    place: &ClientSandbox,
    proposal: Proposal,
    caller: &Caller,
    request: &Request<'_>,
) -> Result<Asked> {
    if !request.shows_forms(caller.shows_forms) {
        return Ok(Asked::Nobody);
    }
    let params = json!({
        "mode": "form", "message": proposal.message.as_str(),
        "requestedSchema": {
            "type": "object",
            "properties": { "agree": { "type": "boolean", "title": "Yes", "description": "Whether to do it" } },
            "required": ["agree"],
        },
    });
    let (answer, unseen) = match (request.era, &caller.client) {
        (Era::Initialize, Some(client)) => match client.request("elicitation/create", params).await {
            Ok(answer) => (answer, proposal.unseen),
            Err(error) => return Ok(Asked::Failed(one_line(&error.message, MAX_MESSAGE))),
        },
        (Era::Initialize, None) => return Ok(Asked::Nobody),
        (Era::Modern, _) => match answered(place, &proposal, request) {
            Some(answered) => answered,
            None => {
                let Ok(token) = random_token() else { return Ok(Asked::Nobody) };
                *place.question.lock() = Some((token.clone(), proposal));
                return Ok(Asked::Question(json!({
                    "resultType": "input_required", "requestState": token,
                    "inputRequests": { "agree": { "method": "elicitation/create", "params": params } },
                })));
            }
        },
    };
    let is_accepted = answer.get("action").and_then(Value::as_str) == Some("accept");
    if !is_accepted || answer.pointer("/content/agree") != Some(&Value::Bool(true)) {
        return Ok(Asked::No);
    }
    Ok(if unseen.map_or(Ok(false), |unseen| unseen.is_other())? { Asked::Stale } else { Asked::Yes })
}

/// The answer that a client has come back with, if it belongs to the last question and what it was about is unchanged.
fn answered(
    place: &ClientSandbox,
    proposal: &Proposal,
    request: &Request<'_>,
) -> Option<(Value, Option<Unseen>)> {
    let token = request.params.get("requestState")?.as_str()?;
    let (given, asked) = place.question.lock().take()?;
    let is_same = given == token && asked.words == proposal.words && asked.changes == proposal.changes;
    is_same
        .then(|| (request.params.pointer("/inputResponses/agree").cloned().unwrap_or_default(), asked.unseen))
}
