//! The output of a command: its result on standard output, as text or with `--json` as one line of JSON; its failure and notices
//! on standard error.

use crate::cli::options::Options;
use crate::cli::ui::json::output_error;
use crate::cli::ui::stderr;
use crate::cli::ui::style::Colours;
use crate::cli::ui::trace::failure_text;
use crate::cli::ui::wrap::columns_of;
use crate::error::{Error, Kind, Result};
use crate::event::Changes;
use crate::event::json::to_vec;
use crate::exit_code::ExitCode;
use crate::sanitise::one_line;
use serde::Serialize;
use std::io::Write;

/// Columns of a notice.
const MAX_NOTICE: usize = 300;

/// Prints `text`, which is sanitised and ends in a line feed, or `json`.
pub fn print(options: &Options, text: &str, json: &impl Serialize) -> Result<ExitCode> {
    match options.is_json() {
        true => json_line(json)?,
        false => write(text.as_bytes())?,
    }
    Ok(ExitCode::Success)
}

/// Prints one line of JSON.
pub fn json_line(json: &impl Serialize) -> Result<()> {
    write(&[to_vec(json)?, b"\n".to_vec()].concat())
}

/// Prints `text`; a reader that closes the pipe early is not a failure.
pub fn offer(text: &[u8]) -> Result<()> {
    match write(text) {
        Err(error) if error.kind() == Kind::OutputClosed => Ok(()),
        written => written,
    }
}

fn write(text: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(output_error)
}

/// Prints a notice where there is no screen.
pub fn notice(text: &str) {
    stderr::write(&format!("[NOTICE] {}\n", one_line(text, MAX_NOTICE)));
}

/// Reports what failed and what to do about it.
pub fn failure(error: &Error) -> ExitCode {
    let stderr = std::io::stderr();
    stderr::write(&failure_text(error, Colours::of(&stderr), columns_of(&stderr)));
    error.exit_code()
}

/// `1 file added, 2 modified, 0 deleted`
pub fn counted(changes: Changes) -> String {
    let Changes { added, modified, deleted } = changes;
    let plural = if added == 1 { "" } else { "s" };
    format!("{added} file{plural} added, {modified} modified, {deleted} deleted")
}
