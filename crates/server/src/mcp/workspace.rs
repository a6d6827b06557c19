//! Tools that do what the user does in the REPL: see, write and undo changes, and change what the sandbox may reach.

use super::calls::{Answer, Returned, arguments};
use super::client_sandbox::ClientSandbox;
use super::programs::NoArguments;
use super::question::{Asked, Proposal, ask};
use super::request::Request;
use super::{Caller, Service};
use crate::cut;
use agent_base::error::{Kind, Result};
use agent_network::entries;
use agent_session::Ready;
use agent_tools::arguments::schema;
use agent_workspace::manifest::Node;
use agent_workspace::notices::listed;
use agent_workspace::store::Store;
use agent_workspace::{ChangeSet, diff, git_patch};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Characters of a patch that is returned.
const MAX_PATCH: usize = 100_000;
/// Files that are listed.
const MAX_FILES: usize = 1_000;
/// Names in a sentence.
const NAMED: usize = 30;

#[derive(Deserialize, JsonSchema)]
struct PathsArguments {
    /// Only these files and directories of the workspace; by default all that has changed.
    paths: Option<Vec<PathBuf>>,
}

#[derive(Deserialize, JsonSchema)]
struct StepsArguments {
    /// How many checkpoints to go back; by default one.
    steps: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
struct HostsArguments {
    /// Hosts to allow, such as example.org or *.example.org:8443, or registries for package registries. Without it, the
    /// current list is returned. The user decides.
    allow: Option<Vec<String>>,
}

/// Their names.
pub fn is_tool(name: &str) -> bool {
    matches!(name, "diff" | "apply" | "checkpoint" | "undo" | "network")
}

/// Returns the descriptions of them for clients.
pub fn list() -> Vec<Value> {
    let tool = |name: &str, about: &str, input: Value, reads: bool, destroys: bool| {
        json!({
            "name": name, "description": about, "inputSchema": input,
            "annotations": { "readOnlyHint": reads, "destructiveHint": destroys, "openWorldHint": false },
        })
    };
    vec![
        tool(
            "diff",
            "Shows what has changed in the sandbox's workspace and is not written to the user's own files yet.",
            schema::<PathsArguments>(),
            true,
            false,
        ),
        tool(
            "apply",
            "Writes changes of the sandbox's workspace to the user's own files, all or nothing. The user is asked first.",
            schema::<PathsArguments>(),
            false,
            true,
        ),
        tool(
            "checkpoint",
            "Records the workspace of the sandbox, so that undo can go back to it.",
            schema::<NoArguments>(),
            false,
            false,
        ),
        tool(
            "undo",
            "Restores the sandbox's workspace as it was at the last checkpoint, or at the beginning, with all that commands \
             did there.",
            schema::<StepsArguments>(),
            false,
            true,
        ),
        tool(
            "network",
            "Returns the hosts that programs in the sandbox may connect to, or asks the user to allow more.",
            schema::<HostsArguments>(),
            false,
            false,
        ),
    ]
}

impl Service {
    pub(super) async fn of_workspace(
        &self,
        place: &Arc<ClientSandbox>,
        caller: &Caller,
        request: &Request<'_>,
        name: &str,
        given: &Value,
    ) -> Result<Answer> {
        match name {
            "diff" => {
                let (ready, changes) = changes(place, arguments::<PathsArguments>(given)?).await?;
                shown(place, &ready, &changes).map(Answer::Returned)
            }
            "apply" => {
                let (ready, changes) = changes(place, arguments::<PathsArguments>(given)?).await?;
                self.apply(place, &ready, changes, caller, request).await
            }
            "checkpoint" => {
                place.ready().await?;
                let number = place.session.checkpoints().mark().await?;
                let data = json!({ "checkpoint": number });
                Ok(Answer::Returned(Returned::done(format!("checkpoint {number}"), data)))
            }
            "undo" => undo(place, arguments::<StepsArguments>(given)?.steps.unwrap_or(1))
                .await
                .map(Answer::Returned),
            _ => self.network(place, arguments::<HostsArguments>(given)?.allow, caller, request).await,
        }
    }

