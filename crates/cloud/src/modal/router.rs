//! The server on the worker's machine that runs commands in a sandbox. It gets its own token alone.

use super::failure::of_router;
use super::messages::{
    DEVNULL, Empty, PIPE, STDOUT, StdinMessage, StdinStart, TaskExecEnd, TaskExecNamed, TaskExecStartRequest,
    TaskExecStdioReadRequest, TaskExecStdioReadResponse, TaskSnapshotFilesystemRequest,
    TaskSnapshotFilesystemResponse,
};
use crate::api::LONG;
use crate::api::SHORT;
use crate::api::below;
use crate::grpc::Answers;
use crate::grpc::Grpc;
use crate::grpc::Status;
use crate::grpc::framed;
use crate::provider::Executed;
use crate::uuid;
use agent_base::error::Error;
use agent_base::error::Result;
use agent_sandbox::Channel;
use bytes::Bytes;
use futures_util::stream;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Body, Url};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

const SERVICE: &str = "modal.task_command_router.TaskCommandRouter";
/// Bytes of one message of standard input.
const MESSAGE: usize = 256 << 10;
/// Bytes between the protocol and the stream, each way, and messages that wait to be sent.
const BUFFER: usize = 256 << 10;
const MESSAGES: usize = 2;
/// Bytes of a command's output that are kept.
const MAX_OUTPUT: usize = 1 << 20;
/// The pauses between attempts to reach a sandbox that starts: the first, which doubles, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The time limit for sending one message. The protocol gives a silent link up before that, and with it this stream.
const SENDING: Duration = Duration::from_secs(90);
/// The time limit for a last message.
const GOODBYE: Duration = Duration::from_secs(5);

/// The router of one sandbox.
pub struct Router {
    grpc: Arc<Grpc>,
    url: Url,
    token: String,
    task: String,
}

impl Router {
    /// The router at a checked address.
    pub fn new(grpc: Arc<Grpc>, url: Url, token: String, task: String) -> Self {
        Self { grpc, url, token, task }
    }

    fn address(&self, method: &str) -> Url {
        below(&self.url, &format!("{SERVICE}/{method}"))
    }

