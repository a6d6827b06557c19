//! The preparation of a workspace: a command that installs what the project needs, whose result lies under what the sandboxes of later
//! sessions write.

use super::frontend::{Frontend, Step};
use super::settings::{Retention, SandboxSettings, Starts};
use super::startup::{Population, Ready, Startup};
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_base::paths::make_dir;
use agent_base::plain_file::{self, Links};
use agent_base::sanitise::one_line;
use agent_event::Event;
use agent_log::SessionId;
use agent_network::{self as network, Gateway};
use agent_sandbox::{Command, Network, Outcome, Output, Program, Sandbox, TAIL_BYTES};
use agent_workspace::{Workspace, notices};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The time limit for the command, in which it prepares the workspace.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Largest file that counts, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// Files that count at most.
const MAX_FILES: usize = 100;
/// A result that no session began with for this long is removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The record of a result, which is there once it is complete.
const RECORD: &str = "setup.json";
/// The files that count where none are named: those in which package managers write down what is installed.
pub const LOCK_FILES: [&str; 22] = [
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "bun.lock",
    "bun.lockb",
    "deno.lock",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "Pipfile.lock",
    "requirements.txt",
    "pyproject.toml",
    "Cargo.lock",
    "go.sum",
    "Gemfile.lock",
    "composer.lock",
    "mix.lock",
    "pubspec.lock",
    "packages.lock.json",
    "gradle.lockfile",
    "pom.xml",
];

/// A command that prepares a workspace, and what it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSetup {
    /// For a shell, in the workspace.
    pub command: String,
    /// The files whose content it depends on, relative to the workspace: where one changes, it runs again.
    pub files: Vec<PathBuf>,
    /// The network that it may reach.
    pub network: Network,
}

impl ProjectSetup {
    /// Returns what its result is kept under: the hash of everything that it follows from.
    fn key(&self, root: &Path, settings: &SandboxSettings) -> Hash {
        let mut text = Vec::new();
        let mut add = |part: &[u8]| {
            text.extend(part.len().to_le_bytes());
            text.extend(part);
        };
        let image = settings.image.as_deref().unwrap_or_default();
        for part in [settings.backend.name(), image, &self.command, &self.network.to_string()] {
            add(part.as_bytes());
        }
        add(root.as_os_str().as_bytes());
        for file in self.files.iter().take(MAX_FILES) {
            // One that is not there counts as such.
            let content = plain_file::read(&root.join(file), MAX_FILE, Links::Refuse).ok();
            add(file.as_os_str().as_bytes());
            add(content.map(|content| Hash::of(content).to_string()).unwrap_or_default().as_bytes());
        }
        Hash::of(text)
    }
}

/// The record of a kept result: what it was made of.
#[derive(Serialize, Deserialize)]
struct Record {
    root: PathBuf,
    command: String,
}

fn results(machine: &Machine) -> Result<PathBuf> {
    Ok(machine.cache_dir()?.join("setups"))
}

