//! One server of a session: started when it is needed, and again when it is gone.

use super::cache::{Cache, Offer};
use super::connection::{Connection, Link, ResourceDescription};
use super::failure::Failure;
use super::http::Http;
use super::login::Login;
use super::peer::{OnProgress, Timeouts};
use super::process::{HostProgram, Running};
use super::settings::{Launch, OWN_SANDBOX_TIMEOUT, ServerSettings};
use super::site::{Own, OwnSandbox, Site};
use crate::protocol::{CallToolResult, Era, PromptDescription, PromptMessage, ResourceContents};
use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_base::sanitise::one_line;
use agent_sandbox::{Command, Program, Sandbox, WORKSPACE};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// Tools of one server.
const MAX_TOOLS: usize = 300;
/// Prompts of one server.
const MAX_PROMPTS: usize = 100;
/// Arguments of one prompt.
const MAX_ARGUMENTS: usize = 20;
/// The time limit for a list of prompts: tools do not wait longer for it.
const PROMPTS_TIMEOUT: Duration = Duration::from_secs(5);

/// A server of a session.
pub struct Server {
    /// The user's settings.
    pub settings: ServerSettings,
    site: Arc<dyn Site>,
    cache: Cache,
    current: Mutex<Option<Started>>,
    era: Lock<Option<Era>>,
    /// Its offer, as the model knows it.
    offer: Lock<Option<Offer>>,
    changed: AtomicBool,
    failure: Lock<Option<String>>,
}

struct Started {
    connection: Arc<Connection>,
    /// Set if its program cannot change the workspace.
    is_read_only: bool,
    /// The sandbox that it has for itself.
    own: Option<Own>,
}

/// The state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It has not been needed yet, or was ended; it starts with the next call.
    Idle,
    /// It runs.
    Running,
    /// The failure when it was last needed.
    Failed(String),
}

impl Server {
    /// A server that runs at `site`.
    pub fn new(settings: ServerSettings, site: Arc<dyn Site>, cache: Cache) -> Arc<Self> {
        Arc::new(Self {
            settings,
            site,
            cache,
            current: Mutex::default(),
            era: Lock::default(),
            offer: Lock::default(),
            changed: AtomicBool::new(false),
            failure: Lock::default(),
        })
    }

