//! Asking before something happens: the rules that judge a tool call, and the user who decides.

pub mod policy;
