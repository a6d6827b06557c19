//! All integration tests in one binary: it links once.

mod support;
mod workspace_apply;
