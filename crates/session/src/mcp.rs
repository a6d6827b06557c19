//! The MCP servers of a session.

use super::environment::SessionEnvironment;
use super::settings::{SandboxSettings, WorkspaceSettings};
use super::{OneShot, Session, server_sandbox};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_base::sanitise::plain;
use agent_core::Environment;
use agent_event::{Event, Events};
use agent_mcp::client::{Cache, Exchange, Offered, OwnSandbox, ServerSettings, Servers, Site};
use agent_network::{Gateway, Verdict};
use agent_policy::{Answer, Question, policy};
use agent_sandbox::Sandbox;
use agent_tools::Tool;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;

/// The servers of a session, and what of theirs the model has been offered.
pub(super) struct SessionServers {
    pub all: Servers,
    /// Their tools, once they were asked: the name, and how the model sees it.
    offered: Option<BTreeMap<String, String>>,
}

impl SessionServers {
    /// Those that the user configured, in a session of these settings.
    pub fn new(
        settings: &[ServerSettings],
        environment: &Arc<SessionEnvironment>,
        (workspace, sandbox): (&WorkspaceSettings, &SandboxSettings),
    ) -> Result<Self> {
        if settings.is_empty() {
            return Ok(Self { all: Servers::default(), offered: None });
        }
        let site: Arc<dyn Site> = Arc::new(SessionSite {
            environment: Arc::clone(environment),
            workspace: workspace.root.clone(),
            machine: Arc::clone(&workspace.machine),
            sandbox: sandbox.clone(),
        });
        let cache = Cache::new(&workspace.machine.cache_dir()?);
        let all = Servers::new(settings, &site, &cache);
        Ok(Self { all, offered: None })
    }
}

impl Session {
    /// Offers the model the tools of the servers before the first prompt, and others once a server says that they are others now.
    pub(super) async fn offer_servers(&mut self) -> Result<()> {
        if self.servers.all.list().is_empty() {
            return Ok(());
        }
        let interrupt = self.conversation.interrupt();
        let is_first = self.servers.offered.is_none();
        let ask = async {
            match is_first {
                true => Some(self.servers.all.offered().await),
                false => self.servers.all.changed().await,
            }
        };
        let offered = tokio::select! {
            biased;
            stop = interrupt.triggered() => return Err(stop.error()),
            offered = ask => offered,
        };
        let Some(Offered { mut tools, mut found, instructions, failures }) = offered else { return Ok(()) };
        for text in failures {
            self.frontend.events().emit(Event::Notice { text: plain(&text).into_owned() })?;
        }
        let before = self.servers.offered.take();
        if let Some(before) = &before {
            let others = others(before, tools.iter().chain(&found));
            let answer = self.wanted(&others).await?;
            if let Some(reason) = answer.reason() {
                let names = others.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                self.conversation.note(&format!("About the changed tools {}: {reason}", plain(&names)))?;
            }
            let refused = match answer {
                Answer::Once | Answer::Always => BTreeSet::new(),
                _ => others.into_keys().collect(),
            };
            tools.retain(|tool| !refused.contains(tool.name()));
            found.retain(|tool| !refused.contains(tool.name()));
        }
        let described = tools.iter().chain(&found).map(|tool| (tool.name().to_owned(), description(tool)));
        self.servers.offered = Some(described.collect());
        let before: Vec<String> = before.unwrap_or_default().into_keys().collect();
        self.conversation.change_tools(|registry| {
            registry.remove(&before);
            tools.into_iter().try_for_each(|tool| registry.add(tool))?;
            found.into_iter().try_for_each(|tool| registry.add_undescribed(tool))
        })?;
        // A resumed conversation has them already.
        if is_first && !self.resumed {
            for (server, text) in instructions {
                let text = plain(&text).into_owned();
                self.conversation.note(&format!("The MCP server {server} says about its tools:\n{text}"))?;
            }
        }
        Ok(())
    }
}

impl Session {
    /// The user's answer about tools that a server has changed, or added, since the user's prompts began. Where nobody can be asked they are
    /// named.
    async fn wanted(&self, others: &BTreeMap<String, String>) -> Result<Answer> {
        if others.is_empty() {
            return Ok(Answer::Always);
        }
        let names = others.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let Some(approver) = self.frontend.approver() else {
            let text = format!("An MCP server has changed these tools: {}", plain(&names));
            self.frontend.always_notice(text)?;
            return Ok(Answer::Always);
        };
        let tools: Vec<String> = others.iter().map(|(name, told)| format!("{name}: {told}")).collect();
        let what = format!("An MCP server has changed these tools:\n{}", tools.join("\n"));
        let question = policy::CallQuestion::about(&what, "tools as they are now");
        approver.ask(&Question::ToolCall(&question)).await
    }
}

