//! The interface that a session needs from the program that drives it: a terminal, a script, an editor, a web page.

use agent_base::error::Result;
use agent_event::{Event, Events, Listener};
use agent_policy::Approver;
use std::sync::Arc;

/// Drives a session: receives its events, answers its questions, shows its progress.
pub trait Frontend: Send + Sync {
    /// The session's bus, with the frontend's listeners attached. The session file is added as the first listener.
    fn events(&self) -> &Arc<Events>;

    /// Answers questions. `None`: there is nobody to ask, and what needs an answer is refused.
    fn approver(&self) -> Option<Arc<dyn Approver>> {
        None
    }

    /// Returns whether the user is there to be asked about connections of a sandbox whose network nobody has named. Otherwise it
    /// has none.
    fn asks_about_network(&self) -> bool {
        false
    }

    /// Returns what the user types to allow the sandbox more hosts, for messages.
    fn network_command(&self) -> &'static str {
        "--network"
    }

    /// Returns what the user types, with a port, to reach a server in the sandbox.
    fn forward_command(&self) -> &'static str {
        "agent forward"
    }

    /// Listeners for the events of a session to which this one's model delegates a part of its work, as number `number` of them.
    fn listeners_of_delegate(&self, number: u64) -> Vec<Box<dyn Listener>> {
        let _ = number;
        Vec::new()
    }

    /// Shows how far a long step is.
    fn progress(&self, _step: Step<'_>) {}

    /// A notice that is shown even if others are not: the user's work depends on it.
    fn always_notice(&self, text: String) -> Result<()> {
        self.events().emit(Event::Notice { text })
    }
}

/// Events alone: a session without a user, which refuses what needs an answer.
impl Frontend for Arc<Events> {
    fn events(&self) -> &Arc<Events> {
        self
    }
}

/// A step that takes long enough to show.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// An image is pulled: its name or layer, bytes done, bytes in all.
    Pull(&'a str, u64, u64),
    /// The workspace is copied into the sandbox: bytes done, bytes in all.
    Copy(u64, u64),
    /// A check runs: its command.
    Check(&'a str),
    /// The workspace is prepared: by this command.
    Setup(&'a str),
}
