//! The contexts of a sandbox: interpreters that keep their state from one execution to the next.

use super::cells::{self, Pieces};
use super::hosted::Hosted;
use super::interpreter::Lines;
use super::results;
use super::secret::random_text;
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_sandbox::{Outcome, Output};
use agent_tools::code::display::Run;
use agent_tools::code::{CellReport, Ended, Language, Libraries, Ran, Request, Runner, Status};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Contexts of one sandbox.
const MAX_CONTEXTS: usize = 64;
/// The languages whose default contexts are listed before they are used.
const DEFAULTS: [Language; 2] = [Language::Python, Language::JavaScript];
/// Clients limit executions by leaving.
const NO_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The context that a client asks for.
#[derive(Default, Deserialize)]
pub struct WantedContext {
    language: Option<String>,
    cwd: Option<String>,
}

/// One interpreter, or for languages without one a place to run programs.
pub struct Context {
    id: String,
    language: Language,
    cwd: PathBuf,
    shown_cwd: String,
    /// Set if it is the one that is used where the client names none.
    is_default: bool,
    state: Lock<ContextState>,
    /// Counts its restarts.
    restarts: watch::Sender<u64>,
}

struct ContextState {
    runner: Arc<Runner>,
    executions: u64,
    has_moved: bool,
}

impl ContextState {
    fn new() -> Self {
        Self { runner: Arc::new(Runner::new(None)), executions: 0, has_moved: false }
    }
}

/// All of a sandbox's, the oldest first.
#[derive(Default)]
pub struct Contexts(Lock<Vec<Arc<Context>>>);

impl Contexts {
    /// Makes one.
    ///
    /// # Errors
    /// The language is unknown, or there are too many.
    pub fn create(&self, hosted: &Hosted, wanted: &WantedContext) -> Result<Arc<Context>, String> {
        self.add_defaults(hosted);
        self.add(hosted, wanted, false)
    }

    /// Makes those that clients count on.
    fn add_defaults(&self, hosted: &Hosted) {
        for language in DEFAULTS {
            // Without room for one more, it is made when it is used.
            let _ = self.default_of(hosted, Some(language.name()));
        }
    }

    /// The one that is used where the client names a language, or nothing.
    ///
    /// # Errors
    /// As [`Contexts::create`].
    pub fn default_of(&self, hosted: &Hosted, language: Option<&str>) -> Result<Arc<Context>, String> {
        let known = parse(language)?;
        let found =
            self.0.lock().iter().find(|context| context.is_default && context.language == known).cloned();
        match found {
            Some(context) => Ok(context),
            None => {
                self.add(hosted, &WantedContext { language: language.map(str::to_owned), cwd: None }, true)
            }
        }
    }

    fn add(&self, hosted: &Hosted, wanted: &WantedContext, is_default: bool) -> Result<Arc<Context>, String> {
        let language = parse(wanted.language.as_deref())?;
        let cwd = hosted.paths.resolve(wanted.cwd.as_deref().unwrap_or_default());
        let context = Arc::new(Context {
            id: random_text::<20>().map_err(|error| error.to_string())?,
            language,
            shown_cwd: hosted.paths.shown(&cwd).to_string_lossy().into_owned(),
            cwd,
            is_default,
            state: Lock::new(ContextState::new()),
            restarts: watch::Sender::new(0),
        });
        let mut contexts = self.0.lock();
        if contexts.len() >= MAX_CONTEXTS {
            return Err(format!("there are {MAX_CONTEXTS} contexts already"));
        }
        contexts.push(Arc::clone(&context));
        Ok(context)
    }

    /// The one of this id.
    pub fn get(&self, id: &str) -> Option<Arc<Context>> {
        self.0.lock().iter().find(|context| context.id == id).cloned()
    }

    /// Removes one.
    pub fn remove(&self, id: &str) -> Option<Arc<Context>> {
        let mut contexts = self.0.lock();
        let at = contexts.iter().position(|context| context.id == id)?;
        Some(contexts.remove(at))
    }

    /// All of them, described. Those that clients count on are there from the beginning.
    pub fn list(&self, hosted: &Hosted) -> Vec<Value> {
        self.add_defaults(hosted);
        self.0.lock().iter().map(|context| context.describe()).collect()
    }
}

