//! Everything that happens in a session is an event: one enum, one serialisation, one order.
//!
//! The turn loop, the tools and the network proxy emit [`Event`]s on the session's [`Events`] bus. The bus numbers each
//! one, serialises it once, writes it to the session file and queues it for every other listener: the terminal, `--json`,
//! `--record`, a replay's comparison.

mod arguments;
mod bus;
mod call_form;
mod content;
pub mod json;
pub mod lenient_json;
mod opaque;
mod queue;
mod record;
mod types;

pub use arguments::Arguments;
pub use bus::{Events, Listener, Subscription};
pub use call_form::CallForm;
pub use content::{Artifact, Content, FileEdit};
pub use opaque::Opaque;
pub use record::{Record, now};
pub use types::{
    AddedDirectory, Changes, Event, Limits, PlanStep, SandboxInfo, StepStatus, Stream, ToolCall, Usage,
};
