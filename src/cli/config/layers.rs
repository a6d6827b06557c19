//! Where a setting comes from: flags, the environment, `.env`, the user's file.
//!
//! `.env` is read from the current directory alone, through an allow-list of names, and never put into the
//! process's environment: an untrusted repository may contain one.

use super::credentials::CredentialOptions;
use super::key_command::KeyCommand;
use super::project_setup::SetupOptions;
use super::providers::Providers;
use super::servers::options::McpOptions;
use crate::agent::Price;
use crate::approval::Approve;
use crate::approval::policy::Rules;
use crate::backends::SandboxChoice;
use crate::cli::options::Options;
use crate::cli::ui::line_editor::Editing;
use crate::cli::ui::notify::Notify;
use crate::cli::ui::pictures::Images;
use crate::cli::ui::status_line::StatusItem;
use crate::cli::ui::trace::TraceStyle;
use crate::error::{Error, Result};
use crate::model::Protocol;
use crate::model::providers;
use crate::plain_file::{self, Links};
use crate::sandbox::kubernetes::Settings;
use crate::sandbox::vm;
use crate::session::hooks::{HookLocation, Moment};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml::Value;

/// The source of a value, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingSource {
    /// A flag of this call.
    Flag,
    /// The environment.
    Environment,
    /// `.env` in the current directory.
    DotEnv,
    /// `config.toml` of the user.
    File,
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The value, trimmed, never empty (except for keys, where empty means: none).
    pub value: String,
    /// Its source.
    pub source: SettingSource,
    /// The variable or flag that set it, for error messages.
    pub name: String,
}

/// The names that a `.env` may set: the endpoint, its key and the model. Nothing that weakens the sandbox.
pub fn dot_env_names() -> impl Iterator<Item = &'static str> {
    const ENDPOINT: [&str; 6] = [
        "AGENT_BASE_URL",
        "AGENT_API_KEY",
        "AGENT_MODEL",
        "AGENT_PROVIDER",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
    ];
    let implying = providers::ALL.iter().filter(|provider| provider.is_implied_by_key);
    let keys = implying.flat_map(|provider| provider.key_variables);
    ENDPOINT.into_iter().chain(keys.copied())
}

fn is_dot_env_name(name: &str) -> bool {
    dot_env_names().any(|known| known == name)
}

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
    ignored: BTreeSet<String>,
}

impl Layers {
    /// Reads the process's environment and `.env` of `directory`.
    pub fn read(directory: &Path) -> Result<Self> {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| {
                name.starts_with("AGENT_")
                    || is_dot_env_name(name)
                    || providers::environment_variables().any(|known| known == name)
            })
            .collect::<BTreeMap<_, _>>();
        let (dot_env, mut ignored) = read_dot_env(&directory.join(".env"))?;
        ignored.retain(|name| !environment.contains_key(name));
        Ok(Self { environment, dot_env, ignored })
    }

    /// Layers made of given values, for tests and for use as a library.
    pub fn from_values(environment: BTreeMap<String, String>, dot_env: BTreeMap<String, String>) -> Self {
        Self { environment, dot_env, ignored: BTreeSet::new() }
    }

    /// The variables of the [`SETTINGS`] that `.env` tries to set, may not set, and the environment does not set.
    pub fn ignored(&self) -> &BTreeSet<String> {
        &self.ignored
    }

    /// A variable, from the environment or else from `.env`. Empty counts as not set.
    pub fn get(&self, name: &str) -> Option<Setting> {
        self.get_from(name, SettingSource::Environment).or_else(|| self.get_from(name, SettingSource::DotEnv))
    }

    /// A variable from one of the two sources alone. Empty counts as not set.
    pub fn get_from(&self, name: &str, source: SettingSource) -> Option<Setting> {
        self.raw(name, source).filter(|value| !value.trim().is_empty()).map(|value| Setting {
            value: value.trim().to_owned(),
            source,
            name: name.to_owned(),
        })
    }

    /// Returns whether `.env` sets the variable at all, if only to nothing.
    pub fn dot_env_mentions(&self, name: &str) -> bool {
        self.raw(name, SettingSource::DotEnv).is_some()
    }

    fn raw(&self, name: &str, source: SettingSource) -> Option<&String> {
        match source {
            SettingSource::Environment => self.environment.get(name),
            SettingSource::DotEnv => self.dot_env.get(name),
            SettingSource::Flag | SettingSource::File => None,
        }
    }
}

