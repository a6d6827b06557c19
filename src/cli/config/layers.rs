//! Where a setting comes from: flags, the environment, `.env`, the user's file.
//!
//! `.env` is read from the current directory alone, through an allow-list of names, and never put into the
//! process's environment: an untrusted repository may bring one along.

use crate::agent::Price;
use crate::error::{Error, Result};
use crate::plain_file::{self, Links};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use toml::Value;

/// Who set a value, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A flag of this call.
    Flag,
    /// The environment.
    Environment,
    /// `.env` in the current directory.
    DotEnv,
    /// `config.toml` of the user.
    File,
}

/// A value and who set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The value, trimmed, never empty (except for keys, where empty means: none).
    pub value: String,
    /// Who set it.
    pub source: Source,
    /// The variable or flag that set it, for error messages.
    pub name: String,
}

/// The names that a `.env` may set: what says which model answers. Nothing that weakens the sandbox.
pub const DOT_ENV_NAMES: [&str; 12] = [
    "AGENT_BASE_URL",
    "AGENT_API_KEY",
    "AGENT_MODEL",
    "AGENT_PROVIDER",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_MODEL",
    "NOVITA_API_KEY",
    "DEEPSEEK_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
    "GROQ_API_KEY",
];

/// The settings of `config.toml` that a variable of the environment sets too: `AGENT_` and the name in capitals. Which endpoint
/// and which key is for `endpoint.rs` alone to say.
pub const SETTINGS: [&str; 19] = [
    "sandbox",
    "image",
    "runtime",
    "network",
    "memory",
    "cpus",
    "pids",
    "disk",
    "timeout",
    "output_chars",
    "redact_secrets",
    "max_turns",
    "max_tokens_total",
    "max_cost",
    "max_time",
    "max_answer_tokens",
    "temperature",
    "compaction",
    "approve",
];

/// The variable of a setting.
pub fn variable(setting: &str) -> String {
    format!("AGENT_{}", setting.to_uppercase())
}

/// The largest `.env` or `config.toml` that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The environment and `.env`, side by side.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    environment: BTreeMap<String, String>,
    dot_env: BTreeMap<String, String>,
    passed_over: BTreeSet<String>,
}

impl Layers {
    /// Reads the process's environment and `.env` of `directory`.
    pub fn read(directory: &Path) -> Result<Self> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("AGENT_") || DOT_ENV_NAMES.contains(&name.as_str()))
            .collect::<BTreeMap<_, _>>();
        let (dot_env, mut passed_over) = read_dot_env(&directory.join(".env"))?;
        passed_over.retain(|name| !environment.contains_key(name));
        Ok(Self { environment, dot_env, passed_over })
    }

    /// Layers made of given values, for tests and for use as a library.
    pub fn from_values(environment: BTreeMap<String, String>, dot_env: BTreeMap<String, String>) -> Self {
        Self { environment, dot_env, passed_over: BTreeSet::new() }
    }

    /// The [`SETTINGS`] that `.env` names and may not set, and that nothing in the environment sets: their variables.
    pub fn passed_over(&self) -> &BTreeSet<String> {
        &self.passed_over
    }

    /// A variable, from the environment or else from `.env`. Empty counts as not set.
    pub fn get(&self, name: &str) -> Option<Setting> {
        self.get_from(name, Source::Environment).or_else(|| self.get_from(name, Source::DotEnv))
    }

    /// A variable from one of the two sources alone. Empty counts as not set.
    pub fn get_from(&self, name: &str, source: Source) -> Option<Setting> {
        self.raw(name, source).filter(|value| !value.trim().is_empty()).map(|value| Setting {
            value: value.trim().to_owned(),
            source,
            name: name.to_owned(),
        })
    }

    /// Whether `.env` sets the variable at all, to nothing even.
    pub fn dot_env_mentions(&self, name: &str) -> bool {
        self.raw(name, Source::DotEnv).is_some()
    }

    fn raw(&self, name: &str, source: Source) -> Option<&String> {
        match source {
            Source::Environment => self.environment.get(name),
            Source::DotEnv => self.dot_env.get(name),
            Source::Flag | Source::File => None,
        }
    }
}

