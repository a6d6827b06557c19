//! `agent run`: one wish, one answer.

use super::answer::{self, Schema};
use super::open::{Answering, Audience, Opened, Opening, finish, with_signals};
use super::{check, endpoint, prompt};
use crate::cli::{Options, RunArgs};
use crate::config::Config;
use crate::error::Result;
use crate::event::Event;
use crate::exit_code::ExitCode;
use crate::model::Replayed;
use crate::session::{Recording, SessionId, Store};
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
    let config = Config::load(options)?;
    let schema = arguments.output_schema.as_deref().map(Schema::read).transpose()?;
    let (answering, notices) = answering(&config).await?;
    let existing = existing(&arguments)?;
    let (wish, notice) = prompt::read(arguments.prompt).await?;
    let answer_schema = schema.as_ref().map(|schema| schema.value.clone());
    let opening = Opening { config: &config, answering, audience, existing, answer_schema };
    let opened = slot.insert(opening.open().await?);
    for text in notices.into_iter().chain(notice) {
        audience.events.emit(Event::Notice { text })?;
    }
    let interrupt = opened.session.interrupt();
    with_signals(interrupt, async {
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
        super::apply::after_run(&config, audience, opened).await
    })
    .await
}

/// Who answers: the endpoint, or a recording.
pub async fn answering(config: &Config) -> Result<(Answering, Vec<String>)> {
    match &config.options.replay {
        Some(path) => {
            let model = Arc::new(Replayed::new("recorded", Recording::load(path)?.replies()));
            Ok((Answering { model, base_url: "recorded".to_owned(), window: None }, Vec::new()))
        }
        None => {
            let connected = endpoint::connect(config).await?;
            let answering =
                Answering { model: connected.model, base_url: connected.base_url, window: connected.window };
            Ok((answering, connected.notices))
        }
    }
}

/// The session that the call goes on with, where it names one.
fn existing(arguments: &RunArgs) -> Result<Option<SessionId>> {
    match (&arguments.session, &arguments.session_key) {
        (Some(id), _) => Store::open()?.find(id).map(Some),
        (None, Some(key)) => Store::open()?.for_key(key).map(Some),
        (None, None) => Ok(None),
    }
}
