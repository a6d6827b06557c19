//! What was given on the command line, as plain data.

use crate::approval::Approve;
use crate::backends::SandboxChoice;
use crate::cli::ui::pictures::Images;
use crate::workspace::Mode;
use std::path::PathBuf;

/// What was given on the command line, of all that any command takes: `Config::load` adds the other sources.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub model: Option<String>,
    pub base_url: Option<String>,
    pub provider: Option<String>,
    pub workspace: Option<PathBuf>,
    pub workspace_mode: Option<Mode>,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub sandbox: Option<SandboxChoice>,
    pub image: Option<String>,
    pub runtime: Option<String>,
    pub kube_context: Option<String>,
    pub network: Option<String>,
    pub memory: Option<String>,
    pub cpus: Option<f64>,
    pub pids: Option<u64>,
    pub disk: Option<String>,
    pub timeout: Option<String>,
    pub env: Vec<String>,
    pub max_turns: Option<u64>,
    pub max_tokens_total: Option<u64>,
    pub max_cost: Option<f64>,
    pub max_time: Option<String>,
    pub approve: Option<Approve>,
    pub delegate: Option<bool>,
    pub keep: bool,
    pub ttl: Option<String>,
    pub delete_after: Option<String>,
    pub record: Option<PathBuf>,
    pub replay: Option<PathBuf>,
    pub check: Vec<String>,
    pub check_attempts: Option<u32>,
    pub check_timeout: Option<String>,
    pub apply: bool,
    pub plan: bool,
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
    pub images: Option<Images>,
}

/// Options that several commands share; `arguments.rs` has them.
pub trait Group {
    fn add_to(&self, options: &mut Options);
}

impl Options {
    /// What a command was given in its groups.
    pub fn of(groups: &[&dyn Group]) -> Self {
        let mut options = Self::default();
        for group in groups {
            group.add_to(&mut options);
        }
        options
    }
}
