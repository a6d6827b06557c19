//! The change that is reviewed: what git inside the sandbox says of it, where the repository's settings cannot reach the host.

use crate::error::{Error, Result};
use crate::event::Stream;
use crate::sandbox::{Command, Finished, Outcome, Output, Program, Sandbox};
use crate::sanitise::one_line;
use std::time::Duration;

/// The time limit for git.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of git's answer that are read.
const MAX_ANSWER: u64 = 16 << 20;
/// Bytes of the diff that the model gets; it reads the rest itself.
const MAX_DIFF: usize = 96 << 10;
/// Bytes of the list of files, where the diff is cut.
const MAX_FILES: usize = 16 << 10;
/// Columns of what git said.
const MAX_WORDS: usize = 300;

/// Codes of the script for what the user can do something about.
const NO_REPOSITORY: i32 = 64;
const NO_BASE: i32 = 65;
const NO_ANCESTOR: i32 = 66;
const NO_GIT: i32 = 67;

/// Prints the commit that the change is compared with, the counted lines of each file, and the diff, with a NUL between them. New files are
/// part of it: they are noted in a copy of the index, and its objects are written elsewhere.
const SCRIPT: &str = r#"
command -v git >/dev/null || exit 67
git rev-parse --git-dir >/dev/null 2>&1 || exit 64
cd "$(git rev-parse --show-toplevel)" || exit 64
here() { git rev-parse --verify --quiet --end-of-options "$1^{commit}"; }
base=
head=$(here HEAD || git hash-object -t tree /dev/null)
if [ -n "$AGENT_BASE" ]; then
  base=$(here "$AGENT_BASE") || base=$(here "origin/$AGENT_BASE") || exit 65
else
  for name in refs/remotes/origin/HEAD refs/remotes/origin/main refs/remotes/origin/master refs/heads/main refs/heads/master "$head"; do
    base=$(here "$name") && break
  done
  base=${base:-$head}
fi
if [ "$base" != "$head" ]; then base=$(git merge-base "$base" "$head") || exit 66; fi
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
objects=$(cd "$(git rev-parse --git-path objects)" && pwd) || exit 1
index=$(git rev-parse --git-path index)
if [ -e "$index" ]; then cp "$index" "$scratch/index"; fi
mkdir "$scratch/objects" || exit 1
export GIT_INDEX_FILE="$scratch/index" GIT_OBJECT_DIRECTORY="$scratch/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
git add --intent-to-add --ignore-errors -- . >/dev/null 2>&1
change() { git diff --no-ext-diff --no-textconv --no-color --find-renames --src-prefix=a/ --dst-prefix=b/ "$@" "$base" -- || exit 1; }
printf '%s\0' "$base"
change --numstat
printf '\0'
change
"#;

/// A change, as git prints it.
pub struct Change {
    /// The commit that it is compared with, or the empty tree.
    pub base: String,
    /// Each file with its counted lines.
    files: String,
    diff: String,
    is_cut: bool,
}

impl Change {
    /// The change of the sandbox's work tree since it left `base`, or the default branch.
    ///
    /// # Errors
    /// There is no repository, or no such commit in it.
    pub async fn find(sandbox: &Sandbox, base: Option<&str>) -> Result<Self> {
        let command = Command {
            program: Program::Shell(SCRIPT.to_owned()),
            cwd: None,
            env: vec![("AGENT_BASE".into(), base.unwrap_or_default().into())],
            timeout: Some(TIMEOUT),
            live_bytes: MAX_ANSWER,
            stdin: false,
        };
        let (mut answer, mut words, mut is_cut) = (Vec::new(), String::new(), false);
        let finished = sandbox
            .clone()
            .in_whole_workspace()
            .run(command, &mut |output| match output {
                // Behind a gap is the end of what was printed.
                Output::Data(Stream::Stdout, _) if is_cut => {}
                Output::Data(Stream::Stdout, bytes) => answer.extend_from_slice(bytes),
                Output::Data(Stream::Stderr, bytes) if words.len() < MAX_WORDS * 4 => {
                    words.push_str(&String::from_utf8_lossy(bytes));
                }
                Output::Data(..) => {}
                Output::Gap(_) => is_cut = true,
            })
            .await?;
        check(&finished, base, &words)?;
        let mut parts = answer.splitn(3, |byte| *byte == 0);
        let mut part = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned());
        match (part(), part(), part()) {
            (Some(base), Some(files), Some(diff)) if is_hash(&base) => Ok(Self { base, files, diff, is_cut }),
            _ => Err(Error::sandbox("git in the sandbox gave no answer")),
        }
    }

    /// Returns whether there is nothing to review.
    pub fn is_empty(&self) -> bool {
        self.diff.trim().is_empty()
    }

    /// The request for its review.
    pub fn prompt(&self) -> String {
        let diff = head(&self.diff, MAX_DIFF);
        let mut prompt = format!(
            "{}\n\nThe change since commit {}:\n\n```diff\n{diff}\n```\n",
            agent_prompts::REVIEW.trim(),
            self.base,
        );
        if self.is_cut || diff.len() < self.diff.len() {
            let files = head(&self.files, MAX_FILES);
            prompt += &format!(
                "\nThis is the beginning of the diff. These files changed (lines added, lines removed, name):\n\n{files}\n\
                 Read the rest with `git diff {} -- FILE`, and new files as they are.\n",
                self.base,
            );
        }
        prompt
    }
}

fn check(finished: &Finished, base: Option<&str>, words: &str) -> Result<()> {
    let named = one_line(base.unwrap_or("the default branch"), MAX_WORDS);
    Err(match finished.outcome {
        Outcome::Exited(0) => return Ok(()),
        Outcome::Exited(NO_GIT) => Error::sandbox("there is no git in the sandbox, which a review needs")
            .hint("use --image host, or an image that has git"),
        Outcome::Exited(NO_REPOSITORY) => {
            Error::usage("there is no git repository here").hint("run it in one, or name one with -C DIR")
        }
        Outcome::Exited(NO_BASE) => Error::usage(format!("{named} is not a commit of this repository"))
            .hint("name a branch, a tag or a commit; a clone of CI may have to fetch it first"),
        Outcome::Exited(NO_ANCESTOR) => {
            Error::usage(format!("the history does not reach the commit where {named} was left"))
                .hint("fetch more of it: git fetch --unshallow, or fetch-depth: 0 of actions/checkout")
        }
        _ => Error::sandbox(format!("git in the sandbox failed: {}", one_line(words, MAX_WORDS))),
    })
}

fn is_hash(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The beginning of `text`, up to a line end where there is one.
fn head(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let cut = &text[..end];
    cut.rfind('\n').map_or(cut, |end| &cut[..end])
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn a_long_text_is_cut_between_lines_and_characters() {
        assert_eq!(head("short\n", 6), "short\n");
        assert_eq!(head("one\ntwo\nthree", 9), "one\ntwo");
        assert_eq!(head("äöü", 3), "ä");
    }
}
