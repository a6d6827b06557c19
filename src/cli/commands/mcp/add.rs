//! `agent mcp add NAME -- CMD…`: a server more in `config.toml`.

use super::config_file::ConfigFile;
use crate::cli::config::servers;
use crate::cli::config::servers::options::{PlaceOption, ServerOptions};
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;

/// `agent mcp add`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AddArgs {
    /// Name of the server: its tools are mcp__NAME__TOOL
    name: String,
    /// The address of a server elsewhere, in the place of a command
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,
    /// The variable of this machine with the token for --url
    #[arg(long, value_name = "NAME", requires = "url")]
    bearer_token_env_var: Option<String>,
    /// A header of each request to --url, as NAME: VALUE
    #[arg(long, value_name = "HEADER", requires = "url")]
    header: Vec<String>,
    /// A variable of the program: NAME=VALUE, or NAME to pass this machine's on
    #[arg(long, value_name = "NAME[=VALUE]", conflicts_with = "url")]
    env: Vec<String>,
    /// The hosts that the program may reach, separated by commas: registries, example.com
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', conflicts_with = "url")]
    network: Vec<String>,
    /// Memory of a sandbox of its own, such as 512m; the project is not in it
    #[arg(long, value_name = "SIZE", conflicts_with = "url")]
    memory: Option<String>,
    /// CPUs of a sandbox of its own
    #[arg(long, value_name = "N", conflicts_with = "url")]
    cpus: Option<f64>,
    /// Processes and threads of a sandbox of its own
    #[arg(long, value_name = "N", conflicts_with = "url")]
    pids: Option<u64>,
    /// Where the program runs
    #[arg(
        long = "where",
        value_enum,
        value_name = "PLACE",
        default_value = "sandbox",
        conflicts_with = "url"
    )]
    place: PlaceArg,
    /// How long a call may take without a sign of progress
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// How long it may take to start
    #[arg(long, value_name = "TIME")]
    start_timeout: Option<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "url")]
    command: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  agent mcp add git -- mcp-server-git --repository /workspace
  agent mcp add files --network registries -- npx -y @modelcontextprotocol/server-filesystem /workspace
  agent mcp add time -- docker run -i --rm mcp/time
  agent mcp add docs --url https://example.com/mcp --bearer-token-env-var DOCS_TOKEN

`agent mcp check NAME` tries it.";

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlaceArg {
    /// In the session's sandbox
    Sandbox,
    /// On this machine, with all that you may do; what it does is in no diff
    Host,
}

/// Adds it.
pub fn add(machine: &Machine, arguments: AddArgs) -> Result<ExitCode> {
    let name = arguments.name.clone();
    let options = options(arguments)?;
    // A variable that is not set yet may be set later.
    servers::settings(&name, &options, &|_| Some("set".to_owned()))?;
    let mut file = ConfigFile::read(&machine.config_dir()?)?;
    if file.has(&name) {
        return Err(Error::config(format!("{} has a server {name:?}", file.path().display()))
            .hint("change it there, or choose another name"));
    }
    file.add(&name, &options)?;
    file.write()?;
    stderr::write(&format!("added {name} to {}; `agent mcp check {name}` tries it\n", file.path().display()));
    Ok(ExitCode::Success)
}

fn options(arguments: AddArgs) -> Result<ServerOptions> {
    let mut options = ServerOptions {
        url: arguments.url,
        bearer_token_env_var: arguments.bearer_token_env_var,
        network: arguments.network,
        timeout: arguments.timeout,
        start_timeout: arguments.start_timeout,
        memory: arguments.memory,
        cpus: arguments.cpus,
        pids: arguments.pids,
        place: (arguments.place == PlaceArg::Host).then_some(PlaceOption::Host),
        ..ServerOptions::default()
    };
    let mut command = arguments.command.into_iter();
    (options.command, options.args) = (command.next(), command.collect());
    for variable in arguments.env {
        match variable.split_once('=') {
            Some((name, value)) => drop(options.env.insert(name.to_owned(), value.to_owned())),
            None => options.env_vars.push(variable),
        }
    }
    let headers = arguments.header.iter().map(|header| {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Error::usage(format!("--header {header:?} has no colon")).hint("write it as 'NAME: VALUE'")
        })?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    options.http_headers = headers.collect::<Result<BTreeMap<_, _>>>()?;
    Ok(options)
}
