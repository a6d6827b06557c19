//! The turn loop: a conversation with a model that calls tools, and what ends it.
//!
//! Knows no terminal and no backend: it asks a [`ChatModel`](agent_model::ChatModel), runs [`tools`](agent_tools) in a
//! [`Sandbox`](agent_sandbox::Sandbox) that its [`Environment`] provides, and emits [`Events`](agent_event::Events).

mod ask;
mod assist;
mod blank;
mod budget;
mod cache_watch;
mod calls;
mod compaction;
mod contents;
mod conversation;
mod environment;
mod governed;
mod images;
mod instructions;
mod interrupt;
mod limits;
mod order;
mod prompt;
mod repetition;
mod skills;
mod start_over;
mod turn;
mod window;

pub use agent_model::{Costs, Price};
pub use assist::{AfterCall, Assist, At, BeforeCall, FailedCheck, NewPrompt, PromptHelp, ToolUse};
pub use budget::{Budget, Shared};
pub use contents::Part;
pub use conversation::{Answer, Conversation, Earlier, Setup};
pub use environment::{Environment, Moment};
pub use governed::Governed;
pub use instructions::not_followed as instructions_not_followed;
pub use interrupt::{Interrupt, Stop};
pub use limits::{DEFAULT_MAX_TURNS, RunLimits, Spent};
pub use prompt::{Checkout, SandboxFacts, system_prompt};
pub use skills::{Presence, Skill, Skills};
pub use window::Window;
