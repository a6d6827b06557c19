//! `process.Process`: starting, following, feeding and ending processes.

use super::connect::{self, Code, Codec, Events, Failure, IncomingMessages, Wire};
use super::hosted::Hosted;
use super::processes::{Entry, Follower, News, Start};
use agent_envd::messages::Empty;
use agent_envd::messages::process::{
    DataEvent, Event, EventResponse, Input, InputEvent, ListResponse, ProcessInfo, ProcessInput,
    ProcessSelector, Pty, SelectRequest, SendInputRequest, SendSignalRequest, StartEvent, StartRequest,
    StreamInputRequest, UpdateRequest,
};
use agent_sandbox::{Command, EntryKind, Program, TerminalSize};
use axum::body::Body;
use axum::response::Response;
use http::HeaderMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// The interval of keepalives for a silent stream where the client asks for nothing else.
const KEEPALIVE: Duration = Duration::from_secs(90);
/// The longest silence that a client of a streamed input may ask for.
const MAX_INPUT_SILENCE: Duration = Duration::from_secs(24 * 3600);

/// Answers a call of the service.
pub async fn call(
    hosted: &Arc<Hosted>,
    method: &str,
    codec: Codec,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let processes = &hosted.processes;
    match method {
        "Start" => connect::stream(codec, start(hosted, codec, headers, body).await),
        "Connect" => {
            let follow = async {
                let request: SelectRequest = IncomingMessages::new(codec, body).only().await?;
                let follower = processes.find(selector(request.process.as_ref()))?.follow()?;
                Ok(Following::new(follower, headers, deadline(headers)))
            };
            connect::stream(codec, follow.await)
        }
        "StreamInput" => connect::stream(codec, stream_input(hosted, codec, body).await.map(|()| Once(true))),
        "List" => connect::unary(codec, Ok(list(hosted))),
        "SendInput" => {
            let send = async |request: SendInputRequest| {
                let process = processes.find(selector(request.process.as_ref()))?;
                feed(&process, request.input).await
            };
            unary(codec, body, send).await
        }
        "CloseStdin" => {
            let close = async |request: SelectRequest| {
                processes.find(selector(request.process.as_ref()))?.close_stdin().await
            };
            unary(codec, body, close).await
        }
        "SendSignal" => {
            let send = async |request: SendSignalRequest| {
                let process = processes.find(selector(request.process.as_ref()))?;
                signal(&process, request.signal)
            };
            unary(codec, body, send).await
        }
        "Update" => {
            let update = async |request: UpdateRequest| {
                let process = processes.find(selector(request.process.as_ref()))?;
                size(request.pty.as_ref()).into_iter().for_each(|size| process.resize(size));
                Ok(())
            };
            unary(codec, body, update).await
        }
        _ => {
            connect::unary::<Empty>(codec, Err(Failure::new(Code::Unimplemented, "there is no such method")))
        }
    }
}

/// A unary call with an empty answer.
async fn unary<M: Wire>(
    codec: Codec,
    body: Body,
    work: impl AsyncFnOnce(M) -> Result<(), Failure>,
) -> Response {
    let result = async { work(connect::read_unary(codec, body).await?).await };
    connect::unary(codec, result.await.map(|()| Empty {}))
}

async fn start(
    hosted: &Arc<Hosted>,
    codec: Codec,
    headers: &HeaderMap,
    body: Body,
) -> Result<Following, Failure> {
    let request: StartRequest = IncomingMessages::new(codec, body).only().await?;
    let config = request.process.ok_or_else(|| Failure::new(Code::InvalidArgument, "there is no process"))?;
    if config.cmd.is_empty() {
        return Err(Failure::new(Code::InvalidArgument, "there is no program"));
    }
    let cwd = hosted.paths.resolve(config.cwd.as_deref().unwrap_or_default());
    if config.cwd.is_some() {
        let missing = || Failure::new(Code::InvalidArgument, format!("cwd {cwd:?} is not a directory"));
        let entry = hosted.sandbox.stat(&cwd).await.map_err(|_| missing())?;
        if !matches!(entry.kind, EntryKind::Directory | EntryKind::Symlink(_)) {
            return Err(missing());
        }
    }
    let mut env = hosted.variables(&cwd);
    env.extend(config.envs.iter().map(|(name, value)| (name.into(), value.into())));
    let argv = std::iter::once(&config.cmd).chain(&config.args).map(Into::into).collect();
    let terminal =
        request.pty.as_ref().map(|pty| size(Some(pty)).unwrap_or(TerminalSize { rows: 24, columns: 80 }));
    let command = Command {
        program: Program::Argv(argv),
        cwd: Some(cwd),
        env,
        timeout: None,
        live_bytes: u64::MAX,
        stdin: terminal.is_some() || request.stdin.unwrap_or(true),
    };
    let start = Start { command, config, tag: request.tag, terminal, limit: deadline(headers) };
    let follower = hosted.processes.start(&hosted.sandbox, start).await?;
    Ok(Following::new(follower, headers, None))
}

