//! The final answer of `agent run`: to a file, and as JSON that satisfies a schema.

use super::open::Opened;
use crate::error::{Error, Kind, Result};
use serde_json::Value;
use std::path::Path;

/// How often an answer that does not satisfy the schema goes back to the model.
const ATTEMPTS: u32 = 3;
/// Complaints about one answer that the model is told of.
const MAX_COMPLAINTS: usize = 10;

/// A JSON Schema that the answer has to satisfy.
pub struct Schema {
    /// As the person wrote it.
    pub value: Value,
    validator: jsonschema::Validator,
}

impl Schema {
    /// Reads it from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::usage(format!("the schema {} cannot be read", path.display())).caused_by(error)
        })?;
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            Error::usage(format!("the schema {} is no JSON", path.display())).caused_by(error)
        })?;
        let validator = jsonschema::validator_for(&value)
            .map_err(|error| Error::usage(format!("{} is no JSON Schema: {error}", path.display())))?;
        Ok(Self { value, validator })
    }

    /// The answer as JSON that satisfies the schema; what does not goes back to the model.
    pub async fn satisfied(&self, opened: &mut Opened, mut answer: String) -> Result<String> {
        for attempt in 1.. {
            let complaint = match self.check(&answer) {
                Ok(json) => return Ok(json),
                Err(complaint) => complaint,
            };
            if attempt == ATTEMPTS {
                return Err(Error::new(
                    Kind::Check,
                    format!("the answer does not satisfy the schema: {complaint}"),
                ));
            }
            let feedback = format!(
                "Your answer does not satisfy the schema it has to satisfy:\n{complaint}\n\
                 Answer again with the JSON alone, without any text around it."
            );
            answer = opened.session.turn(&feedback).await?.text;
        }
        Ok(answer)
    }

    fn check(&self, answer: &str) -> std::result::Result<String, String> {
        let json: Value =
            serde_json::from_str(bare(answer)).map_err(|error| format!("it is no JSON: {error}"))?;
        let complaints: Vec<String> = self
            .validator
            .iter_errors(&json)
            .take(MAX_COMPLAINTS)
            .map(|error| format!("{error} (at {:?})", error.instance_path().to_string()))
            .collect();
        if complaints.is_empty() { Ok(json.to_string()) } else { Err(complaints.join("\n")) }
    }
}

/// What the wish says about the schema, for endpoints that do not enforce one.
pub fn with_schema(wish: String, schema: Option<&Schema>) -> String {
    match schema {
        None => wish,
        Some(schema) => format!(
            "{wish}\n\nYour final answer must be JSON alone, without any text or fence around it, that satisfies this \
             JSON Schema:\n{}",
            schema.value
        ),
    }
}

/// The JSON without the fence that models like to put around it.
fn bare(answer: &str) -> &str {
    let answer = answer.trim();
    let Some(inner) = answer.strip_prefix("```") else { return answer };
    let inner = inner.strip_prefix("json").unwrap_or(inner);
    inner.strip_suffix("```").unwrap_or(inner).trim()
}

/// Whether an answer could be written to `path`: asked before the answer is paid for.
///
/// # Errors
/// There is no such directory, or the path is one itself.
pub fn can_be_written(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !parent.is_dir() {
        return Err(Error::usage(format!("--output {} cannot be written", path.display()))
            .hint("name a file in a directory that is there"));
    }
    Ok(())
}

/// Writes the final answer to a file.
pub fn write(path: &Path, answer: &str) -> Result<()> {
    std::fs::write(path, format!("{answer}\n")).map_err(|error| {
        Error::unexpected(format!("the answer could not be written to {}", path.display())).caused_by(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_taken_off() {
        for answer in ["{\"a\":1}", " ```json\n{\"a\":1}\n```\n", "```\n{\"a\":1}\n```"] {
            assert_eq!(bare(answer), "{\"a\":1}");
        }
    }
}
