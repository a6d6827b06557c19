//! A connection to a server, in the era that it speaks.

use super::failure::Failure;
use super::http::Http;
use super::peer::{OnProgress, Timeouts};
use super::process::Running;
use crate::jsonrpc::INVALID_PARAMS;
use crate::protocol::{
    CallToolResult, Era, MODERN, PromptDescription, ToolDescription, WITH_INITIALIZE, initialize_params,
    modern_params,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The time that a server has to answer the probe before `initialize` is sent as well: some ignore what they do not know.
const PROBE: Duration = Duration::from_secs(3);
/// Pages of a list.
const MAX_PAGES: usize = 50;
/// Entries of a list.
const MAX_ENTRIES: usize = 1_000;
/// The most bytes of a server's instructions.
const MAX_INSTRUCTIONS: usize = 2_000;

/// The link that carries messages.
pub enum Link {
    /// A program.
    Process(Running),
    /// A server elsewhere.
    Http(Box<Http>),
}

impl Link {
    async fn request(
        &self,
        method: &str,
        params: Value,
        timeouts: Timeouts,
        on_progress: OnProgress<'_>,
    ) -> Result<Value, Failure> {
        match self {
            Self::Process(running) => running.peer.request(method, params, timeouts, on_progress).await,
            Self::Http(http) => http.request(method, params, timeouts, on_progress).await,
        }
    }

    async fn notify(&self, method: &str, params: Value) {
        match self {
            Self::Process(running) => running.peer.notify(method, params),
            Self::Http(http) => http.notify(method, params).await,
        }
    }
}

/// A server that has answered.
pub struct Connection {
    link: Link,
    /// The era that it speaks.
    pub era: Era,
    /// Its abilities.
    pub capabilities: Value,
    /// Its instructions, if there are any.
    pub instructions: Option<String>,
}

/// A resource, as a server lists it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ResourceDescription {
    /// Its address.
    #[serde(alias = "uriTemplate")]
    pub uri: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its description.
    #[serde(default)]
    pub description: Option<String>,
}

impl Connection {
    /// Finds out which era the server speaks, unless that is `known`, and begins.
    ///
    /// # Errors
    /// It speaks neither in `time`.
    pub async fn begin(link: Link, known: Option<Era>, time: Duration) -> Result<Self, Failure> {
        let timeouts = Timeouts::of(time);
        let (era, said) = match (&link, known) {
            (_, Some(Era::Initialize)) => (Era::Initialize, initialize(&link, timeouts).await?),
            (Link::Http(_), _) => match discover(&link, timeouts).await {
                Ok(said) => (Era::Modern, said),
                Err(Failure::Refused(_)) => (Era::Initialize, initialize(&link, timeouts).await?),
                Err(failure) => return Err(failure),
            },
            (Link::Process(_), _) => probe(&link, timeouts).await?,
        };
        if let Link::Http(http) = &link {
            let version = said.get("protocolVersion").and_then(Value::as_str).unwrap_or(WITH_INITIALIZE[0]);
            http.set_version(if era == Era::Modern { MODERN } else { version });
        }
        if era == Era::Initialize {
            link.notify("notifications/initialized", json!({})).await;
        }
        let instructions = said.get("instructions").and_then(Value::as_str).map(str::trim);
        let instructions =
            instructions.filter(|text| !text.is_empty()).map(|text| cut(text, MAX_INSTRUCTIONS));
        let capabilities = said.get("capabilities").cloned().unwrap_or_default();
        Ok(Self { link, era, capabilities, instructions })
    }

    /// Returns whether it is there still.
    pub fn is_open(&self) -> bool {
        match &self.link {
            Link::Process(running) => !running.peer.has_ended(),
            Link::Http(_) => true,
        }
    }

    /// Returns whether it has said since the last call of this that its tools are others now.
    pub fn take_changed(&self) -> bool {
        match &self.link {
            Link::Process(running) => running.peer.take_changed(),
            Link::Http(http) => http.take_changed(),
        }
    }

