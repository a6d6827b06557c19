//! The built-in tools, one file each.

mod declared_encoding;
mod edit_file;
mod job_kill;
mod job_output;
mod location;
mod missing_file;
mod nearest;
mod read_file;
mod replacement;
mod run_commands;
mod update_plan;
mod write_file;
mod write_files;

pub use location::{Located, locate};
pub use read_file::{Section, read_lines};
pub use update_plan::UpdatePlan;
pub use write_file::json_error;

use super::{Tool, code::RunCode};
use std::sync::Arc;

/// All of them, in the order in which the model reads about them.
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(read_file::ReadFile),
        Arc::new(write_file::WriteFile),
        Arc::new(write_files::WriteFiles),
        Arc::new(edit_file::EditFile),
        Arc::new(run_commands::RunCommands),
        Arc::new(RunCode::new(None, None)),
        Arc::new(job_output::JobOutput),
        Arc::new(job_kill::JobKill),
    ]
}

/// The parts of [`Tool`] that follow from a built-in tool's name and its argument type.
macro_rules! describe {
    ($name:literal, $description:ident, $arguments:ty) => {
        fn name(&self) -> &str {
            $name
        }

        fn description(&self) -> &str {
            agent_prompts::tools::$description
        }

        fn parameters(&self) -> ::serde_json::Value {
            $crate::arguments::schema::<$arguments>()
        }
    };
}
use describe;
