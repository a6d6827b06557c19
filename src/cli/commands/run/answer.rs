//! The files of `agent run`: the schema that the final answer has to satisfy, and where the answer is written.

use crate::error::{Error, Result};
use crate::sanitise::plain;
use crate::session::AnswerSchema;
use std::path::Path;

/// Reads a JSON Schema from a file.
pub fn read_schema(path: &Path) -> Result<AnswerSchema> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::usage(format!("the schema {} cannot be read", path.display())).caused_by(error)
    })?;
    let value = serde_json::from_str(&text).map_err(|error| {
        Error::usage(format!("the schema {} is not valid JSON", path.display())).caused_by(error)
    })?;
    AnswerSchema::new(value)
        .map_err(|error| Error::usage(format!("{} is not a valid JSON Schema: {error}", path.display())))
}

/// Checks that an answer can be written to `path`, before the answer is paid for.
///
/// # Errors
/// Its directory does not exist, or the path is a directory itself.
pub fn check_writable(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !parent.is_dir() {
        return Err(Error::usage(format!("--output {} cannot be written", path.display()))
            .hint("name a file in a directory that exists"));
    }
    crate::plain_file::refuse_planted(path).map_err(|error| {
        Error::usage(format!("--output {} is not written: {error}", path.display()))
            .hint("name another file, or one in a directory of your own")
    })
}

/// Writes the final answer to a file, without what controls a terminal.
pub fn write(path: &Path, answer: &str) -> Result<()> {
    let planted = crate::plain_file::refuse_planted(path);
    planted.and_then(|()| std::fs::write(path, format!("{}\n", plain(answer)))).map_err(|error| {
        Error::unexpected(format!("the answer could not be written to {}", path.display())).caused_by(error)
    })
}
