//! The built-in tools, one file each.

mod edit_file;
mod job_kill;
mod job_output;
mod missing_file;
mod nearest;
mod read_file;
mod run_commands;
mod update_plan;
mod write_file;
mod write_files;

pub use read_file::{Section, read_lines};
pub use update_plan::UpdatePlan;
pub use write_file::json_error;

use super::{Tool, code::RunCode};
use agent_sandbox::Sandbox;
use std::path::{Path, PathBuf};
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

/// The absolute path in the sandbox. Models write `workspace/a` for `/workspace/a`, which it is unless there is a directory
/// of that name.
async fn resolve(sandbox: &Sandbox, path: &str) -> PathBuf {
    let path = Path::new(path);
    match path.strip_prefix("workspace") {
        Ok(inner) if sandbox.stat(&sandbox.locate(Path::new("workspace"))).await.is_err() => {
            sandbox.workspace().join(inner)
        }
        _ => sandbox.locate(path),
    }
}

/// The files that a write to `path` may reach, for the policy: see [`resolve`].
fn targets<'a>(path: &'a str, data: &'a str) -> Vec<(&'a str, &'a str)> {
    let inner = Path::new(path).strip_prefix("workspace").ok().and_then(Path::to_str);
    std::iter::once(path).chain(inner).map(|path| (path, data)).collect()
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
