//! What a session needs from whoever drives it: a terminal, a script, an editor, a web page.

use crate::approval::Approver;
use crate::error::Result;
use crate::event::{Event, Events};
use std::sync::Arc;

/// Drives a session: receives its events, answers its questions, shows its progress.
pub trait Frontend: Send + Sync {
    /// Where events go, with every listener of the frontend's own attached. The session file joins as the first one.
    fn events(&self) -> &Arc<Events>;

    /// Answers questions. `None`: there is nobody to ask, and what needs an answer is refused.
    fn approver(&self) -> Option<Arc<dyn Approver>> {
        None
    }

    /// Shows how far a long step is.
    fn progress(&self, _step: Step<'_>) {}

    /// A notice that is shown even where others are not: what becomes of the work depends on it.
    fn always_notice(&self, text: String) -> Result<()> {
        self.events().emit(Event::Notice { text })
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
}
