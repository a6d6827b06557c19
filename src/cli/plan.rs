//! `--plan` and `/plan`: the user decides about the model's plan before anything is changed.

use super::console::Console;
use crate::agent::Answer;
use crate::cli::config::Config;
use crate::cli::ui::confirm::{self, Choice, Reply};
use crate::error::Result;
use crate::session::{Frontend, Session};

/// The prompt with which the model carries its plan out.
pub const CARRY_OUT: &str = "The plan is accepted. Carry it out.";

/// Begins to plan where `--plan` asks for it. A call that continues a session without it is the user's consent.
pub async fn begin(config: &Config, session: &mut Session) -> Result<()> {
    match config.options.plan.plan {
        true => session.begin_plan().await,
        false => session.end_plan(true).await,
    }
}

/// After a prompt of `agent run --plan`: the user decides, and an accepted plan is carried out. `None`: it is not.
pub async fn decide(console: &Console, session: &mut Session) -> Result<Option<Answer>> {
    loop {
        match ask(console).await? {
            Reply::Chosen("yes") => {
                session.end_plan(true).await?;
                return session.prompt(CARRY_OUT).await.map(Some);
            }
            Reply::Chosen(_) => break,
            Reply::Words(said) => session.prompt(&said).await.map(drop)?,
        }
        console.screen.settle()?;
    }
    let id = session.id();
    console.always_notice(format!(
        "the plan is not carried out: `agent run --session {id} PROMPT` does it, and with --plan it plans on; so does \
         `agent resume {id}`"
    ))?;
    Ok(None)
}

/// Asks, where there is a user. What they say in words is about the plan, and for the model.
pub async fn ask(console: &Console) -> Result<Reply> {
    const CHOICES: [Choice; 2] = [
        Choice { word: "yes", help: "the model carries it out" },
        Choice { word: "no", help: "nothing is changed; in words, say what the plan lacks" },
    ];
    if !confirm::is_possible() {
        return Ok(Reply::Chosen("no"));
    }
    console.screen.settle()?;
    confirm::reply(console.screen.progress(), "Carry out this plan?", &CHOICES, &[]).await
}