fn parse(language: Option<&str>) -> Result<Language, String> {
    let Some(name) = language else { return Ok(Language::Python) };
    Language::parse(name).ok_or_else(|| {
        let names = Language::ALL.map(Language::name).join(", ");
        format!("there is no language {name:?}: the languages are {names}")
    })
}

impl Context {
    /// As clients see it.
    pub fn describe(&self) -> Value {
        json!({ "id": self.id, "language": self.language.name(), "cwd": self.shown_cwd })
    }

    /// Ends its interpreter with what it runs; the next execution starts a new one.
    pub fn restart(&self) {
        *self.state.lock() = ContextState::new();
        self.restarts.send_modify(|restarts| *restarts += 1);
    }

    /// Runs code, and reports everything about it.
    pub async fn execute(
        &self,
        hosted: &Hosted,
        code: String,
        env: BTreeMap<String, String>,
        mut lines: Lines,
    ) {
        let mut restarts = self.restarts.subscribe();
        let result = tokio::select! {
            result = self.run(hosted, code, &env, &mut lines) => result,
            // The sender lives as long as the context.
            _ = restarts.changed() => {
                lines.error("KernelRestarted", "the context was restarted", "");
                Ok(())
            }
        };
        if let Err(error) = result {
            let hint = error.hint_text().map(|hint| format!("\n{hint}")).unwrap_or_default();
            lines.error("ExecutionError", &error.to_string(), &format!("{error}{hint}"));
        }
        lines.send(json!({ "type": "end_of_execution" }));
    }

    async fn run(
        &self,
        hosted: &Hosted,
        code: String,
        env: &BTreeMap<String, String>,
        lines: &mut Lines,
    ) -> Result<()> {
        let (runner, number) = {
            let mut state = self.state.lock();
            state.executions += 1;
            (Arc::clone(&state.runner), state.executions)
        };
        lines.send(json!({ "type": "number_of_executions", "execution_count": number }));
        let inside = hosted.paths.inside(&self.cwd);
        let (language, code) = cells::program(&hosted.sandbox, self.language, &inside, code).await?;
        let moves = language.keeps_state() && !std::mem::replace(&mut self.state.lock().has_moved, true);
        let run = Run::begin(&hosted.sandbox).await?;
        let request = |code: String| {
            let display = run.environment();
            let display = display.into_iter().map(|(name, value)| (name.into(), value.into()));
            // A kept interpreter gets them for this execution, and not for good.
            let own = env.iter().filter(|_| !language.keeps_state());
            let own = own.map(|(name, value)| (name.into(), value.into()));
            Ok::<_, agent_base::error::Error>(Request {
                language,
                code,
                libraries: Libraries::parse(language, &[])?,
                timeout: NO_LIMIT,
                reset: false,
                display: run.directory().display().to_string(),
                is_notebook: true,
                env: hosted.variables(&self.cwd).into_iter().chain(display).chain(own).collect(),
            })
        };
        let before = prelude(language, moves.then_some(&*inside), env);
        if let Some(before) = before {
            runner.run(&hosted.sandbox, &(), &request(before)?, &mut |_| {}).await?;
        }
        let mut pieces = Pieces::of(language);
        let mut on_output = |output: Output<'_>| {
            if let Output::Data(stream, bytes) = output {
                pieces.push(stream, bytes, |stream, piece| lines.output(stream, piece));
            }
        };
        let ran = runner.run(&hosted.sandbox, &(), &request(code)?, &mut on_output).await?;
        pieces.finish(|stream, piece| lines.output(stream, piece));
        // An interpreter that is gone has no variables of this execution.
        let is_kept = matches!(&ran, Ran::Cell(cell) if matches!(cell.ended, Ended::Answered { .. }));
        if let Some(after) = afterwards(language, env).filter(|_| is_kept) {
            runner.run(&hosted.sandbox, &(), &request(after)?, &mut |_| {}).await?;
        }
        let shown = results::collect(&hosted.sandbox, &run).await?;
        report(&ran, shown, lines);
        Ok(())
    }
}

/// Code by which an interpreter names its directory as clients do: where the home is a link, the kernel knows its other
/// name alone.
const PYTHON_CWD: &str = r#"
def logical(os=os, real=os.getcwd, home=os.environ.get("HOME", "")):
    path, target = real(), os.path.realpath(home)
    is_below = home and (path == target or path.startswith(target + "/"))
    return home + path[len(target):] if is_below else path