    fn headers(&self) -> Result<HeaderMap> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.token))
            .map_err(|_| Error::sandbox("modal names a token of the sandbox's router that is not valid"))?;
        value.set_sensitive(true);
        Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
    }

    fn failed(&self, status: Status) -> Error {
        of_router(status, &self.token)
    }

    /// Starts shell text, as soon as the router answers: it may take a while to be there.
    async fn start(&self, command: &str, with_output: bool, time: Duration) -> Result<TaskExecNamed> {
        let exec = TaskExecNamed { task_id: self.task.clone(), exec_id: uuid::random() };
        // The same id starts it once, however often it is sent.
        let question = framed(&TaskExecStartRequest {
            task_id: exec.task_id.clone(),
            exec_id: exec.exec_id.clone(),
            command_args: ["/bin/sh", "-c", command].map(str::to_owned).into(),
            stdout_config: if with_output { PIPE } else { DEVNULL },
            stderr_config: DEVNULL,
            ..TaskExecStartRequest::default()
        });
        let deadline = Instant::now() + time;
        let mut pause = FIRST_PAUSE;
        loop {
            let url = self.address("TaskExecStart");
            let asked = self.grpc.unary::<Empty>(url, self.headers()?, question.clone(), SHORT).await;
            match asked {
                Ok(_) => return Ok(exec),
                Err(status) if status.is_passing() && Instant::now() + pause < deadline => {
                    sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                Err(status) => return Err(self.failed(status)),
            }
        }
    }

    async fn read(&self, exec: &TaskExecNamed) -> Result<Answers> {
        let question = TaskExecStdioReadRequest {
            task_id: exec.task_id.clone(),
            exec_id: exec.exec_id.clone(),
            offset: 0,
            file_descriptor: STDOUT,
        };
        let url = self.address("TaskExecStdioRead");
        let opened = self.grpc.stream(url, self.headers()?, framed(&question)).await;
        opened.map_err(|status| self.failed(status))
    }

    /// Sends messages of standard input until there are no more.
    async fn write(&self, body: Body, time: Duration) -> Result<(), Status> {
        let headers = self.headers().map_err(Status::damaged)?;
        let url = self.address("TaskExecStdinWriteStream");
        self.grpc.unary::<Empty>(url, headers, body, time).await.map(drop)
    }

    /// Runs shell text until it ends; on standard output it prints what there is to know.
    pub async fn run(&self, command: &str) -> Result<Executed> {
        let exec = self.start(command, true, LONG).await?;
        let ended = async {
            let mut answers = self.read(&exec).await?;
            let mut output = Vec::new();
            let read = |status| self.failed(status);
            while let Some(piece) = answers.next::<TaskExecStdioReadResponse>().await.map_err(read)? {
                let room = MAX_OUTPUT - output.len();
                output.extend_from_slice(&piece.data[..piece.data.len().min(room)]);
            }
            let output = String::from_utf8_lossy(&output).into_owned();
            Ok(Executed { exit_code: self.end_of(&exec).await?, output })
        };
        let late = |_| {
            Err(Error::sandbox(format!(
                "a command in the modal sandbox did not end within {} s",
                LONG.as_secs()
            )))
        };
        timeout(LONG, ended).await.unwrap_or_else(late)
    }

    /// Runs shell text that reads `bytes`.
    pub async fn feed(&self, command: &str, bytes: &[u8]) -> Result<()> {
        let exec = self.start(command, false, LONG).await?;
        let pieces = bytes.chunks(MESSAGE).map(|piece| data(Bytes::copy_from_slice(piece)));
        let messages = std::iter::once(beginning(&exec)).chain(pieces).chain([end()]);
        let frames: Vec<_> = messages.map(|message| Ok::<_, Infallible>(framed(&message))).collect();
        let written = self.write(Body::wrap_stream(stream::iter(frames)), LONG).await;
        written.map_err(|status| self.failed(status))?;
        match self.end_of(&exec).await? {
            0 => Ok(()),
            code => Err(Error::sandbox(format!(
                "the guest cannot be written into the modal sandbox (exit code {code})"
            ))
            .hint("the image needs a shell with `cat`, and room below /tmp")),
        }
    }

    /// Copies the sandbox's files into an image that is kept for `life`: its id.
    pub async fn snapshot(&self, life: Duration) -> Result<String> {
        let question = TaskSnapshotFilesystemRequest {
            task_id: self.task.clone(),
            // The same id makes it once.
            snapshot_id: uuid::random(),
            ttl_seconds: Some(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)),
        };
        let (url, headers) = (self.address("TaskSnapshotFilesystem"), self.headers()?);
        let made: TaskSnapshotFilesystemResponse = self
            .grpc
            .unary(url, headers, framed(&question), LONG)
            .await
            .map_err(|status| self.failed(status))?;
        Ok(made.image_id)
    }

    /// Waits for the end of a command: its exit code.
    async fn end_of(&self, exec: &TaskExecNamed) -> Result<i64> {
        let (url, headers) = (self.address("TaskExecWait"), self.headers()?);
        let end: TaskExecEnd =
            self.grpc.unary(url, headers, framed(exec), LONG).await.map_err(|status| self.failed(status))?;
        Ok(end.code.map_or(-1, i64::from))
    }

    /// The standard input and output of shell text as one stream. It ends with either, and with the connection; the
    /// command notices by the end of its input.
    pub async fn join(self, command: &str, time: Duration) -> Result<Channel> {
        let exec = self.start(command, true, time).await?;
        let (near, far) = tokio::io::duplex(BUFFER);
        tokio::spawn(self.carry(exec, far));
        let (reader, writer) = tokio::io::split(near);
        Ok(Channel { is_slow: true, ..Channel::new(reader, writer) })
    }

    async fn carry(self, exec: TaskExecNamed, far: DuplexStream) {
        let (mut from_host, mut to_host) = tokio::io::split(far);
        let (messages, waiting) = mpsc::channel::<Bytes>(MESSAGES);
        let waiting = stream::unfold(waiting, |mut waiting| async {
            Some((Ok::<_, Infallible>(waiting.recv().await?), waiting))
        });
        // It answers when the command's input has ended.
        let written = pin!(self.write(Body::wrap_stream(waiting), Duration::from_secs(u64::from(u32::MAX))));
        let mut next = beginning(&exec);
        let sending = async move {
            let mut buffer = vec![0; MESSAGE];
            loop {
                let is_last = next.end.is_some();
                // A link that takes nothing is dead, though no error reports it.
                if !matches!(timeout(SENDING, messages.send(framed(&next))).await, Ok(Ok(()))) {
                    return false;
                }
                if is_last {
                    return true;
                }
                next = match from_host.read(&mut buffer).await.unwrap_or(0) {
                    0 => end(),
                    length => data(Bytes::copy_from_slice(&buffer[..length])),
                };
            }
        };
        // A server may answer only once there is output, which there is only after input.
        let receiving = async {
            let Ok(mut answers) = self.read(&exec).await else { return };
            while let Ok(Some(piece)) = answers.next::<TaskExecStdioReadResponse>().await {
                if to_host.write_all(&piece.data).await.is_err() {
                    return;
                }
            }
        };
        let farewell = async {
            if sending.await {
                // The command reads the end, and ends: then nothing more arrives.
                sleep(GOODBYE).await;
            }
        };
        // The write is answered as soon as its last message has arrived.
        let writing = async {
            if written.await.is_ok() {
                sleep(GOODBYE).await;
            }
        };
        tokio::select! {
            () = farewell => {}
            () = receiving => {}
            () = writing => {}
        }
    }
}

fn beginning(exec: &TaskExecNamed) -> StdinMessage {
    let start = StdinStart { task_id: exec.task_id.clone(), exec_id: exec.exec_id.clone(), offset: 0 };
    StdinMessage { start: Some(start), ..StdinMessage::default() }
}

fn data(bytes: Bytes) -> StdinMessage {
    StdinMessage { data: Some(bytes), ..StdinMessage::default() }
}

fn end() -> StdinMessage {
    StdinMessage { end: Some(Empty {}), ..StdinMessage::default() }
}
