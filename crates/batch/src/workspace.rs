//! The directory that a task works on: one of the user's, a checkout of a repository, or a few files.

use super::task::Task;
use agent_base::error::{Error, Result};
use agent_base::host_git;
use agent_base::host_process;
use agent_base::lock::Lock;
use agent_base::paths::make_dir;
use agent_base::sanitise;
use agent_session::WorkspaceSettings;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of git's own message that are repeated.
const MAX_MESSAGE: usize = 500;
/// Bytes of git's outputs that are read.
const MAX_OUTPUT: usize = 64 << 10;
/// The time limit for git: other tasks with the same repository wait for it.
const GIT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Makes the workspaces of a batch.
pub(super) struct Workspaces {
    /// For tasks that name none.
    pub default: WorkspaceSettings,
    /// The directory from which relative paths of the tasks start.
    pub tasks: PathBuf,
    /// The output directory, which is part of no workspace.
    pub output: PathBuf,
    /// Held while a repository is cloned or fetched into.
    pub cloning: Lock<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
}

/// The workspace of one task.
pub(super) struct Prepared {
    pub settings: WorkspaceSettings,
    /// A directory that exists for this task alone.
    own: Option<PathBuf>,
}

impl Prepared {
    /// Removes what was made for the task.
    pub async fn remove(self) {
        if let Some(own) = self.own {
            // What is left is removed when the batch is started again.
            let _ = tokio::task::spawn_blocking(move || fs::remove_dir_all(own)).await;
        }
    }
}

impl Workspaces {
    pub async fn prepare(&self, task: &Task) -> Result<Prepared> {
        let own = self.output.join("workspaces").join(&task.id);
        let own = match (&task.files, &task.repo) {
            (Some(files), _) => {
                let (files, own) = (files.clone(), own);
                let written =
                    tokio::task::spawn_blocking(move || write_files(&own, &files).map(|()| own)).await;
                Some(written.map_err(|error| {
                    Error::unexpected("the files could not be written").caused_by(error)
                })??)
            }
            (None, Some(repo)) => {
                fresh(&own)?;
                self.check_out(repo, task.commit.as_deref(), &own).await?;
                Some(own)
            }
            (None, None) => None,
        };
        let root = match (&own, &task.workspace) {
            (Some(own), _) => own.clone(),
            (None, Some(named)) => self.tasks.join(named),
            (None, None) => return Ok(Prepared { settings: self.without_output(self.default.clone()), own }),
        };
        let settings = WorkspaceSettings { root, named: true, ..self.default.clone() };
        Ok(Prepared { settings: self.without_output(settings), own })
    }

    /// The output directory changes all the time; a task sees nothing of it.
    fn without_output(&self, mut settings: WorkspaceSettings) -> WorkspaceSettings {
        if let Ok(inside) = self.output.strip_prefix(&settings.root)
            && inside.components().next().is_some()
        {
            settings.exclude.push(format!("/{}", inside.display()));
        }
        settings
    }

    /// The history up to `commit`, and its files, in `directory`. Later commits are not there: they may be the answer.
    async fn check_out(&self, repo: &str, commit: Option<&str>, directory: &Path) -> Result<()> {
        let local = self.tasks.join(repo);
        let source = if local.exists() { local.into_os_string() } else { repo.into() };
        let name = hex::encode(&Sha256::digest(source.as_encoded_bytes())[..8]);
        let bare = self.output.join("repositories").join(format!("{name}.git"));
        let commit = self.fetch(&source, commit, &bare).await?;
        self.git(directory, &words(&["init", "--quiet", "--template="])).await?;
        let mut fetch: Vec<&OsStr> = words(&["fetch", "--quiet", "--no-tags", "--"]);
        fetch.extend([bare.as_os_str(), commit.as_ref()]);
        self.git(directory, &fetch).await?;
        self.git(directory, &words(&["checkout", "--quiet", "-B", "main", "FETCH_HEAD"])).await.map(drop)
    }

    /// Clones `source` to `bare` if it is not there yet; the hash of `commit`.
    async fn fetch(&self, source: &OsStr, commit: Option<&str>, bare: &Path) -> Result<String> {
        let cloning = Arc::clone(self.cloning.lock().entry(bare.to_owned()).or_default());
        let _held = cloning.lock().await;
        let parent = bare.parent().unwrap_or(bare);
        if !bare.exists() {
            let partial = bare.with_extension("partial");
            fresh(&partial)?;
            let clone = ["clone", "--bare", "--quiet", "--template=", "--"].map(OsStr::new);
            self.git_from(parent, &[&clone[..], &[source, partial.as_os_str()]].concat()).await?;
            let any = ["config", "uploadpack.allowAnySHA1InWant", "true"].map(OsStr::new);
            self.git(&partial, &any).await?;
            fs::rename(&partial, bare)?;
        }
        let resolve = |name: String| async move {
            let words = ["rev-parse", "--quiet", "--verify", "--end-of-options", &name].map(OsStr::new);
            self.git(bare, &words).await.map(|hash| hash.trim().to_owned())
        };
        let named = commit.unwrap_or("HEAD");
        if let Ok(hash) = resolve(format!("{named}^{{commit}}")).await {
            return Ok(hash);
        }
        self.git_from(bare, &["fetch".as_ref(), "--quiet".as_ref(), "--".as_ref(), source, named.as_ref()])
            .await?;
        resolve("FETCH_HEAD^{commit}".to_owned()).await
    }

