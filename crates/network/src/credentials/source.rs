//! Where a credential's value comes from, on this machine.

use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::{host_process, host_program};
use secrecy::{ExposeSecret, SecretString};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// The time limit for a command: it may ask the user for a fingerprint.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest output of a command, or file.
const MAX_OUTPUT: usize = 64 << 10;
/// The shortest value: what is shorter would be found everywhere in what comes back.
const MIN_VALUE: usize = 8;
/// The longest value.
const MAX_VALUE: usize = 8 << 10;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The first of these variables that is set.
    Variables(Vec<String>),
    /// The first line of a file.
    File(PathBuf),
    /// The first line of what a program prints. There is no shell.
    Command(Vec<String>),
    /// git's credential helper, for this host.
    Git(String),
    /// The system's keyring: the secret with these attributes.
    Keyring(BTreeMap<String, String>),
    /// A key of AWS: of the usual variables, or what a program prints as `aws configure export-credentials` does.
    Aws(Option<Vec<String>>),
}

/// The command that prints a key of AWS.
const EXPORT: [&str; 3] = ["aws", "configure", "export-credentials"];

/// The places where a value is looked for.
#[derive(Clone, Copy)]
pub struct SourceContext<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The workspace, none of whose programs is started.
    pub workspace: &'a Path,
    /// The variables of the user's environment.
    pub variable: &'a (dyn Fn(&str) -> Option<String> + Sync),
}

impl Source {
    /// Reads the value of the credential `name`.
    ///
    /// # Errors
    /// There is none, or it cannot be a credential. The value is in no message.
    pub async fn read(&self, name: &str, place: SourceContext<'_>) -> Result<SecretString> {
        let value = match self {
            Self::Variables(names) => {
                let found = names.iter().find_map(|name| (place.variable)(name));
                found
                    .ok_or_else(|| {
                        Error::config(format!(
                            "the credential {name} has no value: {} is not set",
                            names.join(" or ")
                        ))
                        .hint(format!("set it, or write a source into [credentials.{name}] of config.toml"))
                    })?
                    .trim()
                    .into()
            }
            Self::File(path) => {
                let failed = |error: std::io::Error| {
                    let message = format!("the credential {name} cannot be read from {}", path.display());
                    Error::config(message).caused_by(error)
                };
                let file = tokio::fs::File::open(path).await.map_err(failed)?;
                if !file.metadata().await.map_err(failed)?.is_file() {
                    return Err(Error::config(format!("{} is not a file", path.display())));
                }
                let mut text = String::new();
                file.take(MAX_OUTPUT as u64).read_to_string(&mut text).await.map_err(failed)?;
                first_line(&text)
            }
            Self::Command(words) => first_line(run(name, words, b"", place).await?.expose_secret()),
            Self::Git(host) => {
                let question = format!("protocol=https\nhost={host}\n\n");
                let words = ["git", "credential", "fill"].map(str::to_owned);
                let answer = run(name, &words, question.as_bytes(), place).await?;
                let password = answer.expose_secret().lines().find_map(|line| line.strip_prefix("password="));
                first_line(password.unwrap_or_default())
            }
            Self::Keyring(attributes) => {
                let words = lookup(attributes);
                first_line(run(name, &words, b"", place).await?.expose_secret())
            }
            Self::Aws(words) => match (words, of_variables(place)) {
                (None, Some(key)) => key,
                (words, _) => {
                    let words = words.clone().unwrap_or_else(|| EXPORT.map(str::to_owned).to_vec());
                    in_one_line(name, run(name, &words, b"", place).await?.expose_secret())?
                }
            },
        };
        check(name, &value)?;
        Ok(value)
    }
}

/// Returns the command that prints a secret of the keyring: `secret-tool` asks the Secret Service (GNOME Keyring,
/// KWallet, KeePassXC), `security` the keychain.
fn lookup(attributes: &BTreeMap<String, String>) -> Vec<String> {
    let word = |text: &str| text.to_owned();
    if cfg!(target_os = "macos") {
        let of = |name: &str| attributes.get(name).cloned().unwrap_or_default();
        let mut words =
            vec![word("security"), word("find-generic-password"), word("-w"), word("-s"), of("service")];
        if attributes.contains_key("username") {
            words.extend([word("-a"), of("username")]);
        }
        return words;
    }
    let pairs = attributes.iter().flat_map(|(name, value)| [name.clone(), value.clone()]);
    [word("secret-tool"), word("lookup")].into_iter().chain(pairs).collect()
}

