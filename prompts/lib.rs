//! The texts that `agent` sends to models: one file each, so that they can be read and compared as prose.

/// The request for the message of a commit.
pub const COMMIT_MESSAGE: &str = include_str!("commit_message.md");
/// The request for a summary of a long conversation.
pub const COMPACT: &str = include_str!("compact.md");
/// The system prompt of the compact form.
pub const COMPACT_FORM: &str = include_str!("compact_form.md");
/// The rules of a delegated task.
pub const DELEGATED: &str = include_str!("delegated.md");
/// The prompt of `/init`.
pub const INIT: &str = include_str!("init.md");
/// The rules of plan mode.
pub const PLAN: &str = include_str!("plan.md");
/// The request for a review of a change.
pub const REVIEW: &str = include_str!("review.md");
/// The explanation of skills.
pub const SKILLS: &str = include_str!("skills.md");
/// The system prompt.
pub const SYSTEM: &str = include_str!("system.md");
/// The explanation of calls that are written as text.
pub const TOOLS_AS_TEXT: &str = include_str!("tools_as_text.md");

/// The descriptions of the built-in tools.
pub mod tools {
    /// `delegate`
    pub const DELEGATE: &str = include_str!("tools/delegate.md");
    /// `edit_file`
    pub const EDIT_FILE: &str = include_str!("tools/edit_file.md");
    /// `job_kill`
    pub const JOB_KILL: &str = include_str!("tools/job_kill.md");
    /// `job_output`
    pub const JOB_OUTPUT: &str = include_str!("tools/job_output.md");
    /// `mcp_call_tool`
    pub const MCP_CALL_TOOL: &str = include_str!("tools/mcp_call_tool.md");
    /// `mcp_list_resources`
    pub const MCP_LIST_RESOURCES: &str = include_str!("tools/mcp_list_resources.md");
    /// `mcp_read_resource`
    pub const MCP_READ_RESOURCE: &str = include_str!("tools/mcp_read_resource.md");
    /// `mcp_search_tools`
    pub const MCP_SEARCH_TOOLS: &str = include_str!("tools/mcp_search_tools.md");
    /// `read_file`
    pub const READ_FILE: &str = include_str!("tools/read_file.md");
    /// `run_code`
    pub const RUN_CODE: &str = include_str!("tools/run_code.md");
    /// `run_commands`
    pub const RUN_COMMANDS: &str = include_str!("tools/run_commands.md");
    /// `update_plan`
    pub const UPDATE_PLAN: &str = include_str!("tools/update_plan.md");
    /// `write_file`
    pub const WRITE_FILE: &str = include_str!("tools/write_file.md");
    /// `write_files`
    pub const WRITE_FILES: &str = include_str!("tools/write_files.md");
}
