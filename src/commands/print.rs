//! What a command has to say, on standard output: words, or with `--json` one line of JSON.

use crate::cli::Options;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::ui::json::{output_error, to_vec};
use serde::Serialize;
use std::io::Write;

/// Prints `words`, which are harmless and end in a line feed, or `json`.
pub fn print(options: &Options, words: &str, json: &impl Serialize) -> Result<ExitCode> {
    let text = match options.json {
        true => [to_vec(json)?, b"\n".to_vec()].concat(),
        false => words.as_bytes().to_vec(),
    };
    std::io::stdout().lock().write_all(&text).map_err(output_error)?;
    Ok(ExitCode::Success)
}
