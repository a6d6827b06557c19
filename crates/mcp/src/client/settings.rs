//! The servers that a session uses, as plain data.

use agent_base::hash::Hash;
use secrecy::{ExposeSecret, SecretString};
use std::fmt;
use std::time::Duration;
use url::Url;

/// The time limit for a server to start and to list its tools, unless the user sets another: `npx` and `uvx` download it
/// first.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for starting one with a sandbox of its own, with the download of its image.
pub const OWN_SANDBOX_TIMEOUT: Duration = Duration::from_secs(600);
/// The time limit for a call without a sign of progress, unless the user sets another.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest name of a server, in bytes: names of tools begin with it.
const MAX_NAME: usize = 32;

/// A server, as the user configured it.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Its name: see [`is_name`].
    pub name: String,
    /// The command, image or address by which it is reached.
    pub launch: Launch,
    /// The place where a program runs.
    pub place: ServerLocation,
    /// The limits of a sandbox of its own, where it has one for that.
    pub limits: OwnLimits,
    /// The hosts that it may reach, as a list of `--network` has them. Empty: those that every program of its sandbox may.
    pub network: Vec<String>,
    /// The time limit for its start.
    pub start_timeout: Duration,
    /// The time limit for a call without a sign of progress.
    pub call_timeout: Duration,
    /// The tools that are offered, where the user names them.
    pub enabled_tools: Option<Vec<String>>,
    /// Tools that are not.
    pub disabled_tools: Vec<String>,
}

/// The command, image or address by which a server is reached.
#[derive(Debug, Clone)]
pub enum Launch {
    /// A program, over its standard input and output.
    Process {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables, beside those of every program there.
        env: Vec<(String, SecretString)>,
        /// Its working directory.
        cwd: Option<String>,
    },
    /// The program of an image, in a sandbox of its own, over its standard input and output.
    Image {
        /// The image.
        image: String,
        /// The program that runs in place of the image's entry point.
        entrypoint: Option<String>,
        /// Its arguments, in place of the image's.
        args: Vec<String>,
        /// Its variables, beside those of the image.
        env: Vec<(String, SecretString)>,
        /// Its working directory, in place of the image's.
        cwd: Option<String>,
    },
    /// A server elsewhere, over HTTP from this machine.
    Http {
        /// Its address.
        url: Url,
        /// Headers of each request.
        headers: Vec<(String, SecretString)>,
    },
}

/// Limits of a sandbox that a server has for itself. Where one is set, it has such a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OwnLimits {
    /// Memory in bytes, including swap.
    pub memory: Option<u64>,
    /// Number of CPUs; may be fractional.
    pub cpus: Option<f64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
}

/// The place where a server's program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerLocation {
    /// In the session's sandbox.
    #[default]
    Sandbox,
    /// On this machine, with all that the user may do.
    Host,
}

impl ServerLocation {
    /// As the configuration names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Host => "host",
        }
    }
}

impl ServerSettings {
    /// A server with the defaults for everything else.
    pub fn new(name: impl Into<String>, launch: Launch) -> Self {
        Self {
            name: name.into(),
            launch,
            place: ServerLocation::default(),
            limits: OwnLimits::default(),
            network: Vec::new(),
            start_timeout: START_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
            enabled_tools: None,
            disabled_tools: Vec::new(),
        }
    }

    /// Returns whether a tool of it is offered.
    pub fn offers(&self, tool: &str) -> bool {
        let is_in = |names: &Vec<String>| names.iter().any(|name| name == tool);
        self.enabled_tools.as_ref().is_none_or(is_in) && !is_in(&self.disabled_tools)
    }

    /// Returns whether it runs in no sandbox, so that nothing of what it does is in the diff.
    pub fn is_outside(&self) -> bool {
        self.place == ServerLocation::Host || matches!(self.launch, Launch::Http { .. })
    }

    /// Returns whether it runs in a sandbox of its own, in which the project is not.
    pub fn has_own_sandbox(&self) -> bool {
        !self.is_outside()
            && (matches!(self.launch, Launch::Image { .. }) || self.limits != OwnLimits::default())
    }

    /// Returns what identifies it in the cache of tools: whatever may change the list of them.
    pub fn fingerprint(&self) -> Hash {
        let exposed = |env: &[(String, SecretString)]| -> Vec<String> {
            env.iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect()
        };
        let launch = match &self.launch {
            Launch::Process { command, args, env, cwd } => {
                format!("{:?}", (command, args, exposed(env), cwd))
            }
            Launch::Image { image, entrypoint, args, env, cwd } => {
                format!("{:?}", (image, entrypoint, args, exposed(env), cwd))
            }
            Launch::Http { url, headers } => {
                let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
                format!("{:?}", (url.as_str(), names))
            }
        };
        Hash::of(format!("{} {} {launch}", self.name, self.place.as_str()))
    }
}

/// Shows the user how a server is reached: the command, or the address. Neither variables nor headers.
impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { command, args, .. } => {
                f.write_str(&shell_words::join(std::iter::once(command).chain(args)))
            }
            Self::Image { image, entrypoint, args, .. } => {
                let words = std::iter::once(image).chain(entrypoint).chain(args);
                write!(f, "image {}", shell_words::join(words))
            }
            Self::Http { url, .. } => f.write_str(url.as_str()),
        }
    }
}

/// Returns whether a server may be called so: names of tools are made of it, and must not be those of another server.
pub fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(is_valid)
        && !name.contains("__")
        && !name.starts_with('_')
        && !name.ends_with('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_leave_no_doubt_where_they_end() {
        assert!(is_name("git") && is_name("my-server_2"));
        for name in ["", "a__b", "a_", "_a", "a b", "größe", &"a".repeat(33)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn tools_are_offered_unless_they_are_left_out() {
        let launch =
            || Launch::Http { url: Url::parse("https://example.com/mcp").unwrap(), headers: Vec::new() };
        let server = ServerSettings::new("a", launch());
        assert!(server.offers("read"));
        let server = ServerSettings {
            enabled_tools: Some(vec!["read".into(), "write".into()]),
            disabled_tools: vec!["write".into()],
            ..ServerSettings::new("a", launch())
        };
        assert!(server.offers("read") && !server.offers("write") && !server.offers("other"));
    }
}