    /// Returns whether it has a capability: `tools`, `resources`, `prompts`.
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.get(capability).is_some_and(Value::is_object)
    }

    /// Asks for something.
    pub async fn request(
        &self,
        method: &str,
        params: Value,
        timeouts: Timeouts,
        on_progress: OnProgress<'_>,
    ) -> Result<Value, Failure> {
        let params = match self.era {
            Era::Modern => modern_params(params),
            Era::Initialize => with_meta(params),
        };
        self.link.request(method, params, timeouts, on_progress).await
    }

    /// Its tools. One that is not described as the protocol says is left out.
    pub async fn tools(&self, time: Duration) -> Result<Vec<ToolDescription>, Failure> {
        self.list("tools/list", "tools", time).await
    }

    /// Its prompts.
    pub async fn prompts(&self, time: Duration) -> Result<Vec<PromptDescription>, Failure> {
        self.list("prompts/list", "prompts", time).await
    }

    /// Its resources, and then the templates of addresses.
    pub async fn resources(&self, time: Duration) -> Result<Vec<ResourceDescription>, Failure> {
        let mut resources: Vec<ResourceDescription> = self.list("resources/list", "resources", time).await?;
        // Many have none, and say that with an error.
        if let Ok(templates) = self.list("resources/templates/list", "resourceTemplates", time).await {
            resources.extend::<Vec<ResourceDescription>>(templates);
        }
        Ok(resources)
    }

    /// Calls a tool.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        timeouts: Timeouts,
        on_progress: OnProgress<'_>,
    ) -> Result<CallToolResult, Failure> {
        let params = json!({ "name": tool, "arguments": arguments });
        let result = self.request("tools/call", params, timeouts, on_progress).await?;
        CallToolResult::deserialize(result).map_err(|error| Failure::NotTheProtocol(error.to_string()))
    }

    async fn list<T: for<'de> Deserialize<'de>>(
        &self,
        method: &str,
        member: &str,
        time: Duration,
    ) -> Result<Vec<T>, Failure> {
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page = self.request(method, params, Timeouts::of(time), &mut |_| {}).await?;
            let Some(Value::Array(page_entries)) = page.get_mut(member).map(Value::take) else {
                return Err(Failure::NotTheProtocol(format!(
                    "the answer to {method} has no list {member:?}"
                )));
            };
            let room = MAX_ENTRIES - entries.len();
            entries
                .extend(page_entries.into_iter().take(room).filter_map(|entry| T::deserialize(entry).ok()));
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if next.is_none() || next == cursor || entries.len() >= MAX_ENTRIES {
                break;
            }
            cursor = next;
        }
        Ok(entries)
    }

    /// Ends it: a program gets time to end by itself.
    pub async fn end(self) {
        match self.link {
            Link::Process(running) => running.end().await,
            Link::Http(http) => http.end().await,
        }
    }
}

/// Sends the probe, and `initialize` as well if that is not answered in time: whatever is answered first counts.
async fn probe(link: &Link, timeouts: Timeouts) -> Result<(Era, Value), Failure> {
    let mut discovering = std::pin::pin!(discover(link, timeouts));
    let refused = match tokio::time::timeout(PROBE, &mut discovering).await {
        Ok(Ok(said)) => return Ok((Era::Modern, said)),
        Ok(Err(failure @ (Failure::Ended(_) | Failure::Unauthorised(_)))) => return Err(failure),
        Ok(Err(_)) => true,
        Err(_) => false,
    };
    let initializing = initialize(link, timeouts);
    if refused {
        return Ok((Era::Initialize, initializing.await?));
    }
    let mut initializing = std::pin::pin!(initializing);
    tokio::select! {
        said = &mut discovering => match said {
            Ok(said) => Ok((Era::Modern, said)),
            Err(_) => Ok((Era::Initialize, initializing.await?)),
        },
        said = &mut initializing => match said {
            Ok(said) => Ok((Era::Initialize, said)),
            Err(_) => Ok((Era::Modern, discovering.await?)),
        },
    }
}

async fn discover(link: &Link, timeouts: Timeouts) -> Result<Value, Failure> {
    let said = link.request("server/discover", modern_params(json!({})), timeouts, &mut |_| {}).await?;
    let versions = said.get("supportedVersions").and_then(Value::as_array);
    match versions.is_some_and(|versions| versions.iter().any(|version| version == MODERN)) {
        true => Ok(said),
        // It may speak an older one.
        false => Err(Failure::Refused(crate::jsonrpc::ErrorObject::new(
            INVALID_PARAMS,
            format!("it does not support the version {MODERN}"),
        ))),
    }
}

async fn initialize(link: &Link, timeouts: Timeouts) -> Result<Value, Failure> {
    let said = link.request("initialize", initialize_params(), timeouts, &mut |_| {}).await?;
    let version = said.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    match WITH_INITIALIZE.contains(&version) {
        true => Ok(said),
        false => Err(Failure::NotTheProtocol(format!("it speaks the version {:?}", cut(version, 50)))),
    }
}

/// Parameters that have a `_meta`, for the token of progress.
fn with_meta(params: Value) -> Value {
    let mut object = match params {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    object.entry("_meta").or_insert_with(|| json!({}));
    Value::Object(object)
}

fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned()
}
