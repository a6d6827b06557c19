//! `[credentials.NAME]` and `--credential NAME[:write]`: only the user's own file and command line define or enable one.

use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::network::credentials::{
    Credential, HomeFileKind, Offered, Placement, ReadValue, Rule, Source, SourceContext, presets,
};
use crate::plain_file::{self, Links};
use futures_util::FutureExt;
use secrecy::SecretString;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest file of authorities.
const MAX_AUTHORITIES: u64 = 1 << 20;

/// A `[credentials.NAME]` of `config.toml`.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CredentialOptions {
    /// Enables it without `--credential`.
    pub enabled: bool,
    /// The well-known service whose rule it begins with; by default the one with its name.
    pub preset: Option<String>,
    /// The hosts it is bound to.
    pub hosts: Option<Vec<String>>,
    /// Methods that only read.
    pub methods: Option<Vec<String>>,
    /// Methods that need `:write`.
    pub write_methods: Option<Vec<String>>,
    /// Prefixes of the paths at which `write_methods` are allowed with `:write`; with `git` by default none, so that it only pushes.
    pub write_paths: Option<Vec<String>>,
    /// The beginnings of paths.
    pub paths: Option<Vec<String>>,
    /// Where requests have it.
    pub apply: Option<Vec<String>>,
    /// The hosts serve git.
    pub git: Option<bool>,
    /// WebSockets may be opened.
    pub websockets: bool,
    /// Paths whose answers hold tokens in exchange for it.
    pub exchange: Option<Vec<String>>,
    /// The user name beside it.
    pub login: Option<String>,
    /// Variables inside that hold the placeholder.
    pub variables: Option<Vec<String>>,
    /// The same as `:write` where there is a user to ask.
    pub write: bool,
    /// Source: a variable of this environment.
    pub env: Option<String>,
    /// Source: a file.
    pub file: Option<PathBuf>,
    /// Source: what a program prints.
    pub command: Option<Vec<String>>,
    /// Source: git's credential helper, for this host.
    pub git_helper: Option<String>,
    /// Source: the system's keyring, by the attributes of the secret.
    pub keyring: Option<BTreeMap<String, String>>,
    /// Authorities of the hosts beside this machine's.
    pub ca: Option<PathBuf>,
}

/// A credential that is enabled, whose value has not been read.
#[derive(Debug, Clone)]
pub struct Enabled {
    rule: Rule,
    source: Source,
    ca: Option<PathBuf>,
}

/// The credentials that the call and the file enable.
///
/// # Errors
/// A name is unknown, or what the file says of it is not valid.
pub fn enabled(flags: &[String], file: &BTreeMap<String, CredentialOptions>) -> Result<Vec<Enabled>> {
    let mut writable = BTreeMap::new();
    for (name, options) in file {
        if options.enabled {
            writable.insert(name.as_str(), false);
        }
    }
    for flag in flags {
        let (name, write) = match flag.split_once(':') {
            None => (flag.as_str(), false),
            Some((name, "write")) => (name, true),
            Some(_) => {
                return Err(Error::usage(format!("--credential {flag:?} is not valid"))
                    .hint("write --credential NAME, or NAME:write"));
            }
        };
        *writable.entry(name).or_default() |= write;
    }
    let default = CredentialOptions::default();
    let one = |(name, write): (&str, bool)| {
        one(name, write, file.get(name).unwrap_or(&default))
            .map_err(|error| error.context(&format!("the credential {name}")))
    };
    writable.into_iter().map(one).collect()
}

/// The credentials that the file describes and neither it nor the call enables: the user may be asked about them.
///
/// # Errors
/// The faults of the file's description of one.
pub fn offered(flags: &[String], file: &BTreeMap<String, CredentialOptions>) -> Result<Vec<Enabled>> {
    let is_named = |name: &str| flags.iter().any(|flag| flag.split(':').next() == Some(name));
    let others = file.iter().filter(|(name, options)| !options.enabled && !is_named(name));
    others.map(|(name, options)| one(name, false, options)).collect()
}

