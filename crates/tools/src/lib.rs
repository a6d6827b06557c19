//! The tools that the model may call.
//!
//! A tool's description is a file in `prompts/tools/` and its JSON Schema comes from its argument type, so what the
//! model reads and what is accepted cannot differ.

pub mod arguments;
mod builtin;
pub mod code;
mod content;
mod outcome;
mod output;
mod plan;
mod registry;
mod tool;

pub use builtin::{Located, Section, UpdatePlan, json_error, locate, read_lines};
pub use content::ToolResult;
pub use outcome::{NO_OUTPUT, command_result, describe, ending, report_limits};
pub use output::{Collected, Collector};
pub use plan::Plan;
pub use registry::Registry;
pub use tool::{Bounds, Context, Reach, Tool};
