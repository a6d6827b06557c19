//! The fields that `[models.NAME]` adds to each request: checked when the configuration is read.

use super::layers::ModelOptions;
use crate::error::{Error, Result};
use crate::model::OWN_FIELDS;

/// Headers that the client sets itself: the key's, and those of the connection.
const OWN_HEADERS: [&str; 11] = [
    "authorization",
    "x-api-key",
    "proxy-authorization",
    "host",
    "content-type",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "transfer-encoding",
    "connection",
    "te",
];
/// Of one model.
const MAX_HEADERS: usize = 32;
/// Models that may answer in place of one.
const MAX_FALLBACKS: usize = 5;
/// The fewest tokens to think with that Anthropic takes.
const MIN_BUDGET: u32 = 1_024;
/// Characters of a reasoning effort, which is one word.
const MAX_EFFORT: usize = 32;

/// # Errors
/// `Config`, with the setting's name.
pub(super) fn check(model: &str, options: &ModelOptions) -> Result<()> {
    let invalid =
        |setting: &str, why: String| Error::config(format!("{setting} in [models.{model:?}]: {why}"));
    if let Some(value) = options.temperature {
        temperature(value).map_err(|error| invalid("temperature", error.to_string()))?;
    }
    if let Some(value) = options.top_p.filter(|value| !(0.0..=1.0).contains(value)) {
        return Err(invalid("top_p", format!("{value} is not valid")).hint("use a number from 0 to 1"));
    }
    if let Some(effort) = &options.reasoning_effort {
        let is_word = effort.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if effort.is_empty() || effort.len() > MAX_EFFORT || !is_word {
            return Err(invalid("reasoning_effort", format!("{effort:?} is not one word"))
                .hint("most endpoints take low, medium and high"));
        }
    }
    if let Some(budget) = options.reasoning_budget.filter(|budget| *budget < MIN_BUDGET) {
        return Err(invalid("reasoning_budget", format!("{budget} is too few tokens"))
            .hint(format!("use {MIN_BUDGET} or more, or reasoning_effort = \"none\" for no thinking")));
    }
    if let Some(field) = options.body.keys().find(|name| OWN_FIELDS.contains(&name.as_str())) {
        return Err(invalid("body", format!("{field} cannot be set: agent sends it itself")));
    }
    if let Some(name) =
        options.headers.keys().find(|name| OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)))
    {
        return Err(invalid("headers", format!("{name} cannot be set: agent sends it itself"))
            .hint("the key is set with api_key or AGENT_API_KEY"));
    }
    if options.fallback.len() > MAX_FALLBACKS {
        return Err(invalid("fallback", format!("there are more than {MAX_FALLBACKS} models")));
    }
    if let Some(name) = options.fallback.iter().find(|name| name.trim().is_empty() || *name == model) {
        return Err(invalid("fallback", format!("{name:?} is not another model")));
    }
    if options.headers.len() > MAX_HEADERS {
        return Err(invalid("headers", format!("there are more than {MAX_HEADERS}")));
    }
    Ok(())
}

pub(super) fn temperature(value: f64) -> Result<f64> {
    match (0.0..=2.0).contains(&value) {
        true => Ok(value),
        false => {
            Err(Error::config(format!("{value} is not a valid temperature")).hint("use a number from 0 to 2"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<()> {
        check("m", &toml::from_str(text).unwrap())
    }

    #[test]
    fn what_agent_sends_itself_and_values_out_of_range_are_refused_by_name() {
        for (text, setting) in [
            ("headers = { Authorization = \"Bearer x\" }", "Authorization cannot be set"),
            ("headers = { host = \"x\" }", "host cannot be set"),
            ("body = { messages = [] }", "messages cannot be set"),
            ("body = { stream = false }", "stream cannot be set"),
            ("temperature = 3.0", "3 is not a valid temperature"),
            ("top_p = 1.5", "1.5 is not valid"),
            ("reasoning_effort = \"very high\"", "is not one word"),
            ("reasoning_budget = 500", "500 is too few tokens"),
            ("fallback = [\"a\", \"m\"]", "\"m\" is not another model"),
            ("headers = { X-Api-Key = \"k\" }", "X-Api-Key cannot be set"),
        ] {
            let error = checked(text).expect_err(text).to_string();
            assert!(error.contains(setting) && error.contains("[models.\"m\"]"), "{error}");
        }
        checked("temperature = 0.2\ntop_p = 0.9\nreasoning_effort = \"low\"\nheaders = { X-Team = \"a\" }\nbody = { top_k = 20 }")
            .unwrap();
    }
}