/// The tools that are not as they were `before`, with how the model sees them.
fn others<'t>(
    before: &BTreeMap<String, String>,
    tools: impl Iterator<Item = &'t Arc<dyn Tool>>,
) -> BTreeMap<String, String> {
    let described = tools.map(|tool| (tool.name().to_owned(), description(tool)));
    described.filter(|(name, told)| before.get(name) != Some(told)).collect()
}

/// All that the model sees of a tool.
fn description(tool: &Arc<dyn Tool>) -> String {
    format!("{}\n{}", tool.description(), tool.parameters())
}

/// The services of a session for its servers.
struct SessionSite {
    environment: Arc<SessionEnvironment>,
    workspace: PathBuf,
    machine: Arc<Machine>,
    sandbox: SandboxSettings,
}

impl SessionSite {
    fn gateway(&self) -> &Arc<Gateway> {
        self.environment.startup.gateway()
    }
}

impl Site for SessionSite {
    fn sandbox(&self) -> BoxFuture<'_, Result<Sandbox>> {
        self.environment.sandbox()
    }

    fn own_sandbox<'a>(&'a self, server: &'a ServerSettings) -> BoxFuture<'a, Result<Arc<dyn OwnSandbox>>> {
        server_sandbox::start(server, &self.sandbox, &self.machine, &self.environment.startup).boxed()
    }

    fn network<'a>(
        &'a self,
        server: &'a ServerSettings,
        sandbox: &'a Sandbox,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        network(self.gateway(), server, sandbox).boxed()
    }

    fn check_address(&self, url: &Url) -> Result<()> {
        check_address(self.gateway(), url)
    }

    fn record(&self, url: &Url, exchange: Exchange) {
        record(self.environment.startup.events(), url, exchange);
    }

    fn workspace(&self) -> &Path {
        &self.workspace
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// The services of a sandbox for one command for a server that is tried in it.
pub struct CheckSite {
    one_shot: Arc<OneShot>,
    workspace: PathBuf,
    machine: Arc<Machine>,
    settings: SandboxSettings,
}

impl CheckSite {
    /// That of `one_shot`, which has a copy of `workspace`.
    pub fn new(one_shot: Arc<OneShot>, workspace: &WorkspaceSettings, settings: SandboxSettings) -> Self {
        Self {
            one_shot,
            workspace: workspace.root.clone(),
            machine: Arc::clone(&workspace.machine),
            settings,
        }
    }
}

impl Site for CheckSite {
    fn sandbox(&self) -> BoxFuture<'_, Result<Sandbox>> {
        async { Ok(self.one_shot.sandbox.clone()) }.boxed()
    }

    fn own_sandbox<'a>(&'a self, server: &'a ServerSettings) -> BoxFuture<'a, Result<Arc<dyn OwnSandbox>>> {
        server_sandbox::start(server, &self.settings, &self.machine, self.one_shot.startup()).boxed()
    }

    fn network<'a>(
        &'a self,
        server: &'a ServerSettings,
        sandbox: &'a Sandbox,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        network(self.one_shot.startup().gateway(), server, sandbox).boxed()
    }

    fn check_address(&self, url: &Url) -> Result<()> {
        check_address(self.one_shot.startup().gateway(), url)
    }

    fn record(&self, url: &Url, exchange: Exchange) {
        record(self.one_shot.startup().events(), url, exchange);
    }

    fn workspace(&self) -> &Path {
        &self.workspace
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// The variables of a program that goes by the list of its server.
async fn network(
    gateway: &Arc<Gateway>,
    server: &ServerSettings,
    sandbox: &Sandbox,
) -> Result<Vec<(String, String)>> {
    if server.network.is_empty() {
        return Ok(Vec::new());
    }
    let env = gateway.give_list(&format!("[mcp.servers.{}]", server.name), &server.network)?;
    gateway.attach(sandbox).await?;
    Ok(env)
}

fn check_address(gateway: &Gateway, url: &Url) -> Result<()> {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(0));
    match gateway.rules().judge_name(host, port) {
        Some(Verdict::Denied) => Err(Error::config(format!("connections to {host} are denied"))
            .hint("remove the denial from the list of --network")),
        _ => Ok(()),
    }
}

fn record(events: &Events, url: &Url, exchange: Exchange) {
    // A session file that cannot be written fails at the end of the call.
    let _ = events.emit(Event::Connection {
        host: url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
        port: url.port_or_known_default().unwrap_or(0),
        allowed: true,
        sent: exchange.sent,
        received: exchange.received,
        duration_ms: u64::try_from(exchange.duration.as_millis()).unwrap_or(u64::MAX),
        reason: None,
    });
}