/// Removes the results for the workspace `root`, or only those that are old; how many.
///
/// # Errors
/// One cannot be removed.
pub fn forget_setups(root: &Path, machine: &Machine, only_old: bool) -> Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(results(machine)?).into_iter().flatten().flatten() {
        let file = entry.path().join(RECORD);
        let record = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        if record.is_none_or(|record| record.root != root) {
            continue;
        }
        let used = fs::metadata(&file).and_then(|metadata| metadata.modified());
        let is_old = used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > MAX_AGE));
        if is_old || !only_old {
            fs::remove_dir_all(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The preparation of the workspace of a session.
pub(super) struct Preparation {
    setup: ProjectSetup,
    settings: SandboxSettings,
    frontend: Arc<dyn Frontend>,
}

/// The outcome of the command, and the end of its output.
struct Ended {
    outcome: Outcome,
    tail: String,
}

impl Preparation {
    pub fn new(setup: ProjectSetup, settings: &SandboxSettings, frontend: &Arc<dyn Frontend>) -> Self {
        let settings = SandboxSettings {
            network: setup.network.clone(),
            retention: Retention::Remove,
            starts: Starts::AtOnce,
            setup: None,
            // Its result is for every session of the project.
            added: Vec::new(),
            ..settings.clone()
        };
        Self { setup, settings, frontend: Arc::clone(frontend) }
    }

    /// Lays the result under what sandboxes of `workspace` write; where there is none, the command runs now. One that fails is reported,
    /// and the session begins without.
    ///
    /// # Errors
    /// Its sandbox does not start, or its result cannot be kept.
    pub async fn prepare(&self, workspace: &Workspace) -> Result<()> {
        let machine = &workspace.machine();
        let (setup, settings, root) =
            (self.setup.clone(), self.settings.clone(), workspace.root().to_owned());
        let key = tokio::task::spawn_blocking(move || setup.key(&root, &settings)).await;
        let key = key.map_err(|error| {
            Error::unexpected("the files of the setup could not be read").caused_by(error)
        })?;
        let all = results(machine)?;
        let kept = all.join(key.short(16));
        if use_again(&kept) {
            workspace.lay_beneath(kept).await;
            return Ok(());
        }
        make_dir(&all)?;
        // Others who need the same wait for it.
        let file = all.join(format!("{}.lock", key.short(16)));
        let locked = tokio::task::spawn_blocking(move || {
            let file = File::create(file)?;
            file.lock().map(|()| file)
        });
        let _lock = locked.await.map_err(std::io::Error::other)??;
        if use_again(&kept) || self.make(workspace, &all, &kept).await? {
            workspace.lay_beneath(kept).await;
        }
        Ok(())
    }

    /// Runs the command in a sandbox of its own, and keeps what it wrote in `kept`; whether it succeeded.
    async fn make(&self, workspace: &Workspace, all: &Path, kept: &Path) -> Result<bool> {
        let scratch = tempfile::Builder::new().prefix(".new-").tempdir_in(all)?;
        let id = SessionId::generate();
        let opened = workspace.afresh(&scratch.path().join("a/b")).await?;
        let events = Arc::clone(self.frontend.events());
        let gateway = Gateway::new(&self.setup.network, events, network::Limits::default())?;
        gateway.through_proxy_of(&workspace.machine());
        let population = Population::Fill(async { Ok(opened) }.boxed());
        let startup =
            Startup::begin(&id, &self.settings, population, Arc::clone(&gateway), Arc::clone(&self.frontend));
        let begun = Instant::now();
        let made = async {
            let ready = startup.ready_silently().await?;
            let ended = self.run(&ready.sandbox).await?;
            if ended.outcome != Outcome::Exited(0) {
                self.report(&ended)?;
                return Ok(false);
            }
            self.keep(&ready, &id, scratch.path(), kept, begun.elapsed()).await
        };
        let made = made.await;
        gateway.end().await;
        startup.end().await;
        made
    }

    async fn keep(
        &self,
        ready: &Ready,
        id: &SessionId,
        scratch: &Path,
        kept: &Path,
        took: Duration,
    ) -> Result<bool> {
        let (workspace, layer) = (&ready.workspace, scratch.join("layer"));
        make_dir(&layer)?;
        if !self.settings.backend.fork(id.as_str(), &layer).await?.workspace {
            self.notice(format!(
                "The setup `{}` ran, but its result cannot be kept for other sandboxes here.",
                one_line(&self.setup.command, 100)
            ))?;
            return Ok(false);
        }
        let changed = workspace.keep_outside(&ready.sandbox, &layer).await?;
        let record = Record { root: workspace.root().to_owned(), command: self.setup.command.clone() };
        fs::write(layer.join(RECORD), serde_json::to_vec(&record)?)?;
        fs::rename(&layer, kept)?;
        let _ = forget_setups(workspace.root(), &workspace.machine(), true);
        let mut text = format!(
            "Set up with `{}` in {} s; later sessions begin with its result.",
            one_line(&self.setup.command, 100),
            took.as_secs()
        );
        if let Some(names) = notices::listed(changed.iter().map(ToString::to_string), 5) {
            text.push_str(&format!(" What it changed in the project itself is not kept: {names}."));
        }
        self.notice(text)?;
        Ok(true)
    }

    /// Runs the command in the session's own sandbox, on a backend that cannot keep a result.
    ///
    /// # Errors
    /// The sandbox is lost.
    pub async fn run_in(&self, sandbox: &Sandbox, gateway: &Arc<Gateway>) -> Result<()> {
        let text = format!(
            "The {} sandbox mounts nothing of this machine, so the setup `{}` runs at each start.",
            self.settings.backend.name(),
            one_line(&self.setup.command, 100)
        );
        self.notice(text)?;
        let before = gateway.rules();
        let opened = match &self.setup.network {
            Network::None => None,
            Network::Full => Some(network::Rules::parse("public")?),
            Network::Hosts(hosts) => Some(network::Rules::parse(&hosts.join(","))?),
        };
        if let Some(rules) = opened {
            gateway.begin_with(rules);
            gateway.attach(sandbox).await?;
        }
        let ended = self.run(sandbox).await;
        gateway.begin_with(before);
        let ended = ended?;
        if ended.outcome != Outcome::Exited(0) {
            self.report(&ended)?;
        }
        Ok(())
    }

    async fn run(&self, sandbox: &Sandbox) -> Result<Ended> {
        self.frontend.progress(Step::Setup(&self.setup.command));
        let run = Command {
            program: Program::Shell(self.setup.command.clone()),
            cwd: None,
            env: Vec::new(),
            timeout: Some(TIMEOUT),
            live_bytes: 0,
            stdin: false,
        };
        let mut tail: Vec<u8> = Vec::new();
        let finished = sandbox
            .run(run, &mut |output| {
                if let Output::Data(_, bytes) = output {
                    tail.extend(bytes);
                    let least = tail.len().saturating_sub(TAIL_BYTES);
                    tail.drain(..least);
                }
            })
            .await?;
        let text = String::from_utf8_lossy(&tail).trim_end().to_owned();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        let tail = lines.into_iter().rev().map(|line| one_line(line, 300)).collect::<Vec<_>>().join(" / ");
        Ok(Ended { outcome: finished.outcome, tail })
    }

    fn report(&self, ended: &Ended) -> Result<()> {
        let how = agent_tools::describe(ended.outcome, Some(TIMEOUT));
        let said = if ended.tail.is_empty() { String::new() } else { format!(" It printed: {}", ended.tail) };
        self.frontend.always_notice(format!(
            "The setup `{}` failed ({how}), so the session begins without it.{said}",
            one_line(&self.setup.command, 100)
        ))
    }

    fn notice(&self, text: String) -> Result<()> {
        self.frontend.events().emit(Event::Notice { text })
    }
}

/// Returns whether a complete result is there, which is noted as used.
fn use_again(kept: &Path) -> bool {
    let Ok(record) = File::options().append(true).open(kept.join(RECORD)) else { return false };
    // Only its removal goes by that.
    let _ = record.set_modified(SystemTime::now());
    true
}
