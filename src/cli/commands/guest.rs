//! `agent guest`: the program that runs in every sandbox, for images that are to have it already.

use crate::cli::options::Options;
use crate::cli::print::print;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sandbox::bootstrap;
use clap::{Args, Subcommand};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// `agent guest`
#[derive(Debug, Args)]
pub struct GuestArgs {
    #[command(subcommand)]
    command: GuestCommand,
}

/// Subcommands for the guest.
#[derive(Debug, Subcommand)]
enum GuestCommand {
    /// Write it to a file, which must not exist
    Export {
        /// The file
        file: PathBuf,
    },
}

/// Writes the guest to a file.
pub fn guest(machine: &Machine, arguments: &GuestArgs) -> Result<ExitCode> {
    let GuestCommand::Export { file } = &arguments.command;
    let guest = bootstrap::bytes(machine)?;
    write(file, &guest).map_err(|error| {
        Error::usage(format!("the guest cannot be written to {}", file.display())).caused_by(error)
    })?;
    let id = bootstrap::id(&guest);
    let text = format!("wrote the guest {id}, {} bytes; only this build of agent can use it\n", guest.len());
    print(&Options::default(), &text, &json!({ "id": id, "bytes": guest.len() }))
}

fn write(path: &Path, guest: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(path)?;
    file.write_all(guest)
}
