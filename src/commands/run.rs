//! `agent run`: one wish, one answer.

use super::open::{Answering, Audience, Opened, finish, open, with_signals};
use super::past::Past;
use super::{endpoint, prompt};
use crate::cli::{Options, RunArgs};
use crate::config::Config;
use crate::error::Result;
use crate::event::Event;
use crate::exit_code::ExitCode;
use crate::session::Store;

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
    let past = past(&arguments)?;
    let mut config =
        Config::load(&past.as_ref().map_or_else(|| options.clone(), |past| past.options(options)))?;
    let connected = match &past {
        Some(past) => past.connect(&mut config).await?,
        None => endpoint::connect(&config).await?,
    };
    let (wish, notice) = prompt::read(arguments.prompt).await?;
    let answering =
        Answering { model: connected.model, base_url: connected.base_url, window: connected.window };
    let opened = slot.insert(open(&config, answering, audience, past).await?);
    for text in connected.notices.into_iter().chain(notice) {
        audience.events.emit(Event::Notice { text })?;
    }
    let interrupt = opened.session.interrupt();
    with_signals(interrupt, opened.session.turn(&wish)).await?;
    Ok(())
}

/// The session that the wish goes on with, where one is named.
fn past(arguments: &RunArgs) -> Result<Option<Past>> {
    let store = Store::open()?;
    let id = match (&arguments.session, &arguments.session_key) {
        (Some(id), _) => Some(store.find(id)?),
        (None, Some(key)) => Some(store.for_key(key)?),
        (None, None) => None,
    };
    id.map(Past::open).transpose()
}
