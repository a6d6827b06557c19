//! Runs a test on every backend.

use agent_base::machine::Machine;
use agent_cloud::{Cloud, Daytona, E2B, E2b, NOVITA, Runloop};
use agent_docker::Docker;
use agent_sandbox::local::Local;
use agent_sandbox::{
    Backend, Command, Finished, Outcome, Output, Program, Sandbox, Spec, WorkspaceMount, sandbox_ids,
    session_ids,
};
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::time::Duration;

pub const BACKENDS: [&str; 2] = ["local", "docker"];
/// Those, a cluster where one is named (`AGENT_TEST_KUBECONFIG`), and the providers' backends, on made-up providers whose machines are
/// local sandboxes.
pub const BACKENDS_AND_PROVIDERS: [&str; 8] =
    ["local", "docker", "kubernetes", "e2b", "novita", "daytona", "runloop", "modal"];
/// Those, and virtual machines where `AGENT_TEST_BACKEND=vm` points the suite at them: each takes seconds to boot where its processor is
/// emulated.
pub const EVERYTHING: [&str; 9] =
    ["local", "docker", "kubernetes", "e2b", "novita", "daytona", "runloop", "modal", "vm"];
/// Limits the suite to one backend, so that it can be pointed at an engine (`DOCKER_HOST`).
const ONLY_BACKEND: &str = "AGENT_TEST_BACKEND";
/// The engine's runtime that the docker backend uses.
pub const RUNTIME: &str = "AGENT_TEST_RUNTIME";
/// Set in a process of this test program that runs as an ordinary user, which tests only `local`.
pub const AS_ORDINARY_USER: &str = "AGENT_TEST_AS_ORDINARY_USER";
/// That user's id, which needs no entry in `/etc/passwd`.
const ORDINARY_UID: u32 = 12_345;

/// Returns whether this process runs the tests as an ordinary user beside root.
pub fn is_ordinary_user() -> bool {
    std::env::var_os(AS_ORDINARY_USER).is_some()
}

/// A fresh sandbox of one backend.
pub struct TestSandbox {
    pub backend: &'static str,
    pub spec: Spec,
    pub sandbox: Sandbox,
}

/// How a command ended, and its output on both streams.
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

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).trim_end().to_owned()
    }
}

/// Runs `test` in a fresh sandbox of every backend; of the local one as the current
/// user and, if that is root, as an ordinary user too.
pub async fn on_every_backend(test: impl AsyncFn(&TestSandbox)) {
    on_every_backend_with(|_| {}, test).await;
}

/// [`on_every_backend`] with a changed [`Spec`].
pub async fn on_every_backend_with<F: AsyncFn(&TestSandbox)>(change: impl Fn(&mut Spec), test: F) {
    on_backends_with(backends(), change, test).await;
}

/// Those of the suite: a cluster is tested only where the suite is pointed at it.
fn backends() -> &'static [&'static str] {
    match std::env::var(ONLY_BACKEND).as_deref() {
        Ok("kubernetes") => &["kubernetes"],
        Ok("vm") => &["vm"],
        _ => &BACKENDS,
    }
}

/// [`on_every_backend`], those of providers included.
pub async fn on_every_backend_and_provider(test: impl AsyncFn(&TestSandbox)) {
    on_backends_with(&BACKENDS_AND_PROVIDERS, |_| {}, test).await;
}

/// [`on_every_backend`], those of providers and virtual machines included.
pub async fn on_everything(test: impl AsyncFn(&TestSandbox)) {
    on_backends_with(&EVERYTHING, |_| {}, test).await;
}

