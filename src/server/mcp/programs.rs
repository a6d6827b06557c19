//! Tools for programs rather than models: raw output, the bytes of files, a second sandbox.

use super::Service;
use super::calls::{Returned, arguments};
use super::places::Place;
use crate::error::{Error, Result};
use crate::sandbox::{Command, FileWrite, HOME, Node, Outcome, Output, Program, WORKSPACE};
use crate::tools::arguments::schema;
use crate::tools::report_limits;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The tool that ends a sandbox.
pub const CLOSE: &str = "close";
/// Output of one command that is returned, in bytes.
const MAX_OUTPUT: usize = 16 << 20;
/// Bytes of all files that one call writes or reads.
const MAX_FILES: u64 = 32 << 20;
/// The time limit of a command that sets none, and the longest.
const TIMEOUT: Duration = Duration::from_secs(1800);
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

#[derive(Deserialize, JsonSchema)]
struct Execute {
    /// The shell command.
    command: String,
    /// The time limit in seconds (default 1800).
    timeout_s: Option<f64>,
    /// The directory to run in (default /workspace).
    cwd: Option<PathBuf>,
    /// Variables.
    env: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, JsonSchema)]
struct Upload {
    /// The files.
    files: Vec<UploadedFile>,
}

#[derive(Deserialize, JsonSchema)]
struct UploadedFile {
    /// Where to write it.
    path: PathBuf,
    /// Its bytes in Base64.
    data: String,
    /// Its permission bits.
    mode: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
struct Download {
    /// The files.
    paths: Vec<PathBuf>,
}

#[derive(Deserialize, JsonSchema)]
struct Fork {
    /// The name of the new sandbox.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Their names.
pub fn is_tool(name: &str) -> bool {
    matches!(name, "execute" | "upload" | "download" | "fork" | "undo_apply" | "session" | CLOSE)
}

/// How they are described to clients.
pub fn list() -> Vec<Value> {
    let tool = |name: &str, about: &str, input: Value| json!({ "name": name, "description": about, "inputSchema": input });
    vec![
        tool(
            "execute",
            "Runs a shell command; returns both outputs as they came, up to 16 MiB, and the exit code.",
            schema::<Execute>(),
        ),
        tool("upload", "Writes files of any bytes; one result each.", schema::<Upload>()),
        tool("download", "Reads files of any bytes; one result each.", schema::<Download>()),
        tool("fork", "Starts a second sandbox with the workspace and home of this one.", schema::<Fork>()),
        tool(
            "undo_apply",
            "Puts the user's own files back as they were before the last apply.",
            schema::<Nothing>(),
        ),
        tool("session", "Starts the sandbox if it does not run, and names its session.", schema::<Nothing>()),
        tool(CLOSE, "Ends the sandbox.", schema::<Nothing>()),
    ]
}

impl Service {
    pub(super) async fn of_program(&self, place: &Place, name: &str, given: &Value) -> Result<Returned> {
        match name {
            "execute" => execute(place, arguments(given)?).await,
            "upload" => upload(place, arguments::<Upload>(given)?.files).await,
            "download" => download(place, arguments::<Download>(given)?.paths).await,
            "fork" => {
                let name = arguments::<Fork>(given)?.name;
                let session = self.places.fork(place, &format!("key {name}")).await?;
                Ok(Returned::done("", json!({ "session": session, "sandbox": name })))
            }
            "undo_apply" => {
                if !self.settings.allow_apply {
                    return Ok(Returned::failed(
                        "only the user can do that: `agent undo`, when this client has ended",
                    ));
                }
                let changes = place.ready().await?.workspace.undo_apply().await?;
                Ok(Returned::done("", json!({ "undone": changes })))
            }
            _ => {
                let ready = place.ready().await?;
                let data = json!({
                    "session": place.session.id(), "workspace": ready.workspace.root(), "backend": ready.info.backend,
                });
                Ok(Returned::done("", data))
            }
        }
    }
}

async fn execute(place: &Place, given: Execute) -> Result<Returned> {
    let ready = place.ready().await?;
    let asked = given.timeout_s.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    let timeout =
        asked.map_or(TIMEOUT, |seconds| Duration::from_secs_f64(seconds.min(MAX_TIMEOUT.as_secs_f64())));
    let command = Command {
        program: Program::Shell(given.command),
        cwd: given.cwd,
        env: given
            .env
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        timeout: Some(timeout),
        live_bytes: u64::MAX,
        stdin: false,
    };
    let (mut output, mut truncated) = (Vec::new(), false);
    let finished = ready
        .sandbox
        .run(command, &mut |piece| match piece {
            Output::Data(_, bytes) => {
                let room = MAX_OUTPUT - output.len();
                truncated |= bytes.len() > room;
                output.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
            Output::Gap(_) => truncated = true,
        })
        .await?;
    report_limits(&place.events, &finished)?;
    let (exit_code, timed_out) = match finished.outcome {
        Outcome::Exited(code) => (Some(code), false),
        Outcome::TimedOut => (Some(124), true),
        Outcome::Signaled(signal) => (Some(128 + signal), false),
        Outcome::OomKilled | Outcome::OverQuota { .. } => (Some(137), false),
        Outcome::Lost => (None, false),
    };
    let data = json!({
        "output": String::from_utf8_lossy(&output), "exit_code": exit_code, "timed_out": timed_out,
        "truncated": truncated, "duration_ms": finished.duration.as_millis() as u64,
    });
    Ok(Returned::done("", data))
}

async fn upload(place: &Place, files: Vec<UploadedFile>) -> Result<Returned> {
    let sandbox = &place.ready().await?.sandbox;
    let bytes: u64 = files.iter().map(|file| file.data.len() as u64 / 4 * 3).sum();
    if bytes > MAX_FILES {
        return Err(Error::usage(format!("one call writes at most {MAX_FILES} bytes"))
            .hint("send fewer files at a time"));
    }
    let (mut writes, mut results) = (Vec::new(), Vec::new());
    for file in files {
        let path = absolute(&file.path);
        match STANDARD.decode(&file.data) {
            Ok(bytes) => {
                writes.push(FileWrite {
                    path,
                    node: Node::Regular(bytes),
                    mode: file.mode,
                    mtime_ns: None,
                    follow: true,
                });
                results.push(None);
            }
            Err(_) => results.push(Some("the data is not Base64".to_owned())),
        }
    }
    let mut written = sandbox.write_files(writes).await?.into_iter();
    let results = results.into_iter().map(|error| match error {
        Some(error) => json!({ "error": error }),
        None => match written.next() {
            Some(Err(error)) => json!({ "error": error.to_string() }),
            _ => json!({ "error": null }),
        },
    });
    Ok(Returned::done("", json!({ "files": results.collect::<Vec<_>>() })))
}

async fn download(place: &Place, paths: Vec<PathBuf>) -> Result<Returned> {
    let sandbox = &place.ready().await?.sandbox;
    let paths = paths.iter().map(|path| absolute(path)).collect();
    let read = sandbox.read_files(paths, MAX_FILES).await?;
    let files = read.into_iter().map(|file| match file {
        Ok(file) => json!({ "data": STANDARD.encode(&file.bytes), "error": null }),
        Err(error) => json!({ "data": null, "error": error.to_string() }),
    });
    Ok(Returned::done("", json!({ "files": files.collect::<Vec<_>>() })))
}

/// Relative paths are in the workspace, `~` is the sandbox's own.
fn absolute(path: &Path) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(inside) => Path::new(HOME).join(inside),
        Err(_) => Path::new(WORKSPACE).join(path),
    }
}