    async fn apply(
        &self,
        place: &ClientSandbox,
        ready: &Ready,
        changes: ChangeSet,
        caller: &Caller,
        request: &Request<'_>,
    ) -> Result<Answer> {
        if changes.is_empty() || changes.in_place {
            let data = json!({ "applied": changes.without_changes().counts(), "files": [] });
            return Ok(Answer::Returned(Returned::done("there is nothing to apply", data)));
        }
        let proposal = Proposal::of_changes(place, ready, changes.clone())?;
        let agreed = match self.settings.allow_apply {
            true => Asked::Yes,
            false => ask(place, proposal, caller, request).await?,
        };
        match agreed {
            Asked::Yes => {}
            Asked::Stale => {
                return Ok(Answer::Returned(Returned::failed(
                    "nothing was written: a part of the change was too long for the question, and the diff that the user looked at \
                     meanwhile showed something else; call apply again",
                )));
            }
            Asked::Question(question) => return Ok(Answer::Question(question)),
            Asked::No => {
                return Ok(Answer::Returned(Returned::failed(
                    "the user does not want these changes to be written",
                )));
            }
            Asked::Failed(why) => return Ok(Answer::Returned(not_asked(&why))),
            Asked::Nobody => {
                let id = place.session.id();
                return Ok(Answer::Returned(Returned::failed(format!(
                    "nothing was written: this client cannot ask its user. The user can see the changes with `agent diff {id}`, \
                     and write them with `agent apply {id}` when this client has ended"
                ))));
            }
        }
        place.session.before_apply(&changes).await?;
        match ready.workspace.apply(&changes, Some(&ready.sandbox)).await {
            Ok(applied) => {
                let names: Vec<String> =
                    changes.changes.keys().take(MAX_FILES).map(ToString::to_string).collect();
                let text = format!("written to {}: {}", ready.workspace.root().display(), names.join(", "));
                Ok(Answer::Returned(Returned::done(
                    text,
                    json!({ "applied": applied.changes, "files": names }),
                )))
            }
            Err(error) if error.kind() == Kind::Conflict => {
                let data = json!({ "applied": null, "conflicts": error.known_details() });
                Ok(Answer::Returned(Returned { data, ..Returned::failed(format!("error: {error}")) }))
            }
            Err(error) => Err(error),
        }
    }