/// What the file sets, and the variables of ours in it that it may not set.
fn read_dot_env(path: &Path) -> Result<(BTreeMap<String, String>, BTreeSet<String>)> {
    let denied = "make it readable for this user, or start agent in another directory";
    let bytes = read_bounded(path, denied)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = || text.trim_start_matches('\u{feff}').lines().filter_map(assignment);
    let settings = SETTINGS.map(variable);
    let passed_over =
        lines().filter_map(|(name, _)| settings.iter().find(|known| *known == name)).cloned().collect();
    let ours = lines().filter(|(name, _)| DOT_ENV_NAMES.contains(name));
    let dot_env =
        ours.map(|(name, text)| Ok((name.to_owned(), value(path, name, text)?))).collect::<Result<_>>()?;
    Ok((dot_env, passed_over))
}

/// A name and the text that the line gives to it. Much of the file is for other programs.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let exported = line.strip_prefix("export").filter(|rest| rest.starts_with(char::is_whitespace));
    exported.unwrap_or(line).split_once('=').map(|(name, text)| (name.trim(), text))
}

/// What the text means, quotes and comments taken into account. Each line is parsed by itself and may hold no `$`, because
/// the parser substitutes from the process's environment, also in values of several lines: a repository's file could send
/// a key of the user's to an endpoint of its own. Errors do not repeat the text, which may be secret.
fn value(path: &Path, name: &str, text: &str) -> Result<String> {
    let refused = |what: &str, hint: &str| {
        Err(Error::config(format!("{}: {name} {what}", path.display())).hint(hint.to_owned()))
    };
    if text.contains('$') {
        let hint = "write the value itself: a .env must not reach into your environment";
        return refused("refers to another variable with `$`", hint);
    }
    match dotenvy::from_read_iter(format!("{name}={text}").as_bytes()).next() {
        Some(Ok((_, value))) if !value.contains(|c: char| c.is_control() || c == '\u{fffd}') => Ok(value),
        _ => refused("cannot be read", "write NAME=value on one line; quote a value that has blanks in it"),
    }
}

/// A small file; `None` where there is none, or no plain one. `denied` says what to do where it may not be read.
fn read_bounded(path: &Path, denied: &str) -> Result<Option<Vec<u8>>> {
    match plain_file::read(path, MAX_FILE + 1, Links::Follow) {
        Ok(bytes) if bytes.len() as u64 > MAX_FILE => {
            Err(Error::config(format!("{} is larger than {MAX_FILE} bytes", path.display())))
        }
        Ok(bytes) => Ok(Some(bytes)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput
            ) =>
        {
            Ok(None)
        }
        Err(error) => {
            let is_denied = error.kind() == ErrorKind::PermissionDenied;
            let failed = Error::config(format!("{} cannot be read", path.display())).caused_by(error);
            Err(if is_denied { failed.hint(denied) } else { failed })
        }
    }
}

/// `config.toml` of the user.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// The model's name.
    pub model: Option<String>,
    /// The endpoint.
    pub base_url: Option<String>,
    /// The endpoint's key.
    pub api_key: Option<String>,
    /// A well-known endpoint's name.
    pub provider: Option<String>,
    /// `auto`, or a backend's name.
    pub sandbox: Option<crate::sandbox::SandboxChoice>,
    /// The container image.
    pub image: Option<String>,
    /// The OCI runtime.
    pub runtime: Option<String>,
    /// What the sandbox may reach.
    pub network: Option<String>,
    /// Memory of the sandbox.
    pub memory: Option<String>,
    /// Processors of the sandbox.
    pub cpus: Option<f64>,
    /// Processes of the sandbox.
    pub pids: Option<u64>,
    /// Disk of the sandbox.
    pub disk: Option<String>,
    /// Time limit of one command.
    pub timeout: Option<String>,
    /// Characters of output that go back to the model.
    pub output_chars: Option<usize>,
    /// Whether secrets in tool results are replaced before the model gets them (default: yes).
    pub redact_secrets: Option<bool>,
    /// Requests to the model.
    pub max_turns: Option<u64>,
    /// Tokens of a run.
    pub max_tokens_total: Option<u64>,
    /// Cost of a run.
    pub max_cost: Option<f64>,
    /// Wall time of a run.
    pub max_time: Option<String>,
    /// Tokens that one answer may have.
    pub max_answer_tokens: Option<u32>,
    /// The sampling temperature, from 0 to 2.
    pub temperature: Option<f64>,
    /// Whether older turns are summarised when the context fills up (default: yes).
    pub compaction: Option<bool>,
    /// Context windows by model, in tokens.
    pub context: BTreeMap<String, u64>,
    /// When to ask before a tool runs.
    pub approve: Option<crate::approval::Approve>,
    /// What the model may not do, and what it has to ask for.
    pub policy: crate::approval::policy::Rules,
    /// Prices by model.
    pub prices: BTreeMap<String, Price>,
}