os.getcwd = logical
del logical, os"#;
const JAVASCRIPT_CWD: &str = r#"process.cwd = ((real, home) => () => {
    const path = real(), target = require('fs').realpathSync(home);
    return path === target || path.startsWith(target + '/') ? home + path.slice(target.length) : path;
})(process.cwd.bind(process), process.env.HOME || '/');"#;

/// Returns what a kept interpreter does before the code: it moves to its directory, and takes the variables of this execution.
fn prelude(language: Language, cwd: Option<&Path>, env: &BTreeMap<String, String>) -> Option<String> {
    if !language.keeps_state() || cwd.is_none() && env.is_empty() {
        return None;
    }
    let is_python = language == Language::Python;
    let mut lines = Vec::new();
    if let Some(cwd) = cwd {
        let path = json!(cwd.to_string_lossy());
        lines.push(match is_python {
            true => format!("import os\nos.chdir({path})\n{PYTHON_CWD}"),
            false => format!("process.chdir({path}); {JAVASCRIPT_CWD}"),
        });
    }
    if !env.is_empty() {
        let env = json!(env);
        lines.push(match is_python {
            true => format!(
                "import os as __os\n__lent = {{name: __os.environ.get(name) for name in {env}}}\n__os.environ.update({env})"
            ),
            false => format!(
                "globalThis.__lent = Object.keys({env}).map((name) => [name, process.env[name]]); \
                 void Object.assign(process.env, {env})"
            ),
        });
    }
    Some(lines.join("\n"))
}

/// Returns what a kept interpreter does after the code: the variables of this execution are as they were before it.
fn afterwards(language: Language, env: &BTreeMap<String, String>) -> Option<String> {
    if !language.keeps_state() || env.is_empty() {
        return None;
    }
    let code = match language {
        Language::Python => {
            "for __name, __value in __lent.items():\n    \
             __os.environ.pop(__name, None) if __value is None else __os.environ.update({__name: __value})\n\
             del __lent, __name, __value, __os"
        }
        _ => {
            "for (const [name, value] of globalThis.__lent) {\n\
             if (value === undefined) delete process.env[name]; else process.env[name] = value;\n}\n\
             void delete globalThis.__lent"
        }
    };
    Some(code.to_owned())
}

/// Sends what a finished execution shows: pictures, the value of its last expression, the exception.
fn report(ran: &Ran, shown: results::ShownFiles, lines: &Lines) {
    let cell = match ran {
        Ran::Cell(cell) => cell,
        Ran::Snippet(ran) => {
            shown.results(None).into_iter().for_each(|result| lines.send(result));
            match ran.finished.outcome {
                Outcome::Exited(0) => {}
                outcome => {
                    let value = agent_tools::describe(outcome, None);
                    lines.error(
                        if ran.is_build_failure { "BuildError" } else { "ExitError" },
                        &value,
                        &value,
                    );
                }
            }
            return;
        }
    };
    let report = CellReport::of(cell, NO_LIMIT);
    let value = Some(report.value.as_str()).filter(|value| !value.is_empty());
    shown.results(value).into_iter().for_each(|result| lines.send(result));
    match &cell.ended {
        Ended::Answered { answer, .. } if answer.status == Status::Ok => {}
        Ended::Answered { answer, .. } if answer.status == Status::Exit => {
            lines.error("SystemExit", &answer.exit_code.to_string(), "");
        }
        Ended::Answered { answer, .. } => {
            let (name, value) = results::exception(&answer.error);
            lines.error(name, value, &answer.error);
        }
        Ended::Gone(_) => lines.error("KernelDied", &report.outcome, &report.notes.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_interpreter_moves_once_and_takes_variables() {
        let env = BTreeMap::from([("A".to_owned(), "x\"y".to_owned())]);
        let python = prelude(Language::Python, Some(Path::new("/tmp")), &env).unwrap();
        assert!(python.starts_with("import os\nos.chdir(\"/tmp\")\n"), "{python}");
        assert!(python.ends_with("\n__os.environ.update({\"A\":\"x\\\"y\"})"), "{python}");
        assert!(afterwards(Language::Python, &env).is_some());
        assert_eq!(afterwards(Language::Bash, &env), None);
        assert_eq!(prelude(Language::Python, None, &BTreeMap::new()), None);
        assert_eq!(prelude(Language::Bash, Some(Path::new("/tmp")), &env), None);
    }
}
