//! Servers that other programs are configured with.

use super::options::ServerOptions;
use super::relaxed;
use crate::error::{Error, Result};
use crate::sandbox::WORKSPACE;
use crate::sanitise::one_line;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Servers of one file.
const MAX_SERVERS: usize = 100;
/// Settings of the servers of a file that is not the user's, and their bytes: a user looks at all of them before they are used.
const MAX_SETTINGS: usize = 500;
const MAX_SETTINGS_BYTES: usize = 32 << 10;
/// References to variables in one value.
const MAX_REFERENCES: usize = 50;

/// A server that a file names.
#[derive(Debug, Clone)]
pub struct FoundServer {
    /// Its name there, in the characters that names have here.
    pub name: String,
    /// Its settings, or why it cannot be used.
    pub options: Result<ServerOptions, String>,
}

/// The rule for values that name variables of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variables {
    /// They are passed on by name.
    ByName,
    /// A server that wants one cannot be used: the file is not the user's.
    Refused,
}

/// The servers below `key` of a JSON file, which may have comments.
///
/// # Errors
/// It is not JSON, or has no such member.
pub fn of_json(text: &str, key: &str, variables: Variables) -> Result<Vec<FoundServer>> {
    let value: Value = serde_json::from_str(&relaxed::to_json(text))
        .map_err(|error| Error::config("it is not valid JSON").caused_by(error))?;
    let Some(servers) = value.get(key).and_then(Value::as_object) else {
        return Err(Error::config(format!("it has no object {key:?}")));
    };
    Ok(of_entries(servers, variables))
}

/// The servers of a table.
pub fn of_entries(servers: &Map<String, Value>, variables: Variables) -> Vec<FoundServer> {
    let found = |(name, entry): (&String, &Value)| FoundServer {
        name: usable_name(name),
        options: entry
            .as_object()
            .ok_or_else(|| "it is not an object".to_owned())
            .and_then(|entry| of_entry(entry, variables)),
    };
    let mut room = (MAX_SETTINGS, MAX_SETTINGS_BYTES);
    let mut fits = |entry: &Value| {
        let (settings, bytes) = size(entry, 0);
        let left = (room.0.checked_sub(settings), room.1.checked_sub(bytes));
        let (Some(settings), Some(bytes)) = left else { return false };
        room = (settings, bytes);
        true
    };
    let judged = |(name, entry): (&String, &Value)| match variables == Variables::ByName || fits(entry) {
        true => found((name, entry)),
        false => FoundServer {
            name: usable_name(name),
            options: Err("the file names more than a user can look at".to_owned()),
        },
    };
    servers.iter().take(MAX_SERVERS).map(judged).collect()
}

/// Counts the values in one, and their bytes with those of their names.
fn size(value: &Value, name: usize) -> (usize, usize) {
    let sum = |(settings, bytes), (more, further)| (settings + more, bytes + further);
    match value {
        Value::Array(values) => values.iter().map(|value| size(value, 0)).fold((0, name), sum),
        Value::Object(members) => {
            members.iter().map(|(name, value)| size(value, name.len())).fold((0, name), sum)
        }
        Value::String(text) => (1, name + text.len()),
        _ => (1, name),
    }
}

/// A name in the characters that names have here.
fn usable_name(name: &str) -> String {
    let mut usable = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        if !(c == '_' && (usable.is_empty() || usable.ends_with('_'))) {
            usable.push(c);
        }
    }
    usable.truncate(32);
    usable.trim_end_matches('_').to_owned()
}