/// Returns what the file sets, and the variables of [`SETTINGS`] in it, which it may not set.
fn read_dot_env(path: &Path) -> Result<(BTreeMap<String, String>, BTreeSet<String>)> {
    let denied = "make it readable for this user, or start agent in another directory";
    let bytes = read_bounded(path, denied)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = || text.trim_start_matches('\u{feff}').lines().filter_map(assignment);
    let settings: BTreeSet<String> = SETTINGS.iter().map(|name| variable(name)).collect();
    let ignored = lines().filter_map(|(name, _)| settings.get(name)).cloned().collect();
    let allowed = lines().filter(|(name, _)| is_dot_env_name(name));
    let dot_env =
        allowed.map(|(name, text)| Ok((name.to_owned(), value(path, name, text)?))).collect::<Result<_>>()?;
    Ok((dot_env, ignored))
}

/// A name and the text that the line gives to it. Much of the file is for other programs.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let exported = line.strip_prefix("export").filter(|rest| rest.starts_with(char::is_whitespace));
    exported.unwrap_or(line).split_once('=').map(|(name, text)| (name.trim(), text))
}

/// The value without quotes and comments. Each line is parsed by itself and may not contain `$`, because the parser
/// substitutes from the process's environment, also in values of several lines: a repository's file could send
/// a key of the user's to an endpoint of its own. Errors do not repeat the text, which may be secret.
fn value(path: &Path, name: &str, text: &str) -> Result<String> {
    let refused = |what: &str, hint: &str| {
        Err(Error::config(format!("{}: {name} {what}", path.display())).hint(hint.to_owned()))
    };
    if text.contains('$') {
        let hint = "write the value itself: a .env may not read your environment";
        return refused("refers to another variable with `$`", hint);
    }
    match dotenvy::from_read_iter(format!("{name}={text}").as_bytes()).next() {
        Some(Ok((_, value))) if !value.contains(|c: char| c.is_control() || c == '\u{fffd}') => Ok(value),
        _ => {
            refused("cannot be read", "write NAME=value on one line, and quote a value that contains spaces")
        }
    }
}

/// Reads a small file; `None` where no regular file has this name. `denied` is the hint where it may not be read.
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

