//! `/plan`: planning before anything is changed.

use super::{Flow, Repl};
use crate::cli::plan::{CARRY_OUT, ask};
use crate::cli::signals::with_signals;
use crate::cli::ui::confirm::Reply;
use crate::cli::ui::trace::plan_text;
use crate::error::{Error, Result};

impl Repl<'_> {
    pub(super) async fn plan(&mut self, argument: &str) -> Result<Flow> {
        let is_read_only = self.session.plan().is_read_only();
        match argument {
            "" if !is_read_only => {
                self.session.begin_plan().await?;
                self.remark_on_plan();
            }
            "" => {
                self.screen.say(&plan_text(&self.session.plan().steps(), self.colours));
                self.remark_on_plan();
            }
            "accept" | "off" if !is_read_only => {
                self.remark("nothing waits for your consent; /plan begins to plan")
            }
            "accept" => {
                self.session.end_plan(true).await?;
                return Ok(Flow::Prompt(CARRY_OUT.to_owned()));
            }
            "off" => {
                self.session.end_plan(false).await?;
                self.remark("the workspace can be changed");
            }
            _ => {
                return Err(Error::usage(format!("/plan does not take {argument:?}"))
                    .hint("/plan begins, /plan accept carries the plan out, /plan off leaves it"));
            }
        }
        Ok(Flow::Continue)
    }

    /// Says how things stand, while the workspace is read-only.
    pub(super) fn remark_on_plan(&self) {
        if self.session.plan().is_read_only() {
            self.remark(
                "planning: the workspace is read-only until you accept the plan (/plan accept, /plan off)",
            );
        }
    }

    /// After a prompt: where the model has written down a plan that awaits consent, the user is asked.
    pub(super) async fn ask_about_plan(&mut self, updates_before: u64) -> Result<Flow> {
        let plan = self.session.plan();
        if !plan.is_read_only() {
            return Ok(Flow::Continue);
        }
        if plan.updates() == updates_before {
            self.remark_on_plan();
            return Ok(Flow::Continue);
        }
        match ask(self.console).await? {
            Reply::Chosen("yes") => {}
            Reply::Chosen(_) => {
                self.remark("not yet: say what to change, or /plan accept, /plan off");
                return Ok(Flow::Continue);
            }
            Reply::Words(said) => return Ok(Flow::Prompt(said)),
        }
        self.session.end_plan(true).await?;
        let interrupt = self.session.conversation.interrupt();
        interrupt.reset();
        with_signals(interrupt, self.session.prompt(CARRY_OUT)).await.map(|_| Flow::Continue)
    }
}
