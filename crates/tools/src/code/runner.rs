//! Runs code in one sandbox: chooses the way, keeps the interpreters, installs libraries.

use super::interpreter::{Cell, Ended, Gone, Interpreter};
use super::libraries::Libraries;
use super::snippet::{self, Snippet};
use super::toolchains::{Remembered, Toolchains};
use super::{CACHE, Language, missing};
use crate::{Collector, Reach, describe};
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_sandbox::{Command, Outcome, Output, Program, Sandbox};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

/// The time limit for the installation of libraries.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);
/// Characters of a failed installation's output that are reported.
const INSTALL_CHARS: usize = 3_000;

/// Runs code in one sandbox.
pub struct Runner {
    toolchains: OnceCell<Toolchains>,
    remembered: Option<Remembered>,
    python: Arc<Mutex<Slot>>,
    javascript: Arc<Mutex<Slot>>,
    /// Languages whose interpreters an earlier process had.
    resumed: Lock<HashSet<Language>>,
    /// Libraries and sets of them that are known to be installed.
    installed: Lock<HashSet<String>>,
}

/// An interpreter, and what its next cell has to know.
#[derive(Default)]
struct Slot {
    interpreter: Option<Interpreter>,
    /// The reason why there is none any more, until the model has got it.
    gone: Option<String>,
    has_new_libraries: bool,
}

/// The code to run.
pub struct Request {
    /// The language.
    pub language: Language,
    /// The code.
    pub code: String,
    /// Libraries that are installed before.
    pub libraries: Libraries,
    /// The time limit.
    pub timeout: Duration,
    /// Set if it gets a new interpreter.
    pub reset: bool,
    /// The directory for what it shows, in the sandbox; empty: none.
    pub display: String,
    /// Set if a notebook shows it: each value is one file with all its media types (`.bundle.json`), and what a kept Python
    /// interpreter writes to standard error is reported as that.
    pub is_notebook: bool,
    /// Further variables. An interpreter that is running keeps those that it was started with.
    pub env: Vec<(OsString, OsString)>,
}

/// The result of running code.
pub enum Ran {
    /// A cell of a kept interpreter.
    Cell(CellRan),
    /// A program of its own.
    Snippet(snippet::SnippetRan),
}

/// The result of running a cell in a kept interpreter.
pub struct CellRan {
    /// The language.
    pub language: Language,
    /// The reason why the interpreter was a new one, where there was another before.
    pub renewed: Option<String>,
    /// The outcome of the cell.
    pub ended: Ended,
    /// The time that it took.
    pub duration: Duration,
}

impl Runner {
    /// A runner; what the sandbox turns out to have is remembered in `remembered`.
    pub fn new(remembered: Option<Remembered>) -> Self {
        Self {
            toolchains: OnceCell::new(),
            remembered,
            python: Arc::default(),
            javascript: Arc::default(),
            resumed: Lock::default(),
            installed: Lock::default(),
        }
    }

