//! Sessions on disk: writing, reading, verifying, listing, replaying and reporting.
//!
//! # Files
//!
//! ```text
//! <data>/sessions/<id>/              0700
//!     events.jsonl                   0600  one event a line, append-only
//!     head                           0600  how many lines there are, and the hash of the last one
//!     key                            0600  the SHA-256 of its `--session-key`, if it has one
//!     attempt_of                     0600  the session that won the race which this one lost, if it did
//!     artifacts/                     0700  files that tools produced, each named by its SHA-256
//!     workspace/                           the base, the checkpoints and their contents (`agent_workspace`)
//! <data>/keys/<SHA-256 of a key>     0600  the id of the session that belongs to a `--session-key`
//! ```
//!
//! # The format of `events.jsonl`
//!
//! JSON Lines in UTF-8, each line ended by one `\n`. A line is byte for byte what `--json` prints for the same
//! event (`docs/reference/events.schema.json`), with one more field at its end:
//!
//! ```text
//! {"seq":3,"time":"2026-11-20T15:30:12.345Z","session":"20261120-153012-k3f9","type":"turn_started","turn":1,"prev":"9f86d081…"}
//! ```
//!
//! `prev` is the SHA-256, in 64 lower-case hex digits, of the bytes of the line before, without its `\n`; 64
//! zeros in the first line. `seq` grows from line to line and skips the events that are only shown live.
//!
//! A chain of hashes cannot prove where it ends, so `head` does: `<lines, 20 digits> <hash, 64 hex digits>\n`,
//! written in place after each line. It may be one line behind (the process was killed between the two
//! writes), never ahead except after a power failure, as neither file is synced after each line. Resuming
//! a session that has fewer lines than `head` counts first writes the event `lines_lost`, which `verify` reports
//! from then on.
//!
//! A line is at most [`MAX_LINE`] bytes. A last line without its `\n`, or with NUL bytes in it, is what a power
//! failure leaves: it is dropped when the session is opened again, and nothing else ever is.
//!
//! Recordings (`--record`, `examples/demo`) are such files without a `head`. As they may be written manually,
//! `prev` may be missing in them.

mod artifacts;
mod attempts;
mod chain;
mod file;
mod history;
mod id;
mod keys;
mod lines;
pub mod list;
mod normalise;
pub mod recording;
pub mod replay;
pub mod report;
mod show;
mod store;
mod title;
mod verify;

pub use artifacts::{ArtifactLimits, Artifacts};
pub use file::{Reopened, SessionFile};
pub use history::{Finished, History};
pub use id::SessionId;
pub use lines::{Lines, MAX_LINE, read_records};
pub use normalise::normalise;
pub use recording::{Recording, ToolOutcome};
pub use show::Shown;
pub use store::Store;
pub use verify::{Fault, Verdict, verify};
