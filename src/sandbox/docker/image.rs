//! An image that a sandbox can be made from, and what its container needs to know about it.

use std::path::PathBuf;

/// The label that says which images are ours; its value is `host` or the name of the image underneath.
pub(super) const LABEL: &str = "agent.image";

/// An image that holds the guest, and how to use it.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// What people call it: `host`, or the name given by `--image`.
    pub name: String,
    /// The tag to create containers from. It may not exist yet.
    pub tag: String,
    /// `PATH` inside.
    pub path: String,
    /// Variables that the toolchains inside need.
    pub env: Vec<(String, String)>,
    /// Host paths to show read-only, and where.
    pub binds: Vec<(PathBuf, PathBuf)>,
}
