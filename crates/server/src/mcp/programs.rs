//! Tools for programs rather than models: raw output, the bytes of files, a second sandbox.

use super::Service;
use super::calls::{Returned, arguments, recorded};
use super::client_sandbox::ClientSandbox;
use agent_base::error::{Error, Result};
use agent_base::secret_scan;
use agent_base::utf8_stream::Utf8Stream;
use agent_event::{Event, Stream};
use agent_policy::policy::Action;
use agent_sandbox::{Command, FileWrite, HOME, Node, Outcome, Output, Program, WORKSPACE};
use agent_tools::arguments::schema;
use agent_tools::{Collector, ToolResult, command_result, report_limits};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
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
struct ExecuteArguments {
    /// The shell command.
    command: String,
    /// The time limit in seconds (default 1800).
    timeout_s: Option<f64>,
    /// The directory to run in (default /workspace).
    cwd: Option<PathBuf>,
    /// Variables.
    env: Option<BTreeMap<String, String>>,
    /// Return both outputs apart too, as `stdout` and `stderr`.
    #[serde(default)]
    separate: bool,
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

/// The arguments of a tool that takes none.
#[derive(Deserialize, JsonSchema)]
pub(super) struct NoArguments {}

/// Their names.
pub fn is_tool(name: &str) -> bool {
    matches!(name, "execute" | "upload" | "download" | "fork" | "undo_apply" | "session" | CLOSE)
}

/// Returns whether the bytes of files are moved.
pub fn is_transfer(name: &str) -> bool {
    matches!(name, "upload" | "download")
}

/// Returns the descriptions of them for clients.
pub fn list() -> Vec<Value> {
    let tool = |name: &str, about: &str, input: Value| json!({ "name": name, "description": about, "inputSchema": input });
    vec![
        tool(
            "execute",
            "Runs a shell command; returns both outputs as they came, up to 16 MiB, and the exit code.",
            schema::<ExecuteArguments>(),
        ),
        tool("upload", "Writes files of any bytes; one result each.", schema::<Upload>()),
        tool("download", "Reads files of any bytes; one result each.", schema::<Download>()),
        tool("fork", "Starts a second sandbox with the workspace and home of this one.", schema::<Fork>()),
        tool(
            "undo_apply",
            "Puts the user's own files back as they were before the last apply.",
            schema::<NoArguments>(),
        ),
        tool(
            "session",
            "Starts the sandbox if it does not run, and names its session.",
            schema::<NoArguments>(),
        ),
        tool(CLOSE, "Ends the sandbox.", schema::<NoArguments>()),
    ]
}

impl Service {
    pub(super) async fn of_program(
        &self,
        place: &ClientSandbox,
        call: &str,
        name: &str,
        given: &Value,
    ) -> Result<Returned> {
        match name {
            "execute" => execute(place, call, given).await,
            "upload" => upload(place, given).await,
            "download" => download(place, given).await,
            "fork" => {
                let name = arguments::<Fork>(given)?.name;
                let session = self.places.fork(place, &name).await?;
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

/// The output of a command: both streams as they came, and each alone where that is wanted.
#[derive(Default)]
struct Printed {
    output: String,
    apart: [String; 2],
    /// Each stream has characters of its own, which may be cut.
    decoders: [Utf8Stream; 2],
    truncated: bool,
}

impl Printed {
    fn push(&mut self, piece: Output<'_>, separate: bool) {
        let Output::Data(stream, bytes) = piece else {
            self.truncated = true;
            return;
        };
        let index = usize::from(stream == Stream::Stderr);
        let text = self.decoders[index].push(bytes);
        let most = MAX_OUTPUT.saturating_sub(self.output.len()).min(text.len());
        let most = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.truncated |= text.len() > most;
        self.output.push_str(&text[..most]);
        if separate {
            self.apart[index].push_str(&text[..most]);
        }
    }

    fn finish(&mut self, separate: bool) {
        for (decoder, alone) in self.decoders.iter_mut().zip(&mut self.apart) {
            let rest = decoder.finish();
            self.output.push_str(rest);
            alone.push_str(if separate { rest } else { "" });
        }
    }

    /// Replaces secrets; returns their types, where there are any.
    fn redact(&mut self) -> Option<BTreeMap<String, u64>> {
        for alone in &mut self.apart {
            if let Some(redacted) = secret_scan::redact(alone) {
                *alone = redacted.text;
            }
        }
        let redacted = secret_scan::redact(&self.output)?;
        self.output = redacted.text;
        Some(redacted.types)
    }
}

async fn execute(place: &ClientSandbox, call: &str, raw: &Value) -> Result<Returned> {
    let (given, conversation) = (arguments::<ExecuteArguments>(raw)?, &place.session.conversation);
    if let Some(why) = conversation.judge("execute", Some(Action::Command(&given.command)), raw).await? {
        return Ok(Returned::failed(why));
    }
    let (ready, separate) = (place.ready().await?, given.separate);
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
    let bounds = conversation.bounds();
    let (mut shown, mut printed) = (Collector::new(bounds.output_chars), Printed::default());
    let mut take = |piece: Output<'_>| {
        shown.push(piece);
        printed.push(piece, separate);
    };
    let finished = ready.sandbox.run(command, &mut take).await?;
    printed.finish(separate);
    report_limits(&place.events, &finished)?;
    let (exit_code, timed_out) = exit_code_and_timeout(&finished.outcome);
    let mut result = command_result(&finished, Some(timeout), shown);
    if bounds.redact_secrets {
        if let Some(types) = printed.redact() {
            place.events.emit(Event::SecretsRedacted { id: call.to_owned(), types })?;
        }
        result.text = secret_scan::redact(&result.text).map_or(result.text, |redacted| redacted.text);
    }
    let said = conversation.said_after("execute", raw, &result).await?;
    let mut data = json!({
        "output": printed.output, "exit_code": exit_code, "timed_out": timed_out,
        "truncated": printed.truncated, "duration_ms": finished.duration.as_millis() as u64,
    });
    if separate {
        let [stdout, stderr] = printed.apart;
        data["stdout"] = stdout.into();
        data["stderr"] = stderr.into();
    }
    Ok(Returned { recorded: Some(result), ..Returned::done(said.unwrap_or_default(), data) })
}

/// The exit code as a shell gives it, and whether the time was up; no code where the sandbox is lost.
fn exit_code_and_timeout(outcome: &Outcome) -> (Option<i32>, bool) {
    match outcome {
        Outcome::Exited(code) => (Some(*code), false),
        Outcome::TimedOut => (Some(124), true),
        Outcome::Signaled(signal) => (Some(128 + signal), false),
        Outcome::OomKilled | Outcome::OverQuota { .. } => (Some(137), false),
        Outcome::Lost => (None, false),
    }
}

async fn upload(place: &ClientSandbox, raw: &Value) -> Result<Returned> {
    let files = arguments::<Upload>(raw)?.files;
    let bytes: u64 = files.iter().map(|file| file.data.len() as u64 / 4 * 3).sum();
    if bytes > MAX_FILES {
        return Err(Error::usage(format!("one call writes at most {MAX_FILES} bytes"))
            .hint("send fewer files at a time"));
    }
    let decoded: Vec<_> = files.iter().map(|file| STANDARD.decode(&file.data).ok()).collect();
    let texts: Vec<_> =
        files.iter().zip(&decoded).map(|(file, bytes)| written(file, bytes.as_deref())).collect();
    let action =
        Action::Write { files: texts.iter().map(|(path, text)| (&**path, &**text)).collect(), whole: true };
    let (shown, conversation) = (recorded(raw), &place.session.conversation);
    if let Some(why) = conversation.judge("upload", Some(action), &shown).await? {
        return Ok(Returned::failed(why));
    }
    let sandbox = &place.ready().await?.sandbox;
    let (mut writes, mut results) = (Vec::new(), Vec::new());
    for (file, bytes) in files.iter().zip(decoded) {
        let path = absolute(&file.path);
        match bytes {
            Some(bytes) => {
                writes.push(FileWrite {
                    path,
                    node: Node::Regular(bytes),
                    mode: file.mode,
                    mtime_ns: None,
                    follow: true,
                });
                results.push(None);
            }
            None => results.push(Some("the data is not Base64".to_owned())),
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
    let (files, is_error) = (results.collect::<Vec<_>>(), |file: &Value| !file["error"].is_null());
    let failed = files.iter().filter(|file| is_error(file)).count();
    let result = ToolResult {
        ok: failed == 0,
        ..ToolResult::success(format!("{} written, {failed} not written", files.len() - failed))
    };
    let said = conversation.said_after("upload", &shown, &result).await?;
    let data = json!({ "files": files });
    Ok(Returned { recorded: Some(result), ..Returned::done(said.unwrap_or_default(), data) })
}

/// A file as the policy judges it.
fn written<'a>(file: &'a UploadedFile, bytes: Option<&'a [u8]>) -> (Cow<'a, str>, Cow<'a, str>) {
    (file.path.to_string_lossy(), String::from_utf8_lossy(bytes.unwrap_or_default()))
}

async fn download(place: &ClientSandbox, raw: &Value) -> Result<Returned> {
    let (paths, conversation) = (arguments::<Download>(raw)?.paths, &place.session.conversation);
    if let Some(why) = conversation.judge("download", None, raw).await? {
        return Ok(Returned::failed(why));
    }
    let redacts = conversation.bounds().redact_secrets;
    let sandbox = &place.ready().await?.sandbox;
    let paths = paths.iter().map(|path| absolute(path)).collect();
    let read = sandbox.read_files(paths, MAX_FILES).await?;
    let (mut files, mut failed) = (Vec::new(), 0);
    for file in read {
        let bytes = file.map_err(|error| error.to_string()).and_then(|file| match redacts {
            true => without_secrets(file.bytes),
            false => Ok(file.bytes),
        });
        failed += usize::from(bytes.is_err());
        files.push(match bytes {
            Ok(bytes) => json!({ "data": STANDARD.encode(&bytes), "error": null }),
            Err(error) => json!({ "data": null, "error": error }),
        });
    }
    let result = ToolResult {
        ok: failed == 0,
        ..ToolResult::success(format!("{} read, {failed} not read", files.len() - failed))
    };
    let said = conversation.said_after("download", raw, &result).await?;
    let data = json!({ "files": files });
    Ok(Returned { recorded: Some(result), ..Returned::done(said.unwrap_or_default(), data) })
}

/// A program gets the bytes of a file or none of them: with a part replaced they would be another file.
fn without_secrets(bytes: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    match secret_scan::redact(&String::from_utf8_lossy(&bytes)) {
        None => Ok(bytes),
        Some(redacted) => {
            let types: Vec<&str> = redacted.types.keys().map(String::as_str).collect();
            Err(format!("it holds a secret ({}), which is not handed out", types.join(", ")))
        }
    }
}

/// Relative paths are in the workspace, `~` is the sandbox's own.
fn absolute(path: &Path) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(inside) => Path::new(HOME).join(inside),
        Err(_) => Path::new(WORKSPACE).join(path),
    }
}
