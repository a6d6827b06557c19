//! A file that the host has otherwise than the session knows: both versions in one text that the user edits, and the decision about it.

use super::Web;
use super::answers::FailedRequest;
use super::api::{JsonAnswer, Part, shown_change};
use super::frame::visible;
use super::review;
use super::visitors::Mine;
use super::work::blocking;
use agent_base::error::{Error, Kind, Result};
use agent_base::hash::Hash;
use agent_workspace::manifest::Node;
use agent_workspace::resolution::{Decided, Resolution, Resolutions};
use agent_workspace::tree_path::TreePath;
use agent_workspace::{ChangeSet, Workspace};
use axum::Json;
use axum::extract::{Path, Query, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The files that are written over what the host has, with the version of the host's that the user decided about.
pub type Over = BTreeMap<TreePath, String>;

/// `GET …/diff/conflict`: both versions of a file, with conflict markers around the lines that both sides changed.
pub async fn both(
    State(web): State<Arc<Web>>,
    mine: Mine,
    id: Path<String>,
    Query(part): Query<Part>,
) -> JsonAnswer {
    let (_turn, ready, changes) = shown_change(&web, mine, id, &part.digest).await?;
    let of = Arc::clone(&ready);
    let one = blocking(move || review::one_file(&changes, part.file, of.workspace.store())).await?;
    let undecided = ready.workspace.undecided(&one).await?.unwrap_or_default();
    let Some(file) = undecided.into_iter().find(|file| file.can_mark) else {
        let why = "this file cannot be edited here: a side is not text, too large, or gone";
        return Err(Error::usage(why).hint("keep one of the versions, or change the file yourself").into());
    };
    let decided = Decided { resolution: Resolution::Markers, found: file.found.clone() };
    let decided = Resolutions::from([(file.path.clone(), decided)]);
    let written = ready.workspace.would_write(&one, &decided).await?;
    let marked = written.changes.get(&file.path).and_then(|change| change.after.clone());
    let Some(Node::File { hash, .. }) = marked else {
        return Err(Error::usage("this file does not conflict any more").hint("load the page again").into());
    };
    let text = blocking(move || ready.workspace.store().read(hash)).await?;
    let text = String::from_utf8(text).map_err(|_| Error::usage("this file is not text"))?;
    Ok(Json(json!({"text": text, "found": version(file.found.as_ref())?})))
}

/// Returns what identifies a version of the host's.
fn version(node: Option<&Node>) -> Result<String> {
    Ok(Hash::of(&serde_json::to_vec(&node)?).to_string())
}

/// The failure of an apply. Of each file that the host has otherwise it says which version the host has, so that an answer holds for that one.
pub async fn failed(error: Error, chosen: &ChangeSet, workspace: &Workspace) -> FailedRequest {
    let conflicts = error.known_details().and_then(Value::as_array).cloned();
    let Some(mut conflicts) = conflicts.filter(|_| error.kind() == Kind::Conflict) else {
        return error.into();
    };
    let undecided = match workspace.undecided(chosen).await {
        Ok(undecided) => undecided.unwrap_or_default(),
        Err(error) => return error.into(),
    };
    for conflict in &mut conflicts {
        let file = undecided.iter().find(|file| conflict["path"] == file.path.to_string());
        match file.map(|file| version(file.found.as_ref())).transpose() {
            Ok(found) => conflict["found"] = found.into(),
            Err(error) => return error.into(),
        }
    }
    FailedRequest::from(error).with("details", conflicts.into())
}

/// Checks that the host still has the versions that the user decided about: `chosen` is held against what it has now.
///
/// # Errors
/// `Conflict`: it has another one.
pub fn check(chosen: &ChangeSet, over: &Over) -> Result<(), FailedRequest> {
    for (path, seen) in over {
        let Some(change) = chosen.changes.get(path) else { continue };
        let found = version(change.before.as_ref())?;
        if *seen != found {
            let reason = "it changed on your side since you decided about it here";
            let error = Error::new(Kind::Conflict, format!("{path}: {reason}"));
            let details = json!([{"path": visible(&path.to_string()), "reason": reason, "found": found}]);
            return Err(FailedRequest::from(error).with("details", details));
        }
    }
    Ok(())
}
