//! A made-up Modal, after what its own SDK sends and expects: the control plane and the routers of all sandboxes at one address.

use crate::machines::Machine;
use crate::provider;
use agent_cloud::modal::messages::*;
use agent_envd::envelope::{Decoder, encode};
use agent_event::Stream;
use agent_sandbox::{Network, Outcome, ProcessEvent};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http_body_util::BodyExt;
use http_body_util::StreamBody;
use hyper::HeaderMap;
use hyper::body::Frame;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The token that it takes, and what it gives in exchange.
pub const TOKEN_ID: &str = "ak-a0key0for0tests";
pub const TOKEN_SECRET: &str = "as-a0key0for0tests";
// With a time of expiry far away, which the SDK reads.
const AUTH_TOKEN: &str = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.token-of-the-control-plane";
const JWT: &str = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.token-of-the-router";
const LARGEST: usize = 64 << 20;
const PIECE: usize = 64 << 10;

/// The statuses that it uses.
const INVALID_ARGUMENT: u32 = 3;
const NOT_FOUND: u32 = 5;
const ALREADY_EXISTS: u32 = 6;
const FAILED_PRECONDITION: u32 = 9;
const UNIMPLEMENTED: u32 = 12;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

type Refused = (u32, &'static str);

/// The provider.
pub struct Modal {
    pub url: String,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    /// Answers of creations by the key that makes them one.
    creations: Mutex<BTreeMap<String, SandboxCreateV2Response>>,
    requests: Mutex<Vec<String>>,
    /// What the images hold that were made of sandboxes, by id.
    images: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Set if it refuses to make such images.
    refuses_images: AtomicBool,
    /// How often every stream was cut.
    cuts: watch::Sender<u32>,
}

/// A sandbox, as it was asked for.
pub struct Sandbox {
    pub id: String,
    pub task: String,
    pub definition: Definition,
    pub tags: BTreeMap<String, String>,
    app: String,
    created: f64,
    machine: Mutex<Option<Arc<Machine>>>,
    is_ready: watch::Sender<bool>,
    execs: Mutex<BTreeMap<String, Arc<Exec>>>,
}

/// `TaskExecStdinWriteRequest`, which the SDK sends and the backend does not.
#[derive(Clone, PartialEq, Message)]
struct StdinWrite {
    #[prost(string, tag = "1")]
    task_id: String,
    #[prost(string, tag = "2")]
    exec_id: String,
    #[prost(uint64, tag = "3")]
    offset: u64,
    #[prost(bytes = "bytes", tag = "4")]
    data: Bytes,
    #[prost(bool, tag = "5")]
    eof: bool,
}

/// A command in a sandbox.
struct Exec {
    /// What it has printed on both streams, kept whole.
    output: [Mutex<Vec<u8>>; 2],
    controls: agent_sandbox::Controls,
    written: Mutex<u64>,
    /// Counts changes, and ends with the code.
    state: watch::Sender<(u64, Option<i32>)>,
}

/// The one of this process, in threads of its own: sandboxes outlive a test's runtime.
pub fn shared() -> Arc<Modal> {
    static SHARED: OnceLock<Arc<Modal>> = OnceLock::new();
    Arc::clone(SHARED.get_or_init(start))
}

/// A provider without sandboxes.
pub fn start() -> Arc<Modal> {
    provider::start(
        |url| Modal {
            url,
            sandboxes: Mutex::default(),
            creations: Mutex::default(),
            requests: Mutex::default(),
            images: Mutex::default(),
            refuses_images: AtomicBool::default(),
            cuts: watch::Sender::new(0),
        },
        |modal| Router::new().fallback(answer).with_state(modal),
    )
}

async fn answer(State(modal): State<Arc<Modal>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    modal.requests.lock().expect("a lock").push(method.to_owned());
    if !is_allowed(service, method, request.headers()) {
        return refusal(UNAUTHENTICATED, "Token ID is malformed");
    }
    let key = text_of(request.headers(), "x-idempotency-key").unwrap_or_default().to_owned();
    let answered = match method {
        "TaskExecStdinWriteStream" => modal.write_stream(request).await.map(|()| message(&Empty {})),
        _ => {
            let body = to_bytes(request.into_body(), LARGEST).await.expect("a body");
            let mut decoder = Decoder::default();
            decoder.push(&body);
            let frame = decoder.pop().expect("a frame").expect("a whole one");
            modal.act(method, &key, &frame.payload).await
        }
    };
    answered.unwrap_or_else(|(code, why)| refusal(code, why))
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn is_allowed(service: &str, method: &str, headers: &HeaderMap) -> bool {
    let header = |name| text_of(headers, name);
    if service == "modal.client.ModalClient" {
        let key = (header("x-modal-token-id"), header("x-modal-token-secret"));
        let is_second = method.ends_with("V2") || method == "SandboxGetCommandRouterAccess";
        return key == (Some(TOKEN_ID), Some(TOKEN_SECRET))
            && (!is_second || header("x-modal-auth-token") == Some(AUTH_TOKEN))
            && header("x-modal-client-version").is_some();
    }
    // What is the control plane's must not come here.
    let own = format!("Bearer {JWT}");
    header("authorization") == Some(&own) && !headers.keys().any(|name| name.as_str().starts_with("x-modal-"))
}

fn read<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).expect("a message of its kind")
}

