//! The user's editor.

use super::host_programs::HostPrograms;
use super::terminal::keyboard::keyboard;
use super::terminal::mode::TerminalMode;
use agent_base::error::{Error, Result};
use agent_base::plain_file::{self, Links};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Stdio;

/// Bytes of an edited text.
const MAX_BYTES: u64 = 16 << 20;
/// The editor that most machines have.
const DEFAULT: &str = "vi";

/// Returns what the user makes of `text` in `$VISUAL`, `$EDITOR` or `vi`, in a file whose name ends in `suffix`. Waits while
/// something else reads the keyboard.
///
/// # Errors
/// There is no such editor, or it fails.
pub async fn edit(text: Vec<u8>, suffix: &'static str, programs: &HostPrograms) -> Result<Vec<u8>> {
    let _keyboard = keyboard().await;
    let _mode = TerminalMode::as_found();
    let programs = programs.clone();
    let editing = tokio::task::spawn_blocking(move || edit_now(&text, suffix, &programs));
    editing.await.map_err(|error| Error::unexpected("the editor was lost").caused_by(error))?
}

fn edit_now(text: &[u8], suffix: &str, programs: &HostPrograms) -> Result<Vec<u8>> {
    let mut file = tempfile::Builder::new().prefix("agent-").suffix(suffix).tempfile()?;
    file.write_all(text)?;
    file.flush()?;
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.trim().is_empty());
    let editor = variable("VISUAL").or_else(|| variable("EDITOR")).unwrap_or_else(|| DEFAULT.to_owned());
    let words = shell_words::split(&editor).unwrap_or_default();
    let missing = || {
        Error::usage(format!("the editor {editor} is not installed"))
            .hint("name one in EDITOR, outside of the workspace")
    };
    let (program, arguments) = words.split_first().ok_or_else(missing)?;
    let mut command = programs.command(program).ok_or_else(missing)?;
    // Standard output may be redirected; where questions are asked, standard error is the terminal.
    let terminal = std::io::stderr().as_fd().try_clone_to_owned()?;
    let status = command.args(arguments).arg(file.path()).stdout(Stdio::from(terminal)).status();
    let status =
        status.map_err(|error| Error::usage(format!("{editor} could not be started")).caused_by(error))?;
    if !status.success() {
        return Err(Error::usage(format!("{editor} failed ({status})")));
    }
    // An editor may have put another file in its place.
    let path: PathBuf = file.path().to_owned();
    plain_file::read(&path, MAX_BYTES, Links::Refuse)
        .map_err(|error| Error::usage("the edited text cannot be read").caused_by(error))
}
