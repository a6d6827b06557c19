//! `agent mcp check [NAME…]`: what a server is, before a session uses it.

use crate::agent::Interrupt;
use crate::cli::config::Config;
use crate::cli::config::servers::{self, Configured, workspace_file};
use crate::cli::console::Console;
use crate::cli::options::{BackendArgs, DirectoryArg, JsonArg, Options};
use crate::cli::print::print;
use crate::cli::sandbox_settings;
use crate::cli::signals::{until_interrupted, with_signals};
use crate::count_text::counted;
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Listener, Record};
use crate::exit_code::ExitCode;
use crate::lock::Lock;
use crate::machine::Machine;
use crate::mcp::client::{Cache, Launch, Offer, Server, ServerSettings, Site};
use crate::mcp::protocol::{Era, MODERN};
use crate::sandbox::Network;
use crate::sanitise::{one_line, plain};
use crate::session::{CheckSite, Frontend, OneShot};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `agent mcp check`
#[derive(Debug, Args)]
pub struct CheckServersArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    backend: BackendArgs,
    /// The servers (default: all that a session here uses); one of a .mcp.json that is not approved has to be named
    names: Vec<String>,
    #[command(flatten)]
    output: JsonArg,
}

impl CheckServersArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.backend])
    }
}

/// A host that no list needs to allow: with it there is a proxy in the sandbox, which sees what a server tries to reach.
const NOBODY: &str = "nobody.invalid";

/// Checks them one after the other, each in a sandbox of its own that is removed. It fails if one of them does not start.
pub async fn check(machine: &Arc<Machine>, arguments: CheckServersArgs) -> Result<ExitCode> {
    let config = Config::load(machine, &arguments.options())?;
    let servers = chosen(&config, &arguments.names)?;
    let (mut text, mut all, mut failed) = (String::new(), Vec::new(), 0);
    for settings in servers {
        let checked = checked(&config, settings).await?;
        failed += usize::from(checked.outcome.is_err());
        text += &checked.text()?;
        all.push(checked.json());
    }
    print(&Options::of(&[&arguments.output]), &text, &json!({ "servers": all }))?;
    match failed {
        0 => Ok(ExitCode::Success),
        _ => Err(Error::new(Kind::Check, format!("{} did not start", counted(failed, "server")))),
    }
}

fn chosen(config: &Config, names: &[String]) -> Result<Vec<ServerSettings>> {
    if names.is_empty() {
        let servers = config.mcp.servers.clone();
        return match servers.is_empty() {
            true => Err(Error::usage("there are no servers").hint("`agent mcp add` adds one")),
            false => Ok(servers),
        };
    }
    let of_workspace = || workspace_file::read(&config.workspace, &config.machine)?.ok();
    names
        .iter()
        .map(|name| {
            if let Some(server) = config.mcp.servers.iter().find(|server| server.name == *name) {
                return Ok(server.clone());
            }
            let found =
                of_workspace().and_then(|file| file.found.into_iter().find(|found| found.name == *name));
            let unknown =
                || Error::usage(format!("there is no server {name:?}")).hint("`agent mcp list` lists them");
            let options = found.ok_or_else(unknown)?.options.map_err(Error::config)?;
            servers::settings(name, &options, &|_| None)
        })
        .collect()
}

/// The outcome of a check.
struct CheckedServer {
    settings: ServerSettings,
    outcome: Result<Offer>,
    took: Duration,
    /// Hosts that it tried to reach, and whether it was allowed to.
    hosts: BTreeMap<String, bool>,
}