/// Defines [`File`] and [`SETTINGS`]: each setting is written once. Those after `flags` also have an option of the
/// command line, with the same name and type, in the group behind it.
macro_rules! settings {
    (
        endpoint { $($(#[$endpoint_doc:meta])* $endpoint:ident,)* }
        flags { $($(#[$flag_doc:meta])* $flag:ident: $flag_type:ty = $group:ident,)* }
        others { $($(#[$other_doc:meta])* $other:ident: $other_type:ty,)* }
        tables { $($(#[$table_doc:meta])* $table:ident: $table_type:ty,)* }
    ) => {
        /// `config.toml` of the user, and above it what the environment and the flags set.
        #[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        #[schemars(title = "config.toml of agent")]
        pub struct File {
            $($(#[$endpoint_doc])* pub $endpoint: Option<String>,)*
            $($(#[$flag_doc])* pub $flag: Option<$flag_type>,)*
            $($(#[$other_doc])* pub $other: Option<$other_type>,)*
            $($(#[$table_doc])* pub $table: $table_type,)*
            /// `[sandbox.kubernetes]`.
            #[serde(skip)]
            pub kubernetes: Settings,
            /// `[sandbox.vm]`.
            #[serde(skip)]
            pub vm: vm::Settings,
            /// `[sandbox.NAME]` of the providers.
            #[serde(skip)]
            pub providers: Providers,
            /// The flag or variable of each setting that has its value from one.
            #[serde(skip)]
            pub(super) origins: BTreeMap<&'static str, String>,
        }

        /// The settings that a flag or a variable of the environment sets too: `AGENT_` and the name in capitals. Which
        /// endpoint gets which key is decided in `endpoint.rs` alone.
        pub const SETTINGS: &[&str] = &[$(stringify!($flag),)* $(stringify!($other),)*];

        impl File {
            /// Puts the flags of the call above the other sources.
            fn override_with(&mut self, options: &Options) {
                $(if options.$group.$flag.is_some() {
                    self.$flag.clone_from(&options.$group.$flag);
                    let name = stringify!($flag);
                    self.origins.insert(name, format!("--{}", name.replace('_', "-")));
                })*
            }
        }
    };
}

settings! {
    endpoint {
        /// The model's name.
        model,
        /// The endpoint.
        base_url,
        /// The endpoint's key.
        api_key,
        /// A well-known endpoint's name.
        provider,
    }
    flags {
        /// `auto`, a backend's name, or a table with it and with settings of backends.
        #[serde(deserialize_with = "backend_name")]
        #[schemars(with = "Option<SandboxSetting>")]
        sandbox: SandboxChoice = backend,
        /// The container image.
        image: String = backend,
        /// The OCI runtime.
        runtime: String = backend,
        /// The network that the sandbox may reach.
        network: String = resources,
        /// Memory of the sandbox.
        memory: String = resources,
        /// Processors of the sandbox.
        cpus: f64 = resources,
        /// Processes of the sandbox.
        pids: u64 = resources,
        /// Disk of the sandbox.
        disk: String = resources,
        /// Time limit of one command.
        timeout: String = resources,
        /// Requests to the model.
        max_turns: u64 = limits,
        /// Tokens of a run.
        max_tokens_total: u64 = limits,
        /// Cost of a run.
        max_cost: f64 = cost,
        /// Wall time of a run.
        max_time: String = limits,
        /// When to ask before a tool runs.
        approve: Approve = approve,
        /// Set if the model is helped (default: where it is known to be small).
        assist: bool = assist,
        /// Set if the model may hand parts of its work to sessions of their own.
        delegate: bool = delegate,
    }
    others {
        /// A program that prints the endpoint's key, with its arguments, or a line for a shell.
        api_key_command: KeyCommand,
        /// How requests and answers are written (default: the provider's).
        protocol: Protocol,
        /// Characters of output that go back to the model.
        output_chars: usize,
        /// Set if secrets in tool results are replaced before the model gets them (default: yes).
        redact_secrets: bool,
        /// Tokens that one answer may have.
        max_answer_tokens: u32,
        /// The sampling temperature, from 0 to 2.
        temperature: f64,
        /// Set if older turns are summarised when the context fills up (default: yes).
        compaction: bool,
    }
    tables {
        /// Context windows by model, in tokens.
        context: BTreeMap<String, u64>,
        /// Credentials that programs use without holding them.
        credentials: BTreeMap<String, CredentialOptions>,
        /// Variables of the commands in the sandbox.
        env: BTreeMap<String, String>,
        /// Object directories of the user's git repositories that others of theirs may take objects from.
        git_object_stores: Vec<PathBuf>,
        /// Commands that run at fixed moments of a session.
        hooks: Vec<HookOptions>,
        /// MCP servers.
        mcp: McpOptions,
        /// Settings of single models.
        models: BTreeMap<String, ModelOptions>,
        /// The rules for what the model may not do, and what it has to ask for.
        policy: Rules,
        /// Prices by model.
        prices: BTreeMap<String, Price>,
        /// The collector of spans and metrics.
        telemetry: TelemetryOptions,
        /// Tools that are not offered by default.
        tools: ToolOptions,
        /// The settings of the terminal.
        ui: UiOptions,
        /// The settings of what is copied into the sandbox.
        workspace: WorkspaceOptions,
    }
}

/// A `[[hooks]]` of `config.toml`.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookOptions {
    /// When it runs.
    pub event: Moment,
    /// The command that the shell runs.
    pub command: String,
    /// Where it runs.
    #[serde(default, rename = "where")]
    pub place: HookLocation,
    /// The tools that it is about.
    #[serde(default)]
    pub tools: Vec<String>,
    /// How long it may take.
    pub timeout: Option<String>,
    /// Set if it blocks also where it fails or takes too long.
    #[serde(default)]
    pub required: bool,
}

/// The settings of spans and metrics in `config.toml`.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryOptions {
    /// The address of a collector; nothing is collected without one.
    pub otlp: Option<String>,
    /// Headers of each request to it.
    pub headers: BTreeMap<String, String>,
    /// Set if prompts, answers, arguments and results are sent too.
    pub content: bool,
}

/// The settings of the tools in `config.toml`.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolOptions {
    /// Set if large models are offered `update_plan` without `--plan` too.
    pub plan: bool,
}

/// The settings of the workspace in `config.toml`: globs, to which those of the command line are added.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceOptions {
    /// Globs of what is copied although it is excluded otherwise.
    #[serde(deserialize_with = "globs")]
    pub include: Vec<String>,
    /// Globs of what is not copied.
    #[serde(deserialize_with = "globs")]
    pub exclude: Vec<String>,
    /// Directories that every session sees beside its workspace.
    pub add_dir: Vec<String>,
    /// By the directory of a project: what prepares it once.
    pub setup: BTreeMap<PathBuf, SetupOptions>,
}

/// A list of globs; one that is written alone is refused with the way to write it.
fn globs<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(glob) => {
            Err(D::Error::custom(format!("expected a list of globs: write [\"{}\"]", glob.escape_default())))
        }
        value => value.try_into().map_err(|_| D::Error::custom("expected a list of globs: [\"GLOB\", …]")),
    }
}

/// The settings of the terminal in `config.toml`.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UiOptions {
    /// When pictures are drawn.
    pub images: Option<Images>,
    /// How tool calls are traced.
    pub trace: TraceStyle,
    /// The items of the line above the prompt; empty: no line.
    pub status: Option<Vec<StatusItem>>,
    /// How the user is notified.
    pub notify: Notify,
    /// How long they have to have typed nothing before that.
    pub notify_after: Option<String>,
    /// Set if the terminal's title is set (default: yes).
    pub title: Option<bool>,
    /// The keys of the prompt: `emacs` or `vi`.
    pub editing: Editing,
}

/// The settings of one model in `config.toml`.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelOptions {
    /// How tools are offered and calls are written.
    pub form: Option<crate::event::CallForm>,
    /// Set if it is helped; above the setting of all models.
    pub assist: Option<bool>,
    /// Set if it is sent the images that tools produce and prompts name.
    pub images: bool,
    /// The sampling temperature, from 0 to 2; above the one of all models.
    pub temperature: Option<f64>,
    /// Nucleus sampling, from 0 to 1.
    pub top_p: Option<f64>,
    /// How much it thinks, in the endpoint's words: `low`, `high`.
    pub reasoning_effort: Option<String>,
    /// Tokens that it may think with, where the protocol is `messages`.
    pub reasoning_budget: Option<u32>,
    /// How its requests and answers are written; above the setting of all models.
    pub protocol: Option<Protocol>,
    /// Models of the same endpoint that answer while this one is overloaded.
    pub fallback: Vec<String>,
    /// Further headers of each request, none of which is the key's.
    pub headers: BTreeMap<String, String>,
    /// Further fields of each request.
    pub body: serde_json::Map<String, serde_json::Value>,
}

impl File {
    /// Reads `config.toml` of `directory`, where there is one, and puts the environment and the flags above it.
    pub fn read(directory: &Path, layers: &Layers, options: &Options) -> Result<Self> {
        let path = directory.join("config.toml");
        let denied = "agent reads its settings in the home directory: set HOME to this user's own, or \
                      AGENT_HOME to a directory that you can write to";
        let bytes = read_bounded(&path, denied)?.unwrap_or_default();
        let mut file = Self::from_text(&path, &bytes)?;
        let of_environment = |name| layers.get_from(&variable(name), SettingSource::Environment);
        let set: Vec<_> = SETTINGS.iter().filter_map(|name| Some((*name, of_environment(name)?))).collect();
        if !set.is_empty() {
            let failed = |error| Error::config(format!("{}: {error}", path.display()));
            let mut table: toml::Table = toml::from_slice(&bytes).map_err(failed)?;
            for (name, setting) in &set {
                table.insert((*name).to_owned(), typed(name, setting)?);
            }
            let of_backends = (file.kubernetes, file.vm, file.providers);
            file = table.try_into().map_err(failed)?;
            (file.kubernetes, file.vm, file.providers) = of_backends;
            file.origins = set.into_iter().map(|(name, setting)| (name, setting.name)).collect();
        }
        file.override_with(options);
        Ok(file)
    }

    /// Reads the text of a `config.toml`, whose errors show the line.
    pub fn from_text(path: &Path, bytes: &[u8]) -> Result<Self> {
        let failed = |error| Error::config(format!("{}: {error}", path.display()));
        let table: toml::Table = toml::from_slice(bytes).map_err(failed)?;
        refuse_globs_elsewhere(path, bytes, &table)?;
        let mut file: Self = toml::from_slice(bytes).map_err(failed)?;
        if let Some(Value::Table(sandbox)) = table.get("sandbox") {
            let SandboxTable { kubernetes, vm, providers, .. } =
                Value::Table(sandbox.clone()).try_into().map_err(failed)?;
            (file.kubernetes, file.vm, file.providers) = (kubernetes, vm, providers);
        }
        Ok(file)
    }

    /// Reads `config.toml` of `directory` without anything above it.
    pub fn read_alone(directory: &Path) -> Result<Self> {
        Self::read(directory, &Layers::default(), &Options::default())
    }

    /// Returns whether `model` is helped, where that is set: a flag and the environment are for this call, so they go before its own setting.
    pub fn assist(&self, model: &str) -> Option<bool> {
        let own = self.models.get(model).and_then(|options| options.assist);
        own.filter(|_| !self.origins.contains_key("assist")).or(self.assist)
    }

    /// Prefixes an error about the value of a setting with the flag, the variable or the file that set it.
    pub fn name_origin<T>(&self, setting: &str, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let in_file = || format!("{setting} in config.toml");
            let origin = self.origins.get(setting).cloned().unwrap_or_else(in_file);
            let named = Error::config(format!("{origin}: {error}"));
            match error.hint_text() {
                Some(hint) => named.hint(hint),
                None => named,
            }
        })
    }
}

/// `include` and `exclude` are lists of `[workspace]`, which is easily written at the top or into `[sandbox]`.
fn refuse_globs_elsewhere(path: &Path, bytes: &[u8], table: &toml::Table) -> Result<()> {
    let sandbox = table.get("sandbox").and_then(Value::as_table);
    for name in ["include", "exclude"] {
        let (what, header) = match (table.contains_key(name), sandbox.and_then(|sandbox| sandbox.get(name))) {
            (true, _) => (format!("`{name}` is not a setting of its own"), None),
            (false, Some(value)) if !value.is_table() => (
                format!("`[sandbox] {name}` takes a table, the settings of a backend of that name"),
                Some("sandbox"),
            ),
            _ => continue,
        };
        let (line, column) = position(&String::from_utf8_lossy(bytes), header, name).unwrap_or((1, 1));
        return Err(Error::config(format!("{}: line {line}, column {column}: {what}", path.display()))
            .hint(format!("a list of globs belongs into the table [workspace]: {name} = [\"GLOB\"]")));
    }
    Ok(())
}

/// Line and column, from 1, of the key in the table with this header; `None` for the top.
fn position(text: &str, header: Option<&str>, key: &str) -> Option<(usize, usize)> {
    let mut table: Option<String> = None;
    for (number, line) in text.lines().enumerate() {
        let inner = line.trim();
        if let Some(name) = inner.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            table = Some(name.trim().to_owned());
        }
        let is_key = inner.split('=').next().is_some_and(|name| name.trim().trim_matches(['"', '\'']) == key);
        if is_key && table.as_deref() == header {
            return Some((number + 1, line.len() - line.trim_start().len() + 1));
        }
    }
    None
}

/// A backend's name, or a table with the name as `backend` and a table for each backend that has settings.
fn backend_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<SandboxChoice>, D::Error> {
    let custom = |error: toml::de::Error| D::Error::custom(error.message());
    match Value::deserialize(deserializer)? {
        table @ Value::Table(_) => table.try_into().map(|table: SandboxTable| table.backend).map_err(custom),
        name => name.try_into().map(Some).map_err(custom),
    }
}

/// The file as a table; empty where there is none.
pub(super) fn file_table(path: &Path) -> Result<toml::Table> {
    let bytes = read_bounded(path, "make it readable for this user")?.unwrap_or_default();
    toml::from_slice(&bytes).map_err(|error| Error::config(format!("{}: {error}", path.display())))
}

/// `sandbox` in the JSON Schema.
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes what `backend_name` reads")]
enum SandboxSetting {
    /// `auto`, or a backend's name.
    Name(SandboxChoice),
    /// With the settings of backends.
    Table(Box<SandboxTable>),
}

/// `[sandbox]` as a table.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct SandboxTable {
    /// `auto`, or a backend's name.
    backend: Option<SandboxChoice>,
    #[serde(default)]
    kubernetes: Settings,
    #[serde(default)]
    vm: vm::Settings,
    /// Other names than those of providers are refused later.
    #[serde(flatten)]
    providers: Providers,
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
    let invalid = Error::config(format!("{}: {why}", setting.name));
    Err(if why.contains("a boolean") { invalid.hint("write true or false") } else { invalid })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = include_str!("../../../docs/reference/configuration.md");

    /// The keys that the file may have where `text` has an unknown one.
    fn keys<T: serde::de::DeserializeOwned>(text: &str) -> BTreeSet<String> {
        let Err(error) = toml::from_str::<T>(text) else { panic!("{text} is taken") };
        let names = error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect();
        assert!(error.message().contains("unknown field"), "{error}");
        names
    }

    #[test]
    fn every_setting_has_a_variable_that_the_reference_names() {
        let endpoint = ["model", "base_url", "api_key", "provider"];
        let tables = [
            "context",
            "credentials",
            "env",
            "git_object_stores",
            "hooks",
            "mcp",
            "models",
            "policy",
            "prices",
            "telemetry",
            "tools",
            "ui",
            "workspace",
        ];
        let expected = endpoint.iter().chain(SETTINGS).chain(&tables).map(|name| (*name).to_owned());
        assert_eq!(keys::<File>("nonsense = 1"), expected.collect());
        for name in endpoint.iter().chain(SETTINGS) {
            let row = format!("| `{name}` | `{}` |", variable(name));
            assert!(REFERENCE.contains(&row), "the reference has no row {row}");
        }
    }

    #[test]
    fn every_key_of_a_table_and_every_variable_is_in_the_reference() {
        let of_file = [
            "[ui]",
            "[workspace]",
            "[models.a]",
            "[credentials.a]",
            "[mcp.servers.a]",
            "[policy.deny.a]",
            "[policy.deny.a.python]",
            "[policy]",
            "[policy.allow.a]",
        ];
        let mut names: BTreeSet<String> =
            of_file.iter().flat_map(|table| keys::<File>(&format!("{table}\nnonsense = 1"))).collect();
        names.extend(keys::<HookOptions>("nonsense = 1"));
        names.extend(keys::<Settings>("nonsense = 1"));
        let providers = &crate::sandbox::cloud::SETTINGS;
        names
            .extend(providers.iter().flat_map(|setting| [setting.name, setting.variable].map(str::to_owned)));
        names.extend(dot_env_names().map(str::to_owned));
        for name in names {
            assert!(REFERENCE.contains(&format!("`{name}`")), "{name} is not in the reference");
        }
        for name in keys::<File>("[prices.a]\nnonsense = 1").union(&keys::<File>("[tools]\nnonsense = 1")) {
            assert!(REFERENCE.contains(&format!("\n{name} = ")), "{name} is not in the reference");
        }
    }

    #[test]
    fn globs_in_another_table_are_refused_with_their_place() {
        let error = |text: &str| File::from_text(Path::new("c.toml"), text.as_bytes()).unwrap_err();
        let refused = error("memory = '1g'\n[sandbox]\n  include = ['a']\n");
        assert!(
            refused.to_string().contains("line 3, column 3: `[sandbox] include` takes a table"),
            "{refused}"
        );
        assert!(refused.hint_text().unwrap().contains("belongs into the table [workspace]"));
        assert!(
            error("exclude = ['a']\n").to_string().contains("line 1, column 1: `exclude` is not a setting")
        );
        let below = error("[sandbox]\nbackend = 'local'\n[ui]\ntitle = 3\n").to_string();
        assert!(below.contains("line 4, column 9"), "{below}");
        assert!(error("[sandbox]\nbackend = 'dokcer'\n").to_string().contains("dokcer"));
    }

    #[test]
    fn the_example_names_what_a_dot_env_may_set_and_nothing_else() {
        let lines = include_str!("../../../.env.example").lines();
        let named = lines
            .filter_map(|line| line.trim_start_matches(['#', ' ']).split_once('='))
            .map(|(name, _)| name);
        assert_eq!(BTreeSet::from_iter(named), BTreeSet::from_iter(dot_env_names()));
    }
}