fn list(hosted: &Hosted) -> ListResponse {
    let info = |entry: Arc<Entry>| ProcessInfo {
        config: Some(entry.config.clone()),
        pid: entry.pid,
        tag: entry.tag.clone(),
    };
    ListResponse { processes: hosted.processes.running().into_iter().map(info).collect() }
}

fn selector(process: Option<&ProcessSelector>) -> Option<&agent_envd::messages::process::Selector> {
    process?.selector.as_ref()
}

fn signal(process: &Entry, signal: i32) -> Result<(), Failure> {
    match signal {
        _ if process.has_ended() => Err(Failure::new(Code::NotFound, "the process has ended")),
        libc::SIGKILL | libc::SIGTERM => {
            process.signal(signal);
            Ok(())
        }
        _ => Err(Failure::new(Code::InvalidArgument, format!("signal {signal} is not TERM or KILL"))),
    }
}

async fn feed(process: &Entry, input: Option<ProcessInput>) -> Result<(), Failure> {
    match input.and_then(|input| input.input) {
        Some(Input::Stdin(_)) if process.has_terminal => {
            Err(Failure::new(Code::FailedPrecondition, "the process has a terminal: send `pty`"))
        }
        Some(Input::Pty(_)) if !process.has_terminal => {
            Err(Failure::new(Code::FailedPrecondition, "the process has no terminal: send `stdin`"))
        }
        Some(Input::Stdin(bytes) | Input::Pty(bytes)) => process.write(&bytes).await,
        None => Err(Failure::new(Code::InvalidArgument, "there is no input")),
    }
}

async fn stream_input(hosted: &Hosted, codec: Codec, body: Body) -> Result<(), Failure> {
    let mut incoming = IncomingMessages::new(codec, body);
    let mut process: Option<Arc<Entry>> = None;
    while let Some(request) = incoming.next::<StreamInputRequest>().await? {
        match (request.event, &process) {
            (Some(InputEvent::Start(start)), None) => {
                process = Some(hosted.processes.find(selector(start.process.as_ref()))?);
                // A client that feeds a program may have nothing to say for long.
                incoming.set_timeout(MAX_INPUT_SILENCE);
            }
            (Some(InputEvent::Data(data)), Some(process)) => feed(process, data.input).await?,
            (Some(InputEvent::Keepalive(_)), _) => {}
            _ => {
                let text = "a stream of input begins with `start`, and `data` follows";
                return Err(Failure::new(Code::InvalidArgument, text));
            }
        }
    }
    Ok(())
}

/// The time limit of the call; none where the header is missing or 0.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("connect-timeout-ms")?.to_str().ok()?;
    let milliseconds: u64 = text.parse().ok().filter(|&milliseconds| milliseconds > 0)?;
    Some(Duration::from_millis(milliseconds))
}

fn size(pty: Option<&Pty>) -> Option<TerminalSize> {
    let size = pty?.size.as_ref()?;
    let within = |number: u32| u16::try_from(number).ok().filter(|&number| number > 0);
    Some(TerminalSize { rows: within(size.rows)?, columns: within(size.cols)? })
}

/// A client that follows a process.
struct Following {
    follower: Follower,
    has_begun: bool,
    has_ended: bool,
    keepalive: Duration,
    ends: Option<Instant>,
}

impl Following {
    fn new(follower: Follower, headers: &HeaderMap, limit: Option<Duration>) -> Self {
        let interval =
            headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok()?.parse().ok());
        let keepalive = interval.filter(|&seconds: &u64| seconds > 0).map_or(KEEPALIVE, Duration::from_secs);
        let ends = limit.and_then(|limit| Instant::now().checked_add(limit));
        Self { follower, has_begun: false, has_ended: false, keepalive, ends }
    }
}

impl Events for Following {
    type Message = EventResponse;

    async fn next(&mut self) -> Result<Option<EventResponse>, Failure> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Ok(Some(Event::Start(StartEvent { pid: self.follower.pid }).response()));
        }
        if self.has_ended {
            return Ok(None);
        }
        let ends = self.ends;
        let over = async {
            match ends {
                Some(ends) => sleep_until(ends).await,
                None => std::future::pending().await,
            }
        };
        let news = tokio::select! {
            news = timeout(self.keepalive, self.follower.news.recv()) => news,
            () = over => {
                return Err(Failure::new(Code::DeadlineExceeded, "the connection reached its time limit"));
            }
        };
        match news {
            Err(_) => Ok(Some(Event::Keepalive(Empty {}).response())),
            Ok(Some(News::Output(output))) => {
                Ok(Some(Event::Data(DataEvent { output: Some(output) }).response()))
            }
            Ok(Some(News::End(end))) => {
                self.has_ended = true;
                Ok(Some(Event::End(end).response()))
            }
            Ok(Some(News::Failed(failure))) => Err(failure),
            Ok(None) => Err(Failure::removed()),
        }
    }
}

/// One empty message.
struct Once(bool);

impl Events for Once {
    type Message = Empty;

    async fn next(&mut self) -> Result<Option<Empty>, Failure> {
        Ok(std::mem::take(&mut self.0).then_some(Empty {}))
    }
}
