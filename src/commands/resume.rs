//! `agent resume [ID]`: going on with a session at the prompt.

use super::open::{Answering, Audience, Opened, finish, open};
use super::past::Past;
use super::repl;
use crate::cli::{Options, ResumeArgs};
use crate::config::Config;
use crate::error::Result;
use crate::event::Event;
use crate::exit_code::ExitCode;
use crate::session::{SessionId, Store};

/// Talks until the person leaves, and ends with `session_finished` whatever happens.
pub async fn resume(options: &Options, arguments: ResumeArgs) -> ExitCode {
    let audience = Audience::new(options);
    let mut opened = None;
    let result = start(options, arguments, &audience, &mut opened).await;
    let code = finish(&audience, opened.as_ref(), &result).await;
    if let Some(opened) = opened {
        opened.startup.end().await;
    }
    code
}

async fn start(
    options: &Options,
    arguments: ResumeArgs,
    audience: &Audience,
    slot: &mut Option<Opened>,
) -> Result<()> {
    let past = Past::open(wanted(options, arguments)?)?;
    let mut config = Config::load(&past.options(options))?;
    let connected = past.connect(&mut config).await?;
    let answering =
        Answering { model: connected.model, base_url: connected.base_url, window: connected.window };
    let opened = slot.insert(open(&config, answering, audience, Some(past)).await?);
    for text in connected.notices {
        audience.events.emit(Event::Notice { text })?;
    }
    repl::talk(&config, audience, opened).await
}

/// The session that was named, or the newest: of this workspace, or with `--last` of all.
fn wanted(options: &Options, arguments: ResumeArgs) -> Result<SessionId> {
    let store = Store::open()?;
    match arguments.id {
        Some(id) => store.find(&id),
        None if arguments.last => store.last(None),
        None => store.last(Some(&Config::load(options)?.workspace)),
    }
}