    /// The list, or a change of it, which is the user's to decide.
    async fn network(
        &self,
        place: &ClientSandbox,
        allow: Option<Vec<String>>,
        caller: &Caller,
        request: &Request<'_>,
    ) -> Result<Answer> {
        let gateway = place.session.startup().gateway();
        if let Some(hosts) = allow.filter(|_| !gateway.is_full()) {
            let hosts = hosts.join(",");
            let entries = entries(&hosts)?;
            match ask(place, Proposal::of_hosts(&hosts), caller, request).await? {
                Asked::Yes | Asked::Stale => {}
                Asked::Question(question) => return Ok(Answer::Question(question)),
                Asked::No => return Ok(Answer::Returned(Returned::failed("the user does not allow it"))),
                Asked::Failed(why) => return Ok(Answer::Returned(not_asked(&why))),
                Asked::Nobody => {
                    return Ok(Answer::Returned(Returned::failed(
                        "not allowed: this client cannot ask its user, who can allow hosts with `agent mcp --network HOST,…`",
                    )));
                }
            }
            gateway.change(|rules| entries.into_iter().for_each(|entry| rules.allow(entry)));
            gateway.attach(&place.ready().await?.sandbox).await?;
        }
        let words = if gateway.is_full() { vec!["full".to_owned()] } else { gateway.rules().words() };
        let text = if words.is_empty() {
            "none: nothing but the sandbox's own loopback".to_owned()
        } else {
            words.join(", ")
        };
        Ok(Answer::Returned(Returned::done(text, json!({ "hosts": words }))))
    }
}

async fn changes(
    place: &ClientSandbox,
    PathsArguments { paths }: PathsArguments,
) -> Result<(Arc<Ready>, ChangeSet)> {
    let ready = place.ready().await?;
    // As part of this step, and not of the last one.
    place.record().await?;
    let inside = |path: PathBuf| ready.sandbox.in_workspace(&path).unwrap_or(path);
    let paths: Vec<PathBuf> = paths.unwrap_or_default().into_iter().map(inside).collect();
    let changes = ready.workspace.changes(&ready.sandbox).await?.select(&paths)?;
    Ok((ready, changes))
}

fn shown(place: &ClientSandbox, ready: &Ready, changes: &ChangeSet) -> Result<Returned> {
    let store = ready.workspace.store();
    let is_file = |node: &Option<Node>| node.as_ref().is_some_and(|node| !node.is_directory());
    let mut files = Vec::new();
    for (path, change) in
        changes.changes.iter().filter(|(_, change)| !change.is_directory_only()).take(MAX_FILES)
    {
        let kind = match (is_file(&change.before), is_file(&change.after)) {
            (false, _) => "added",
            (_, false) => "deleted",
            _ => "modified",
        };
        let lines = diff::lines(changes, path, change, store)?;
        files.push(json!({
            "path": path.to_string(), "change": kind,
            "lines_added": lines.map(|(added, _)| added), "lines_removed": lines.map(|(_, removed)| removed),
        }));
    }
    let Patch { text: mut patch, left_out, truncated } = patch_of(changes, store)?;
    if truncated {
        patch += &format!("\n… `agent diff {}` shows all of it\n", place.session.id());
    }
    let mut text = String::new();
    changes.messages().for_each(|message| text += &format!("{message}\n"));
    let left_out = listed(left_out.into_iter(), NAMED);
    if let Some(names) = &left_out {
        text += &format!("changed, and too large for a patch: {names}\n");
    }
    text += if patch.is_empty() && left_out.is_none() { "nothing has changed" } else { &patch };
    let data = json!({
        "session": place.session.id(), "changes": changes.counts(), "files": files, "patch": patch, "truncated": truncated,
    });
    Ok(Returned::done(text, data))
}

/// The patch of changes, as far as it is returned.
struct Patch {
    text: String,
    /// Changes that have no place in it.
    left_out: Vec<String>,
    truncated: bool,
}

/// Makes no more of the patch than is returned, but for the end of the file in which that is reached.
fn patch_of(changes: &ChangeSet, store: &Store) -> Result<Patch> {
    let (mut patch, mut left_out, mut truncated) = (Vec::new(), Vec::new(), false);
    for (path, change) in &changes.changes {
        if patch.len() > MAX_PATCH {
            truncated = true;
            break;
        }
        let one = ChangeSet { changes: [(path.clone(), change.clone())].into(), ..ChangeSet::default() };
        git_patch::write(&mut patch, &one, store, &mut |path| {
            left_out.push(path.to_string());
            Ok(())
        })?;
    }
    let mut text = String::from_utf8_lossy(&patch).into_owned();
    truncated |= cut(&mut text, MAX_PATCH);
    Ok(Patch { text, left_out, truncated })
}

async fn undo(place: &ClientSandbox, steps: u32) -> Result<Returned> {
    place.ready().await?;
    match place.session.undo(steps as usize).await? {
        Some((restored, _)) => {
            let names = listed(restored.files.iter().map(ToString::to_string), NAMED);
            let files: Vec<String> = restored.files.iter().take(MAX_FILES).map(ToString::to_string).collect();
            let text = format!("restored: {}", names.unwrap_or_else(|| "no file differs".to_owned()));
            Ok(Returned::done(text, json!({ "files": files })))
        }
        None => Ok(Returned::done("there is nothing to undo", json!({ "files": [] }))),
    }
}

fn not_asked(why: &str) -> Returned {
    Returned::failed(format!("nothing was done: the client could not ask its user: {why}"))
}
