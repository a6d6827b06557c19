//! A sandbox in a container of Docker.

use agent::sandbox::docker::Docker;
use agent::sandbox::{Backend, Command, Finished, Outcome, Output, Program, Sandbox, Spec};
use agent_testbed::engine::DEADLINE;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

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
        assert!(matches!(finished.outcome, Outcome::Exited(_)), "{text}: {finished:?}");
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
