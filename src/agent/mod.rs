//! The agent: the turn loop, the conversation and what ends it.
//!
//! Knows no screen and no Docker: it asks a [`ChatModel`](crate::model::ChatModel), runs [`tools`](crate::tools)
//! in a [`Sandbox`](crate::sandbox::Sandbox) and says what happens through [`Events`](crate::event::Events).

mod checkpoints;
mod compaction;
mod interrupt;
mod limits;
mod prompt;
mod repetition;
mod session;
mod startup;
mod turn;

pub use compaction::Window;
pub use interrupt::{Interrupt, Stop};
pub use limits::{DEFAULT_MAX_TURNS, Price, RunLimits, Spent};
pub use prompt::{SandboxFacts, system_prompt};
pub use session::{Answer, Earlier, Session, Setup};
pub use startup::{OnStarting, Ready, Source, Starting, Startup};
