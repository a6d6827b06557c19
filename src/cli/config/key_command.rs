//! `api_key_command`: a program of the user's that prints the endpoint's key, so that no file holds it.

use crate::error::{Error, Result};
use crate::host_process;
use crate::host_program;
use crate::machine::Machine;
use crate::model::{KeySource, Secret};
use crate::sanitise::one_line;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The time limit for the program: it may wait for a window in which the user unlocks their keys.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of its output that are read.
const MAX_OUTPUT: usize = 64 << 10;

/// The command as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum KeyCommand {
    /// A line for a shell.
    Line(String),
    /// A program and its arguments.
    Program(Vec<String>),
}

/// The key that the command has printed. It is asked for once in a call, and again where the endpoint refuses it.
#[derive(Clone, Default)]
pub struct PrintedKey(Arc<OnceCell<Secret>>);

impl fmt::Debug for PrintedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrintedKey(…)")
    }
}

impl PrintedKey {
    /// Returns the key, for which `source` is asked where it is not there yet.
    ///
    /// # Errors
    /// The command fails.
    pub async fn of(&self, source: &CommandOutput) -> Result<Secret> {
        self.0.get_or_try_init(|| source.print()).await.cloned()
    }

    /// The key, if the command has printed it.
    pub fn known(&self) -> Option<Secret> {
        self.0.get().cloned()
    }
}

/// Runs a [`KeyCommand`].
pub struct CommandOutput {
    command: KeyCommand,
    workspace: PathBuf,
    machine: Arc<Machine>,
}

impl CommandOutput {
    /// Nothing of `workspace` is started.
    pub fn new(command: KeyCommand, workspace: &Path, machine: &Arc<Machine>) -> Self {
        Self { command, workspace: workspace.to_owned(), machine: Arc::clone(machine) }
    }

    async fn print(&self) -> Result<Secret> {
        let failed = |why: String| {
            Error::config(format!("api_key_command: {why}"))
                .hint("it has to print the key, and nothing else, to its standard output")
        };
        let (program, arguments) = match &self.command {
            KeyCommand::Line(line) => ("sh", vec!["-c", line]),
            KeyCommand::Program(words) => match words.split_first() {
                Some((program, arguments)) => {
                    (program.as_str(), arguments.iter().map(String::as_str).collect())
                }
                None => return Err(failed("it names no program".to_owned())),
            },
        };
        let found = host_program::command(OsStr::new(program), &self.workspace, &self.machine);
        let mut command =
            found.ok_or_else(|| failed(format!("there is no program {}", one_line(program, 100))))?;
        // Password managers have variables of their own; where programs are looked for stays as it is.
        command.args(arguments).envs(std::env::vars_os().filter(|(name, _)| name != "PATH"));
        let ran = host_process::run(command, b"", TIMEOUT, MAX_OUTPUT).await;
        let ran = ran.map_err(|error| failed("it could not be started".to_owned()).caused_by(error))?;
        let ran = ran.ok_or_else(|| failed(format!("it did not end within {} s", TIMEOUT.as_secs())))?;
        if !ran.status.success() {
            let said = one_line(&String::from_utf8_lossy(&ran.stderr), 300);
            return Err(failed(format!("it failed ({}): {said}", ran.status)));
        }
        let printed = String::from_utf8_lossy(&ran.stdout);
        Secret::new(printed.trim()).map_err(|error| failed(error.to_string()))
    }
}

impl KeySource for CommandOutput {
    fn renew(&self) -> BoxFuture<'_, Result<Secret>> {
        self.print().boxed()
    }
}
