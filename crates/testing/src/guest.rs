//! The real guest as a plain child process, with a workspace of its own.

use super::link::{Link, Traffic};
use agent_sandbox::wire::{Decoder, MAGIC, Message, VERSION, encode};
use agent_sandbox::{Channel, Command, Finished, Outcome, Output, Program, Sandbox, bootstrap};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::process::Child;

/// How long a test waits for an event that must happen.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A guest process, ended when this is dropped.
pub struct Guest {
    pub sandbox: Sandbox,
    pub child: Child,
    directory: TempDir,
}

/// The guest's executable, written once a test run.
pub fn program() -> PathBuf {
    static PROGRAM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let directory = TempDir::new().expect("a temporary directory");
        let path = directory.path().join("guest");
        std::fs::write(&path, bootstrap::bytes(&crate::machine()).expect("a guest is embedded"))
            .expect("the guest is written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        (directory, path)
    });
    path.clone()
}

/// Starts `guest serve` with `arguments` and returns its standard input and output as a channel.
pub fn start(directory: &Path, arguments: &[&str]) -> (Child, Channel) {
    let workspace = directory.join("workspace");
    std::fs::create_dir_all(&workspace).expect("a workspace");
    std::fs::create_dir_all(directory.join("tmp")).expect("a temporary directory");
    let mut child = tokio::process::Command::new(program())
        .arg("serve")
        .arg("--workspace")
        .arg(workspace)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").expect("PATH is set"))
        .env("TMPDIR", directory.join("tmp"))
        .env("LC_CTYPE", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(false)
        .spawn()
        .expect("the guest starts");
    let channel = channel(&mut child);
    (child, channel)
}

/// Another client of the guest that listens at the abstract socket `name`. It ends with the child.
pub async fn attach(name: &str) -> (Child, Sandbox) {
    let mut child = tokio::process::Command::new(program())
        .args(["attach", "--socket", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the guest's program starts");
    let sandbox = Sandbox::connect(channel(&mut child)).await.expect("the guest answers");
    (child, sandbox)
}

/// Answers a host's greeting as a guest does.
pub async fn greet(stream: &mut DuplexStream) {
    let answer = answer_to_greeting(stream).await;
    stream.write_all(&answer).await.expect("a host");
}

/// Reads a host's greeting; returns what a guest answers.
pub async fn answer_to_greeting(stream: &mut DuplexStream) -> Vec<u8> {
    let mut decoder = Decoder::new();
    loop {
        match decoder.next().expect("a frame") {
            Some((0, Message::Prove { nonce })) => {
                let mut answer = Vec::new();
                let proof = Message::Proof { hash: bootstrap::proof(&nonce) };
                for message in [Message::Hello { magic: MAGIC, version: VERSION }, proof] {
                    encode(0, &message, &mut answer).expect("it fits");
                }
                return answer;
            }
            Some(frame) => assert!(matches!(frame, (0, Message::Hello { .. })), "{frame:?}"),
            None => {
                let mut buffer = [0; 64];
                let length = stream.read(&mut buffer).await.expect("a greeting");
                decoder.feed(&buffer[..length]);
            }
        }
    }
}

/// The standard input and output of a child as a channel.
pub fn channel(child: &mut Child) -> Channel {
    Channel::new(child.stdout.take().expect("a pipe"), child.stdin.take().expect("a pipe"))
}

impl Guest {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(arguments: &[&str]) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let (child, channel) = start(directory.path(), arguments);
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        Self { sandbox, child, directory }
    }

    /// A guest at the other end of a slow link.
    pub async fn start_behind(link: Link) -> (Self, Traffic) {
        let directory = TempDir::new().expect("a temporary directory");
        let (child, channel) = start(directory.path(), &[]);
        let (channel, traffic) = link.to(channel);
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        (Self { sandbox, child, directory }, traffic)
    }

    /// A guest whose traffic is counted, at the other end of a link that is as fast as a pipe.
    pub async fn start_counted() -> (Self, Traffic) {
        let directory = TempDir::new().expect("a temporary directory");
        let (child, channel) = start(directory.path(), &[]);
        let (channel, traffic) = Link { delay: Duration::ZERO, bytes_per_second: None }.to(channel);
        let channel = Channel { is_slow: false, ..channel };
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        (Self { sandbox, child, directory }, traffic)
    }

    /// A path in the workspace, as the host sees it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("workspace").join(name)
    }

    pub async fn run(&self, command: Command) -> Ran {
        let mut ran = Ran::default();
        let mut keep = |output: Output<'_>| ran.keep(output);
        let finished = self.sandbox.run(command, &mut keep).await.expect("the command starts");
        ran.finished = Some(finished);
        ran
    }

    pub async fn sh(&self, text: &str) -> Ran {
        self.run(shell(text)).await
    }

    /// The most memory that the guest has ever held, in kB.
    pub fn memory_kb(&self) -> u64 {
        let id = self.child.id().expect("the guest runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("the guest runs");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a figure");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The guest ends everything that it started before it exits.
        if let Some(id) = self.child.id() {
            signal(id as i32, libc::SIGTERM);
        }
    }
}

/// The output of a command and how it ended.
#[derive(Debug, Default)]
pub struct Ran {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub gap: u64,
    pub finished: Option<Finished>,
}

impl Ran {
    fn keep(&mut self, output: Output<'_>) {
        match output {
            Output::Data(agent_event::Stream::Stdout, bytes) => self.stdout.extend_from_slice(bytes),
            Output::Data(agent_event::Stream::Stderr, bytes) => self.stderr.extend_from_slice(bytes),
            Output::Gap(bytes) => self.gap += bytes,
        }
    }

    pub fn finished(&self) -> &Finished {
        self.finished.as_ref().expect("the command has ended")
    }

    pub fn outcome(&self) -> Outcome {
        self.finished().outcome
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Shell text as a command without limits.
pub fn shell(text: &str) -> Command {
    Command {
        program: Program::Shell(text.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: None,
        live_bytes: u64::MAX,
        stdin: false,
    }
}

/// Returns whether a process exists and is not a zombie.
pub fn is_alive(process: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

pub fn signal(process: i32, signal: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(process, signal) };
}

/// Waits until `check` holds, for at most [`DEADLINE`].
pub async fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < DEADLINE, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
