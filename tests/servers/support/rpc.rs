//! A hostile or plain client of a server that speaks JSON-RPC on standard input and output.

use agent_testbed::agent::{Agent, DEADLINE, agent};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that runs, and the way to it. It is killed when this is dropped.
pub struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    _root: Arc<TempDir>,
}

impl Server {
    pub fn start(call: Agent, arguments: &[&str]) -> Self {
        let (mut command, root) = call.args(arguments).into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { stdin: child.stdin.take(), child, lines, _root: root }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("open").write_all(bytes).expect("the server reads");
    }

    /// The next message.
    pub fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(DEADLINE).expect("an answer in time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The next answers, whatever is notified between them.
    pub fn answers(&mut self, count: usize) -> Vec<Value> {
        let mut answers = Vec::new();
        while answers.len() < count {
            let message = self.next();
            if message.get("method").is_none() {
                answers.push(message);
            }
        }
        answers
    }

    /// Kills it, as a machine that runs out of memory does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Closes its input and waits until it has ended: its exit code.
    pub fn end(mut self) -> i32 {
        drop(self.stdin.take());
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("waiting") {
                return status.code().unwrap_or(-1);
            }
            assert!(started.elapsed() < DEADLINE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends `input` to a server, waits for so many answers, and has it end without an error.
pub fn exchange(call: Agent, arguments: &[&str], input: impl AsRef<[u8]>, count: usize) -> Vec<Value> {
    let mut server = Server::start(call, arguments);
    server.send(input.as_ref());
    let answers = server.answers(count);
    assert_eq!(server.end(), 0);
    answers
}

/// [`exchange`] with a plain call.
pub fn send(arguments: &[&str], input: impl AsRef<[u8]>, count: usize) -> Vec<Value> {
    exchange(agent(), arguments, input, count)
}

/// Messages, one a line.
pub fn lines(messages: &[Value]) -> String {
    messages.iter().map(|message| format!("{message}\n")).collect()
}

/// The answer to request `id`.
pub fn answer(answers: &[Value], id: u64) -> &Value {
    let found = answers.iter().find(|answer| answer["id"] == id);
    found.unwrap_or_else(|| panic!("no answer to {id} in {answers:?}"))
}
