//! `devcontainer.json` of a project: the image, the variables and the commands that prepare it, as far as a sandbox of ours has them.
//! The format is that of <https://containers.dev/implementors/json_reference/>.

use super::project::{ProjectSettings, Request, Source, read_file};
use super::project_setup::{self, DEFAULT_NETWORK, SetupOptions, SetupTable};
use crate::error::{Error, Result};
use crate::sanitise::one_line;
use crate::session::LOCK_FILES;
use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 256 << 10;
/// The longest text of an image, and of a variable's value, in bytes.
const MAX_IMAGE: usize = 300;
const MAX_VALUE: usize = 4000;
/// Variables, and entries of one command, that are taken at most.
const MAX_ENTRIES: usize = 100;
/// Directories below `.devcontainer` that are looked at.
const MAX_DIRECTORIES: usize = 50;

/// The commands that run once, in their order.
const COMMANDS: [&str; 3] = ["onCreateCommand", "updateContentCommand", "postCreateCommand"];

/// Properties that ask for nothing of a sandbox: an editor's, a display's, or what is so here anyway.
const WITHOUT_EFFECT: [&str; 14] = [
    "$schema",
    "name",
    "customizations",
    "extensions",
    "settings",
    "portsAttributes",
    "otherPortsAttributes",
    "init",
    "overrideCommand",
    "shutdownAction",
    "updateRemoteUserUID",
    "userEnvProbe",
    "waitFor",
    "forwardPorts",
];

/// Properties that are not honoured, and the reason.
const REFUSED: [(&str, &str); 20] = [
    ("initializeCommand", "it would run on this machine"),
    ("runArgs", "the engine's options are agent's own"),
    ("privileged", "a sandbox never is"),
    ("capAdd", "a sandbox gets no capability"),
    ("securityOpt", "the filters of a sandbox stay"),
    ("mounts", "a project mounts nothing of this machine"),
    ("workspaceMount", "the workspace is at its own path"),
    ("workspaceFolder", "the workspace is at its own path"),
    ("appPort", "ports are offered when something listens on them"),
    ("build", "nothing is built: build the image and name it with --image"),
    ("dockerFile", "nothing is built: build the image and name it with --image"),
    ("context", "nothing is built: build the image and name it with --image"),
    ("dockerComposeFile", "one sandbox is started: name the image of its service with --image"),
    ("service", "one sandbox is started"),
    ("runServices", "one sandbox is started"),
    ("features", "an image that has them is named with --image, or a command installs them into $HOME"),
    ("postStartCommand", "only what runs once is run"),
    ("postAttachCommand", "only what runs once is run"),
    ("hostRequirements", "--memory, --cpus and --disk say what a sandbox gets"),
    ("secrets", "--env passes a variable of this machine"),
];

/// Reads the `devcontainer.json` of the project in `root`, if it has one.
///
/// # Errors
/// There are several, or it cannot be read.
pub(super) fn read(root: &Path) -> Result<Option<(Request, Vec<u8>)>> {
    let Some(name) = place(root)? else { return Ok(None) };
    let Some(bytes) = read_file(&root.join(&name), MAX_BYTES)? else { return Ok(None) };
    Ok(Some((request(root, name, &bytes)?, bytes)))
}

/// The path of the file, relative to `root`.
fn place(root: &Path) -> Result<Option<PathBuf>> {
    let usual = [".devcontainer/devcontainer.json", ".devcontainer.json"].map(PathBuf::from);
    let is_there = |path: &Path| fs::symlink_metadata(root.join(path)).is_ok_and(|found| found.is_file());
    if let Some(path) = usual.into_iter().find(|path| is_there(path)) {
        return Ok(Some(path));
    }
    let directory = Path::new(".devcontainer");
    if fs::symlink_metadata(root.join(directory)).is_ok_and(|found| !found.is_dir()) {
        return Ok(None);
    }
    let entries = fs::read_dir(root.join(directory)).into_iter().flatten().flatten().take(MAX_DIRECTORIES);
    let names = entries.map(|entry| directory.join(entry.file_name()).join("devcontainer.json"));
    let mut found: Vec<PathBuf> = names.filter(|path| is_there(path)).collect();
    if found.len() > 1 {
        return Err(Error::config(format!(
            "there are {} of them, and which one is meant cannot be told",
            found.len()
        )));
    }
    Ok(found.pop())
}

