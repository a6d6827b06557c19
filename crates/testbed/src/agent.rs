//! Drives the real binary: `agent().args(["run", "hi"]).endpoint(&endpoint).run()`.

use agent_testing::endpoint::Endpoint;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything that a test starts may take unless the test sets another limit.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// The variable with another path of the binary, for a process that cannot reach the one it was built at.
pub const BINARY: &str = "AGENT_TEST_BINARY";

/// The binary that cargo built for these tests: in the directory above that of the tests' own program.
pub fn binary() -> PathBuf {
    std::env::var_os(BINARY).map_or_else(|| profile_directory().join("agent"), PathBuf::from)
}

/// The directory for what tests keep from run to run, which cargo names only to the tests themselves (`CARGO_TARGET_TMPDIR`).
pub fn kept_directory() -> PathBuf {
    profile_directory().with_file_name("tmp")
}

/// The directory of what cargo built, such as `target/debug`.
fn profile_directory() -> PathBuf {
    let program = std::env::current_exe().expect("the tests' own program");
    program.ancestors().nth(2).expect("the directory above that of the tests' program").to_owned()
}

/// A call of the binary, with its own home and workspace. Of the caller's environment it gets only `PATH`.
pub fn agent() -> Agent {
    let root = TempDir::new().expect("a temporary directory");
    let workspace = root.path().join("workspace");
    std::fs::create_dir(&workspace).expect("a workspace");
    let mut command = Command::new(binary());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", root.path().join("home"))
        .env("AGENT_HOME", root.path().join("agent"))
        .current_dir(&workspace);
    if crate::backends::is_vm() {
        share_images(&root.path().join("agent/cache"));
    }
    // The local backend is always available; tests of the other one name it.
    command.env("AGENT_SANDBOX", "local");
    Agent {
        command,
        stdin: Input::Empty,
        full: Full::default(),
        deadline: DEADLINE,
        root: Arc::new(root),
        workspace,
    }
}

/// Lets the program in whose cache directory this is use the images of virtual machines that are there for all tests.
pub fn share_images(cache: &Path) {
    let images = crate::backends::vm_cache();
    std::fs::create_dir_all(&images).expect("a directory of images");
    std::fs::create_dir_all(cache).expect("a cache directory");
    std::os::unix::fs::symlink(images, cache.join("vm")).expect("a link");
}

/// A call that is being configured.
pub struct Agent {
    command: Command,
    stdin: Input,
    full: Full,
    deadline: Duration,
    root: Arc<TempDir>,
    workspace: PathBuf,
}

/// The streams that go to a full disk.
#[derive(Default)]
struct Full {
    stdout: bool,
    stderr: bool,
}

enum Input {
    Empty,
    Bytes(Vec<u8>),
    Open,
}