fn of_entry(entry: &Map<String, Value>, variables: Variables) -> Result<ServerOptions, String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let flag = |name: &str| entry.get(name).and_then(Value::as_bool);
    if matches!(text("type"), Some("sse" | "ws")) {
        return Err("its transport (SSE, WebSocket) is one of an earlier time".to_owned());
    }
    let mut options = ServerOptions {
        enabled: (flag("disabled") == Some(true) || flag("enabled") == Some(false)).then_some(false),
        enabled_tools: list(entry, &["enabled_tools", "includeTools"]),
        disabled_tools: list(entry, &["disabled_tools", "excludeTools"]).unwrap_or_default(),
        timeout: time(entry, "timeout", "ms").or_else(|| time(entry, "tool_timeout_sec", "s")),
        start_timeout: time(entry, "startup_timeout_sec", "s"),
        ..ServerOptions::default()
    };
    if variables == Variables::Refused
        && let Some(name) = named_by_key(entry)
    {
        return Err(wants(&name));
    }
    if let Some(url) = text("url").or_else(|| text("httpUrl")).or_else(|| text("serverUrl")) {
        options.url = Some(plain(url, variables)?);
        options.bearer_token_env_var = text("bearer_token_env_var").map(str::to_owned);
        for (name, value) in members(entry, &["headers", "http_headers"]) {
            header(&mut options, &name, &value, variables)?;
        }
        options.env_http_headers.extend(members(entry, &["env_http_headers"]));
        return Ok(options);
    }
    let Some(command) = text("command") else { return Err("it has neither a command nor a url".to_owned()) };
    options.command = Some(plain(command, variables)?);
    options.cwd = text("cwd").map(|cwd| plain(cwd, variables)).transpose()?;
    options.args = list(entry, &["args"])
        .unwrap_or_default()
        .iter()
        .map(|argument| plain(argument, variables))
        .collect::<Result<_, _>>()?;
    options.env_vars = list(entry, &["env_vars"]).unwrap_or_default();
    for (name, value) in members(entry, &["env"]) {
        match variable(&value) {
            None => drop(options.env.insert(name, plain(&value, variables)?)),
            Some(NamedVariable { default: Some(default), .. }) => drop(options.env.insert(name, default)),
            Some(NamedVariable { variable, .. }) if variable == name && variables == Variables::ByName => {
                options.env_vars.push(name);
            }
            Some(NamedVariable { variable, .. }) => return Err(wants(&variable)),
        }
    }
    Ok(options)
}

/// The first variable of this machine that a server gets by a key of its own.
fn named_by_key(entry: &Map<String, Value>) -> Option<String> {
    let token = entry.get("bearer_token_env_var").and_then(Value::as_str).map(str::to_owned);
    let variables = list(entry, &["env_vars"]).unwrap_or_default();
    let headers = members(entry, &["env_http_headers"]).into_values();
    token.into_iter().chain(variables).chain(headers).find(|name| !name.is_empty())
}

/// `Authorization: Bearer ${TOKEN}` and `X: ${KEY}` are passed on by the variable's name.
fn header(options: &mut ServerOptions, name: &str, value: &str, variables: Variables) -> Result<(), String> {
    let token = value.strip_prefix("Bearer ").and_then(variable);
    match (token, variable(value)) {
        (Some(named), _) if name.eq_ignore_ascii_case("authorization") && variables == Variables::ByName => {
            options.bearer_token_env_var = Some(named.variable);
        }
        (_, Some(named)) if variables == Variables::ByName => {
            options.env_http_headers.insert(name.to_owned(), named.variable);
        }
        _ => drop(options.http_headers.insert(name.to_owned(), plain(value, variables)?)),
    }
    Ok(())
}

/// A text in which nothing is left that another program would replace.
fn plain(text: &str, variables: Variables) -> Result<String, String> {
    let mut text = text.to_owned();
    for here in
        ["${workspaceFolder}", "${workspaceRoot}", "${CLAUDE_PROJECT_DIR}", "${env:CLAUDE_PROJECT_DIR}"]
    {
        text = text.replace(here, WORKSPACE);
    }
    for _ in 0..MAX_REFERENCES {
        let Some(start) = text.find("${") else { return Ok(text) };
        let Some(length) = text[start..].find('}') else { return Ok(text) };
        let reference = text[start..=start + length].to_owned();
        match variable(&reference) {
            Some(NamedVariable { default: Some(default), .. }) if !default.contains("${") => {
                text = text.replacen(&reference, &default, 1);
            }
            Some(named) if variables == Variables::Refused => return Err(wants(&named.variable)),
            _ => return Err(format!("{} has to be written out", one_line(&reference, 60))),
        }
    }
    Err(format!("it has a value with more than {MAX_REFERENCES} references"))
}

fn wants(variable: &str) -> String {
    format!(
        "it wants the variable {variable} of this machine: add the server to your own config.toml (`agent mcp add`)"
    )
}

/// A reference to a variable: `${NAME}`, `${env:NAME}`, `${NAME:-default}`, `$NAME`.
struct NamedVariable {
    variable: String,
    default: Option<String>,
}

fn variable(text: &str) -> Option<NamedVariable> {
    let inner = match text.strip_prefix("${") {
        Some(rest) => rest.strip_suffix('}')?,
        None => text.strip_prefix('$')?,
    };
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inner.strip_prefix("env:").unwrap_or(inner), None),
    };
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| NamedVariable { variable: name.to_owned(), default })
}

