//! Every backend there is, behind one door: a test that is written over a sandbox runs on all of them.

use agent::event::Limits;
use agent::sandbox::docker::Docker;
use agent::sandbox::local::Local;
use agent::sandbox::{
    Backend, Command, Finished, Network, Outcome, Output, Program, Sandbox, Spec, WorkspaceMount,
};
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// A further backend is measured by adding it here.
pub const BACKENDS: [&str; 2] = ["local", "docker"];
/// Limits the suite to one backend, so that it can be pointed at an engine (`DOCKER_HOST`).
const ONLY: &str = "AGENT_TEST_BACKEND";
/// The engine's runtime that the docker backend uses.
const RUNTIME: &str = "AGENT_TEST_RUNTIME";
/// Says to a process of this test program that it runs as an ordinary user, for whom only `local` is tried.
const ORDINARY: &str = "AGENT_TEST_AS_ORDINARY_USER";
/// That user; it needs no entry in `/etc/passwd`.
const ORDINARY_ID: u32 = 12_345;

/// A fresh sandbox, seen from the host.
pub struct Inside {
    pub backend: &'static str,
    pub spec: Spec,
    pub sandbox: Sandbox,
}

/// How a command ended, and what it said on both streams.
#[derive(Debug)]
pub struct Ran {
    pub finished: Finished,
    pub bytes: Vec<u8>,
    pub gap: u64,
}

impl Ran {
    pub fn outcome(&self) -> Outcome {
        self.finished.outcome
    }

    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.bytes).trim_end().to_owned()
    }
}

/// Runs `test` in a fresh sandbox of every backend; of the local one as whoever runs the tests and, where that is root, as an
/// ordinary user too.
pub async fn everywhere(test: impl AsyncFn(&Inside)) {
    everywhere_with(|_| {}, test).await;
}

/// The same, with sandboxes that are asked for in a certain way.
pub async fn everywhere_with<F: AsyncFn(&Inside)>(ask: impl Fn(&mut Spec), test: F) {
    let is_ordinary = std::env::var_os(ORDINARY).is_some();
    for name in BACKENDS.into_iter().filter(|name| !is_ordinary || *name == "local") {
        let Some(backend) = backend(name).await else { continue };
        eprintln!("on {name}");
        let mut spec = spec();
        ask(&mut spec);
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        let inside = Inside { backend: name, spec, sandbox };
        test(&inside).await;
        inside.end().await;
    }
    if !is_ordinary && is_root() && std::env::var_os(ONLY).is_none() {
        again_as_ordinary_user(std::any::type_name::<F>());
    }
}

/// The same for a test of the whole program, which gets the backend's name.
pub fn whole_program_everywhere<F: Fn(&'static str)>(test: F) {
    let is_ordinary = std::env::var_os(ORDINARY).is_some();
    for name in BACKENDS.into_iter().filter(|name| !is_ordinary || *name == "local") {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        if runtime.block_on(backend(name)).is_some() {
            eprintln!("on {name}");
            test(name);
        }
    }
    if !is_ordinary && is_root() && std::env::var_os(ONLY).is_none() {
        again_as_ordinary_user(std::any::type_name::<F>());
    }
}

fn is_root() -> bool {
    // SAFETY: only reads the process's credentials.
    unsafe { libc::geteuid() == 0 }
}

/// This test once more, in a process of an ordinary user's. `place` is the path of something in the test's function.
fn again_as_ordinary_user(place: &str) {
    let name = place.split("::{{closure}}").next().and_then(|path| path.split_once("::")).expect("a test").1;
    let home = tempfile::Builder::new().prefix("agent-ordinary-").tempdir().expect("a home");
    std::os::unix::fs::chown(home.path(), Some(ORDINARY_ID), Some(ORDINARY_ID)).expect("the user's own");
    // The user may have no way to where the binary was built.
    let binary = home.path().join("agent-binary");
    let linked = std::fs::hard_link(super::agent::binary(), &binary);
    linked.or_else(|_| std::fs::copy(super::agent::binary(), &binary).map(drop)).expect("the binary");
    let output = std::process::Command::new("/proc/self/exe")
        .args([name, "--exact", "--nocapture"])
        .env(ORDINARY, "1")
        .env(super::agent::BINARY, &binary)
        .env("HOME", home.path())
        .env("AGENT_HOME", home.path().join("agent"))
        .current_dir(home.path())
        .stdin(std::process::Stdio::null())
        .uid(ORDINARY_ID)
        .gid(ORDINARY_ID)
        .output()
        .expect("a second process");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "as an ordinary user:\n{said}");
}

