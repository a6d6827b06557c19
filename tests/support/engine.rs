//! Real containers for tests: the engine, and sandboxes in them.

use agent::sandbox::docker::Docker;
use agent::sandbox::{Backend, Command, Finished, Output, Program, Sandbox, Spec};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for an event that must happen.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The engine; without one the test is left out, or fails if `AGENT_TEST_REQUIRE_DOCKER` is set.
pub async fn engine() -> Option<Docker> {
    match Docker::connect(super::machine()).await {
        Ok(docker) => Some(docker),
        Err(error) if std::env::var_os("AGENT_TEST_REQUIRE_DOCKER").is_some() => {
            panic!("AGENT_TEST_REQUIRE_DOCKER is set, but {error}")
        }
        Err(error) => {
            super::skip::left_out(format!("no Docker engine: {error}"));
            None
        }
    }
}

/// The default specification, with a new session id for each call.
pub fn spec() -> Spec {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Spec { idle_ttl: Duration::from_secs(2), ..Spec::new(format!("test-{}-{count}", std::process::id())) }
}

pub struct Running {
    pub docker: Docker,
    pub spec: Spec,
    pub sandbox: Sandbox,
}

impl Running {
    /// Starts a sandbox and connects to its guest.
    pub async fn start(docker: &Docker, spec: Spec) -> Running {
        let (channel, info) = docker.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        assert_eq!(info.backend, "docker");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        Running { docker: docker.clone(), spec, sandbox }
    }

    /// The text that a shell command prints on either stream, without the last newline.
    pub async fn sh(&self, text: &str) -> String {
        let (finished, output) = run(&self.sandbox, text).await;
        assert!(matches!(finished.outcome, agent::sandbox::Outcome::Exited(_)), "{text}: {finished:?}");
        output.trim_end().to_owned()
    }

    /// Removes it and checks that nothing is left.
    pub async fn destroy(self) {
        self.docker.destroy(&self.spec.session).await.expect("the sandbox is removed");
        assert!(!sandbox_exists(&self.docker, &self.spec.session).await, "the sandbox is gone");
    }
}

pub async fn run(sandbox: &Sandbox, text: &str) -> (Finished, String) {
    let command = Command {
        program: Program::Shell(text.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(DEADLINE),
        live_bytes: 1 << 20,
        stdin: false,
    };
    let mut output = Vec::new();
    let finished = sandbox
        .run(command, &mut |piece| {
            if let Output::Data(_, bytes) = piece {
                output.extend_from_slice(bytes);
            }
        })
        .await
        .expect("the command runs");
    (finished, String::from_utf8_lossy(&output).into_owned())
}

/// Returns whether the session has a sandbox.
pub async fn sandbox_exists(docker: &Docker, session: &str) -> bool {
    let list = docker.list().await.expect("the engine lists");
    list.iter().any(|listed| listed.session == session)
}

pub async fn wait_until_removed(docker: &Docker, session: &str) {
    let start = Instant::now();
    while sandbox_exists(docker, session).await {
        assert!(start.elapsed() < DEADLINE, "the sandbox of {session} is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Listens at `socket` and passes everything on to the engine at `docker`, but for the first `refusals` requests for a container, which it
/// answers with `message`.
pub fn refusing_engine(socket: &Path, docker: PathBuf, refusals: usize, message: &'static str) {
    let listener = UnixListener::bind(socket).unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (docker, refused) = (docker.clone(), Arc::clone(&refused));
            std::thread::spawn(move || pass_on(client, &docker, (&refused, refusals), message));
        }
    });
}

fn pass_on(mut client: UnixStream, docker: &Path, (refused, refusals): (&AtomicUsize, usize), message: &str) {
    let answer = serde_json::json!({ "message": message }).to_string();
    let Ok(mut engine) = UnixStream::connect(docker) else { return };
    let (mut from, mut to) = (engine.try_clone().unwrap(), client.try_clone().unwrap());
    let answers = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = client.read(&mut piece) {
        let head = String::from_utf8_lossy(&piece[..length.min(200)]);
        let is_creation = head.starts_with("POST ") && head.contains("/containers/create");
        if is_creation && refused.fetch_add(1, Ordering::SeqCst) < refusals {
            let head =
                "HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\nconnection: close";
            let _ = write!(client, "{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
            let _ = client.shutdown(Shutdown::Both);
            break;
        }
        if engine.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = engine.shutdown(Shutdown::Write);
    let _ = answers.join();
}