fn list(entry: &Map<String, Value>, names: &[&str]) -> Option<Vec<String>> {
    let values = names.iter().find_map(|name| entry.get(*name)?.as_array())?;
    Some(values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn members(entry: &Map<String, Value>, names: &[&str]) -> BTreeMap<String, String> {
    let tables = names.iter().filter_map(|name| entry.get(*name)?.as_object());
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    tables.flatten().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect()
}

fn time(entry: &Map<String, Value>, name: &str, unit: &str) -> Option<String> {
    let number = entry.get(name)?.as_f64().filter(|number| *number > 0.0)?;
    let seconds = if unit == "ms" { number / 1000.0 } else { number };
    Some(format!("{}s", seconds.ceil().max(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(text: &str, variables: Variables) -> Vec<FoundServer> {
        of_json(text, "mcpServers", variables).unwrap()
    }

    const FILE: &str = r#"{
        // Comments, as editors allow them
        "mcpServers": {
            "git server": { "command": "uvx", "args": ["mcp-server-git", "--repository", "${workspaceFolder}"], },
            "github": { "command": "npx", "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "${MODE:-fast}" }, "timeout": 1500 },
            "remote": { "type": "http", "url": "https://a.example/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } },
            "old": { "type": "sse", "url": "https://a.example/sse" },
            "odd": 7,
        },
    }"#;

    #[test]
    fn servers_of_the_user_get_variables_by_name() {
        let found = of(FILE, Variables::ByName);
        let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["git_server", "github", "remote", "old", "odd"]);
        let git = found[0].options.clone().unwrap();
        assert_eq!(git.args, ["mcp-server-git", "--repository", "/workspace"]);
        let github = found[1].options.clone().unwrap();
        assert_eq!(
            (&github.env_vars[..], &github.env["MODE"]),
            (&["GITHUB_TOKEN".to_owned()][..], &"fast".to_owned())
        );
        assert_eq!(github.timeout.as_deref(), Some("2s"));
        assert_eq!(found[2].options.clone().unwrap().bearer_token_env_var.as_deref(), Some("TOKEN"));
        assert!(found[3].options.is_err() && found[4].options.is_err());
    }

    /// Arguments may push a command off the screen, or be too long to be read.
    #[test]
    fn servers_of_a_repository_that_nobody_can_look_at_are_left_out() {
        for args in [vec!["".to_owned(); 1_000], vec!["x".repeat(40_000)]] {
            let long = serde_json::json!({ "command": "sh", "args": args });
            let text =
                serde_json::json!({ "mcpServers": { "a": long, "b": { "command": "sh" } } }).to_string();
            let found = of(&text, Variables::Refused);
            assert!(
                found[0].options.as_ref().is_err_and(|why| why.contains("look at"))
                    && found[1].options.is_ok()
            );
            assert!(of(&text, Variables::ByName)[0].options.is_ok());
        }
    }

    #[test]
    fn servers_of_a_repository_get_no_variable_of_this_machine() {
        let found = of(FILE, Variables::Refused);
        assert!(found[0].options.is_ok());
        assert!(found[1].options.as_ref().unwrap_err().contains("GITHUB_TOKEN"));
        assert!(found[2].options.as_ref().unwrap_err().contains("TOKEN"));
        for value in ["${HOME}/x", "a${env:SECRET}", "$TOKEN"] {
            let text = format!(r#"{{"mcpServers": {{"a": {{"command": "x", "env": {{"X": "{value}"}}}}}}}}"#);
            let options = of(&text, Variables::Refused).remove(0).options;
            assert!(options.is_err(), "{value}: {options:?}");
        }
        for (key, value) in [
            ("bearer_token_env_var", json!("GITHUB_TOKEN")),
            ("env_http_headers", json!({ "X": "GITHUB_TOKEN" })),
            ("env_vars", json!(["GITHUB_TOKEN"])),
        ] {
            for place in ["url", "command"] {
                let text =
                    json!({ "mcpServers": { "a": { place: "https://a.example", key: value } } }).to_string();
                let refused = of(&text, Variables::Refused).remove(0).options;
                assert!(refused.is_err_and(|why| why.contains("GITHUB_TOKEN")), "{text}");
                assert!(of(&text, Variables::ByName)[0].options.is_ok());
            }
        }
    }
}