    /// Returns what it offers: as it was when it was last asked, or asked for now.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub async fn offer(&self) -> Result<Offer> {
        match self.cached().await {
            Some(offer) => Ok(offer),
            None => self.ask().await,
        }
    }

    /// Returns what it offered when it was last asked, which is then what it offers.
    async fn cached(&self) -> Option<Offer> {
        let (cache, settings) = (self.cache.clone(), self.settings.clone());
        let offer = tokio::task::spawn_blocking(move || cache.read(&settings)).await.ok().flatten()?;
        *self.era.lock() = Some(offer.era);
        *self.offer.lock() = Some(offer.clone());
        Some(offer)
    }

    /// Reads what it offered when it was last asked, unless it is known what it offers. It is not started for this.
    pub async fn remember(&self) {
        if !self.is_known() {
            self.cached().await;
        }
    }

    /// Returns whether it is known what it offers.
    pub fn is_known(&self) -> bool {
        self.offer.lock().is_some()
    }

    /// Its prompts, as far as they are known.
    pub fn prompts(&self) -> Vec<PromptDescription> {
        self.offer.lock().as_ref().map(|offer| offer.prompts.clone()).unwrap_or_default()
    }

    /// The messages of a prompt.
    ///
    /// # Errors
    /// As [`Server::call`].
    pub async fn prompt(&self, name: &str, arguments: Map<String, Value>) -> Result<Vec<PromptMessage>> {
        let connection = self.connect().await?;
        let params = json!({ "name": name, "arguments": arguments });
        let timeouts = Timeouts::of(self.settings.call_timeout);
        let got = connection.request("prompts/get", params, timeouts, &mut |_| {}).await;
        let mut result = self.of_connection(&connection, got).await?;
        if let Some(other) =
            result.get("resultType").and_then(Value::as_str).filter(|other| *other != "complete")
        {
            let other = one_line(other, 40);
            return Err(self.failed(&format!("needs something that this client does not have ({other})")));
        }
        let messages = result.get_mut("messages").map(Value::take).unwrap_or_default();
        Vec::deserialize(messages).map_err(|error| self.failed(&format!("sent no messages: {error}")))
    }

    /// Asks it what it offers.
    ///
    /// # Errors
    /// As [`Server::offer`].
    pub async fn ask(&self) -> Result<Offer> {
        let connection = self.connect().await?;
        let asked = self.ask_over(&connection).await;
        let offer = self.of_connection(&connection, asked).await?;
        *self.offer.lock() = Some(offer.clone());
        Ok(offer)
    }

    async fn ask_over(&self, connection: &Connection) -> Result<Offer, Failure> {
        let mut tools = match connection.has("tools") {
            true => connection.tools(self.settings.start_timeout).await?,
            false => Vec::new(),
        };
        let mut names = HashSet::new();
        tools.retain(|tool| self.settings.offers(&tool.name) && names.insert(tool.name.clone()));
        tools.truncate(MAX_TOOLS);
        // Without them it is of use all the same.
        let mut prompts = match connection.has("prompts") {
            true => {
                let time = self.settings.start_timeout.min(PROMPTS_TIMEOUT);
                connection.prompts(time).await.unwrap_or_default()
            }
            false => Vec::new(),
        };
        let mut names = HashSet::new();
        prompts.retain(|prompt| names.insert(prompt.name.clone()));
        prompts.truncate(MAX_PROMPTS);
        prompts.iter_mut().for_each(|prompt| prompt.arguments.truncate(MAX_ARGUMENTS));
        let (resources, instructions) = (connection.has("resources"), connection.instructions.clone());
        let offer = Offer { era: connection.era, tools, prompts, resources, instructions };
        let (cache, settings, kept) = (self.cache.clone(), self.settings.clone(), offer.clone());
        // What is not written is asked for again.
        let _ = tokio::task::spawn_blocking(move || cache.write(&settings, &kept)).await;
        Ok(offer)
    }

    /// Returns whether its tools may differ from those that the model knows.
    pub async fn take_changed(&self) -> bool {
        let says_so = match self.current.lock().await.as_ref() {
            Some(started) => started.connection.take_changed(),
            None => false,
        };
        self.changed.swap(false, Ordering::Relaxed) || says_so
    }

    /// Calls a tool of it.
    ///
    /// # Errors
    /// `InSandbox`, for the model: whatever the server did. Other kinds: the sandbox itself is broken.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        longest: Duration,
        on_progress: OnProgress<'_>,
    ) -> Result<CallToolResult> {
        let connection = self.connect().await?;
        let called = connection.call(tool, arguments, self.timeouts(longest), on_progress).await;
        let result = self.of_connection(&connection, called).await?;
        match result.result_type.as_deref() {
            None | Some("complete") => Ok(result),
            Some(other) => {
                Err(self.failed(&format!("needs something that this client does not have ({other})")))
            }
        }
    }

    /// Its resources.
    ///
    /// # Errors
    /// As [`Server::call`].
    pub async fn resources(&self) -> Result<Vec<ResourceDescription>> {
        let connection = self.connect().await?;
        let listed = connection.resources(self.settings.call_timeout).await;
        self.of_connection(&connection, listed).await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`Server::call`].
    pub async fn read(&self, uri: &str, longest: Duration) -> Result<Vec<ResourceContents>> {
        let connection = self.connect().await?;
        let timeouts = self.timeouts(longest);
        let read = connection.request("resources/read", json!({ "uri": uri }), timeouts, &mut |_| {}).await;
        let mut result = self.of_connection(&connection, read).await?;
        let contents = result.get_mut("contents").map(Value::take).unwrap_or_default();
        Vec::deserialize(contents).map_err(|error| self.failed(&format!("sent no contents: {error}")))
    }

    /// Returns its state.
    pub fn state(&self) -> State {
        let is_running = self
            .current
            .try_lock()
            .is_ok_and(|current| current.as_ref().is_some_and(|started| started.connection.is_open()));
        match (is_running, self.failure.lock().clone()) {
            (true, _) => State::Running,
            (false, Some(failure)) => State::Failed(failure),
            (false, None) => State::Idle,
        }
    }

    /// Returns the number of tools that it offers, where that is known.
    pub fn tools(&self) -> Option<usize> {
        self.offer.lock().as_ref().map(|offer| offer.tools.len())
    }

    /// Ends it. Whether it ran.
    pub async fn end(&self) -> bool {
        let started = self.current.lock().await.take();
        match started {
            Some(started) => {
                // While somebody else still uses it, it ends with them.
                if let Some(connection) = Arc::into_inner(started.connection) {
                    connection.end().await;
                }
                if let Some(own) = started.own {
                    own.end().await;
                }
                true
            }
            None => false,
        }
    }

    fn timeouts(&self, longest: Duration) -> Timeouts {
        Timeouts { idle: self.settings.call_timeout, total: longest.max(self.settings.call_timeout) }
    }

    /// An error about it, for the model.
    fn failed(&self, what: &str) -> Error {
        Error::new(Kind::InSandbox, format!("the MCP server {} {what}", self.settings.name))
    }

    /// A failure, and what the user can do about it.
    fn explained(&self, failure: &Failure) -> String {
        match failure {
            Failure::Unauthorised(_) => format!(
                "{failure}; run `agent mcp login {}`, or name the variable with its token as bearer_token_env_var",
                self.settings.name
            ),
            failure => failure.to_string(),
        }
    }

    /// A result of a request; a server that did not answer, or not as it should, is ended.
    async fn of_connection<T>(&self, connection: &Arc<Connection>, result: Result<T, Failure>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(failure) => {
                if !matches!(failure, Failure::Refused(_)) {
                    let mut current = self.current.lock().await;
                    current.take_if(|started| Arc::ptr_eq(&started.connection, connection));
                }
                Err(self.failed(&format!("failed: {}", self.explained(&failure))))
            }
        }
    }

    /// The connection to it, which is made if there is none.
    async fn connect(&self) -> Result<Arc<Connection>> {
        let sandbox = match self.settings.is_outside() || self.settings.has_own_sandbox() {
            true => None,
            false => Some(self.site.sandbox().await?),
        };
        let is_read_only = sandbox.as_ref().is_some_and(Sandbox::is_read_only);
        let mut current = self.current.lock().await;
        if let Some(started) =
            current.take_if(|started| !started.connection.is_open() || started.is_read_only != is_read_only)
        {
            drop(started);
        }
        if let Some(started) = current.as_ref() {
            return Ok(Arc::clone(&started.connection));
        }
        let known = *self.era.lock();
        let own = tokio::time::timeout(OWN_SANDBOX_TIMEOUT, self.own_sandbox()).await;
        let late =
            |_| Err(self.failed(&format!("had no sandbox within {} s", OWN_SANDBOX_TIMEOUT.as_secs())));
        let own = own.unwrap_or_else(late).inspect_err(|error| {
            *self.failure.lock() = Some(error.to_string());
        })?;
        let place = match (&own, &sandbox) {
            (Some(own), _) => Where::Own(own.as_ref()),
            (None, Some(sandbox)) => Where::Session(sandbox),
            (None, None) => Where::Outside,
        };
        let own = own.clone().map(Own::new);
        let begun = tokio::time::timeout(self.settings.start_timeout, self.begin(place, known));
        let connection = match begun.await {
            Ok(Ok(connection)) => Ok(Arc::new(connection)),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(self
                    .failed(&format!("did not start within {} s", self.settings.start_timeout.as_secs_f64())))
            }
        };
        *self.failure.lock() = connection.as_ref().err().map(ToString::to_string);
        let connection = connection?;
        *current = Some(Started { connection: Arc::clone(&connection), is_read_only, own });
        drop(current);
        self.compare(&connection).await;
        Ok(connection)
    }

    /// Starts it and finds out what it speaks. One that ends at the probe is started once more, for the earlier era.
    async fn begin(&self, place: Where<'_>, known: Option<Era>) -> Result<Connection> {
        let time = self.settings.start_timeout;
        let begun = Connection::begin(self.link(place).await?, known, time).await;
        let begun = match begun {
            Err(Failure::Ended(_))
                if known.is_none() && !matches!(self.settings.launch, Launch::Http { .. }) =>
            {
                Connection::begin(self.link(place).await?, Some(Era::Initialize), time).await
            }
            Err(_) if known == Some(Era::Initialize) => {
                *self.era.lock() = None;
                Connection::begin(self.link(place).await?, None, time).await
            }
            begun => begun,
        };
        let connection =
            begun.map_err(|failure| self.failed(&format!("does not start: {}", self.explained(&failure))))?;
        *self.era.lock() = Some(connection.era);
        Ok(connection)
    }

    /// Looks whether what the model knows from the cache still holds.
    async fn compare(&self, connection: &Connection) {
        let told = self.offer.lock().clone();
        let Some(told) = told else { return };
        if let Ok(now) = self.ask_over(connection).await
            && (&now.tools, &now.prompts) != (&told.tools, &told.prompts)
        {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// The sandbox that it has for itself, started for it, where it has one.
    async fn own_sandbox(&self) -> Result<Option<Arc<dyn OwnSandbox>>> {
        if !self.settings.has_own_sandbox() {
            return Ok(None);
        }
        let started = self.site.own_sandbox(&self.settings).await;
        started.map(Some).map_err(|error| {
            let failed = self.failed(&format!("has no sandbox to run in: {error}"));
            match error.hint_text() {
                Some(hint) => failed.hint(hint),
                None => failed,
            }
        })
    }

    async fn link(&self, place: Where<'_>) -> Result<Link> {
        match &self.settings.launch {
            Launch::Http { url, headers } => {
                self.site.check_address(url)?;
                let (site, address) = (Arc::clone(&self.site), url.clone());
                let on_exchange = Arc::new(move |exchange| site.record(&address, exchange));
                let login = Login::new(url, self.site.machine());
                Ok(Link::Http(Box::new(Http::new(url.clone(), headers, login, on_exchange)?)))
            }
            Launch::Process { command, args, env, cwd } => {
                let mut env = exposed(env);
                let sandbox = match place {
                    Where::Outside => {
                        let program = HostProgram { command, args, env: &env, cwd: cwd.as_deref() };
                        let running = Running::on_host(program, self.site.workspace(), self.site.machine());
                        return Ok(Link::Process(running?));
                    }
                    Where::Own(own) => own.sandbox(),
                    Where::Session(sandbox) => {
                        env.splice(0..0, self.site.network(&self.settings, sandbox).await?);
                        sandbox
                    }
                };
                let inside = |text: &str| self.inside(text);
                let argv = std::iter::once(command).chain(args).map(|word| inside(word)).collect();
                let env = env.into_iter().map(|(name, value)| (name, inside(&value))).collect();
                let cwd = cwd.as_deref().map_or_else(|| WORKSPACE.to_owned(), inside);
                let spec = program_of_server(argv, env, cwd);
                Ok(Link::Process(Running::in_sandbox(sandbox, spec, command.clone()).await?))
            }
            Launch::Image { image, entrypoint, args, env, cwd } => {
                let Where::Own(own) = place else {
                    return Err(self.failed("has no sandbox of its own"));
                };
                let program = own.program();
                let argv = program.argv(entrypoint.as_deref(), args);
                if argv.is_empty() {
                    return Err(self.failed(&format!("does not start: the image {image} names no program")));
                }
                let env = [program.env.clone(), exposed(env)].concat();
                let cwd =
                    cwd.clone().or_else(|| program.directory.clone()).unwrap_or_else(|| WORKSPACE.to_owned());
                let shown = argv[0].clone();
                let running = Running::in_sandbox(own.sandbox(), program_of_server(argv, env, cwd), shown);
                Ok(Link::Process(running.await?))
            }
        }
    }

    /// A path of the workspace on this machine, as it is in the sandbox; anything else as it is.
    fn inside(&self, text: &str) -> String {
        match Path::new(text).strip_prefix(self.site.workspace()) {
            Ok(rest) if text.starts_with('/') => {
                Path::new(WORKSPACE).join(rest).to_string_lossy().into_owned()
            }
            _ => text.to_owned(),
        }
    }
}

/// The sandbox in which a server is started, if any.
#[derive(Clone, Copy)]
enum Where<'a> {
    /// In no sandbox.
    Outside,
    /// In the session's.
    Session(&'a Sandbox),
    /// In one of its own.
    Own(&'a dyn OwnSandbox),
}

fn exposed(env: &[(String, SecretString)]) -> Vec<(String, String)> {
    env.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect()
}

fn program_of_server(argv: Vec<String>, env: Vec<(String, String)>, cwd: String) -> Command {
    Command {
        program: Program::Argv(argv.into_iter().map(OsString::from).collect()),
        cwd: Some(cwd.into()),
        env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        timeout: None,
        live_bytes: u64::MAX,
        stdin: true,
    }
}
