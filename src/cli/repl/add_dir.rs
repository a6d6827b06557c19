//! `/add-dir`: a further directory for the session, which continues in a sandbox that shows it.

use super::{Flow, Repl};
use crate::error::{Error, Result};
use crate::log::Store;
use crate::session::{Frontend, Resume};
use crate::workspace::AddedDirectory;
use crate::workspace::added;
use std::sync::Arc;
use tokio::task::spawn_blocking;

impl Repl<'_> {
    pub(super) async fn add_dir(&mut self, text: &str) -> Result<Flow> {
        let known = self.session.added().to_vec();
        if text.trim().is_empty() {
            match known.is_empty() {
                true => self.remark("no directory was added: /add-dir DIR, or DIR:ro to read it alone"),
                false => known.iter().for_each(|directory| self.remark(&directory.to_string())),
            }
            return Ok(Flow::Continue);
        }
        let directory = AddedDirectory::named(text.trim(), &self.config.machine)?;
        if known.iter().any(|other| other.path == directory.path && (directory.read_only || !other.read_only))
        {
            self.remark(&format!("{} was added already", directory.path.display()));
            return Ok(Flow::Continue);
        }
        // Refused before anything ends.
        let others = known.iter().filter(|other| other.path != directory.path).cloned();
        let all: Vec<AddedDirectory> = others.chain([directory.clone()]).collect();
        added::check(&all, &self.config.workspace, &self.config.machine)?;
        if self.session.plan().is_read_only() && !directory.read_only {
            return Err(Error::usage("nothing can be written to while a plan is made")
                .hint(format!("add it as {}:ro, or after the plan", directory.path.display())));
        }
        if directory.read_only {
            let (path, machine) = (directory.path.clone(), Arc::clone(&self.config.machine));
            spawn_blocking(move || added::read_only_mount(&path, &machine))
                .await
                .map_err(|error| Error::unexpected(error.to_string()))??;
        }
        let (store, id) = (Store::open(&self.config.machine)?, self.session.id().clone());
        // What the user's own commands and jobs changed since the last prompt.
        self.session.checkpoints().save().await?;
        // The sandbox's mounts are made when it starts.
        self.session.finish(&Ok(())).await?;
        self.console.events().close_log();
        let mut options = self.config.options.clone();
        options.copy.add_dir.push(text.trim().to_owned());
        if let Err(error) = self.reopen(Resume::open(&store, id.clone())?, &options, false).await {
            // The session goes on as it was.
            self.console.events().close_log();
            self.reopen(Resume::open(&store, id)?, &self.config.options, false).await?;
            return Err(error);
        }
        self.remark(&format!(
            "{directory} was added: the sandbox is started again with the session's changes, without its processes and what is in no diff"
        ));
        Ok(Flow::Continue)
    }
}
