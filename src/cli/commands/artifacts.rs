//! `agent artifacts`: the pictures and files that the tools of a session produced.

use crate::cli::artifacts::SessionArtifacts;
use crate::cli::choices;
use crate::cli::config::Config;
use crate::cli::options::{DirectoryArg, JsonArg, Options};
use crate::cli::print::{offer, print};
use crate::cli::ui::pictures::{Images, Pictures};
use crate::cli::ui::stderr;
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::machine::Machine;
use crate::sanitise::one_line;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// `agent artifacts`
#[derive(Debug, Args)]
#[command(subcommand_precedence_over_arg = true)]
pub struct ArtifactsArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    output: JsonArg,
    /// The session's id or the beginning of it (default: the newest of this workspace)
    id: Option<String>,
    /// Without one: list
    #[command(subcommand)]
    command: Option<ArtifactsCommand>,
}

impl ArtifactsArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.output])
    }
}

/// Subcommands for the artifacts of a session.
#[derive(Debug, Subcommand)]
enum ArtifactsCommand {
    /// List them
    List,
    /// Copy some of them, or all, into this directory
    Get {
        /// Their names or ids, or the beginnings of ids (default: all)
        artifacts: Vec<String>,
        /// Into this directory, or as this file
        #[arg(short, long, value_name = "PATH")]
        output: Option<PathBuf>,
        /// Overwrite files that are there
        #[arg(short, long)]
        force: bool,
    },
    /// Draw some of the images, or all, in the terminal
    Show {
        /// Their names or ids, or the beginnings of ids (default: all)
        artifacts: Vec<String>,
        /// When pictures are drawn in the terminal
        #[arg(long, value_parser = choices::images(), value_name = "WHEN")]
        images: Option<Images>,
    },
    /// Open one in the program that this machine has for its type
    Open {
        /// Its name or id, or the beginning of its id
        artifact: String,
    },
}

/// Lists them, or does what was asked for.
pub fn artifacts(machine: &Arc<Machine>, arguments: ArtifactsArgs) -> Result<ExitCode> {
    let options = &arguments.options();
    let store = Store::open(machine)?;
    let config = Config::load(machine, options)?;
    let id = match &arguments.id {
        Some(id) => store.find(id)?,
        None => store.last(Some(&config.workspace))?,
    };
    let session = SessionArtifacts::read(&store, id)?;
    match arguments.command.unwrap_or(ArtifactsCommand::List) {
        ArtifactsCommand::List => {
            if session.produced.is_empty() && !options.is_json() {
                stderr::write(&format!("Session {} has no artifacts.\n", session.id));
            }
            print(options, &session.list(), &session.to_json())
        }
        ArtifactsCommand::Get { artifacts, output, force } => {
            let written = session.get(&artifacts, output.as_deref(), force)?;
            let names: Vec<String> = written.iter().map(|path| path.to_string_lossy().into_owned()).collect();
            let lines: String = names.iter().map(|name| format!("{}\n", one_line(name, 4096))).collect();
            print(options, &lines, &json!({ "session": session.id, "written": names }))
        }
        ArtifactsCommand::Show { artifacts, images } => {
            let images = images.unwrap_or_else(|| config.images());
            let mut pictures = Pictures::new(images);
            for artifact in session.chosen(&artifacts)? {
                offer(session.draw(artifact, &mut pictures).as_bytes())?;
            }
            Ok(ExitCode::Success)
        }
        ArtifactsCommand::Open { artifact } => {
            let path = session.open(&artifact, machine, &config.programs())?;
            print(options, "", &json!({ "session": session.id, "opened": path.to_string_lossy() }))
        }
    }
}
