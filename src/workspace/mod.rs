//! The workspace: what of the host directory the sandbox works on, and how changes come back.
pub mod apply;
pub mod changes;
pub mod diff;
pub mod git_patch;
pub mod host_dir;
mod hunks;
pub mod manifest;
mod merge;
pub mod secrets;
pub mod select;
pub mod store;
pub mod tracked;
pub mod tree_path;
