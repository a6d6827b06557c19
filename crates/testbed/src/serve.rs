//! A running `agent serve`, and the vendors' SDKs.

use crate::agent::{DEADLINE, binary};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";

/// A server on a port of its own, with a home of its own.
pub struct Server {
    child: Child,
    address: String,
    home: Arc<TempDir>,
    command: (String, Vec<String>),
    path: OsString,
}

impl Server {
    /// Starts one on `backend`, and waits until it listens.
    pub fn start(backend: &str, options: &[&str]) -> Self {
        Self::start_with_path(backend, options, std::env::var_os("PATH").unwrap_or_default())
    }

    /// Starts one whose sandboxes have the programs of another `PATH`.
    pub fn start_with_path(backend: &str, options: &[&str], path: impl Into<OsString>) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let home = Arc::new(TempDir::new().expect("a home"));
        Self::begin((backend.to_owned(), options), home, path.into())
    }

    /// Starts it again after its end.
    pub fn restart(&self) -> Self {
        Self::begin(self.command.clone(), Arc::clone(&self.home), self.path.clone())
    }

    fn begin(command: (String, Vec<String>), home: Arc<TempDir>, path: OsString) -> Self {
        let mut child = agent(home.path())
            .env("PATH", &path)
            .args(["serve", "--listen", "127.0.0.1:0", "--sandbox", &command.0])
            .args(&command.1)
            .env("AGENT_SERVE_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the server prints where it listens");
        let address = line.trim().strip_prefix("listening on http://").expect(&line).to_owned();
        Self { child, address, home, command, path }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns what `--print-env` prints for it with these further options.
    pub fn variables(&self, options: &[&str]) -> Vec<(String, String)> {
        let mut call = agent(self.home.path());
        call.args(["serve", "--print-env", "--listen", &self.address])
            .args(options)
            .env("AGENT_SERVE_KEY", KEY);
        let output = call.output().expect("the variables");
        let text = String::from_utf8(output.stdout).expect("text");
        let words = shell_words::split(&text).expect("words of a shell");
        let assignments = words.iter().filter_map(|word| word.split_once('='));
        assignments.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("its end");
    }

    /// Asks it to end; its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        // SAFETY: takes no pointer; the process is a child that was not waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        self.child.wait().expect("its end").code()
    }

    /// The sandboxes of its home, as `agent sandbox list` shows them.
    pub fn sandboxes(&self) -> Vec<String> {
        let output = agent(self.home.path()).args(["sandbox", "list", "--json"]).output().expect("the list");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let list: serde_json::Value = serde_json::from_str(&text).expect(&text);
        let is_own = |sandbox: &&serde_json::Value| sandbox["backend"] == self.command.0.as_str();
        list.as_array().expect(&text).iter().filter(is_own).map(serde_json::Value::to_string).collect()
    }

    /// The directories of the snapshots that servers of its home keep.
    pub fn kept_snapshots(&self) -> Vec<PathBuf> {
        let below =
            |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        below(self.home.path().join("agent/data/serve/snapshots")).flat_map(below).collect()
    }

    /// Waits until there are as many sandboxes.
    pub fn wait_for_sandboxes(&self, number: usize) {
        self.wait_until(|sandboxes| sandboxes.len() == number);
    }

    /// Waits until none of its sandboxes runs.
    pub fn wait_until_nothing_runs(&self) {
        self.wait_until(|sandboxes| !sandboxes.iter().any(|sandbox| sandbox.contains("\"running\"")));
    }

    fn wait_until(&self, condition: impl Fn(&[String]) -> bool) {
        let end = Instant::now() + DEADLINE;
        loop {
            let sandboxes = self.sandboxes();
            if condition(&sandboxes) {
                return;
            }
            assert!(Instant::now() < end, "{sandboxes:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stop();
        }
    }
}

/// A call of the binary with this home. Of the caller's environment it gets only `PATH`.
fn agent(home: &Path) -> Command {
    let mut command = Command::new(binary());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("AGENT_HOME", home.join("agent"))
        .current_dir(home);
    command
}

/// A vendor's SDK.
pub struct Sdk(PathBuf);

/// The SDK that `.ci/sdks` has installed under this name; `None` (with one line) where it did not, unless this is CI.
pub fn sdk(name: &str) -> Option<Sdk> {
    let target = binary().ancestors().nth(2).expect("a target directory").to_owned();
    let directory = target.join("sdks").join(name);
    if directory.join("installed").exists() {
        return Some(Sdk(directory));
    }
    agent_testing::skip::missing(format!("the SDK {name} (run .ci/sdks)"));
    None
}

impl Sdk {
    /// A file of it.
    pub fn file(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.0.join(path)).expect("a file of the SDK")
    }

    /// Runs a program of `tests/sdks` against the server, with the variables that it prints; it has to pass.
    pub fn run(&self, server: &Server, script: &str) {
        self.run_with(script, server.variables(&[]));
    }

    /// Runs a program of `tests/sdks` with these variables; it has to pass.
    pub fn run_with(&self, script: &str, variables: impl IntoIterator<Item = (String, String)>) {
        let (script, argument) = script.split_once(' ').unwrap_or((script, ""));
        let source = Path::new(agent_testing::ROOT).join("tests/sdks").join(script);
        let (program, source) = match script.ends_with(".mjs") {
            // Node looks for packages beside the program's own file.
            true => {
                let copy = self.0.join(script);
                std::fs::copy(source, &copy).expect("a copy");
                ("node", copy)
            }
            false => ("python3", source),
        };
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("PYTHONPATH", &self.0)
            .env("E2B_HTTP_VERSION", "1.1")
            .envs(variables)
            .arg(source)
            .args(Some(argument).filter(|argument| !argument.is_empty()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        let mut errors = child.stderr.take().expect("a pipe");
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).map(|_| text)
        });
        let mut printed = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("its output");
        let status = child.wait().expect("its end");
        let errors = errors.join().expect("a reader").expect("its errors");
        assert!(status.success() && printed.ends_with("passed\n"), "{script}: {status}\n{printed}{errors}");
    }
}
