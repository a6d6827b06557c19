//! Adding servers to the user's `config.toml`: text behind its end, so that what the user wrote stays as it is.

use crate::cli::config::File;
use crate::cli::config::servers::options::{PlaceOption, ServerOptions};
use crate::error::{Error, Result};
use crate::paths::{create_error, make_dir};
use crate::plain_file::{self, Links};
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// `config.toml`, to be added to.
pub struct ConfigFile {
    path: PathBuf,
    text: String,
    file: File,
}

impl ConfigFile {
    /// Reads it; there may be none yet.
    ///
    /// # Errors
    /// It cannot be read, or is not valid as it is.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("config.toml");
        let text = match plain_file::read(&path, MAX_BYTES, Links::Follow) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| of_file(&path, "it is not UTF-8"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(of_file(&path, "it cannot be read").caused_by(error)),
        };
        let file = parse(&path, &text)?;
        Ok(Self { path, text, file })
    }

    /// Returns whether it has a server of this name.
    pub fn has(&self, name: &str) -> bool {
        self.file.mcp.servers.contains_key(name)
    }

    /// Adds a server.
    pub fn add(&mut self, name: &str, options: &ServerOptions) -> Result<()> {
        let mut text = self.text.clone();
        if !text.is_empty() {
            text += if text.ends_with('\n') { "\n" } else { "\n\n" };
        }
        text += &table(name, options);
        self.file = parse(&self.path, &text)?;
        self.text = text;
        Ok(())
    }

    /// Writes it beside itself and renames, so that it is always whole. A symbolic link stays one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self) -> Result<()> {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directory = path.parent().unwrap_or(Path::new("/"));
        make_dir(directory)?;
        let written = || {
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(self.text.as_bytes())?;
            if let Ok(metadata) = fs::metadata(&path) {
                file.as_file().set_permissions(metadata.permissions())?;
            }
            file.persist(&path).map_err(|error| error.error).map(drop)
        };
        written().map_err(|error| create_error(&path, error))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn parse(path: &Path, text: &str) -> Result<File> {
    toml::from_str(text).map_err(|error| of_file(path, &error.to_string()))
}

fn of_file(path: &Path, what: &str) -> Error {
    Error::config(format!("{}: {what}", path.display()))
}

/// `[mcp.servers.NAME]`.
fn table(name: &str, options: &ServerOptions) -> String {
    let mut text = format!("[mcp.servers.{name}]\n");
    let mut line = |key: &str, value: String| {
        // Writing into a string does not fail.
        let _ = writeln!(text, "{key} = {value}");
    };
    let ServerOptions { command, args, env, env_vars, cwd, url, .. } = options;
    let texts = [
        ("command", command),
        ("image", &options.image),
        ("url", url),
        ("bearer_token_env_var", &options.bearer_token_env_var),
        ("cwd", cwd),
        ("timeout", &options.timeout),
        ("start_timeout", &options.start_timeout),
        ("memory", &options.memory),
    ];
    texts.iter().for_each(|(key, value)| value.iter().for_each(|value| line(key, quoted(value))));
    let lists = [
        ("args", args),
        ("env_vars", env_vars),
        ("network", &options.network),
        ("disabled_tools", &options.disabled_tools),
    ];
    lists.iter().filter(|(_, values)| !values.is_empty()).for_each(|(key, values)| line(key, list(values)));
    options.enabled_tools.iter().for_each(|tools| line("enabled_tools", list(tools)));
    let tables = [
        ("env", env),
        ("http_headers", &options.http_headers),
        ("env_http_headers", &options.env_http_headers),
    ];
    for (key, values) in tables.iter().filter(|(_, values)| !values.is_empty()) {
        let members: Vec<String> =
            values.iter().map(|(name, value)| format!("{} = {}", quoted(name), quoted(value))).collect();
        line(key, format!("{{ {} }}", members.join(", ")));
    }
    if let Some(place) = options.place {
        line("where", quoted(if place == PlaceOption::Host { "host" } else { "sandbox" }));
    }
    options.cpus.iter().for_each(|cpus| line("cpus", format!("{cpus:?}")));
    options.pids.iter().for_each(|pids| line("pids", pids.to_string()));
    if let Some(enabled) = options.enabled {
        line("enabled", enabled.to_string());
    }
    text
}

fn list(values: &[String]) -> String {
    format!("[{}]", values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", "))
}

/// A basic string of TOML: the escapes of JSON are among its own, and DEL is not allowed as it is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_added_is_read_as_it_was_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, "# mine\nmodel = \"m\"").unwrap();
        let options = ServerOptions {
            command: Some("uvx".into()),
            args: vec!["a \"b\"\n\u{7f}".into()],
            env: [("A.B".to_owned(), "1".to_owned())].into(),
            network: vec!["registries".into()],
            memory: Some("512m".into()),
            cpus: Some(1.0),
            pids: Some(64),
            place: Some(PlaceOption::Sandbox),
            enabled: Some(false),
            ..ServerOptions::default()
        };
        let mut file = ConfigFile::read(directory.path()).unwrap();
        file.add("x", &options).unwrap();
        assert!(file.add("x", &options).is_err(), "twice");
        file.write().unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("# mine\nmodel = \"m\"\n\n[mcp.servers.x]\n"));
        let file = ConfigFile::read(directory.path()).unwrap();
        assert!(file.has("x"));
        assert_eq!(file.file.mcp.servers["x"], options);
    }

    proptest! {
        #[test]
        fn any_text_is_quoted(text in ".*") {
            let table: toml::Table = toml::from_str(&format!("a = {}", quoted(&text))).unwrap();
            prop_assert_eq!(table["a"].as_str(), Some(text.as_str()));
        }
    }
}
