//! A task: what the model is asked, on which files, and how the result is checked.

use agent_workspace::tree_path::TreePath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The longest id, in bytes: it becomes a file name.
const MAX_ID: usize = 128;

/// One line of a task file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its name, once in the file: letters, digits, `.`, `_` and `-`. The names of its files begin with it.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub id: String,
    /// The prompt for the model.
    pub prompt: String,
    /// The directory to work on; relative to the task file. It is not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// A git repository to work on: a URL, or a path relative to the task file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The commit, branch or tag of `repo`; without one its default branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The files to work on, path and text, in a directory with nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<BTreeMap<String, String>>,
    /// The container image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Commands that have to pass with the change: one, or a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany")]
    pub check: Vec<String>,
    /// The model, if not that of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Variables that the commands in the sandbox start with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The limits that end the work on it; without one as for the batch.
    #[serde(default, skip_serializing_if = "TaskLimits::is_empty")]
    pub limits: TaskLimits,
}

/// The limits that end the work on one task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskLimits {
    /// Requests to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_turns: Option<u64>,
    /// Tokens, input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens_total: Option<u64>,
    /// Cost, in the currency of the configured prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_cost: Option<f64>,
    /// Wall time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_time: Option<f64>,
}

impl TaskLimits {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

impl Task {
    /// A hash of everything that the task says. A result belongs to the task with this digest.
    pub fn digest(&self) -> String {
        // A structure without maps of other keys than strings is always valid JSON.
        let json = serde_json::to_vec(self).unwrap_or_default();
        hex::encode(&Sha256::digest(json)[..16])
    }

    /// Returns what is wrong with the task beside its form.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, problem: &str| {
            if wrong {
                problems.push(problem.to_owned());
            }
        };
        refuse(
            !is_id(&self.id),
            "the id may have letters, digits, `.`, `_` and `-`, and at most 128 of them",
        );
        refuse(self.prompt.trim().is_empty(), "the prompt is empty");
        refuse(self.check.iter().any(|command| command.trim().is_empty()), "`check` is empty");
        let places = [self.workspace.is_some(), self.repo.is_some(), self.files.is_some()];
        let places = places.into_iter().filter(|named| *named).count();
        refuse(places > 1, "only one of `workspace`, `repo` and `files` can be named");
        refuse(self.commit.is_some() && self.repo.is_none(), "`commit` needs `repo`");
        let is_option = |text: &Option<String>| {
            text.as_ref().is_some_and(|text| text.starts_with('-') || text.is_empty())
        };
        refuse(is_option(&self.repo), "`repo` is not a valid repository");
        refuse(is_option(&self.commit), "`commit` is not a valid commit");
        let is_variable = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        refuse(!self.env.keys().all(is_variable), "`env` has a name that is not a valid variable");
        refuse(self.env.values().any(|value| value.contains('\0')), "`env` has a value with a NUL byte");
        refuse(
            [self.limits.max_turns, self.limits.max_tokens_total].contains(&Some(0)),
            "a limit of 0 allows nothing",
        );
        let amounts = [self.limits.max_cost, self.limits.max_time];
        let is_amount = |amount: &f64| amount.is_finite() && (0.0..=1e9).contains(amount);
        refuse(!amounts.iter().flatten().all(is_amount), "a limit is not a valid number");
        for path in self.files.iter().flatten().map(|(path, _)| path) {
            if let Err(why) = TreePath::new(path.as_bytes()) {
                problems.push(format!("`files` has {path:?}: {why}"));
            }
        }
        problems
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    id.len() <= MAX_ID && id.bytes().all(allowed) && !id.is_empty() && !id.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn task(value: serde_json::Value) -> Task {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_digest_depends_on_what_a_task_says_and_not_on_how_it_is_written() {
        let one = task(json!({"id": "a", "prompt": "p", "check": "true"}));
        let same = task(json!({"prompt": "p", "check": ["true"], "id": "a", "env": {}}));
        let other = task(json!({"id": "a", "prompt": "p", "check": "false"}));
        assert_eq!(one.digest(), same.digest());
        assert_ne!(one.digest(), other.digest());
    }

    #[test]
    fn what_cannot_be_run_is_named() {
        for (value, problem) in [
            (json!({"id": "../x", "prompt": "p"}), "the id may have"),
            (json!({"id": "a", "prompt": " "}), "the prompt is empty"),
            (json!({"id": "a", "prompt": "p", "repo": "r", "files": {}}), "only one of"),
            (json!({"id": "a", "prompt": "p", "repo": "--upload-pack=x"}), "not a valid repository"),
            (json!({"id": "a", "prompt": "p", "commit": "c"}), "`commit` needs `repo`"),
            (json!({"id": "a", "prompt": "p", "files": {"../x": ""}}), "`files` has"),
            (json!({"id": "a", "prompt": "p", "env": {"A=B": ""}}), "not a valid variable"),
            (json!({"id": "a", "prompt": "p", "limits": {"max_turns": 0}}), "a limit of 0"),
        ] {
            let problems = task(value).problems();
            assert!(problems.len() == 1 && problems[0].contains(problem), "{problems:?}");
        }
        assert!(task(json!({"id": "django__django-1.2", "prompt": "p"})).problems().is_empty());
    }
}
