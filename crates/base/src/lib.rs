//! Foundations that everything else stands on: errors and exit codes, facts of this machine, hashes, text that is made safe
//! to show, files of `agent`'s own.

pub mod alike_text;
pub mod count_text;
pub mod duration_text;
pub mod error;
pub mod exit_code;
pub mod exit_status;
pub mod file_lock;
pub mod file_name;
pub mod front_matter;
pub mod hash;
pub mod head_writer;
pub mod host_git;
pub mod host_process;
pub mod host_program;
pub mod lock;
pub mod machine;
pub mod mention;
pub mod paths;
pub mod plain_file;
pub mod process_id;
pub mod random;
pub mod sanitise;
pub mod secret_scan;
pub mod shorten;
pub mod text_encoding;
#[cfg(feature = "tls")]
pub mod tls;
pub mod utf8_stream;
pub mod visible;

pub use error::{Error, Result};
