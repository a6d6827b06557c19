//! `[mcp]` of `config.toml`, and `.mcp.json` of the workspace once the user has approved it.

mod docker_run;
pub mod foreign;
pub mod options;
mod relaxed;
pub mod workspace_file;

use super::units::{bytes, duration};
use crate::count_text::counted;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::mcp::client::{
    CALL_TIMEOUT, Launch, OwnLimits, START_TIMEOUT, ServerLocation, ServerSettings, is_name,
};
use crate::network;
use docker_run::DockerRun;
use options::{McpOptions, PlaceOption, ServerOptions};
use secrecy::SecretString;
use std::path::Path;
use url::Url;
use workspace_file::WorkspaceFile;

/// The servers of a call.
#[derive(Debug, Clone, Default)]
pub struct Configured {
    /// Those that sessions use.
    pub servers: Vec<ServerSettings>,
    /// A notice for the user about `.mcp.json`.
    pub notice: Option<String>,
}

/// The user's servers, and those of an approved `.mcp.json`, of which the user's own come first.
pub(super) fn servers(options: &McpOptions, workspace: &Path, machine: &Machine) -> Result<Configured> {
    let mut servers = Vec::new();
    for (name, options) in options.servers.iter().filter(|(_, options)| options.enabled != Some(false)) {
        let settings = settings(name, options, &|variable| std::env::var(variable).ok());
        servers.push(settings.map_err(|error| of_server(name, &error))?);
    }
    let WorkspaceFile { found, is_approved, .. } = match workspace_file::read(workspace, machine) {
        None => return Ok(Configured { servers, notice: None }),
        Some(Err(error)) => {
            return Ok(Configured { servers, notice: Some(format!("{}: {error}", workspace_file::NAME)) });
        }
        Some(Ok(file)) => file,
    };
    let name = workspace_file::NAME;
    if !is_approved {
        let count = found.len();
        let notice = (count > 0).then(|| {
            format!(
                "{name} of this directory names {}, which are not used until you approve: `agent mcp approve` \
                 shows them",
                counted(count, "MCP server")
            )
        });
        return Ok(Configured { servers, notice });
    }
    let mut left_out = Vec::new();
    for found in found {
        if options.servers.contains_key(&found.name) {
            continue;
        }
        // Nothing of this machine's environment is for a repository's servers.
        match found
            .options
            .and_then(|options| settings(&found.name, &options, &|_| None).map_err(|error| error.to_string()))
        {
            // How much it takes of this machine is not for a repository to say.
            Ok(settings) => servers.push(ServerSettings { limits: OwnLimits::default(), ..settings }),
            Err(why) => left_out.push(format!("{}: {why}", found.name)),
        }
    }
    let notice = (!left_out.is_empty()).then(|| format!("left out of {name}: {}", left_out.join("; ")));
    Ok(Configured { servers, notice })
}