/// The backend, or `None` (with one line) where this machine has none and none is required.
pub async fn backend(name: &str) -> Option<Box<dyn Backend>> {
    if std::env::var(ONLY).is_ok_and(|only| only != name) {
        return None;
    }
    match name {
        "local" => Some(Box::new(Local)),
        _ => match Docker::connect().await {
            Ok(docker) => Some(Box::new(docker)),
            Err(error) if std::env::var_os("AGENT_TEST_REQUIRE_DOCKER").is_some() => panic!("{error}"),
            Err(error) => {
                eprintln!("not tried on docker: {error}");
                None
            }
        },
    }
}

/// A sandbox of its own for each test.
pub fn spec() -> Spec {
    Spec {
        session: format!("suite-{}-{}", std::process::id(), fastrand::u32(..)),
        image: None,
        limits: Limits::default(),
        network: Network::None,
        runtime: std::env::var(RUNTIME).ok(),
        idle_ttl: Duration::from_secs(20),
        ephemeral: true,
        delete_after: None,
        workspace: WorkspaceMount::Empty,
    }
}

impl Inside {
    /// A further sandbox of the same backend, by another session.
    pub async fn neighbour(&self) -> Inside {
        let backend = backend(self.backend).await.expect("it was there a moment ago");
        let spec = Spec { session: spec().session, ..self.spec.clone() };
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        Inside { backend: self.backend, spec, sandbox }
    }

    /// Ends it, with all that is in it.
    pub async fn end(self) {
        let backend = backend(self.backend).await.expect("it was there a moment ago");
        self.sandbox.shutdown().await;
        backend.destroy(&self.spec.session).await.expect("the sandbox goes");
    }

    /// Whether memory is limited for all processes together: a local sandbox is weaker where it may make no control groups.
    pub fn has_memory_group(&self) -> bool {
        let weaknesses = || agent::sandbox::local::checks().weaknesses;
        self.backend != "local" || !weaknesses().iter().any(|weakness| weakness.contains("memory"))
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: Command) -> Ran {
        let (mut bytes, mut gap) = (Vec::new(), 0);
        let finished = self
            .sandbox
            .run(command, &mut |output| match output {
                Output::Data(_, piece) => bytes.extend_from_slice(piece),
                Output::Gap(missing) => gap += missing,
            })
            .await
            .expect("the sandbox answers");
        Ran { finished, bytes, gap }
    }

    /// Runs shell text, however it ends.
    pub async fn sh(&self, text: &str) -> Ran {
        self.run(shell(text)).await
    }

    /// What shell text says that has to succeed, without the last newline.
    pub async fn said(&self, text: &str) -> String {
        let ran = self.sh(text).await;
        assert_eq!(ran.outcome(), Outcome::Exited(0), "on {}: {text}: {}", self.backend, ran.said());
        ran.said()
    }

    /// What Python says.
    pub async fn python(&self, code: &str) -> String {
        assert!(!code.contains('\''), "the shell's quotes");
        self.said(&format!("/usr/bin/python3 -c '{code}'")).await
    }

    /// Fails the test where the command succeeds.
    pub async fn refused(&self, text: &str) {
        let ran = self.sh(text).await;
        assert_ne!(ran.outcome(), Outcome::Exited(0), "on {}: {text}: {}", self.backend, ran.said());
    }
}

/// What shell text says that has to succeed, without the last newline.
pub async fn said(sandbox: &Sandbox, text: &str) -> String {
    let mut bytes = Vec::new();
    let finished = sandbox
        .run(shell(text), &mut |output| {
            if let Output::Data(_, piece) = output {
                bytes.extend_from_slice(piece);
            }
        })
        .await
        .expect("the sandbox answers");
    let said = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    assert_eq!(finished.outcome, Outcome::Exited(0), "{text}: {said}");
    said
}

/// Shell text as a command with a minute to run in.
pub fn shell(text: &str) -> Command {
    Command {
        program: Program::Shell(text.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        live_bytes: 1 << 20,
        stdin: false,
    }
}
