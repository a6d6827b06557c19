//! Many tasks, each in a session and a sandbox of its own, in one process.
//!
//! [`read_tasks`] reads and checks the task file, [`Output`] is the directory with the results, which makes an interrupted batch
//! continue where it stopped, and [`Batch`] runs what has no result yet. A [`Limiter`](agent_model::Limiter) and a [`Budget`](agent_core::Budget) are shared by all
//! sessions; [`report`] writes what other programs read.

mod output;
mod pace;
pub mod race;
pub mod report;
mod result;
mod runner;
mod scheduler;
mod status;
mod task;
mod task_file;
mod workspace;

pub use output::Output;
pub use result::{CheckOutcome, Summary, TaskResult, Work};
pub use runner::Models;
pub use scheduler::{Batch, Halt, Observer, Settings, Update};
pub use status::{Running, Status};
pub use task::{Task, TaskLimits};
pub use task_file::{TaskFile, read_tasks};
