//! `agent run`: one wish, one answer.

use super::answer::{self, Schema};
use super::apply::{after_failure, after_run};
use super::open::{Answering, Audience, Opened, Opening, finish, with_signals};
use super::past::Past;
use super::{check, endpoint, prompt};
use crate::cli::config::Config;
use crate::cli::options::{Options, RunArgs};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::exit_code::ExitCode;
use crate::log::{Recording, Store};
use crate::model::Replayed;
use std::path::Path;
use std::sync::Arc;

/// Runs, and ends with `session_finished` whatever happens.
pub async fn run(options: &Options, arguments: RunArgs) -> ExitCode {
    let audience = Audience::new(options);
    let mut opened = None;
    let result = fulfil(options, arguments, &audience, &mut opened).await;
    finish(&audience, opened, &result).await
}

async fn fulfil(
    options: &Options,
    arguments: RunArgs,
    audience: &Audience,
    slot: &mut Option<Opened>,
) -> Result<()> {
    check::refuse_empty(&options.check)?;
    let schema = arguments.output_schema.as_deref().map(Schema::read).transpose()?;
    arguments.output.as_deref().map(answer::can_be_written).transpose()?;
    let past = past(&arguments)?;
    if let (Some(past), Some(_), None) = (&past, &arguments.session_key, &options.workspace) {
        // A key is the caller's own name for a thread, and may be used anywhere by mistake.
        past.works_on(Path::new("."))?;
    }
    let mut config =
        Config::load(&past.as_ref().map_or_else(|| Ok(options.clone()), |past| past.options(options))?)?;
    let (answering, notices) = answering(&mut config, past.as_ref()).await?;
    let (wish, notice) = prompt::read(arguments.prompt).await?;
    let answer_schema = schema.as_ref().map(|schema| schema.value.clone());
    let opening = Opening { config: &config, answering, audience, past, like: None, answer_schema };
    let opened = slot.insert(opening.open().await?);
    for text in notices.into_iter().chain(notice) {
        audience.events.emit(Event::Notice { text })?;
    }
    let interrupt = opened.session.interrupt();
    with_signals(interrupt, async {
        let work = async {
            let mut text = opened.session.turn(&answer::with_schema(wish, schema.as_ref())).await?.text;
            if let Some(schema) = &schema {
                text = schema.satisfied(opened, text).await?;
                audience.screen.replace_answer(&text);
            }
            if !config.options.check.is_empty() {
                check::until_passed(&config, audience, opened).await?;
            }
            if let Some(path) = &arguments.output {
                answer::write(path, &text)?;
            }
            after_run(&config, audience, opened).await
        };
        let result = work.await;
        if result.is_err() {
            after_failure(&config, audience, opened).await;
        }
        result
    })
    .await
}

/// Who answers: the endpoint, or a recording; and what is to be said about it.
pub async fn answering(config: &mut Config, past: Option<&Past>) -> Result<(Answering, Vec<String>)> {
    if let Some(path) = &config.options.replay {
        let model = Arc::new(Replayed::new("recorded", Recording::load(path)?.replies()));
        return Ok((Answering { model, base_url: "recorded".to_owned(), window: None }, Vec::new()));
    }
    let connected = match past {
        Some(past) => past.connect(config).await?,
        None => endpoint::connect(config).await?,
    };
    let answering =
        Answering { model: connected.model, base_url: connected.base_url, window: connected.window };
    Ok((answering, connected.notices))
}

/// The session that the wish goes on with, where one is named.
fn past(arguments: &RunArgs) -> Result<Option<Past>> {
    let store = Store::open()?;
    let id = match (&arguments.session, &arguments.session_key) {
        (Some(id), _) => Some(store.find(id)?),
        (None, Some(key)) if key.trim().is_empty() => {
            return Err(
                Error::usage("--session-key is empty").hint("is the variable set that it comes from?")
            );
        }
        (None, Some(key)) => Some(store.for_key(key)?),
        (None, None) => None,
    };
    id.map(Past::open).transpose()
}
