//! `tools/list` and `tools/call`: the tools of the model, in the protocol's form.

use super::client_sandbox::{ClientSandbox, Running, is_for_client};
use super::client_sandboxes::ClientSandboxes;
use super::request::Request;
use super::{Caller, Service, invalid, programs, workspace};
use crate::rpc::{notification, with_hint};
use agent_base::error::{Error, Result};
use agent_base::sanitise::one_line;
use agent_event::Arguments;
use agent_event::{Content, Event, ToolCall};
use agent_mcp::jsonrpc::{ErrorObject, INTERNAL_ERROR};
use agent_tools::{Registry, ToolResult};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval in which a client that asked for it hears that a call is still running.
const PROGRESS: Duration = Duration::from_secs(5);
/// The longest name of a tool that is repeated in a message.
const MAX_NAME: usize = 100;

/// The result of a tool, in this program's terms.
#[derive(Default)]
pub struct Returned {
    /// Set if it failed.
    pub failed: bool,
    /// The text for the model.
    pub text: String,
    /// The same as data.
    pub data: Value,
    /// Further parts: pictures.
    pub parts: Vec<Value>,
    /// The result for the session's file, where that is not the text.
    pub recorded: Option<ToolResult>,
}

impl Returned {
    /// A call that did what was asked.
    pub fn done(text: impl Into<String>, data: Value) -> Self {
        Self { text: text.into(), data, ..Self::default() }
    }

    /// One that did not.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { failed: true, text: text.into(), ..Self::default() }
    }
}

/// The outcome of a call.
pub enum Answer {
    /// Its result.
    Returned(Returned),
    /// A question to the client's user first, in the form of the modern era.
    Question(Value),
}

/// Every tool, always in the same order.
pub fn list(for_programs: bool) -> Vec<Value> {
    let registry = Registry::builtin();
    let of_model = registry.specs().iter().map(|spec| {
        json!({
            "name": spec.name, "description": spec.description, "inputSchema": spec.parameters,
            "outputSchema": output_schema(), "annotations": annotations(&spec.name),
        })
    });
    let mut tools: Vec<Value> = of_model.chain(workspace::list()).collect();
    if for_programs {
        tools.extend(programs::list());
        for tool in &mut tools {
            let about = "The name of a sandbox, which begins with its first use; by default the client's own";
            if let Some(schema) = tool.get_mut("inputSchema").and_then(Value::as_object_mut) {
                let properties = schema.entry("properties").or_insert_with(|| json!({}));
                properties["sandbox"] = json!({ "type": "string", "description": about });
            }
        }
    }
    tools
}

/// The model's tools all return this.
fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "ok": { "type": "boolean" },
            "exit_code": { "type": ["integer", "null"] },
            "truncated": { "type": "boolean" },
            "text": { "type": "string" },
            "artifacts": { "type": "array", "items": { "type": "object" } },
        },
        "required": ["ok", "exit_code", "truncated", "text", "artifacts"],
    })
}

/// Returns whether a tool leaves the workspace as it is, or records it itself.
fn is_read_only(name: &str) -> bool {
    matches!(name, "read_file" | "job_output" | "download" | "session") || workspace::is_tool(name)
}

/// Nothing that these tools do leaves the sandbox.
fn annotations(name: &str) -> Value {
    json!({ "readOnlyHint": is_read_only(name), "destructiveHint": false, "openWorldHint": false })
}

