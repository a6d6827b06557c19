//! Terminals of a session's sandbox in the page: each a shell with a pseudo-terminal, which any number of tabs see.
//!
//! A tab asks for a terminal with its token and gets the name of a socket, which is good once and for a short time:
//! a browser sends no header of ours with the request for a WebSocket (`socket.rs`).

mod api;
mod handshake;
mod running;
mod scrollback;
mod socket;
mod tickets;

pub use api::{close, open};
pub use running::Terminal;
pub use socket::{MAX_SOCKETS, connect};
pub use tickets::Tickets;

use agent_base::error::{Error, Kind, Result};
use agent_base::lock::Lock;
use agent_sandbox::wire::TerminalSize;
use agent_sandbox::{Command, Program, Sandbox};
use serde_json::{Value, json};
use std::sync::Arc;

/// Terminals of one session.
const MAX_TERMINALS: usize = 4;
/// Columns and rows of the largest.
const MAX_SIDE: u16 = 1_000;

/// The shell that runs in a terminal: no file of the sandbox has to set a prompt.
const SHELL: &str =
    r"command -v bash >/dev/null && PS1='\[\e[1;36m\]\w\[\e[0m\] \$ ' exec bash; PS1='$ ' exec sh -i";

/// The terminals of one session.
#[derive(Default)]
pub struct Terminals(Lock<TerminalTable>);

#[derive(Default)]
struct TerminalTable {
    open: Vec<Arc<Terminal>>,
    started: u64,
}

impl Terminals {
    /// Starts a shell in `sandbox`. `watch` is called when the terminal was used, and with `true` when it has ended.
    ///
    /// # Errors
    /// `Conflict` where there are too many; the sandbox is gone.
    pub async fn start(
        &self,
        sandbox: &Sandbox,
        size: TerminalSize,
        watch: Arc<dyn Fn(bool) + Send + Sync>,
    ) -> Result<Arc<Terminal>> {
        self.make_room()?;
        let set = |name: &str, value: &str| (name.into(), value.into());
        let command = Command {
            program: Program::Shell(SHELL.to_owned()),
            cwd: None,
            env: vec![
                set("TERM", "xterm-256color"),
                set("COLORTERM", "truecolor"),
                set("NO_COLOR", ""),
                set("CI", ""),
                set("GIT_TERMINAL_PROMPT", "1"),
                set("DEBIAN_FRONTEND", "dialog"),
                set("PIP_NO_INPUT", "0"),
            ],
            timeout: None,
            live_bytes: u64::MAX,
            stdin: true,
        };
        let process = sandbox.spawn_in_terminal(command, size).await?;
        let mut table = self.0.lock();
        if table.open.len() >= MAX_TERMINALS {
            return Err(too_many());
        }
        table.started += 1;
        let terminal = Terminal::follow(table.started, process, size, watch);
        table.open.push(Arc::clone(&terminal));
        Ok(terminal)
    }

    /// One that has ended is not kept for longer than there is room.
    fn make_room(&self) -> Result<()> {
        let open = &mut self.0.lock().open;
        if open.len() < MAX_TERMINALS {
            return Ok(());
        }
        let ended = open.iter().position(|terminal| terminal.has_ended()).ok_or_else(too_many)?;
        open.remove(ended);
        Ok(())
    }

    /// The terminal of this number.
    pub fn find(&self, number: u64) -> Option<Arc<Terminal>> {
        self.0.lock().open.iter().find(|terminal| terminal.number == number).cloned()
    }

    /// Ends the terminal of this number, with all that runs in it; `false` where there is none.
    pub fn close(&self, number: u64) -> bool {
        let open = &mut self.0.lock().open;
        let closed = open.iter().position(|terminal| terminal.number == number).map(|at| open.remove(at));
        closed.inspect(|terminal| terminal.close()).is_some()
    }

    /// Ends all of them.
    pub fn close_all(&self) {
        self.0.lock().open.drain(..).for_each(|terminal| terminal.close());
    }

    /// Their numbers.
    pub fn to_json(&self) -> Value {
        self.0.lock().open.iter().map(|terminal| json!(terminal.number)).collect()
    }
}

fn too_many() -> Error {
    Error::new(Kind::Conflict, format!("{MAX_TERMINALS} terminals are open already"))
        .hint("close one of them")
}

/// A size as a client gave it, within bounds.
pub fn bounded(columns: u16, rows: u16) -> TerminalSize {
    TerminalSize { columns: columns.clamp(2, MAX_SIDE), rows: rows.clamp(1, MAX_SIDE) }
}