impl Agent {
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Has `program` start it, with these arguments before the command.
    pub fn under(mut self, program: &str, arguments: &[&OsStr]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.command.get_program()).args(self.command.get_args()).env_clear();
        command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.command.get_current_dir().unwrap_or(&self.workspace));
        self.command = command;
        self
    }

    /// Configures the scripted endpoint, with a key and a model.
    pub fn endpoint(self, endpoint: &Endpoint) -> Self {
        self.env("AGENT_BASE_URL", endpoint.url())
            .env("AGENT_API_KEY", "test-key")
            .env("AGENT_MODEL", "test-model")
    }

    /// Runs `program` in the place of the binary, with its variables and in its workspace; `AGENT_BINARY` names the binary.
    pub fn driven_by(mut self, program: &Path) -> Self {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.workspace).env("AGENT_BINARY", binary());
        for (name, value) in self.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        self.command = command;
        self
    }

    pub fn sandbox(mut self, backend: &str) -> Self {
        if backend == "kubernetes" {
            let kubeconfig = crate::cluster::kubeconfig().expect("a cluster");
            return crate::cluster::configured(self, &kubeconfig, "default");
        }
        // The engine that the suite is pointed at.
        let engine = ["DOCKER_HOST", "XDG_RUNTIME_DIR"].map(|name| (name, std::env::var_os(name)));
        let runtime = ("AGENT_RUNTIME", std::env::var_os(crate::backends::RUNTIME));
        let engine = engine.into_iter().chain([runtime]).filter_map(|(name, value)| Some((name, value?)));
        let is_engine = backend == "docker";
        self = engine.filter(|_| is_engine).fold(self, |call, (name, value)| call.env(name, value));
        let provider = crate::backends::shared_provider(backend);
        let call = self.env("AGENT_SANDBOX", backend);
        provider.iter().fold(call, |call, (name, value)| call.env(name, value))
    }

    /// Puts a file into the workspace.
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.workspace.join(path);
        std::fs::create_dir_all(path.parent().expect("a file has a directory")).expect("the directory");
        std::fs::write(path, content).expect("the file");
        self
    }

    /// Writes the user's `config.toml`.
    pub fn config(self, text: &str) -> Self {
        let directory = self.home("config");
        std::fs::create_dir_all(&directory).expect("the directory");
        std::fs::write(directory.join("config.toml"), text).expect("the file");
        self
    }

    /// Passes `bytes` on standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Input::Bytes(bytes.into());
        self
    }

    /// Leaves standard input open and silent.
    pub fn stdin_open(mut self) -> Self {
        self.stdin = Input::Open;
        self
    }

    /// Sends standard output to a full disk.
    pub fn stdout_full(mut self) -> Self {
        self.full.stdout = true;
        self
    }

    /// Sends standard error to a full disk.
    pub fn stderr_full(mut self) -> Self {
        self.full.stderr = true;
        self
    }

    /// Starts it as `nohup` does: SIGHUP is ignored.
    pub fn nohup(mut self) -> Self {
        // SAFETY: what runs between fork and exec is one system call.
        unsafe {
            self.command.pre_exec(|| match libc::signal(libc::SIGHUP, libc::SIG_IGN) {
                libc::SIG_ERR => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        self
    }

    /// File permissions apply to it even if root runs the tests.
    pub fn without_permission_override(mut self) -> Self {
        const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
        const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
        // SAFETY: what runs between fork and exec is two system calls. They fail for a user without these capabilities, who does not need them.
        unsafe {
            self.command.pre_exec(|| {
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0);
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH, 0, 0, 0);
                Ok(())
            });
        }
        self
    }

    /// How long the call may take; the default is [`DEADLINE`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it in another directory.
    pub fn current_dir(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// A directory that the binary keeps for itself: `data`, `config`, `cache`, `run`.
    pub fn home(&self, name: &str) -> PathBuf {
        self.root.path().join("agent").join(name)
    }

    /// Another call with the same home and workspace.
    pub fn again(&self) -> Agent {
        let mut next = agent();
        next.command.env("HOME", self.root.path().join("home"));
        next.command.env("AGENT_HOME", self.root.path().join("agent"));
        next.command.current_dir(&self.workspace);
        Agent {
            command: next.command,
            stdin: Input::Empty,
            full: Full::default(),
            deadline: DEADLINE,
            root: Arc::clone(&self.root),
            workspace: self.workspace.clone(),
        }
    }

    /// The command, for a test that starts it itself, and what has to live as long as it runs.
    pub fn into_command(self) -> (Command, Arc<TempDir>) {
        (self.command, self.root)
    }

    /// Runs it and waits until it has ended.
    pub fn run(self) -> Finished {
        self.start().wait()
    }

    /// Runs it with a standard output that nobody reads: the reader is closed before the first line.
    pub fn run_with_closed_stdout(mut self) -> Finished {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        self.command.stdout(writer).stderr(Stdio::piped()).stdin(Stdio::null());
        let output = self.command.output().expect("the binary runs");
        Finished {
            code: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or_default()),
            took: Duration::ZERO,
            stdout: String::new(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            call: self,
        }
    }

    /// Starts it without waiting.
    pub fn start(mut self) -> Running {
        self.command.stdout(output(self.full.stdout)).stderr(output(self.full.stderr));
        self.command.stdin(if matches!(self.stdin, Input::Empty) { Stdio::null() } else { Stdio::piped() });
        let mut child = self.command.spawn().expect("the binary starts");
        let stdout = read(child.stdout.take());
        let stderr = read(child.stderr.take());
        if let Input::Bytes(bytes) = std::mem::replace(&mut self.stdin, Input::Empty) {
            let mut stdin = child.stdin.take().expect("piped");
            // Beside the waiting, which has a deadline. A binary that does not read its input closes the pipe.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        Running { child, stdout, stderr, call: self }
    }
}

/// A pipe, or a full disk.
fn output(full: bool) -> Stdio {
    match full {
        true => std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full").into(),
        false => Stdio::piped(),
    }
}

fn read(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// A running call. Killed after its deadline.
pub struct Running {
    child: Child,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
    call: Agent,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child is ours and not waited for yet, so the pid is still valid.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// A directory that the binary keeps for itself.
    pub fn home(&self, name: &str) -> PathBuf {
        self.call.home(name)
    }

    /// Another call with the same home and workspace.
    pub fn again(&self) -> Agent {
        self.call.again()
    }

    /// Waits until a session of its home has an event with `text`.
    pub fn wait_for_event(&self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        let sessions = self.home("data").join("sessions");
        let has = |path: PathBuf| {
            std::fs::read_to_string(path.join("events.jsonl")).is_ok_and(|events| events.contains(text))
        };
        while !std::fs::read_dir(&sessions).is_ok_and(|mut all| all.any(|entry| has(entry.unwrap().path()))) {
            assert!(Instant::now() < deadline, "no event has {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until it has ended.
    pub fn wait(mut self) -> Finished {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waiting") {
                break status;
            }
            if started.elapsed() > self.call.deadline {
                let _ = self.child.kill();
                let stderr = self.stderr.join().unwrap_or_default();
                panic!(
                    "agent did not end in {:?}:\n{}",
                    self.call.deadline,
                    String::from_utf8_lossy(&stderr)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let text = |bytes: JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&bytes.join().expect("reading")).into_owned()
        };
        Finished {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            took: started.elapsed(),
            stdout: text(self.stdout),
            stderr: text(self.stderr),
            call: self.call,
        }
    }
}

/// A call that has ended.
pub struct Finished {
    /// The exit code; 128 plus the signal if one ended it.
    pub code: i32,
    /// Wall time since the wait began.
    pub took: Duration,
    pub stdout: String,
    pub stderr: String,
    call: Agent,
}

impl Finished {
    /// Fails the test and shows all output unless this is the exit code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// The lines of `--json`, each of which the published schema accepts.
    pub fn events(&self) -> Vec<Value> {
        let schema = serde_json::from_str(include_str!("../../../docs/reference/events.schema.json"))
            .expect("the schema is JSON");
        let validator = jsonschema::validator_for(&schema).expect("the schema is valid");
        let parse = |line: &str| {
            let event = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(validator.is_valid(&event), "the schema does not know {line}");
            event
        };
        self.stdout.lines().map(parse).collect()
    }

    /// The events of one type.
    pub fn events_of(&self, name: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["type"] == name).collect()
    }

    /// The current content of a file of the host's workspace.
    pub fn host_file(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.call.workspace.join(path)).ok()
    }

    /// Another call with the same home and workspace.
    pub fn again(&self) -> Agent {
        self.call.again()
    }
}