impl File {
    /// Reads `config.toml` of `directory`, where there is one; what the environment says of its [`SETTINGS`] goes first.
    pub fn read(directory: &Path, layers: &Layers) -> Result<Self> {
        let path = directory.join("config.toml");
        let denied = "agent reads its settings in the home directory: set HOME to this user's own, or \
                      AGENT_HOME to a directory that you can write to";
        let bytes = read_bounded(&path, denied)?.unwrap_or_default();
        let failed = |error| Error::config(format!("{}: {error}", path.display()));
        let file = toml::from_slice(&bytes).map_err(failed)?;
        let said = SETTINGS.map(|name| Some((name, layers.get_from(&variable(name), Source::Environment)?)));
        let mut said = said.into_iter().flatten().peekable();
        if said.peek().is_none() {
            return Ok(file);
        }
        let mut table: toml::Table = toml::from_slice(&bytes).map_err(failed)?;
        for (name, setting) in said {
            table.insert(name.to_owned(), typed(name, &setting)?);
        }
        table.try_into().map_err(failed)
    }
}

/// The text of a variable as the value that its setting takes.
fn typed(name: &str, setting: &Setting) -> Result<Value> {
    let text = &setting.value;
    let number = text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float);
    let other = text.parse().map(Value::Integer).ok().or(number).or(text.parse().map(Value::Boolean).ok());
    let mut failure = None;
    for value in std::iter::once(Value::String(text.clone())).chain(other) {
        match toml::Table::from_iter([(name.to_owned(), value.clone())]).try_into::<File>() {
            Ok(_) => return Ok(value),
            Err(error) => failure = Some(error),
        }
    }
    let why = failure.map(|error| error.message().to_owned()).unwrap_or_default();
    let wrong = Error::config(format!("{}: {why}", setting.name));
    Err(if why.contains("a boolean") { wrong.hint("write true or false") } else { wrong })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some settings had a variable and some had none, and nobody heard of it.
    #[test]
    fn every_setting_has_a_variable_that_the_readme_names() {
        let endpoint = ["model", "base_url", "api_key", "provider"];
        let tables = ["context", "policy", "prices"];
        let error = toml::from_str::<File>("nonsense = 1").unwrap_err().message().to_owned();
        let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        let expected = endpoint.iter().chain(&SETTINGS).chain(&tables);
        assert_eq!(BTreeSet::from_iter(names), BTreeSet::from_iter(expected.copied()));
        for name in endpoint.into_iter().chain(SETTINGS) {
            let readme = include_str!("../../../README.md");
            assert!(readme.contains(&format!("`{}`", variable(name))), "{name} is not in README.md");
        }
    }

    #[test]
    fn the_example_names_what_a_dot_env_may_set_and_nothing_else() {
        let lines = include_str!("../../../.env.example").lines();
        let named = lines
            .filter_map(|line| line.trim_start_matches(['#', ' ']).split_once('='))
            .map(|(name, _)| name);
        assert_eq!(BTreeSet::from_iter(named), BTreeSet::from_iter(DOT_ENV_NAMES));
    }
}
