//! Output and input: the trace, the answer, the progress, the prompt and `--json`. It knows events, and neither sessions nor
//! sandboxes nor the command line.

#![allow(clippy::disallowed_methods, reason = "the terminal is here")]

pub mod clipboard;
pub mod confirm;
pub mod editor;
pub mod edits;
pub mod file_names;
pub mod host_programs;
pub mod input;
pub mod json;
pub mod line_editor;
pub mod live;
pub mod markdown;
pub mod notify;
pub mod pager;
pub mod picker;
pub mod pictures;
pub mod progress;
pub mod read;
pub mod rows;
pub mod screen;
pub mod status_line;
pub mod stderr;
pub mod style;
pub mod terminal;
pub mod trace;
pub mod typing;
pub mod wrap;