/// One answer and the end.
fn message(message: &impl Message) -> Response {
    respond(futures_util::stream::iter([
        Ok(Frame::data(encode(&message.encode_to_vec(), false))),
        Ok(Frame::trailers(status(0, ""))),
    ]))
}

fn respond(
    frames: impl futures_util::Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send + 'static,
) -> Response {
    let response = Response::builder().header("content-type", "application/grpc+proto");
    response.body(Body::new(StreamBody::new(frames))).expect("a response")
}

fn refusal(code: u32, why: &str) -> Response {
    let mut response = Response::builder().header("content-type", "application/grpc+proto");
    response.headers_mut().expect("headers").extend(status(code, why));
    response.body(Body::empty()).expect("a response")
}

fn status(code: u32, why: &str) -> HeaderMap {
    let pairs = [("grpc-status", code.to_string()), ("grpc-message", why.replace(' ', "%20"))];
    pairs
        .into_iter()
        .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
        .collect()
}

fn success() -> GenericResult {
    GenericResult { status: SUCCESS, ..GenericResult::default() }
}

impl Exec {
    /// Feeds the command what begins at `offset` of its input.
    async fn feed(&self, offset: u64, data: &[u8], is_last: bool) -> Result<(), Refused> {
        if *self.written.lock().expect("a lock") != offset {
            return Err((FAILED_PRECONDITION, "stdin offset mismatch"));
        }
        self.controls.write(data).await;
        *self.written.lock().expect("a lock") += data.len() as u64;
        if is_last {
            self.controls.close_stdin();
        }
        Ok(())
    }
}

