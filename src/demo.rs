//! The recorded sessions that `agent demo` replays, embedded in the binary. `examples/README.md` describes them.

use crate::error::Result;
use crate::log::recording::Recording;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// The name on the command line and of the file.
    pub name: &'static str,
    /// The recorded session, one event a line.
    pub lines: &'static str,
}

/// The tasks in order.
pub const TASKS: [Task; 5] = [
    Task { name: "pi", lines: include_str!("../examples/demo/pi.jsonl") },
    Task { name: "factorial", lines: include_str!("../examples/demo/factorial.jsonl") },
    Task { name: "fibonacci", lines: include_str!("../examples/demo/fibonacci.jsonl") },
    Task { name: "sum", lines: include_str!("../examples/demo/sum.jsonl") },
    Task { name: "fix", lines: include_str!("../examples/demo/fix.jsonl") },
];

impl Task {
    pub fn recording(&self) -> Result<Recording> {
        Recording::parse(self.name, self.lines)
    }
}