/// Runs `test` with a changed [`Spec`] on the backends of these names.
pub async fn on_backends_with<F: AsyncFn(&TestSandbox)>(
    names: &[&'static str],
    change: impl Fn(&mut Spec),
    test: F,
) {
    let is_ordinary = is_ordinary_user();
    for name in names.iter().copied().filter(|name| !is_ordinary || *name == "local") {
        let Some(backend) = backend(name).await else { continue };
        eprintln!("on {name}");
        let mut spec = spec();
        change(&mut spec);
        if ["kubernetes", "vm"].contains(&name) && spec.workspace != WorkspaceMount::Empty {
            agent_testing::skip::left_out(format!(
                "not tested on {name}: nothing of this machine can be mounted"
            ));
            continue;
        }
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        let inside = TestSandbox { backend: name, spec, sandbox };
        test(&inside).await;
        inside.destroy().await;
    }
    if !is_ordinary && is_root() && std::env::var_os(ONLY_BACKEND).is_none() {
        rerun_as_ordinary_user(std::any::type_name::<F>());
    }
}

/// [`on_every_backend`] for a test of the whole program, which gets the backend's name.
pub fn program_on_every_backend(test: impl Fn(&'static str)) {
    program_on_backends(backends(), test);
}

/// [`on_every_backend_and_provider`] for a test of the whole program, which gets the backend's name.
pub fn program_on_every_backend_and_provider(test: impl Fn(&'static str)) {
    program_on_backends(&BACKENDS_AND_PROVIDERS, test);
}

fn program_on_backends<F: Fn(&'static str)>(names: &[&'static str], test: F) {
    let is_ordinary = is_ordinary_user();
    for name in names.iter().copied().filter(|name| !is_ordinary || *name == "local") {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        if runtime.block_on(backend(name)).is_some() {
            eprintln!("on {name}");
            test(name);
        }
    }
    if !is_ordinary && is_root() && std::env::var_os(ONLY_BACKEND).is_none() {
        rerun_as_ordinary_user(std::any::type_name::<F>());
    }
}

pub fn is_root() -> bool {
    // SAFETY: only reads the process's credentials.
    unsafe { libc::geteuid() == 0 }
}

/// Runs the current test again in a process of an ordinary user. `place` is the type name of something in the test's
/// function.
fn rerun_as_ordinary_user(place: &str) {
    let name = place.split("::{{closure}}").next().and_then(|path| path.split_once("::")).expect("a test").1;
    let home = tempfile::Builder::new().prefix("agent-ordinary-").tempdir().expect("a home");
    std::os::unix::fs::chown(home.path(), Some(ORDINARY_UID), Some(ORDINARY_UID)).expect("the user's own");
    // The user may not be able to reach the path where the binary was built.
    let binary = home.path().join("agent-binary");
    let linked = std::fs::hard_link(crate::agent::binary(), &binary);
    linked.or_else(|_| std::fs::copy(crate::agent::binary(), &binary).map(drop)).expect("the binary");
    let output = std::process::Command::new("/proc/self/exe")
        .args([name, "--exact", "--nocapture"])
        .env(AS_ORDINARY_USER, "1")
        .env(crate::agent::BINARY, &binary)
        .env("HOME", home.path())
        .env("AGENT_HOME", home.path().join("agent"))
        .current_dir(home.path())
        .stdin(std::process::Stdio::null())
        .uid(ORDINARY_UID)
        .gid(ORDINARY_UID)
        .output()
        .expect("a second process");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "as an ordinary user:\n{printed}");
}

/// The backend, or `None` (with one line) if this machine has none and none is required.
pub async fn backend(name: &str) -> Option<Box<dyn Backend>> {
    if std::env::var(ONLY_BACKEND).is_ok_and(|only| only != name) {
        return None;
    }
    match name {
        "local" => Some(Box::new(Local::new(agent_testing::machine()))),
        "e2b" => Some(Box::new(e2b(&crate::e2b::shared().url, crate::e2b::KEY))),
        "novita" => Some(Box::new(novita(&crate::e2b::shared().url, crate::e2b::KEY))),
        "daytona" => Some(Box::new(daytona(&crate::daytona::shared().api_url(), crate::daytona::KEY))),
        "runloop" => Some(Box::new(runloop(&crate::runloop::shared().url, crate::runloop::KEY))),
        "modal" => Some(Box::new(modal(&crate::modal::shared().url, crate::modal::TOKEN_SECRET))),
        "vm" => virtual_machines().map(|vm| Box::new(vm) as Box<dyn Backend>),
        "kubernetes" => crate::cluster::backend().await,
        _ => match Docker::connect(agent_testing::machine()).await {
            Ok(docker) => Some(Box::new(docker)),
            Err(error) if std::env::var_os("AGENT_TEST_REQUIRE_DOCKER").is_some() => panic!("{error}"),
            Err(error) => {
                agent_testing::skip::left_out(format!("not tested on docker: {error}"));
                None
            }
        },
    }
}

/// The backend of virtual machines, or `None` (with one line) where the suite is not pointed at them, or this machine can make none and none
/// is required.
pub fn virtual_machines() -> Option<agent_vm::Vm> {
    if !is_vm() {
        agent_testing::skip::left_out(
            "not tested on vm: AGENT_TEST_BACKEND=vm points the suite at virtual machines",
        );
        return None;
    }
    let machine = agent_testing::machine();
    agent_vm::Settings { cache: Some(vm_cache()), ..Default::default() }.keep(&machine);
    match agent_vm::Vm::connect(machine) {
        Ok(vm) => Some(vm),
        Err(error) if std::env::var_os("AGENT_TEST_REQUIRE_VM").is_some() => panic!("{error}"),
        Err(error) => {
            agent_testing::skip::left_out(format!("not tested on vm: {error}"));
            None
        }
    }
}

/// Returns whether the suites are pointed at virtual machines.
pub fn is_vm() -> bool {
    std::env::var(ONLY_BACKEND).is_ok_and(|only| only == "vm")
}

/// Where all tests keep the images of virtual machines, which take a minute to make.
pub fn vm_cache() -> std::path::PathBuf {
    crate::agent::kept_directory().join("vm")
}

/// The variables that name the provider at `url`, and its key.
fn variables(provider: &str, url: &str, key: &str) -> Vec<(&'static str, String)> {
    let (urls, keys): (&[_], &[_]) = match provider {
        "e2b" => (&["E2B_API_URL", "E2B_SANDBOX_URL"], &[("E2B_API_KEY", key)]),
        "novita" => (&["NOVITA_API_URL", "NOVITA_SANDBOX_URL"], &[("NOVITA_API_KEY", key)]),
        "daytona" => (&["DAYTONA_API_URL"], &[("DAYTONA_API_KEY", key)]),
        "runloop" => (&["RUNLOOP_BASE_URL"], &[("RUNLOOP_API_KEY", key)]),
        "modal" => (
            &["MODAL_SERVER_URL"],
            &[("MODAL_TOKEN_ID", crate::modal::TOKEN_ID), ("MODAL_TOKEN_SECRET", key)],
        ),
        _ => (&[], &[]),
    };
    let urls = urls.iter().map(|name| (*name, url.to_owned()));
    urls.chain(keys.iter().map(|(name, key)| (*name, (*key).to_owned()))).collect()
}

/// The variables with which the program uses the made-up provider of [`backend`].
pub fn shared_provider(name: &str) -> Vec<(&'static str, String)> {
    match name {
        "e2b" | "novita" => variables(name, &crate::e2b::shared().url, crate::e2b::KEY),
        "daytona" => variables(name, &crate::daytona::shared().api_url(), crate::daytona::KEY),
        "runloop" => variables(name, &crate::runloop::shared().url, crate::runloop::KEY),
        "modal" => variables(name, &crate::modal::shared().url, crate::modal::TOKEN_SECRET),
        _ => Vec::new(),
    }
}

/// The backend of E2B at `url`.
pub fn e2b(url: &str, key: &str) -> Cloud<E2b> {
    let machine = machine_with(variables("e2b", url, key));
    Cloud::new(E2b::connect(&E2B, &machine).expect("a provider"), machine)
}

/// The backend of Novita at `url`.
pub fn novita(url: &str, key: &str) -> Cloud<E2b> {
    let machine = machine_with(variables("novita", url, key));
    Cloud::new(E2b::connect(&NOVITA, &machine).expect("a provider"), machine)
}

/// The backend of Daytona at `url`.
pub fn daytona(url: &str, key: &str) -> Cloud<Daytona> {
    let machine = machine_with(variables("daytona", url, key));
    Cloud::new(Daytona::connect(&machine).expect("a provider"), machine)
}

/// The backend of Runloop at `url`.
pub fn runloop(url: &str, key: &str) -> Cloud<Runloop> {
    let machine = machine_with(variables("runloop", url, key));
    Cloud::new(Runloop::connect(&machine).expect("a provider"), machine)
}

/// The backend of Modal at `url`.
pub fn modal(url: &str, secret: &str) -> Cloud<agent_cloud::Modal> {
    let machine = machine_with(variables("modal", url, secret));
    Cloud::new(agent_cloud::Modal::connect(&machine).expect("a provider"), machine)
}

/// This machine with these variables beside its own.
pub fn machine_with(set: Vec<(&'static str, String)>) -> Arc<Machine> {
    let set = set.into_iter().map(|(name, value)| (name.into(), value.into()));
    Arc::new(Machine::new(std::env::vars_os().chain(set)))
}

/// The specification of a sandbox for one test.
pub fn spec() -> Spec {
    Spec {
        runtime: std::env::var(RUNTIME).ok(),
        idle_ttl: Duration::from_secs(20),
        ..Spec::new(format!("suite-{}-{}", std::process::id(), fastrand::u32(..)))
    }
}

impl TestSandbox {
    /// The user and group inside: the session's own, or with an engine that cannot give it any, those of all sessions.
    pub async fn ids(&self) -> (u32, u32) {
        let said = self.output_of("id -u; id -g").await;
        let mut numbers = said.lines().map(|line| line.parse().expect("a number"));
        let ids = (numbers.next().expect("a user"), numbers.next().expect("a group"));
        // The suite is pointed at other engines by that variable.
        let is_other_engine = self.backend == "docker" && std::env::var_os(ONLY_BACKEND).is_some();
        let own = match (self.backend, &self.spec.workspace) {
            ("docker", WorkspaceMount::Bind(_)) => sandbox_ids(),
            // Its own on every cluster, also for an ordinary user; in a virtual machine there is no other.
            ("kubernetes" | "vm", _) => ids,
            _ => session_ids(&self.spec.session),
        };
        assert!(ids == own || is_other_engine && ids == sandbox_ids(), "{ids:?}");
        ids
    }

    /// Returns whether a process whose parent has ended still counts as its command's. gVisor before 2023 has no subreapers
    /// (`PR_SET_CHILD_SUBREAPER`), which that takes: see `SECURITY.md`.
    pub async fn has_subreapers(&self) -> bool {
        self.python("import ctypes\nprint(ctypes.CDLL(None).prctl(36, 1, 0, 0, 0))").await == "0"
    }

    /// Returns whether gVisor takes the place of this machine's kernel.
    pub fn is_gvisor(&self) -> bool {
        self.spec.runtime.as_deref() == Some("runsc")
    }

    /// Another session's sandbox of the same backend.
    pub async fn neighbour(&self) -> TestSandbox {
        let backend = backend(self.backend).await.expect("it was available before");
        let spec = Spec { session: spec().session, ..self.spec.clone() };
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        TestSandbox { backend: self.backend, spec, sandbox }
    }

    pub async fn destroy(self) {
        let backend = backend(self.backend).await.expect("it was available before");
        self.sandbox.shutdown().await;
        backend.destroy(&self.spec.session).await.expect("the sandbox is removed");
    }

    /// Returns whether one memory limit holds for all processes together: not in a local sandbox without control groups.
    pub fn has_memory_group(&self) -> bool {
        let weaknesses = || agent_sandbox::local::checks().weaknesses;
        self.backend != "local" || !weaknesses().iter().any(|weakness| weakness.contains("memory"))
    }

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

    /// Runs shell text, which may fail.
    pub async fn sh(&self, text: &str) -> Ran {
        self.run(shell(text)).await
    }

    /// The output of shell text that has to succeed, without the last newline.
    pub async fn output_of(&self, text: &str) -> String {
        let ran = self.sh(text).await;
        assert_eq!(ran.outcome(), Outcome::Exited(0), "on {}: {text}: {}", self.backend, ran.text());
        ran.text()
    }

    /// The output of a Python program.
    pub async fn python(&self, code: &str) -> String {
        assert!(!code.contains('\''), "the code is quoted for the shell");
        self.output_of(&format!("/usr/bin/python3 -c '{code}'")).await
    }

    /// Fails the test if the command succeeds.
    pub async fn expect_failure(&self, text: &str) {
        let ran = self.sh(text).await;
        assert_ne!(ran.outcome(), Outcome::Exited(0), "on {}: {text}: {}", self.backend, ran.text());
    }
}

/// The output of shell text that has to succeed, without the last newline.
pub async fn output_of(sandbox: &Sandbox, text: &str) -> String {
    let mut bytes = Vec::new();
    let finished = sandbox
        .run(shell(text), &mut |output| {
            if let Output::Data(_, piece) = output {
                bytes.extend_from_slice(piece);
            }
        })
        .await
        .expect("the sandbox answers");
    let printed = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    assert_eq!(finished.outcome, Outcome::Exited(0), "{text}: {printed}");
    printed
}

/// Shell text as a command with a timeout of a minute.
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
