//! `agent mcp --listen`, running.

use agent_testbed::agent::Agent;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

pub struct McpServer {
    pub child: Child,
    pub url: String,
    _root: Arc<TempDir>,
}

impl McpServer {
    /// `more` are options besides the address.
    pub fn listening(call: Agent, address: &str, more: &[&str]) -> Self {
        let (mut command, root) = call.args(["mcp", "--listen", address]).args(more).into_command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        stderr.read_line(&mut line).expect("the address");
        let url = line.trim().strip_prefix("listening on ").expect(&line).to_owned();
        Self { child, url, _root: root }
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