fn request(root: &Path, name: PathBuf, bytes: &[u8]) -> Result<Request> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::config("it is not UTF-8"))?;
    let value: Value = parse_to_serde_value(text.trim_start_matches('\u{feff}'), &ParseOptions::default())
        .map_err(|error| Error::config(one_line(&error.to_string(), 300)))?;
    let Value::Object(table) = value else { return Err(Error::config("it is not an object")) };
    let reader = Reader { root: root.to_string_lossy().into_owned() };
    let mut remarks = Vec::new();
    let image = match table.get("image").and_then(Value::as_str).map(|image| reader.expanded(image)) {
        Some(Ok(image)) if is_image(&image) => Some(image),
        Some(Ok(_)) => {
            remarks.push("image: it is not the name of an image".to_owned());
            None
        }
        Some(Err(reason)) => {
            remarks.push(format!("image: {reason}"));
            None
        }
        None => None,
    };
    let env = reader.variables(&table, &mut remarks);
    let setup = match reader.command(&table, &mut remarks) {
        None => None,
        Some(command) => Some(project_setup::setup(&SetupOptions::Table(SetupTable {
            command,
            files: Some([name.clone()].into_iter().chain(LOCK_FILES.iter().map(PathBuf::from)).collect()),
            network: Some(DEFAULT_NETWORK.to_owned()),
        }))?),
    };
    remarks.extend(not_honoured(&table));
    let settings = ProjectSettings { setup, image, env, ..ProjectSettings::default() };
    Ok(Request { source: Source::DevContainer(name), settings, remarks })
}

/// Returns whether it can be the name of an image.
pub(super) fn is_image(image: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    image.len() <= MAX_IMAGE
        && image.starts_with(|c: char| c.is_ascii_alphanumeric())
        && image.chars().all(is_part)
}

/// Returns whether they can be the name and the value of a variable.
pub(super) fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && value.len() <= MAX_VALUE
        && !value.contains('\0')
}

/// The properties that have no effect, each with its reason.
fn not_honoured(table: &Map<String, Value>) -> Vec<String> {
    let is_asked = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(table) => !table.is_empty(),
        _ => true,
    };
    let read = ["image", "containerEnv", "remoteEnv"];
    let names = table.iter().filter(|(name, value)| {
        is_asked(value)
            && !WITHOUT_EFFECT.contains(&name.as_str())
            && !COMMANDS.contains(&name.as_str())
            && !read.contains(&name.as_str())
    });
    let reason = |name: &str| {
        let known = REFUSED.iter().find(|(refused, _)| *refused == name);
        known.map_or("it has no meaning for a sandbox of agent", |(_, reason)| reason)
    };
    names.take(MAX_ENTRIES).map(|(name, _)| format!("{}: {}", one_line(name, 60), reason(name))).collect()
}

struct Reader {
    /// The path of the workspace, on the host and inside.
    root: String,
}

