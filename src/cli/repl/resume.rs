//! `/resume`: another session of this workspace continues in the place of this one.

use super::{Flow, Repl};
use crate::cli::config::Config;
use crate::cli::endpoint;
use crate::cli::open::{StartingPoint, open, resumed_options};
use crate::cli::options::Options;
use crate::cli::pick_session::pick_session;
use crate::cli::session_end::after_repl;
use crate::error::Result;
use crate::log::Store;
use crate::session::{Resume, check_workspace};

impl Repl<'_> {
    pub(super) async fn resume(&mut self, id: &str) -> Result<Flow> {
        let store = Store::open(&self.config.machine)?;
        let workspace = &self.config.workspace;
        let id = match id {
            "" => {
                let progress = self.screen.progress();
                pick_session(&store, workspace, Some(self.session.id()), progress).await?
            }
            id => Some(store.find(id)?),
        };
        let Some(id) = id else { return Ok(Flow::Continue) };
        if id == *self.session.id() {
            self.remark("this is that session already");
            return Ok(Flow::Continue);
        }
        let resume = Resume::open(&store, id)?;
        check_workspace(&resume.id, &resume.history, workspace)?;
        after_repl(self.console, self.session).await?;
        self.continue_as(resume).await?;
        Ok(Flow::Continue)
    }

    /// Ends this session, and continues as the other one.
    pub(super) async fn continue_as(&mut self, resume: Resume) -> Result<()> {
        self.reopen(resume, &self.config.options, true).await?;
        self.show_resumed();
        self.remark_on_plan();
        Ok(())
    }

    /// Continues as another session; `is_open`: the one before has not ended yet.
    pub(super) async fn reopen(&mut self, resume: Resume, options: &Options, is_open: bool) -> Result<()> {
        let options = resumed_options(&self.config.machine, Some(&resume), options)?;
        let mut config = Config::load(&self.config.machine, &options)?;
        let connected = endpoint::model(&mut config, Some(&resume)).await?;
        // Both write to the same screen, so one ends before the other begins.
        if is_open {
            self.session.finish(&Ok(())).await?;
        }
        *self.session =
            open(&config, connected.settings, StartingPoint::of(Some(resume)), self.console).await?;
        self.console.notices(connected.notices)
    }
}