impl Modal {
    /// The methods since the last time.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().expect("a lock"))
    }

    /// The sandboxes that exist.
    pub fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.sandboxes.lock().expect("a lock").values().cloned().collect()
    }

    /// From now on it makes no image of a sandbox.
    pub fn refuse_images(&self) {
        self.refuses_images.store(true, Ordering::SeqCst);
    }

    /// Breaks off every stream of output that is open; its command goes on.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    fn named(&self, id: &str) -> Result<Arc<Sandbox>, Refused> {
        self.sandboxes.lock().expect("a lock").get(id).cloned().ok_or((NOT_FOUND, "Sandbox not found"))
    }

    fn exec(&self, task: &str, exec: &str) -> Result<Arc<Exec>, Refused> {
        let sandbox = self.of_task(task)?;
        let execs = sandbox.execs.lock().expect("a lock");
        execs.get(exec).cloned().ok_or((NOT_FOUND, "exec not found"))
    }

    fn of_task(&self, task: &str) -> Result<Arc<Sandbox>, Refused> {
        let found = self.sandboxes().into_iter().find(|sandbox| sandbox.task == task);
        found.ok_or((NOT_FOUND, "task not found"))
    }

    async fn act(self: &Arc<Self>, method: &str, key: &str, body: &[u8]) -> Result<Response, Refused> {
        Ok(match method {
            "ClientHello" | "SandboxTagsSetV2" | "AppClientDisconnect" => message(&Empty {}),
            "AppGetOrCreate" => {
                let asked: AppGetOrCreateRequest = read(body);
                message(&AppGetOrCreateResponse { app_id: format!("ap-{}", asked.app_name) })
            }
            "EnvironmentGetOrCreate" => {
                let settings = EnvironmentSettings { image_builder_version: "2025.06".to_owned() };
                let metadata = EnvironmentMetadata { name: "main".to_owned(), settings: Some(settings) };
                message(&EnvironmentGetOrCreateResponse {
                    environment_id: "en-1".to_owned(),
                    metadata: Some(metadata),
                })
            }
            "ImageGetOrCreate" => {
                let asked: ImageGetOrCreateRequest = read(body);
                let commands = asked.image.unwrap_or_default().dockerfile_commands;
                let name = commands.first().and_then(|first| first.strip_prefix("FROM "));
                let Some(name) = name else { return Err((INVALID_ARGUMENT, "no base image")) };
                // A slow build is waited for.
                let result = (!name.contains("slow")).then(success);
                let image_id = if name.contains("slow") { "im-slow" } else { "im-1" };
                message(&ImageGetOrCreateResponse { image_id: image_id.to_owned(), result })
            }
            "ImageJoinStreaming" => message(&ImageJoinStreamingResponse {
                result: Some(success()),
                eof: true,
                ..ImageJoinStreamingResponse::default()
            }),
            "AuthTokenGet" => message(&AuthTokenGetResponse { token: AUTH_TOKEN.to_owned() }),
            "SandboxCreateV2" => message(&self.create(key, read(body))?),
            _ if method.starts_with("Sandbox") => return self.act_on_a_sandbox(method, body),
            _ => return self.act_in_a_sandbox(method, body).await,
        })
    }

    fn act_on_a_sandbox(self: &Arc<Self>, method: &str, body: &[u8]) -> Result<Response, Refused> {
        Ok(match method {
            "SandboxListV2" => message(&self.list(&read(body))),
            "SandboxTerminateV2" => {
                let sandbox = self.named(&read::<SandboxNamed>(body).sandbox_id)?;
                self.sandboxes.lock().expect("a lock").remove(&sandbox.id);
                let machine = sandbox.machine.lock().expect("a lock").take();
                if let Some(machine) = machine {
                    tokio::spawn(async move { machine.remove().await });
                }
                message(&Empty {})
            }
            "SandboxGetCommandRouterAccess" => {
                self.named(&read::<SandboxNamed>(body).sandbox_id)?;
                message(&self.access())
            }
            "SandboxGetTaskIdV2" => {
                let task_id = self.named(&read::<SandboxNamed>(body).sandbox_id)?.task.clone();
                message(&SandboxGetTaskIdResponse { task_id })
            }
            "SandboxWaitV2" => {
                let running = self.named(&read::<SandboxNamed>(body).sandbox_id).is_ok();
                // `SandboxWaitResponse` begins like this one: a result, which has no status while it runs.
                let result = if running { GenericResult::default() } else { success() };
                message(&ImageJoinStreamingResponse {
                    result: Some(result),
                    ..ImageJoinStreamingResponse::default()
                })
            }
            _ => return Err((UNIMPLEMENTED, "unknown method")),
        })
    }

    /// The router's methods.
    async fn act_in_a_sandbox(&self, method: &str, body: &[u8]) -> Result<Response, Refused> {
        Ok(match method {
            "TaskExecStart" => {
                self.exec_start(read(body)).await?;
                message(&Empty {})
            }
            "TaskExecStdinWrite" => {
                let asked: StdinWrite = read(body);
                self.exec(&asked.task_id, &asked.exec_id)?.feed(asked.offset, &asked.data, asked.eof).await?;
                message(&Empty {})
            }
            "TaskExecStdioRead" => self.stdio_read(&read(body))?,
            "TaskExecWait" => {
                let asked: TaskExecNamed = read(body);
                let exec = self.exec(&asked.task_id, &asked.exec_id)?;
                let mut state = exec.state.subscribe();
                let ended = state.wait_for(|(_, code)| code.is_some()).await.expect("it ends").1;
                message(&TaskExecEnd { code: ended, signal: None })
            }
            "TaskExecPoll" => {
                let asked: TaskExecNamed = read(body);
                let code = self.exec(&asked.task_id, &asked.exec_id)?.state.borrow().1;
                message(&TaskExecEnd { code, signal: None })
            }
            "TaskSnapshotFilesystem" => {
                let image_id = self.snapshot(read(body)).await?;
                message(&TaskSnapshotFilesystemResponse { image_id })
            }
            _ => return Err((UNIMPLEMENTED, "unknown method")),
        })
    }

    /// Makes an image of what a sandbox holds.
    async fn snapshot(&self, asked: TaskSnapshotFilesystemRequest) -> Result<String, Refused> {
        if self.refuses_images.load(Ordering::SeqCst) {
            return Err((FAILED_PRECONDITION, "snapshots are not enabled for this workspace"));
        }
        if asked.ttl_seconds.is_none_or(|seconds| seconds <= 0) || asked.snapshot_id.is_empty() {
            return Err((INVALID_ARGUMENT, "ttl_seconds must be set"));
        }
        let machine = self.of_task(&asked.task_id)?.machine.lock().expect("a lock").clone();
        let machine = machine.ok_or((FAILED_PRECONDITION, "the sandbox has ended"))?;
        let disk = machine.disk().await;
        let mut images = self.images.lock().expect("a lock");
        let id = format!("im-of-a-sandbox-{}", images.len());
        images.insert(id.clone(), disk);
        Ok(id)
    }

    fn access(&self) -> RouterAccess {
        RouterAccess { jwt: JWT.to_owned(), url: self.url.clone() }
    }

    fn create(
        self: &Arc<Self>,
        key: &str,
        asked: SandboxCreateV2Request,
    ) -> Result<SandboxCreateV2Response, Refused> {
        let mut creations = self.creations.lock().expect("a lock");
        if let Some(made) = creations.get(key) {
            return Ok(made.clone());
        }
        let definition = asked.definition.unwrap_or_default();
        let mut sandboxes = self.sandboxes.lock().expect("a lock");
        let is_taken = |sandbox: &Arc<Sandbox>| {
            sandbox.definition.name.is_some() && sandbox.definition.name == definition.name
        };
        if sandboxes.values().any(is_taken) {
            return Err((ALREADY_EXISTS, "Sandbox name is already in use"));
        }
        let disk = self.images.lock().expect("a lock").get(&definition.image_id).cloned();
        if disk.is_none() && !["im-1", "im-slow"].contains(&&*definition.image_id) {
            return Err((NOT_FOUND, "Image not found"));
        }
        // As Modal's own SDK checks tags.
        let is_in_tags = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !asked.tags.iter().all(|tag| tag.tag_value.bytes().all(is_in_tags)) {
            return Err((INVALID_ARGUMENT, "Invalid tag"));
        }
        let id = format!("{:08x}", fastrand::u32(..));
        let network = match definition.network_access.as_ref().map(|access| access.network_access_type) {
            Some(BLOCKED) => Network::None,
            _ => Network::Full,
        };
        let tags = asked.tags.into_iter().map(|tag| (tag.tag_name, tag.tag_value));
        let sandbox = Arc::new(Sandbox {
            id: format!("sb-{id}"),
            task: format!("ta-{id}V"),
            definition,
            tags: tags.collect(),
            app: asked.app_id,
            created: jiff::Timestamp::now().as_microsecond() as f64 / 1e6,
            machine: Mutex::default(),
            is_ready: watch::Sender::new(false),
            execs: Mutex::default(),
        });
        sandboxes.insert(sandbox.id.clone(), Arc::clone(&sandbox));
        let made = SandboxCreateV2Response {
            sandbox_id: sandbox.id.clone(),
            task_id: sandbox.task.clone(),
            command_router_access: Some(self.access()),
            sandbox_token: "token-of-the-sandbox".to_owned(),
        };
        creations.insert(key.to_owned(), made.clone());
        drop((creations, sandboxes));
        // What was begun is finished, whether the client waits for it or not.
        let modal = Arc::clone(self);
        tokio::spawn(async move {
            let machine = Arc::new(Machine::start(network).await);
            if let Some(disk) = disk {
                machine.restore(disk).await;
            }
            *sandbox.machine.lock().expect("a lock") = Some(Arc::clone(&machine));
            sandbox.is_ready.send_replace(true);
            if modal.named(&sandbox.id).is_err() && sandbox.machine.lock().expect("a lock").take().is_some() {
                machine.remove().await;
            }
        });
        Ok(made)
    }

    fn list(&self, asked: &SandboxListRequest) -> SandboxListResponse {
        let fits = |sandbox: &Arc<Sandbox>| {
            let mut wanted = asked.tags.iter();
            (asked.app_id.is_empty() || sandbox.app == asked.app_id)
                && (asked.before_timestamp == 0.0 || sandbox.created < asked.before_timestamp)
                && wanted.all(|tag| sandbox.tags.get(&tag.tag_name) == Some(&tag.tag_value))
        };
        let mut found: Vec<_> = self.sandboxes().into_iter().filter(fits).collect();
        found.sort_by(|one, other| other.created.total_cmp(&one.created));
        let described = found.iter().take(10).map(|sandbox| SandboxInfo {
            id: sandbox.id.clone(),
            created_at: sandbox.created,
            task_info: Some(TaskInfo { id: sandbox.task.clone(), ..TaskInfo::default() }),
            app_id: sandbox.app.clone(),
            tags: tags(&sandbox.tags),
            name: sandbox.definition.name.clone().unwrap_or_default(),
        });
        SandboxListResponse { sandboxes: described.collect() }
    }

    async fn exec_start(&self, asked: TaskExecStartRequest) -> Result<(), Refused> {
        let sandbox = self.of_task(&asked.task_id)?;
        if sandbox.execs.lock().expect("a lock").contains_key(&asked.exec_id) {
            return Ok(());
        }
        let ready = async { sandbox.is_ready.subscribe().wait_for(|ready| *ready).await.map(drop) };
        // Until then it is as if nothing listened.
        if tokio::time::timeout(Duration::from_millis(500), ready).await.is_err() {
            return Err((UNAVAILABLE, "the sandbox starts"));
        }
        let machine = sandbox.machine.lock().expect("a lock").clone();
        let machine = machine.ok_or((FAILED_PRECONDITION, "the sandbox has ended"))?;
        let mut process = machine.spawn(&asked.command_args, asked.env).await;
        let exec = Arc::new(Exec {
            output: [Mutex::default(), Mutex::default()],
            controls: process.controls(),
            written: Mutex::default(),
            state: watch::Sender::new((0, None)),
        });
        sandbox.execs.lock().expect("a lock").insert(asked.exec_id, Arc::clone(&exec));
        tokio::spawn(async move {
            loop {
                match process.next().await {
                    Ok(ProcessEvent::Output(stream, bytes)) => {
                        let index = usize::from(stream == Stream::Stderr);
                        exec.output[index].lock().expect("a lock").extend_from_slice(&bytes);
                        exec.state.send_modify(|(changes, _)| *changes += 1);
                    }
                    Ok(ProcessEvent::Gap(_)) => {}
                    Ok(ProcessEvent::Finished(finished)) => {
                        let code = match finished.outcome {
                            Outcome::Exited(code) => code,
                            _ => 137,
                        };
                        exec.state.send_modify(|(_, end)| *end = Some(code));
                        return;
                    }
                    Err(_) => {
                        exec.state.send_modify(|(_, end)| *end = Some(127));
                        return;
                    }
                }
            }
        });
        Ok(())
    }

    fn stdio_read(&self, asked: &TaskExecStdioReadRequest) -> Result<Response, Refused> {
        let exec = self.exec(&asked.task_id, &asked.exec_id)?;
        let (sender, receiver) = mpsc::channel::<Frame<Bytes>>(4);
        let mut cuts = self.cuts.subscribe();
        let (mut offset, stream) = (asked.offset as usize, usize::from(asked.file_descriptor == STDERR));
        let sending = async move {
            let mut state = exec.state.subscribe();
            loop {
                let has_ended = state.borrow_and_update().1.is_some();
                loop {
                    let piece: Vec<u8> = {
                        let output = exec.output[stream].lock().expect("a lock");
                        output[offset.min(output.len())..].iter().take(PIECE).copied().collect()
                    };
                    if piece.is_empty() {
                        break;
                    }
                    offset += piece.len();
                    let answer = TaskExecStdioReadResponse { data: piece.into() };
                    if sender.send(Frame::data(encode(&answer.encode_to_vec(), false))).await.is_err() {
                        return;
                    }
                }
                if has_ended {
                    let _ = sender.send(Frame::trailers(status(0, ""))).await;
                    return;
                }
                tokio::select! {
                    changed = state.changed() => changed.expect("the command is kept"),
                    _ = cuts.changed() => {
                        let _ = sender.send(Frame::trailers(status(UNAVAILABLE, "cut"))).await;
                        return;
                    }
                }
            }
        };
        tokio::spawn(sending);
        let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
            Some((Ok(receiver.recv().await?), receiver))
        });
        Ok(respond(frames))
    }

    async fn write_stream(&self, request: Request) -> Result<(), Refused> {
        let (mut body, mut decoder) = (request.into_body(), Decoder::default());
        let mut target: Option<Arc<Exec>> = None;
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(bytes) = frame.into_data() else { continue };
            decoder.push(&bytes);
            while let Some(frame) = decoder.pop().map_err(|_| (INVALID_ARGUMENT, "a damaged frame"))? {
                let piece: StdinMessage = read(&frame.payload);
                if let Some(start) = piece.start {
                    let exec = self.exec(&start.task_id, &start.exec_id)?;
                    if *exec.written.lock().expect("a lock") != start.offset {
                        return Err((FAILED_PRECONDITION, "stdin offset mismatch"));
                    }
                    target = Some(exec);
                    continue;
                }
                let exec = target.as_ref().ok_or((INVALID_ARGUMENT, "the stream has no start"))?;
                if let Some(data) = piece.data {
                    exec.controls.write(&data).await;
                    *exec.written.lock().expect("a lock") += data.len() as u64;
                }
                if piece.end.is_some() {
                    exec.controls.close_stdin();
                    return Ok(());
                }
            }
        }
        // Broken off: the command's input stays open.
        Err((UNAVAILABLE, "the stream was broken off"))
    }
}

fn tags(tags: &BTreeMap<String, String>) -> Vec<SandboxTag> {
    let pairs = tags.iter();
    pairs.map(|(name, value)| SandboxTag { tag_name: name.clone(), tag_value: value.clone() }).collect()
}