/// The settings of one server. `variable` is a variable of this machine.
///
/// # Errors
/// Their faults.
pub fn settings(
    name: &str,
    options: &ServerOptions,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerSettings> {
    if !is_name(name) {
        return Err(Error::config(format!("{name:?} is not a valid name of a server")).hint(
            "use at most 32 letters, digits, '-' and '_', without `__` and without '_' at the beginning or the end",
        ));
    }
    if !options.network.is_empty() {
        network::Rules::parse(&options.network.join(","))?;
    }
    let time = |text: &Option<String>, default| text.as_deref().map_or(Ok(default), duration);
    let (launch, limits) = launch(options, variable)?;
    let place = options.place.map_or(ServerLocation::default(), ServerLocation::from);
    let is_sandboxed = place == ServerLocation::Sandbox && !matches!(launch, Launch::Http { .. });
    if !is_sandboxed && limits != OwnLimits::default() {
        return Err(Error::config("memory, cpus and pids are for servers that run in a sandbox"));
    }
    if place == ServerLocation::Host && matches!(launch, Launch::Image { .. }) {
        return Err(Error::config("an image runs in a sandbox")
            .hint("leave `where` out, or name docker as the command"));
    }
    if limits.memory == Some(0)
        || limits.pids == Some(0)
        || limits.cpus.is_some_and(|cpus| cpus.is_nan() || cpus <= 0.0)
    {
        return Err(Error::config("memory, cpus and pids have to be more than 0"));
    }
    Ok(ServerSettings {
        place,
        limits,
        network: options.network.clone(),
        call_timeout: time(&options.timeout, CALL_TIMEOUT)?,
        start_timeout: time(&options.start_timeout, START_TIMEOUT)?,
        enabled_tools: options.enabled_tools.clone(),
        disabled_tools: options.disabled_tools.clone(),
        ..ServerSettings::new(name, launch)
    })
}

/// A variable of this machine that has to be set.
type Required<'a> = &'a dyn Fn(&str) -> Result<String>;

/// Returns how it is reached, and the limits of a sandbox of its own.
fn launch(options: &ServerOptions, variable: &dyn Fn(&str) -> Option<String>) -> Result<(Launch, OwnLimits)> {
    let limits = OwnLimits {
        memory: options.memory.as_deref().map(bytes).transpose()?,
        cpus: options.cpus,
        pids: options.pids,
    };
    let required = |name: &str| {
        variable(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            Error::config(format!("the variable {name} is not set")).hint("set it, or disable the server")
        })
    };
    match (&options.command, &options.image, &options.url) {
        (Some(command), _, None) if command.trim().is_empty() => Err(neither()),
        (Some(_), _, None) | (None, Some(_), None) => program(options, limits, &required),
        (None, None, Some(url)) => Ok((elsewhere(options, url, &required)?, limits)),
        _ => Err(neither()),
    }
}

/// A program: of the session's sandbox, of this machine, or of an image.
fn program(
    options: &ServerOptions,
    limits: OwnLimits,
    required: Required<'_>,
) -> Result<(Launch, OwnLimits)> {
    if !options.http_headers.is_empty() || options.bearer_token_env_var.is_some() {
        return Err(Error::config("headers and tokens are for servers that have a url"));
    }
    let mut env: Vec<(String, SecretString)> =
        options.env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    for name in &options.env_vars {
        env.push((name.clone(), required(name)?.into()));
    }
    if env.iter().any(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Error::config("a variable in `env` has no valid name"));
    }
    let (args, cwd) = (options.args.clone(), options.cwd.clone());
    let is_on_host = options.place == Some(PlaceOption::Host);
    match (options.command.clone(), options.image.clone()) {
        (entrypoint, Some(image)) => Ok((Launch::Image { image, entrypoint, args, env, cwd }, limits)),
        (Some(command), None) if !is_on_host && docker_run::is_docker_run(&command, &args) => {
            let run = docker_run::parse(&args[1..])?;
            let limits = OwnLimits {
                memory: limits.memory.or(run.limits.memory),
                cpus: limits.cpus.or(run.limits.cpus),
                pids: limits.pids.or(run.limits.pids),
            };
            let env = run.variables(&env, required)?;
            let DockerRun { image, entrypoint, args, .. } = run;
            // `cwd` is where the engine's client would start.
            Ok((Launch::Image { image, entrypoint, args, env, cwd: run.cwd }, limits))
        }
        (Some(command), None) if !is_on_host && docker_run::is_engine(&command) => {
            Err(Error::config("of the commands of a container engine, only `run` starts a server in a sandbox")
                .hint("write `docker run -i --rm IMAGE`, or set where = \"host\": the container is then outside of the sandbox"))
        }
        (Some(command), None) => Ok((Launch::Process { command, args, env, cwd }, limits)),
        (None, None) => Err(neither()),
    }
}

/// A server at `url`.
fn elsewhere(options: &ServerOptions, url: &str, required: Required<'_>) -> Result<Launch> {
    let url = address(url)?;
    if !options.args.is_empty() || !options.env.is_empty() || !options.network.is_empty() {
        return Err(Error::config("args, env and network are for servers that have a command"));
    }
    let mut headers: Vec<(String, SecretString)> =
        options.http_headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    for (header, name) in &options.env_http_headers {
        headers.push((header.clone(), required(name)?.into()));
    }
    if let Some(name) = &options.bearer_token_env_var {
        headers.push(("Authorization".to_owned(), format!("Bearer {}", required(name)?).into()));
    }
    Ok(Launch::Http { url, headers })
}

