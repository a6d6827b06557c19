//! `agent run`: one wish, one answer.

use super::open::{Answering, Audience, Opened, finish, open, with_signals};
use super::{endpoint, prompt};
use crate::cli::{Options, RunArgs};
use crate::config::Config;
use crate::error::Result;
use crate::event::Event;
use crate::exit_code::ExitCode;

/// Runs, and ends with `session_finished` whatever happens.
pub async fn run(options: &Options, arguments: RunArgs) -> ExitCode {
    let audience = Audience::new(options);
    let mut opened = None;
    let result = fulfil(options, arguments, &audience, &mut opened).await;
    let code = finish(&audience, opened.as_ref(), &result).await;
    if let Some(opened) = opened {
        opened.startup.end().await;
    }
    code
}

async fn fulfil(
    options: &Options,
    arguments: RunArgs,
    audience: &Audience,
    slot: &mut Option<Opened>,
) -> Result<()> {
    let config = Config::load(options)?;
    let connected = endpoint::connect(&config).await?;
    let (wish, notice) = prompt::read(arguments.prompt).await?;
    let answering =
        Answering { model: connected.model, base_url: connected.base_url, window: connected.window };
    let opened = slot.insert(open(&config, answering, audience).await?);
    for text in connected.notices.into_iter().chain(notice) {
        audience.events.emit(Event::Notice { text })?;
    }
    let interrupt = opened.session.interrupt();
    with_signals(interrupt, opened.session.turn(&wish)).await?;
    Ok(())
}