/// Reports what is wrong with those that the file describes.
///
/// # Errors
/// Something is.
pub fn check(file: &BTreeMap<String, CredentialOptions>) -> Result<()> {
    file.iter().try_for_each(|(name, options)| one(name, false, options).map(drop))
}

fn one(name: &str, write: bool, options: &CredentialOptions) -> Result<Enabled> {
    let known = presets::preset(options.preset.as_deref().unwrap_or(name));
    if let (Some(unknown), None) = (&options.preset, known) {
        return Err(Error::config(format!("there is no preset {unknown:?}")).hint(preset_names()));
    }
    let mut rule = known.map_or_else(|| custom(name), |preset| preset.rule(name));
    rule.write = write;
    rule.write_if_asked = options.write;
    if let Some(hosts) = &options.hosts {
        rule.hosts = Rule::hosts(hosts)?;
    }
    if rule.hosts.is_empty() {
        return Err(Error::config("it names no hosts").hint(format!(
            "write hosts = [\"example.com\"] into [credentials.{name}] of config.toml, or use a preset ({})",
            preset_names()
        )));
    }
    if let Some(methods) = &options.methods {
        rule.methods = checked_methods(methods)?;
    }
    if let Some(methods) = &options.write_methods {
        rule.write_methods = checked_methods(methods)?;
    }
    if let Some(paths) = &options.paths {
        rule.paths = checked_paths(paths)?;
    }
    if let Some(places) = &options.apply {
        rule.places = places.iter().map(|place| Placement::parse(place)).collect::<Result<_>>()?;
        let is_basic = rule.places.contains(&Placement::Basic);
        if is_basic && !rule.files.contains(&HomeFileKind::Netrc) {
            rule.files.push(HomeFileKind::Netrc);
        }
    }
    if let Some(has_git) = options.git {
        rule.git = has_git;
        rule.write_paths = Rule::usual_write_paths(has_git);
    }
    if let Some(paths) = &options.write_paths {
        rule.write_paths = checked_paths(paths)?;
    }
    rule.websockets = options.websockets;
    rule.exchanges = options.exchange.clone().unwrap_or(rule.exchanges);
    rule.login = options.login.clone().unwrap_or(rule.login);
    rule.variables = options.variables.clone().unwrap_or(rule.variables);
    let is_word = |text: &String| !text.contains(char::is_whitespace);
    let are_names = rule.variables.iter().all(|name| !name.is_empty() && !name.contains(['=', '\0']));
    if !is_word(&rule.login) || !are_names {
        return Err(Error::config("its login, or the name of a variable, is not valid"));
    }
    let sources = known.map_or(&[][..], |preset| preset.sources);
    let source = if rule.signs() { source_of_key(options)? } else { source(name, options, sources)? };
    Ok(Enabled { rule, source, ca: options.ca.clone() })
}

fn custom(name: &str) -> Rule {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Rule {
        name: name.to_owned(),
        hosts: Vec::new(),
        methods: owned(&["GET", "HEAD"]),
        write_methods: owned(&["POST", "PUT", "PATCH", "DELETE"]),
        paths: owned(&["/"]),
        places: vec![Placement::Bearer],
        git: false,
        websockets: false,
        exchanges: Vec::new(),
        write_paths: Rule::usual_write_paths(false),
        write: false,
        write_if_asked: false,
        login: String::new(),
        variables: Vec::new(),
        files: Vec::new(),
    }
}

fn checked_paths(paths: &[String]) -> Result<Vec<String>> {
    let is_usable = |path: &String| path.starts_with('/') && !path.contains(['%', '?', '#', '\\']);
    match paths.iter().find(|path| !is_usable(path)) {
        Some(bad) => Err(Error::config(format!("{bad:?} is not a valid path")).hint("write it like /team")),
        None => Ok(paths.to_vec()),
    }
}