    /// Returns what the sandbox has; it is asked once.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn toolchains(&self, sandbox: &Sandbox) -> Result<&Toolchains> {
        let ask = || async {
            let found = Toolchains::ask(sandbox).await?;
            if let Some(remembered) = &self.remembered {
                remembered.write(&found);
            }
            Ok(found)
        };
        self.toolchains.get_or_try_init(ask).await
    }

    /// An earlier process of the session ran code of this language: if it kept state, that is gone.
    pub fn resumed(&self, language: Language) {
        if language.keeps_state() {
            self.resumed.lock().insert(language);
        }
    }

    /// Ends the interpreters, because the workspace was put back to an earlier state. What was ended, for the user.
    pub async fn discard(&self) -> Option<String> {
        let mut ended = Vec::new();
        for slot in [&self.python, &self.javascript] {
            let mut slot = slot.lock().await;
            if let Some(interpreter) = slot.interpreter.take() {
                ended.push(interpreter.language().name());
                interpreter.kill();
                slot.gone = Some("the user undid changes, and its state belonged to them".to_owned());
            }
        }
        let names = ended.join(" and ");
        (!ended.is_empty()).then(|| {
            format!("the {names} interpreter of run_code is ended: its variables belonged to what was undone")
        })
    }

    /// Runs it. Dropping the future interrupts it.
    ///
    /// # Errors
    /// `Usage`: the libraries cannot be installed, and why. The connection is broken.
    pub async fn run(
        &self,
        sandbox: &Sandbox,
        reach: &dyn Reach,
        request: &Request,
        on_output: &mut (dyn FnMut(Output<'_>) + Send),
    ) -> Result<Ran> {
        let there = self.prepare(sandbox, reach, request.language, &request.libraries).await?;
        if request.language.keeps_state() {
            return self.run_cell(sandbox, request, on_output).await.map(Ran::Cell);
        }
        let snippet = Snippet::plan(request.language, &request.code, &request.libraries, there)?;
        snippet.run(sandbox, request.env.clone(), request.timeout, on_output).await.map(Ran::Snippet)
    }

    /// Makes sure that the language and its libraries are there. What the sandbox has.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub async fn prepare(
        &self,
        sandbox: &Sandbox,
        reach: &dyn Reach,
        language: Language,
        libraries: &Libraries,
    ) -> Result<&Toolchains> {
        let there = self.toolchains(sandbox).await?;
        if !there.runs(language) {
            return Err(missing(language, there));
        }
        self.install(sandbox, reach, there, libraries).await?;
        Ok(there)
    }

    fn slot(&self, language: Language) -> &Arc<Mutex<Slot>> {
        if language == Language::JavaScript { &self.javascript } else { &self.python }
    }

    async fn run_cell(
        &self,
        sandbox: &Sandbox,
        request: &Request,
        on_output: &mut (dyn FnMut(Output<'_>) + Send),
    ) -> Result<CellRan> {
        let language = request.language;
        // One that is being interrupted is waited for.
        let mut slot = self.slot(language).clone().lock_owned().await;
        if self.resumed.lock().remove(&language) {
            slot.gone = Some("the session was resumed by another process".to_owned());
        }
        if request.reset
            && let Some(interpreter) = slot.interpreter.take()
        {
            interpreter.kill();
            slot.gone = Some("a reset was asked for".to_owned());
        }
        let started = Instant::now();
        let interpreter = match slot.interpreter.take() {
            Some(interpreter) => interpreter,
            None => Interpreter::start(sandbox, language, environment(language, request)).await?,
        };
        let renewed = slot.gone.take();
        let has_new_libraries = std::mem::take(&mut slot.has_new_libraries);
        let cell = Cell {
            code: &request.code,
            display: &request.display,
            has_new_libraries,
            is_notebook: request.is_notebook,
            timeout: request.timeout,
        };
        let nonce = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let mut running = Running { slot: Some(slot), interpreter: Some(interpreter), nonce, renewed };
        let ended = running.run(&cell, on_output).await?;
        let renewed = running.renewed.take();
        Ok(CellRan { language, renewed, ended, duration: started.elapsed() })
    }

    /// Installs what is not there yet.
    async fn install(
        &self,
        sandbox: &Sandbox,
        reach: &dyn Reach,
        there: &Toolchains,
        libraries: &Libraries,
    ) -> Result<()> {
        let missing = libraries.missing(|key| self.installed.lock().contains(key));
        if missing.is_empty() {
            return Ok(());
        }
        let language = libraries.language();
        let needed = if libraries.are_separate() { missing } else { libraries.clone() };
        let manager = needed.manager();
        if !there.has(manager) {
            return Err(Error::usage(format!(
                "libraries for {} are installed with {manager}, which is not in this sandbox: use an image that has it",
                language.name()
            )));
        }
        let stamp = needed.stamp();
        let is_there = match sandbox.stat(&stamp).await {
            Ok(_) => true,
            Err(error) if error.kind() == Kind::InSandbox => false,
            Err(error) => return Err(error),
        };
        if !is_there {
            self.fetch(sandbox, reach, &needed, &stamp).await?;
        }
        self.installed.lock().extend(needed.keys());
        if language.keeps_state() {
            self.slot(language).lock().await.has_new_libraries = true;
        }
        Ok(())
    }

    async fn fetch(
        &self,
        sandbox: &Sandbox,
        reach: &dyn Reach,
        needed: &Libraries,
        stamp: &Path,
    ) -> Result<()> {
        // Python's may be part of the image.
        let is_there = needed.language() == Language::Python
            && run_installer(sandbox, needed, stamp, true).await?.is_none();
        if is_there {
            return Ok(());
        }
        let purpose = format!("install {} ({})", needed.names(), needed.language().name());
        if let Some(why) = reach.reach(needed.hosts(), &purpose).await? {
            return Err(Error::usage(format!(
                "{} is not installed, and the sandbox may not connect to {}: {why}",
                needed.names(),
                needed.hosts().join(", ")
            )));
        }
        match run_installer(sandbox, needed, stamp, false).await? {
            None => Ok(()),
            Some(failure) => Err(Error::usage(format!("`{}` failed: {failure}", needed.command()))),
        }
    }
}

/// Runs the package manager. What it printed, where it failed.
async fn run_installer(
    sandbox: &Sandbox,
    libraries: &Libraries,
    stamp: &Path,
    offline: bool,
) -> Result<Option<String>> {
    let (script, arguments) = libraries.install(offline);
    let directory = libraries.directory();
    let text =
        format!("mkdir -p \"$1\" && cd \"$1\" || exit; stamp=$2; shift 2\n( {script} ) && : > \"$stamp\"");
    let words = ["sh".into(), "-c".into(), text.into(), "sh".into()];
    let places = [directory.into_os_string(), stamp.as_os_str().to_owned()];
    let command = Command {
        program: Program::Argv(
            words.into_iter().chain(places).chain(arguments.into_iter().map(OsString::from)).collect(),
        ),
        // Not the workspace, whose files could configure the package manager.
        cwd: Some("/".into()),
        env: Vec::new(),
        timeout: Some(INSTALL_TIMEOUT),
        live_bytes: 64 << 10,
        stdin: false,
    };
    let mut collector = Collector::new(INSTALL_CHARS);
    let finished = sandbox.run(command, &mut |output| collector.push(output)).await?;
    if finished.outcome == Outcome::Exited(0) {
        return Ok(None);
    }
    let printed = collector.finish(None).text;
    Ok(Some(format!("{}\n{}", describe(finished.outcome, Some(INSTALL_TIMEOUT)), printed.trim_end())))
}

/// A cell under way. Dropped before its end, it interrupts the program, and the next call waits until that is done.
struct Running {
    slot: Option<OwnedMutexGuard<Slot>>,
    interpreter: Option<Interpreter>,
    nonce: String,
    /// The reason why the interpreter is a new one. The next call reports it if this one has no result or has run
    /// nothing.
    renewed: Option<String>,
}

impl Running {
    async fn run(
        &mut self,
        cell: &Cell<'_>,
        on_output: &mut (dyn FnMut(Output<'_>) + Send),
    ) -> Result<Ended> {
        let Some(interpreter) = &mut self.interpreter else {
            return Err(Error::unexpected("the interpreter is in use"));
        };
        let ended = interpreter.run(cell, &self.nonce, on_output).await;
        let (interpreter, slot) = (self.interpreter.take(), self.slot.take());
        let Some(mut slot) = slot else { return ended };
        match &ended {
            Ok(Ended::Answered { .. }) => slot.interpreter = interpreter,
            Ok(Ended::Gone(gone)) => {
                interpreter.into_iter().for_each(Interpreter::kill);
                slot.gone = why(gone).map(str::to_owned).or_else(|| self.renewed.take());
            }
            Err(_) => {}
        }
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (Some(mut slot), Some(mut interpreter)) = (self.slot.take(), self.interpreter.take()) else {
            return;
        };
        let (nonce, renewed) = (std::mem::take(&mut self.nonce), self.renewed.take());
        let recovery = async move {
            let lost = match interpreter.recover(&nonce).await {
                Ok(()) => {
                    slot.interpreter = Some(interpreter);
                    None
                }
                Err(gone) => {
                    interpreter.kill();
                    why(&gone)
                }
            };
            slot.gone = lost.map(str::to_owned).or(renewed);
        };
        // Without a runtime the session has ended, and the interpreter ends with its connection.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(recovery);
        }
    }
}

/// Returns the reason why the next interpreter is a new one; `None` where no state was lost.
fn why(gone: &Gone) -> Option<&'static str> {
    match gone {
        Gone::NotStarted(_) => None,
        Gone::Ended(_) => Some("the one before ended"),
        Gone::Killed => Some("the one before did not stop when it was interrupted, and was killed"),
        Gone::Garbage => Some("the one before answered garbage, and was killed"),
    }
}

/// The variables of an interpreter.
fn environment(language: Language, request: &Request) -> Vec<(OsString, OsString)> {
    let mut env = request.env.clone();
    let mut set = |name: &str, value: &str| env.push((name.into(), value.into()));
    match language {
        // A line at a time is enough, and takes half the system calls.
        Language::Python => set("PYTHONUNBUFFERED", ""),
        _ => {
            set("AGENT_NODE_LIBRARIES", &format!("{CACHE}/javascript"));
            set("NODE_PATH", &format!("{CACHE}/javascript/node_modules"));
        }
    }
    env
}
