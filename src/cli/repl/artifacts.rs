//! `/artifacts`: the pictures and files of the session.

use super::{Flow, Repl};
use crate::cli::artifacts::SessionArtifacts;
use crate::error::{Error, Result};
use crate::log::Store;
use crate::sanitise::one_line;
use std::path::Path;

impl Repl<'_> {
    pub(super) fn artifacts(&self, arguments: &str) -> Result<Flow> {
        let session = SessionArtifacts::read(&Store::open(&self.config.machine)?, self.session.id().clone())?;
        let words = shell_words::split(arguments)
            .map_err(|error| Error::usage("the arguments could not be read").caused_by(error))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => match session.list() {
                list if list.is_empty() => self.remark("no tool has produced anything yet"),
                list => self.screen.say(&list),
            },
            ["show", names @ ..] => {
                let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
                for artifact in session.chosen(&names)? {
                    self.screen.show_artifact(self.session.id().as_str(), artifact);
                }
            }
            ["open", name] => {
                session.open(name, &self.config.machine, &self.config.programs())?;
            }
            ["get", name, rest @ ..] if rest.len() < 2 => {
                let written = session.get(&[(*name).to_owned()], rest.first().map(Path::new), false)?;
                for path in written {
                    self.remark(&format!("written: {}", one_line(&path.to_string_lossy(), 200)));
                }
            }
            _ => {
                return Err(Error::usage("/artifacts cannot do that")
                    .hint("use /artifacts, /artifacts show [NAME…], /artifacts open NAME or /artifacts get NAME [PATH]"));
            }
        }
        Ok(Flow::Continue)
    }
}