fn checked_methods(methods: &[String]) -> Result<Vec<String>> {
    let is_usable = |method: &String| {
        let is_word = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        // They open a tunnel, or send the request back.
        is_word && !["CONNECT", "TRACE"].contains(&method.as_str())
    };
    match methods.iter().find(|method| !is_usable(method)) {
        Some(bad) => Err(Error::config(format!("{bad:?} is not a method for a credential"))),
        None => Ok(methods.to_vec()),
    }
}

fn source(name: &str, options: &CredentialOptions, variables: &[&str]) -> Result<Source> {
    let given = [
        options.env.clone().map(|variable| Source::Variables(vec![variable])),
        options.file.clone().map(Source::File),
        options.command.clone().map(Source::Command),
        options.git_helper.clone().map(Source::Git),
        options.keyring.clone().map(Source::Keyring),
    ];
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(source), None) => Ok(source),
        (Some(_), Some(_)) => Err(Error::config("it has two sources").hint(sources_hint(name))),
        (None, _) if variables.is_empty() => Err(Error::config("it has no source").hint(sources_hint(name))),
        (None, _) => Ok(Source::Variables(variables.iter().map(|name| (*name).to_owned()).collect())),
    }
}

fn source_of_key(options: &CredentialOptions) -> Result<Source> {
    match (&options.env, &options.file, &options.git_helper, &options.keyring) {
        (None, None, None, None) => Ok(Source::Aws(options.command.clone())),
        _ => Err(Error::config("a key of AWS comes from the variables of AWS or a command")
            .hint("leave env, file, git_helper and keyring out; a command prints what `aws configure export-credentials` does")),
    }
}

fn sources_hint(name: &str) -> String {
    format!(
        "write one of env, file, command, git_helper and keyring into [credentials.{name}] of config.toml"
    )
}

fn preset_names() -> String {
    let names: BTreeSet<_> = presets::ALL.iter().map(|preset| preset.name).collect();
    format!("presets: {}", names.into_iter().collect::<Vec<_>>().join(", "))
}

/// Reads the values.
///
/// # Errors
/// One cannot be read. No value is in a message.
pub async fn read(enabled: &[Enabled], machine: &Machine, workspace: &Path) -> Result<Vec<Credential>> {
    let mut credentials = Vec::new();
    for one in enabled {
        let (rule, authorities) = (one.rule.clone(), authorities(one, machine)?);
        credentials.push(Credential { rule, value: value(one, machine, workspace).await?, authorities });
    }
    Ok(credentials)
}

/// Those whose values are read once the user has allowed it.
///
/// # Errors
/// A file of authorities cannot be read.
pub fn unread(offered: &[Enabled], machine: &Arc<Machine>, workspace: &Path) -> Result<Vec<Offered>> {
    let one = |one: &Enabled| {
        let (rule, authorities) = (one.rule.clone(), authorities(one, machine)?);
        let (one, machine, workspace) = (one.clone(), Arc::clone(machine), workspace.to_owned());
        let read: ReadValue = Arc::new(move || {
            let (one, machine, workspace) = (one.clone(), Arc::clone(&machine), workspace.clone());
            async move { value(&one, &machine, &workspace).await }.boxed()
        });
        Ok(Offered { rule, read, authorities })
    };
    offered.iter().map(one).collect()
}

async fn value(one: &Enabled, machine: &Machine, workspace: &Path) -> Result<SecretString> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let source = match &one.source {
        Source::File(path) => Source::File(machine.in_home(path)),
        other => other.clone(),
    };
    source.read(&one.rule.name, SourceContext { machine, workspace, variable: &variable }).await
}

fn authorities(one: &Enabled, machine: &Machine) -> Result<Vec<u8>> {
    let Some(path) = &one.ca else { return Ok(Vec::new()) };
    let path = &machine.in_home(path);
    let failed = |error| Error::config(format!("{} cannot be read", path.display())).caused_by(error);
    plain_file::read(path, MAX_AUTHORITIES, Links::Follow).map_err(failed)
}