fn neither() -> Error {
    Error::config("it has to have either a command, an image or a url")
}

fn address(text: &str) -> Result<Url> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.filter(|url| url.username().is_empty() && url.password().is_none()).ok_or_else(|| {
        Error::config(format!("{text:?} is not a valid address of a server"))
            .hint("write it as https://example.com/mcp, without a user name")
    })
}

fn of_server(name: &str, error: &Error) -> Error {
    let named = Error::config(format!("[mcp.servers.{name}] in config.toml: {error}"));
    match error.hint_text() {
        Some(hint) => named.hint(hint),
        None => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn read(text: &str) -> Result<ServerSettings> {
        let options: ServerOptions = toml::from_str(text).unwrap();
        settings("a", &options, &|name| (name == "TOKEN").then(|| "secret".to_owned()))
    }

    #[test]
    fn a_server_has_a_command_or_an_address() {
        let server =
            read("command = \"uvx\"\nargs = [\"x\"]\nenv_vars = [\"TOKEN\"]\nnetwork = [\"registries\"]")
                .unwrap();
        let Launch::Process { env, .. } = &server.launch else { panic!("{server:?}") };
        assert_eq!((env[0].0.as_str(), env[0].1.expose_secret()), ("TOKEN", "secret"));
        assert_eq!(server.place, ServerLocation::Sandbox);
        let server = read("url = \"https://a.example/mcp\"\nbearer_token_env_var = \"TOKEN\"").unwrap();
        let Launch::Http { headers, .. } = &server.launch else { panic!("{server:?}") };
        assert_eq!(headers[0].1.expose_secret(), "Bearer secret");
        assert!(!format!("{server:?}").contains("secret"));
    }

    #[test]
    fn docker_run_is_a_sandbox_of_its_own_with_the_variables_that_it_names() {
        let server = read(
            "command = \"docker\"\nargs = [\"run\", \"-i\", \"--rm\", \"-e\", \"TOKEN\", \"-e\", \"KEY\", \"-m\", \"1g\", \"mcp/fetch\", \"x\"]\nenv = { KEY = \"k\", OTHER = \"o\" }",
        )
        .unwrap();
        let Launch::Image { image, args, env, .. } = &server.launch else { panic!("{server:?}") };
        let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        assert_eq!((image.as_str(), args.as_slice()), ("mcp/fetch", ["x".to_owned()].as_slice()));
        assert_eq!(env, [("TOKEN", "secret"), ("KEY", "k")], "the others are the client's");
        assert!(server.has_own_sandbox() && server.limits.memory == Some(1 << 30));
        let server = read("command = \"a\"\npids = 20").unwrap();
        assert!(server.has_own_sandbox() && server.limits.pids == Some(20));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            "",
            "command = \" \"",
            "command = \"a\"\nurl = \"https://a.example\"",
            "url = \"file:///etc/passwd\"",
            "url = \"https://user:password@a.example/\"",
            "url = \"https://a.example\"\nnetwork = [\"a.example\"]",
            "command = \"a\"\nnetwork = [\"full\"]",
            "command = \"a\"\nenv_vars = [\"UNSET\"]",
            "command = \"a\"\ntimeout = \"soon\"",
            "command = \"/usr/bin/docker\"\nargs = [\"run\", \"-v\", \"/:/host\", \"mcp/fetch\"]",
            "command = \"docker\"\nargs = [\"run\", \"-e\", \"UNSET\", \"mcp/fetch\"]",
            "image = \"a\"\nwhere = \"host\"",
            "command = \"a\"\nwhere = \"host\"\nmemory = \"1g\"",
            "command = \"a\"\ncpus = 0",
            "command = \"a\"\nmemory = \"lots\"",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(settings("a__b", &ServerOptions::default(), &|_| None).is_err());
    }
}
