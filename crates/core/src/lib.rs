//! The turn loop: a conversation with a model that calls tools, and what ends it.
//!
//! Knows no terminal and no backend: it asks a [`ChatModel`](agent_model::ChatModel), runs [`tools`](agent_tools) in a
//! [`Sandbox`](agent_sandbox::Sandbox) that its [`Environment`] provides, and emits [`Events`](agent_event::Events).

mod asked;
mod budget;
mod calculation;
mod calls;
mod check_feedback;
mod compaction;
mod conversation;
mod edit_repair;
mod environment;
mod expected_output;
mod failing_line;
mod failure_hints;
mod governed;
mod guesses;
mod images;
mod instructions;
mod interrupt;
mod limits;
mod nudge;
mod overwrite;
mod program_input;
mod progress;
mod prompt;
mod repetition;
mod second_opinion;
mod sent_with_prompt;
mod skills;
mod small_model;
mod start_over;
mod syntax_guard;
mod syntax_repair;
mod turn;
mod unfinished;
mod window;

pub use budget::{Budget, Shared};
pub use conversation::{Answer, Conversation, Earlier, Setup};
pub use environment::{Environment, Moment};
pub use governed::Governed;
pub use interrupt::{Interrupt, Stop};
pub use limits::{DEFAULT_MAX_TURNS, Price, RunLimits, Spent};
pub use prompt::{SandboxFacts, system_prompt};
pub use skills::{Presence, Skill, Skills};
pub use window::Window;