    /// Runs git on what is here: a failure is that of the task.
    async fn git(&self, directory: &Path, arguments: &[&OsStr]) -> Result<String> {
        self.run_git(directory, arguments, |_| true).await
    }

    /// Lets git fetch from elsewhere: a failure may be that of the network or the server.
    async fn git_from(&self, directory: &Path, arguments: &[&OsStr]) -> Result<String> {
        self.run_git(directory, arguments, is_missing).await
    }

    /// Runs git, without the configuration of a repository that names programs. `is_own` says of a message of git's
    /// whether the failure is that of the task.
    async fn run_git(
        &self,
        directory: &Path,
        arguments: &[&OsStr],
        is_own: fn(&str) -> bool,
    ) -> Result<String> {
        let missing = || Error::config("git is not installed, which a task with `repo` needs");
        let mut command = host_git::networked(directory, &self.default.machine).ok_or_else(missing)?;
        command.args(["-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=60"]);
        command.args(arguments).current_dir(directory);
        // Nobody is there to answer: without a terminal of its own a question would stop it for ever.
        command.envs([("SSH_ASKPASS", "false"), ("SSH_ASKPASS_REQUIRE", "force")]);
        let what = arguments.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        let ran = host_process::run(command, b"", GIT_TIMEOUT, MAX_OUTPUT).await;
        let ran = ran.map_err(|error| Error::config("git could not be started").caused_by(error))?;
        let ran = ran.ok_or_else(|| {
            Error::unexpected(format!("git {what} took longer than {} s", GIT_TIMEOUT.as_secs()))
        })?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        Err(failure(&what, ran.status, &String::from_utf8_lossy(&ran.stderr), is_own))
    }
}

/// Returns whether git's message says that the repository or the commit is not there.
fn is_missing(message: &str) -> bool {
    let message = message.to_lowercase();
    [
        "does not appear to be a git repository",
        "repository not found",
        "couldn't find remote ref",
        "not our ref",
        "does not exist",
        "no such file or directory",
    ]
    .iter()
    .any(|words| message.contains(words))
}

fn failure(what: &str, status: ExitStatus, message: &str, is_own: fn(&str) -> bool) -> Error {
    let shown = sanitise::one_line(message.trim(), MAX_MESSAGE);
    let text = format!("the repository of the task cannot be used: git {what} failed: {shown}");
    let lower = message.to_lowercase();
    if lower.contains("no space left on device") || lower.contains("disk quota exceeded") {
        return Error::unexpected(text).caused_by(io::Error::from(ErrorKind::StorageFull));
    }
    // One that was killed has said nothing of the repository.
    match status.code().is_some() && is_own(message) {
        true => Error::usage(text),
        false => Error::unexpected(text),
    }
}

fn words(words: &[&'static str]) -> Vec<&'static OsStr> {
    words.iter().map(|word| OsStr::new(*word)).collect()
}

/// An empty directory.
fn fresh(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    make_dir(directory)
}

/// The paths were checked with the task, and nothing else writes to the directory, so none leads out of it.
fn write_files(directory: &Path, files: &BTreeMap<String, String>) -> Result<()> {
    fresh(directory)?;
    for (path, text) in files {
        let path = directory.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_base::error::Kind;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn failures_of_the_network_and_of_the_disk_are_not_those_of_the_task() {
        // Each of these was recorded as the task's own failure.
        let exited = |message: &str| failure("clone", ExitStatus::from_raw(128 << 8), message, is_missing);
        for message in [
            "fatal: unable to access 'https://x/': Could not resolve host: x",
            "fatal: unable to access 'https://x/': The requested URL returned error: 429",
            "error: RPC failed; curl 56 GnuTLS recv error",
            "",
        ] {
            assert_eq!(exited(message).kind(), Kind::Unexpected, "{message}");
        }
        assert!(exited("fatal: write error: No space left on device").is_disk_full());
        for message in ["remote: Repository not found.", "fatal: couldn't find remote ref v9"] {
            assert_eq!(exited(message).kind(), Kind::Usage, "{message}");
        }
        let killed = failure("rev-parse", ExitStatus::from_raw(libc::SIGINT), "", |_| true);
        assert_eq!(killed.kind(), Kind::Unexpected);
    }
}
