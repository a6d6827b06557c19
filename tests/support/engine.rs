//! Real containers for tests: the engine, and sandboxes in them.

use agent::sandbox::docker::Docker;
use agent::sandbox::{Backend, Command, Finished, Output, Program, Sandbox, Spec};
use std::sync::atomic::{AtomicU32, Ordering};
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
