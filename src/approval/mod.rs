//! Asking before something happens: the rules that judge a tool call, and the user who decides.

pub mod policy;

/// When the user is asked before a tool runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// Never: the sandbox is the protection.
    #[default]
    Never,
    /// Where a policy rule says `ask`.
    Risky,
    /// Before every command and every write.
    Always,
}