fn of_variables(place: SourceContext<'_>) -> Option<SecretString> {
    let variable = |name: &str| (place.variable)(name);
    let key = serde_json::json!({
        "AccessKeyId": variable("AWS_ACCESS_KEY_ID")?,
        "SecretAccessKey": variable("AWS_SECRET_ACCESS_KEY")?,
        "SessionToken": variable("AWS_SESSION_TOKEN"),
    });
    Some(key.to_string().into())
}

fn in_one_line(name: &str, text: &str) -> Result<SecretString> {
    // The text is in no message.
    let value: serde_json::Value = serde_json::from_str(text).map_err(|_| {
        Error::config(format!("the value of the credential {name} is not a key of AWS as JSON"))
    })?;
    Ok(value.to_string().into())
}

fn first_line(text: &str) -> SecretString {
    text.lines().next().unwrap_or_default().trim().into()
}

fn check(name: &str, value: &SecretString) -> Result<()> {
    let text = value.expose_secret();
    let wrong = |why: &str| Err(Error::config(format!("the value of the credential {name} {why}")));
    match text.len() {
        0 => wrong("is empty"),
        length if length < MIN_VALUE => wrong("is too short to be kept secret: at least 8 characters"),
        length if length > MAX_VALUE => wrong("is longer than 8 KiB"),
        _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            wrong("contains spaces or characters that no header can hold")
        }
        _ => Ok(()),
    }
}

/// Returns the output of a program of this machine. It starts in the user's home, so that no repository configures it.
async fn run(name: &str, words: &[String], input: &[u8], place: SourceContext<'_>) -> Result<SecretString> {
    let [program, arguments @ ..] = words else {
        return Err(Error::config(format!("[credentials.{name}] command is empty")));
    };
    let failed = |why: String| {
        Error::config(format!("the credential {name}: {program} {why}"))
            .hint("run it yourself: it has to print the value, and nothing else, on its first line")
    };
    let command = host_program::command(program.as_ref(), place.workspace, place.machine);
    let mut command = command.ok_or_else(|| failed("is not found outside of the workspace".to_owned()))?;
    command.args(arguments).env("GIT_TERMINAL_PROMPT", "0");
    let home = place.machine.home().filter(|home| home.is_dir());
    command.current_dir(home.unwrap_or_else(|| PathBuf::from("/")));
    let ran = host_process::run(command, input, TIMEOUT, MAX_OUTPUT).await;
    let ran = ran.map_err(|error| failed(format!("cannot be started: {error}")))?;
    let ran = ran.ok_or_else(|| failed(format!("did not end within {} s", TIMEOUT.as_secs())))?;
    if !ran.status.success() {
        return Err(failed(format!("failed ({})", ran.status)));
    }
    String::from_utf8(ran.stdout).map(SecretString::from).map_err(|_| failed("printed no text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    async fn value(source: Source) -> std::result::Result<String, String> {
        let (machine, workspace) = (Machine::of_this_process(), Path::new("/nonexistent"));
        let variable = |name: &str| (name == "A_TOKEN").then(|| "from-variable".to_owned());
        let place = SourceContext { machine: &machine, workspace, variable: &variable };
        let read = source.read("x", place).await;
        read.map(|value| value.expose_secret().to_owned()).map_err(|error| {
            let mut text = error.to_string();
            write!(text, " {}", error.hint_text().unwrap_or_default()).unwrap();
            text
        })
    }

    #[tokio::test]
    async fn a_value_comes_from_a_variable_a_file_or_a_program() {
        let names = vec!["UNSET_TOKEN".to_owned(), "A_TOKEN".to_owned()];
        assert_eq!(value(Source::Variables(names)).await.as_deref(), Ok("from-variable"));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "from-file-1\nsecond\n").unwrap();
        assert_eq!(value(Source::File(file)).await.as_deref(), Ok("from-file-1"));
        // Nothing is a shell's.
        let words = ["printf", "%s\\n", "$HOME;`id`"].map(str::to_owned).to_vec();
        assert_eq!(value(Source::Command(words)).await.as_deref(), Ok("$HOME;`id`"));
    }

    #[tokio::test]
    async fn what_cannot_be_a_credential_is_refused_without_showing_it() {
        for (text, why) in [("abc12", "too short"), ("two words here", "spaces"), ("", "empty")] {
            let words = ["printf", "%s\\n", text].map(str::to_owned).to_vec();
            let error = value(Source::Command(words)).await.unwrap_err();
            assert!(error.contains(why) && (text.is_empty() || !error.contains(text)), "{error}");
        }
        for words in [&["false"][..], &["no-such-program-here"], &["./relative"], &[]] {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            assert!(value(Source::Command(words)).await.is_err());
        }
    }
}