async fn checked(config: &Config, settings: ServerSettings) -> Result<CheckedServer> {
    let mcp = Configured { servers: vec![settings.clone()], notice: None };
    let (mut sandbox, _) = sandbox_settings::sandbox(&Config { mcp, ..config.clone() }).await?;
    if sandbox.network == Network::None {
        sandbox.network = Network::Hosts(vec![NOBODY.to_owned()]);
    }
    // What the sandbox reports of itself does not belong to the result.
    let mut options = Options::default();
    options.verbosity.quiet = true;
    let console = Arc::new(Console::new(&config.machine, &options));
    let hosts: Arc<Lock<BTreeMap<String, bool>>> = Arc::default();
    console.events().listen(Box::new(SeenHosts(Arc::clone(&hosts))));
    let directory = config.machine.data_dir()?.join("scratch");
    let workspace = sandbox_settings::workspace(config);
    let stop = Interrupt::default();
    let starting = OneShot::start(&workspace, &sandbox, &directory, Arc::clone(&console) as _, &stop);
    let one_shot = Arc::new(with_signals(stop.clone(), starting).await?);
    let site = CheckSite::new(Arc::clone(&one_shot), &workspace, sandbox);
    let cache = Cache::new(&config.machine.cache_dir()?);
    let server = Server::new(settings.clone(), Arc::new(site) as Arc<dyn Site>, cache);
    let started = Instant::now();
    let asked = until_interrupted(Interrupt::default(), async { Ok(server.ask().await) }).await;
    let took = started.elapsed();
    server.end().await;
    one_shot.end().await;
    let outcome = asked?;
    console.events().flush().await?;
    let hosts = std::mem::take(&mut *hosts.lock());
    Ok(CheckedServer { settings, outcome, took, hosts })
}

/// Notes the hosts of connections.
struct SeenHosts(Arc<Lock<BTreeMap<String, bool>>>);

impl Listener for SeenHosts {
    fn on_event(&mut self, record: &Record, _: &[u8]) -> Result<()> {
        if let Event::Connection { host, port, allowed, .. } = &record.event {
            self.0.lock().insert(format!("{host}:{port}"), *allowed);
        }
        Ok(())
    }
}

impl CheckedServer {
    fn text(&self) -> Result<String> {
        let mut text = String::new();
        let name = &self.settings.name;
        let launch = one_line(&self.settings.launch.to_string(), 200);
        let _ = writeln!(text, "{name}: {launch}");
        match &self.outcome {
            Err(error) => {
                let error = plain(&error.to_string()).replace('\n', "\n    ");
                let _ = writeln!(text, "  {error}");
            }
            Ok(offer) => {
                let version =
                    if offer.era == Era::Modern { MODERN } else { "a version that begins with initialize" };
                let place = match &self.settings.launch {
                    Launch::Http { .. } => "answered from elsewhere",
                    _ if self.settings.is_outside() => "started on this machine",
                    _ if self.settings.has_own_sandbox() => "started in a sandbox of its own",
                    _ => "started in a sandbox",
                };
                let resources = if offer.resources { ", resources" } else { "" };
                let _ = writeln!(
                    text,
                    "  {place} in {:.2} s, speaks {version}: {}{resources}",
                    self.took.as_secs_f64(),
                    counted(offer.tools.len(), "tool")
                );
                for tool in &offer.tools {
                    let about = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
                    let _ = writeln!(
                        text,
                        "    {:<28} {}",
                        one_line(&tool.name, 60),
                        one_line(about.trim(), 100)
                    );
                }
            }
        }
        for (host, allowed) in &self.hosts {
            let verdict = if *allowed { "reached" } else { "tried to reach, refused:" };
            let _ = writeln!(text, "  {verdict} {}", one_line(host, 200));
        }
        Ok(text)
    }

    fn json(&self) -> Value {
        let offer = self.outcome.as_ref().ok();
        json!({
            "name": self.settings.name,
            "ok": offer.is_some(),
            "error": self.outcome.as_ref().err().map(ToString::to_string),
            "seconds": self.took.as_secs_f64(),
            "era": offer.map(|offer| offer.era),
            "tools": offer.map(|offer| &offer.tools),
            "resources": offer.map(|offer| offer.resources),
            "hosts": self.hosts.iter().map(|(host, allowed)| json!({ "host": host, "allowed": allowed })).collect::<Vec<_>>(),
        })
    }
}
