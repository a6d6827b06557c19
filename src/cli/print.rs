//! A command's result on standard output: text, or with `--json` one line of JSON.

use crate::cli::options::Options;
use crate::cli::ui::json::output_error;
use crate::error::{Kind, Result};
use crate::event::json::to_vec;
use crate::exit_code::ExitCode;
use serde::Serialize;
use std::io::Write;

/// Prints `text`, which is sanitised and ends in a line feed, or `json`.
pub fn print(options: &Options, text: &str, json: &impl Serialize) -> Result<ExitCode> {
    let text = match options.json {
        true => [to_vec(json)?, b"\n".to_vec()].concat(),
        false => text.as_bytes().to_vec(),
    };
    write(&text)?;
    Ok(ExitCode::Success)
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
