//! The machines of a made-up sandbox provider: each is a local sandbox, whose processes are real.

use crate::backends::{shell, spec};
use agent_sandbox::local::Local;
use agent_sandbox::{
    Backend, Command, FileWrite, Network, Node, Outcome, Output, Process, Program, Sandbox, Spec,
};
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::StatusCode;
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A machine that runs.
pub struct Machine {
    backend: Local,
    spec: Spec,
    sandbox: Sandbox,
}

impl Machine {
    /// Starts one.
    pub async fn start(network: Network) -> Self {
        let spec = Spec { network, idle_ttl: Duration::from_secs(60), ..spec() };
        let backend = Local::new(agent_testing::machine());
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the machine starts");
        let sandbox = Sandbox::connect(channel).await.expect("the machine's own guest answers");
        Self { backend, spec, sandbox }
    }

    /// Runs shell text: exit code, and what it printed on either stream.
    pub async fn execute(&self, text: &str) -> (i32, Vec<u8>, Vec<u8>) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let command = Command { live_bytes: 64 << 20, ..shell(text) };
        let finished = self
            .sandbox
            .run(command, &mut |output| {
                if let Output::Data(stream, piece) = output {
                    match stream {
                        agent_event::Stream::Stdout => stdout.extend_from_slice(piece),
                        agent_event::Stream::Stderr => stderr.extend_from_slice(piece),
                    }
                }
            })
            .await
            .expect("the machine answers");
        let code = match finished.outcome {
            Outcome::Exited(code) => code,
            _ => -1,
        };
        (code, stdout, stderr)
    }

    /// Starts a program whose input and output are followed.
    pub async fn spawn(&self, words: &[String], env: BTreeMap<String, String>) -> Process {
        let command = Command {
            program: Program::Argv(words.iter().map(Into::into).collect()),
            env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            timeout: None,
            live_bytes: u64::MAX,
            stdin: true,
            ..shell("")
        };
        self.sandbox.spawn(command).await.expect("the machine answers")
    }

    /// Writes a file.
    pub async fn write(&self, path: &str, bytes: Vec<u8>) {
        let path = Path::new("/workspace").join(path);
        let node = Node::Regular(bytes);
        let file = FileWrite { path, node, mode: None, mtime_ns: None, follow: true };
        let written = self.sandbox.write_files(vec![file]).await.expect("the machine answers");
        written.into_iter().for_each(|result| result.expect("written"));
    }

    /// Reads a file.
    pub async fn read(&self, path: &str) -> Option<Vec<u8>> {
        let path = Path::new("/workspace").join(path);
        self.sandbox.read_file(&path, 0, 64 << 20).await.ok().map(|read| read.bytes)
    }

    /// Carries a request to a port, and an upgraded connection both ways.
    pub async fn forward(&self, request: Request, port: u16) -> Response {
        let Ok(mut stream) = self.sandbox.connect_port(port).await else {
            return status(StatusCode::BAD_GATEWAY);
        };
        let mut head = "GET / HTTP/1.1\r\nhost: sandbox\r\n".to_owned();
        // The header that let the client in is not for the port.
        for (name, value) in
            request.headers().iter().filter(|(name, _)| !["host", "authorization"].contains(&name.as_str()))
        {
            head += &format!("{name}: {}\r\n", value.to_str().expect("text"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).await.expect("the port takes it");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(_) => return status(StatusCode::BAD_GATEWAY),
            }
        }
        let answer = String::from_utf8(answer).expect("text");
        let code: u16 = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        if code == 101 {
            tokio::spawn(async move {
                let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut stream).await;
            });
        }
        let mut response = Response::builder().status(code);
        for (name, value) in answer.lines().filter_map(|line| line.split_once(": ")) {
            response = response.header(name, value);
        }
        response.body(Body::empty()).expect("a response")
    }

    /// Returns what a provider keeps of a machine that is stopped: its files.
    pub async fn disk(&self) -> Vec<u8> {
        self.execute("tar cf - -C / workspace home/agent").await.1
    }

    /// Puts those files back.
    pub async fn restore(&self, disk: Vec<u8>) {
        self.write("/tmp/disk.tar", disk).await;
        let (code, _, said) = self.execute("tar xf /tmp/disk.tar -C / && rm /tmp/disk.tar").await;
        // The directories themselves belong to the machine.
        assert!(code == 0 || code == 2, "{}", String::from_utf8_lossy(&said));
    }

    /// Ends it.
    pub async fn remove(&self) {
        self.sandbox.shutdown().await;
        self.backend.destroy(&self.spec.session).await.expect("the machine is removed");
    }
}

/// An empty answer.
pub fn status(code: StatusCode) -> Response {
    Response::builder().status(code).body(Body::empty()).expect("a response")
}

/// The parts of a `multipart/form-data` body: name and content.
pub fn parts(content_type: &str, body: &[u8]) -> Vec<(String, Vec<u8>)> {
    let boundary = content_type.split("boundary=").nth(1).expect("a boundary").trim_matches('"');
    let mark = format!("--{boundary}");
    let find =
        |bytes: &[u8], text: &str| bytes.windows(text.len()).position(|window| window == text.as_bytes());
    let (mut parts, mut rest) = (Vec::new(), body);
    while let Some(begin) = find(rest, &mark) {
        rest = &rest[begin + mark.len()..];
        let Some(end) = find(rest, &mark) else { break };
        let part = &rest[2..end - 2];
        let head = find(part, "\r\n\r\n").expect("a head");
        let text = String::from_utf8_lossy(&part[..head]).into_owned();
        let name = text.split("name=\"").nth(1).and_then(|name| name.split('"').next()).expect("a name");
        parts.push((name.to_owned(), part[head + 4..].to_vec()));
    }
    parts
}