impl Service {
    /// `tools/call`.
    pub(super) async fn call(&self, caller: &Caller, request: &Request<'_>) -> Result<Value, ErrorObject> {
        let name = request.params.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| invalid("name is missing"))?;
        let mut arguments = match request.params.get("arguments") {
            None | Some(Value::Null) => json!({}),
            Some(arguments @ Value::Object(_)) => arguments.clone(),
            Some(_) => return Err(invalid("arguments is not an object")),
        };
        let is_known = Registry::builtin().get(name).is_some()
            || workspace::is_tool(name)
            || self.settings.for_programs && programs::is_tool(name);
        if !is_known {
            return Err(invalid(format!("there is no tool {:?}", one_line(name, MAX_NAME))));
        }
        let named = arguments.as_object_mut().filter(|_| self.settings.for_programs);
        let named = match named.and_then(|arguments| arguments.remove("sandbox")) {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(invalid("sandbox is not a text")),
        };
        let progress = progress(caller, request);
        let work = self.work(caller, request, name, named, arguments);
        let answer = tokio::select! {
            answer = work => answer,
            never = progress => match never {},
        };
        Ok(match answer {
            Ok(Answer::Returned(returned)) => to_result(returned),
            Ok(Answer::Question(question)) => question,
            Err(error) if is_for_client(&error) => {
                to_result(Returned::failed(format!("error: {}", with_hint(&error))))
            }
            Err(error) => return Err(ErrorObject::new(INTERNAL_ERROR, with_hint(&error))),
        })
    }

    async fn work(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        name: &str,
        named: Option<String>,
        arguments: Value,
    ) -> Result<Answer> {
        let key = named.clone().or_else(|| self.settings.key.clone());
        let place_name = key.as_deref().map_or_else(|| caller.place.clone(), ClientSandboxes::of_key);
        if name == programs::CLOSE {
            let was_open = self.places.end(&place_name).await;
            return Ok(Answer::Returned(Returned::done("closed", json!({ "was_open": was_open }))));
        }
        let place = self.places.get(&place_name, key.as_deref()).await?;
        let answer = match Registry::builtin().get(name) {
            Some(_) => self.of_model(&place, name, &arguments).await.map(Answer::Returned),
            None => self.other(&place, caller, request, name, &arguments).await,
        };
        place.touch();
        match is_read_only(name) {
            true => answer,
            false => place.record_soon().await.and(answer),
        }
    }

    /// A tool that is not the model's.
    async fn other(
        &self,
        place: &Arc<ClientSandbox>,
        caller: &Caller,
        request: &Request<'_>,
        name: &str,
        arguments: &Value,
    ) -> Result<Answer> {
        let id = place.next_call();
        let running = Running::new(place, &id, name);
        place.events.emit(Event::ToolStarted {
            id: id.clone(),
            name: name.to_owned(),
            arguments: recorded(arguments),
        })?;
        let started = Instant::now();
        let answer = match workspace::is_tool(name) {
            true => self.of_workspace(place, caller, request, name, arguments).await,
            false => self.of_program(place, &id, name, arguments).await.map(Answer::Returned),
        };
        let result = match &answer {
            Ok(Answer::Returned(Returned { recorded: Some(result), .. })) => result.clone(),
            Ok(Answer::Returned(returned)) => {
                ToolResult { ok: !returned.failed, ..ToolResult::success(one_line(&returned.text, 2_000)) }
            }
            Ok(Answer::Question(_)) => ToolResult::success("the user is asked"),
            Err(error) => ToolResult::failure(format!("error: {error}")),
        };
        running.done();
        place.events.emit(Event::ToolFinished {
            id,
            name: name.to_owned(),
            ok: result.ok,
            exit_code: result.exit_code,
            duration_ms: started.elapsed().as_millis() as u64,
            truncated: result.truncated,
            result: result.text,
            content: Vec::new(),
            edits: Vec::new(),
        })?;
        answer
    }

    /// A tool of the model's: judged, bounded and recorded as when the model calls it.
    async fn of_model(&self, place: &Arc<ClientSandbox>, name: &str, arguments: &Value) -> Result<Returned> {
        let id = place.next_call();
        let running = Running::new(place, &id, name);
        let call = ToolCall { id, name: name.to_owned(), arguments: Arguments::from(arguments.to_string()) };
        let result = place.session.conversation.call(&call).await;
        running.done();
        let result = result?;
        let artifacts = result.content.iter().filter_map(|part| match part {
            Content::Image { artifact } | Content::Artifact { artifact } => Some(json!(artifact)),
            Content::Text { .. } => None,
        });
        let artifacts: Vec<Value> = artifacts.collect();
        let parts = pictures(place, &result);
        let ToolResult { ok, exit_code, truncated, text, .. } = result;
        let data = json!({
            "ok": ok, "exit_code": exit_code, "truncated": truncated, "text": text, "artifacts": artifacts,
        });
        // A command that ran and failed is a result; what could not be done is an error.
        Ok(Returned { failed: !ok && exit_code.is_none(), text, data, parts, recorded: None })
    }
}

fn pictures(place: &ClientSandbox, result: &ToolResult) -> Vec<Value> {
    let picture = |part: &Content| match part {
        Content::Image { artifact } => {
            let bytes = place.artifacts.read(artifact).ok()?;
            Some(json!({ "type": "image", "data": STANDARD.encode(bytes), "mimeType": artifact.media_type }))
        }
        _ => None,
    };
    result.content.iter().filter_map(picture).collect()
}

/// Without what would make the session's file large: the bytes of files.
pub fn recorded(arguments: &Value) -> Value {
    match arguments.get("files").and_then(Value::as_array) {
        Some(files) => json!({ "files": files.iter().map(|file| file.get("path")).collect::<Vec<_>>() }),
        None => arguments.clone(),
    }
}

fn to_result(returned: Returned) -> Value {
    let Returned { failed, text, data, parts, .. } = returned;
    let text = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
    let content: Vec<Value> = text.into_iter().chain(parts).collect();
    let mut result = json!({ "content": content, "isError": failed });
    if !data.is_null() {
        result["structuredContent"] = data;
    }
    result
}

/// Says every few seconds that a call is still running, to a client that asked for it.
async fn progress(caller: &Caller, request: &Request<'_>) -> std::convert::Infallible {
    let (Some(client), Some(token)) = (&caller.client, request.progress_token()) else {
        return std::future::pending().await;
    };
    let started = Instant::now();
    loop {
        tokio::time::sleep(PROGRESS).await;
        let seconds = started.elapsed().as_secs();
        let params = json!({
            "progressToken": token, "progress": seconds, "message": format!("running for {seconds} s"),
        });
        client.send(&notification("notifications/progress", params)).await;
    }
}

/// Reads the arguments of a tool that is not the model's.
pub fn arguments<A: serde::de::DeserializeOwned>(value: &Value) -> Result<A> {
    serde_json::from_value(value.clone())
        .map_err(|error| Error::usage(format!("the arguments do not fit the tool: {error}")))
}