impl Reader {
    /// `text` with its variables, or the reason why one has no value.
    fn expanded(&self, text: &str) -> std::result::Result<String, String> {
        let mut rest = text;
        let mut whole = String::new();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            whole.push_str(before);
            let base =
                || Path::new(&self.root).file_name().unwrap_or_default().to_string_lossy().into_owned();
            match name {
                "localWorkspaceFolder" | "containerWorkspaceFolder" => whole.push_str(&self.root),
                "localWorkspaceFolderBasename" | "containerWorkspaceFolderBasename" => {
                    whole.push_str(&base())
                }
                _ if name.starts_with("localEnv:") || name.starts_with("env:") => {
                    let name = one_line(name.split(':').nth(1).unwrap_or_default(), 60);
                    return Err(format!("it takes {name} of this machine: --env {name} passes it"));
                }
                _ => return Err(format!("${{{}}} has no value here", one_line(name, 60))),
            }
            rest = after;
        }
        whole.push_str(rest);
        Ok(whole)
    }

    /// The variables of commands. What has no value here is left out, with a remark.
    fn variables(&self, table: &Map<String, Value>, remarks: &mut Vec<String>) -> Vec<(String, String)> {
        let mut variables: Vec<(String, String)> = Vec::new();
        for property in ["containerEnv", "remoteEnv"] {
            let entries = table.get(property).and_then(Value::as_object).into_iter().flatten();
            for (name, value) in entries.take(MAX_ENTRIES) {
                let named = format!("{property} {}", one_line(name, 60));
                let text = match value {
                    Value::String(text) => self.expanded(text),
                    Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
                    _ => Err("it is not text".to_owned()),
                };
                match text {
                    Ok(text) if is_variable(name, &text) => {
                        variables.retain(|(earlier, _)| earlier != name);
                        variables.push((name.clone(), text));
                    }
                    Ok(_) => remarks.push(format!("{named}: it is not the name and value of a variable")),
                    Err(reason) => remarks.push(format!("{named}: {reason}")),
                }
            }
        }
        variables
    }

    /// One command for everything that runs once.
    fn command(&self, table: &Map<String, Value>, remarks: &mut Vec<String>) -> Option<String> {
        let mut commands = Vec::new();
        for property in COMMANDS {
            match table.get(property).map(|value| self.script(value)) {
                Some(Ok(Some(script))) => commands.push(script),
                Some(Err(reason)) => remarks.push(format!("{property}: {reason}")),
                Some(Ok(None)) | None => {}
            }
        }
        match commands.len() {
            0 => None,
            1 => commands.pop(),
            _ => Some(
                commands
                    .iter()
                    .map(|script| format!("sh -c {}", shell_words::quote(script)))
                    .collect::<Vec<_>>()
                    .join(" && "),
            ),
        }
    }

    /// A command in each of its three forms as a shell script: a text is one already, a list are a program and its arguments, and the
    /// entries of an object run beside each other.
    fn script(&self, value: &Value) -> std::result::Result<Option<String>, String> {
        match value {
            Value::String(text) if text.trim().is_empty() => Ok(None),
            Value::String(text) => self.expanded_in_shell(text).map(Some),
            Value::Array(words) => {
                let words = words.iter().map(|word| match word.as_str() {
                    Some(word) => self.expanded(word).map(|word| shell_words::quote(&word).into_owned()),
                    None => Err("an argument is not text".to_owned()),
                });
                let words = words.collect::<std::result::Result<Vec<_>, _>>()?;
                Ok((!words.is_empty()).then(|| words.join(" ")))
            }
            Value::Object(entries) => {
                let scripts = entries.values().take(MAX_ENTRIES).map(|entry| match entry {
                    Value::Object(_) => Err("an entry is not a command".to_owned()),
                    entry => self.script(entry),
                });
                let scripts: Vec<String> =
                    scripts.collect::<std::result::Result<Vec<_>, _>>()?.into_iter().flatten().collect();
                let begun: String = scripts
                    .iter()
                    .map(|script| format!("sh -c {} & p=\"$p $!\"; ", shell_words::quote(script)))
                    .collect();
                Ok((!scripts.is_empty()).then(|| format!("p=; {begun}for i in $p; do wait $i || exit; done")))
            }
            Value::Null => Ok(None),
            _ => Err("it is not a command".to_owned()),
        }
    }

    /// A script whose `${…}` that are not the format's own are the shell's.
    fn expanded_in_shell(&self, text: &str) -> std::result::Result<String, String> {
        let mut whole = text.to_owned();
        for (name, value) in [
            ("localWorkspaceFolder", shell_words::quote(&self.root)),
            ("containerWorkspaceFolder", shell_words::quote(&self.root)),
        ] {
            whole = whole.replace(&format!("${{{name}}}"), &value);
        }
        for prefix in ["${localEnv:", "${env:"] {
            if let Some((_, name)) = whole.split_once(prefix) {
                let name = one_line(name.split(['}', ':']).next().unwrap_or_default(), 60);
                return Err(format!("it takes {name} of this machine: --env {name} passes it"));
            }
        }
        // The variables of the container are those of the shell.
        Ok(whole.replace("${containerEnv:", "${"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Request> {
        request(Path::new("/home/u/app"), PathBuf::from(".devcontainer.json"), text.as_bytes())
    }

    #[test]
    fn comments_commas_and_the_three_forms_of_a_command_are_read() {
        let request = read_text(
            r#"{
                // For everyone.
                "name": "app",
                "image": "mcr.microsoft.com/devcontainers/python:3.12",
                "containerEnv": { "A": "1", "ROOT": "${containerWorkspaceFolder}/src" },
                "remoteEnv": { "A": "2", "TOKEN": "${localEnv:TOKEN}", "PATH": "${containerEnv:PATH}:/x" },
                "onCreateCommand": ["npm", "ci", "it's"],
                "updateContentCommand": "cd ${containerWorkspaceFolder} && make",
                "postCreateCommand": { "one": "a b", "two": ["c", "d e"], },
                "forwardPorts": [3000],
            }"#,
        )
        .unwrap();
        assert_eq!(request.settings.image.as_deref(), Some("mcr.microsoft.com/devcontainers/python:3.12"));
        assert_eq!(
            request.settings.env,
            [("ROOT".into(), "/home/u/app/src".into()), ("A".into(), "2".to_owned())]
        );
        assert_eq!(
            request.settings.setup.unwrap().command,
            "sh -c 'npm ci '\\''it'\\''\\'\\'''\\''s'\\''' && sh -c 'cd /home/u/app && make' && sh -c 'p=; sh -c '\\''a b'\\'' & p=\"$p \
             $!\"; sh -c '\\''c '\\''\\'\\'''\\''d e'\\''\\'\\'''\\'''\\'' & p=\"$p $!\"; for i in $p; do wait $i || exit; done'"
        );
        assert_eq!(
            request.remarks,
            [
                "remoteEnv TOKEN: it takes TOKEN of this machine: --env TOKEN passes it",
                "remoteEnv PATH: ${containerEnv:PATH} has no value here"
            ]
        );
    }

    #[test]
    fn what_reaches_for_the_machine_is_named_and_has_no_effect() {
        let text = r#"{"initializeCommand": "touch /tmp/x", "runArgs": ["--privileged"], "privileged": true, "capAdd": ["SYS_ADMIN"],
            "mounts": ["source=/,target=/host,type=bind"], "build": {"dockerfile": "Dockerfile"}, "init": true, "unknown": 1,
            "securityOpt": [], "image": "--help", "postCreateCommand": "echo ${localEnv:HOME}"}"#;
        let request = read_text(text).unwrap();
        assert!(
            request.settings.image.is_none()
                && request.settings.env.is_empty()
                && request.settings.setup.is_none()
        );
        let names: Vec<&str> = request.remarks.iter().filter_map(|remark| remark.split(':').next()).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(
            sorted,
            [
                "build",
                "capAdd",
                "image",
                "initializeCommand",
                "mounts",
                "postCreateCommand",
                "privileged",
                "runArgs",
                "unknown"
            ]
        );
    }

    #[test]
    fn what_is_no_object_or_nested_without_end_is_an_error() {
        assert!(read_text("[1]").is_err());
        assert!(read_text("{").is_err());
        assert!(read_text(&"[".repeat(100_000)).is_err());
    }
}
