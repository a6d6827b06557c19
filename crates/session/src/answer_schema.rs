//! A JSON Schema that the final answer has to satisfy.

use super::Session;
use agent_base::error::{Error, Kind, Result};
use serde_json::Value;

/// Answers that the model may give until one satisfies the schema.
const ATTEMPTS: u32 = 3;
/// Violations that the model is shown.
const MAX_VIOLATIONS: usize = 10;

/// A compiled schema.
pub struct AnswerSchema {
    value: Value,
    validator: jsonschema::Validator,
}

impl AnswerSchema {
    /// # Errors
    /// `value` is not a valid schema: why.
    pub fn new(value: Value) -> std::result::Result<Self, String> {
        let validator = jsonschema::validator_for(&value).map_err(|error| error.to_string())?;
        Ok(Self { value, validator })
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    /// `prompt` with the schema, for endpoints that do not enforce it.
    pub fn in_prompt(&self, prompt: &str) -> String {
        format!(
            "{prompt}\n\nYour final answer must be JSON alone, without any text or fence around it, that satisfies this \
             JSON Schema:\n{}",
            self.value
        )
    }

    fn check(&self, answer: &str) -> std::result::Result<String, String> {
        let json: Value = serde_json::from_str(unfenced(answer))
            .map_err(|error| format!("it is not valid JSON: {error}"))?;
        let violations: Vec<String> = self
            .validator
            .iter_errors(&json)
            .take(MAX_VIOLATIONS)
            .map(|error| format!("{error} (at {:?})", error.instance_path().to_string()))
            .collect();
        if violations.is_empty() { Ok(json.to_string()) } else { Err(violations.join("\n")) }
    }
}

impl Session {
    /// `answer` as JSON that satisfies `schema`. If it does not, the model answers again.
    pub async fn satisfy(&mut self, schema: &AnswerSchema, mut answer: String) -> Result<String> {
        for attempt in 1.. {
            let violations = match schema.check(&answer) {
                Ok(json) => return Ok(json),
                Err(violations) => violations,
            };
            if attempt == ATTEMPTS {
                let message = format!("the answer does not satisfy the schema: {violations}");
                return Err(Error::new(Kind::Check, message));
            }
            let feedback = format!(
                "Your answer does not satisfy the required schema:\n{violations}\n\
                 Answer again with the JSON alone, without any text around it."
            );
            answer = self.conversation.follow_up(&feedback).await?.text;
        }
        Ok(answer)
    }
}

/// The JSON without the code fence that models often put around it.
fn unfenced(answer: &str) -> &str {
    let answer = answer.trim();
    let Some(inner) = answer.strip_prefix("```") else { return answer };
    let inner = inner.strip_prefix("json").unwrap_or(inner);
    inner.strip_suffix("```").unwrap_or(inner).trim()
}

#[cfg(test)]
mod tests {
    use super::unfenced;

    #[test]
    fn a_fence_is_removed() {
        for answer in ["{\"a\":1}", " ```json\n{\"a\":1}\n```\n", "```\n{\"a\":1}\n```"] {
            assert_eq!(unfenced(answer), "{\"a\":1}");
        }
    }
}
