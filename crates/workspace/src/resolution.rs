//! The user's decisions about files that cannot be merged, for the host's version that they were asked about.

use crate::manifest::Node;
use crate::tree_path::TreePath;
use std::collections::BTreeMap;

/// The decision about writing a file that both sides changed in the same lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The host keeps its version, and the sandbox gets it.
    Ours,
    /// The host gets the sandbox's version.
    Theirs,
    /// Both get both versions, with conflict markers around the lines.
    Markers,
    /// As [`Resolution::Markers`], in the sandbox alone: the model decides there, and the host's version is what its change is
    /// held against from now on.
    Revise,
}

/// A decision. It does not hold for a version of the host's that appears later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub resolution: Resolution,
    /// The host's version at that time; `None` if it had none.
    pub found: Option<Node>,
}

/// The decisions, by file.
pub type Resolutions = BTreeMap<TreePath, Decided>;

/// A file that an apply cannot write without a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecided {
    pub path: TreePath,
    /// The reason, to stand after a colon.
    pub reason: String,
    /// The host's version; `None` if it has none.
    pub found: Option<Node>,
    /// Set if conflict markers are possible: both are text.
    pub can_mark: bool,
}

/// The versions that both sides have of a file once an apply has merged or decided it.
#[derive(Debug, Clone)]
pub(crate) struct Settled {
    pub(crate) on_host: Option<Node>,
    pub(crate) inside: Option<Node>,
}
