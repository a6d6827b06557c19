//! The built-in tools, one file each.

mod edit_file;
mod job_kill;
mod job_output;
mod read_file;
mod run_commands;
mod write_file;
mod write_files;

use super::Tool;
use std::sync::Arc;

/// All of them, in the order in which the model reads about them.
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(read_file::ReadFile),
        Arc::new(write_file::WriteFile),
        Arc::new(write_files::WriteFiles),
        Arc::new(edit_file::EditFile),
        Arc::new(run_commands::RunCommands),
        Arc::new(job_output::JobOutput),
        Arc::new(job_kill::JobKill),
    ]
}

/// The parts of [`Tool`] that follow from a built-in tool's name and its argument type.
macro_rules! describe {
    ($name:literal, $arguments:ty) => {
        fn name(&self) -> &str {
            $name
        }

        fn description(&self) -> &str {
            include_str!(concat!("../../../prompts/tools/", $name, ".md"))
        }

        fn parameters(&self) -> ::serde_json::Value {
            $crate::tools::arguments::schema::<$arguments>()
        }
    };
}
use describe;
