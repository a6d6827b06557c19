//! `agent apply --branch` and `/apply --branch`: the commits of the sandbox as a branch.

use super::Author;
use crate::error::Result;
use crate::workspace::{ChangeSet, InnerCommits};

/// Returns what the user is asked below the list of commits.
pub fn branch_question(branch: &str) -> String {
    format!("Write them as the branch {branch}?")
}

/// Returns what is said at the end.
pub fn written_branch(branch: &str) -> String {
    format!("the branch {branch} has them (`git log {branch}`); nothing was checked out")
}

/// Writes the commits as a branch; `changes` is what the session's hooks learn.
///
/// # Errors
/// A hook refuses it, or the branch cannot be written.
pub async fn write_branch(
    session: &Author<'_>,
    changes: &ChangeSet,
    commits: &InnerCommits,
    branch: &str,
) -> Result<()> {
    session.run_hooks(changes).await?;
    commits.write(branch)
}
