//! `agent replay FILE|ID`: the model's part is recorded, the tools are real, and what differs is told.

use super::open::{Answering, Audience, Opened, Opening, finish, with_signals};
use crate::cli::config::Config;
use crate::cli::options::{Options, ReplayArgs};
use crate::cli::ui::sanitise::plain;
use crate::error::{Error, Kind, Result};
use crate::event::Event;
use crate::exit_code::ExitCode;
use crate::log::replay::Comparison;
use crate::log::{History, Recording, SessionId, Store};
use crate::model::Replayed;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plays the recording, and ends with `session_finished` whatever happens.
pub async fn replay(options: &Options, arguments: ReplayArgs) -> ExitCode {
    let audience = Audience::new(options);
    let mut opened = None;
    let result = play(options, arguments, &audience, &mut opened).await;
    finish(&audience, opened, &result).await
}

async fn play(
    options: &Options,
    arguments: ReplayArgs,
    audience: &Audience,
    slot: &mut Option<Opened>,
) -> Result<()> {
    let Source { recording, workspace, session } = source(&arguments.source)?;
    // On another directory it is played as that is.
    let like = session.filter(|_| options.workspace.is_none());
    let options = Options { workspace: options.workspace.clone().or(workspace), ..options.clone() };
    let config = Config::load(&options)?;
    let comparison = Comparison::with(&recording);
    audience.events.listen(Box::new(comparison.clone()));
    let model = Arc::new(Replayed::new("recorded", recording.replies()));
    let answering = Answering { model, base_url: String::new(), window: None };
    let opening = Opening { config: &config, answering, audience, past: None, like, answer_schema: None };
    let opened = slot.insert(opening.open().await?);
    let played = with_signals(opened.session.interrupt(), async {
        let mut ended = Ok(());
        for wish in recording.prompts() {
            audience.screen.say(&format!("\n> {}\n", plain(&wish)));
            match opened.session.turn(&wish).await {
                // The recorded session came no further either.
                Err(error) if error.kind() == Kind::Endpoint && recording.is_cut_off() => {
                    let text = "the recording ends here, without an answer".to_owned();
                    return audience.events.emit(Event::Notice { text });
                }
                // The person may have gone on in spite of it.
                Err(error) if error.kind() == Kind::Limit => ended = Err(error),
                Err(error) => return Err(error),
                Ok(_) => ended = Ok(()),
            }
        }
        ended
    })
    .await;
    audience.events.flush().await?;
    let outcome = comparison.outcome();
    match options.json {
        true => audience.events.emit(Event::Notice { text: outcome.to_words() })?,
        false => audience.screen.say(&plain(&outcome.to_words())),
    }
    played?;
    match outcome.difference {
        Some(difference) if arguments.strict => {
            let message = format!("tool call {} did not give what was recorded", difference.call);
            Err(Error::new(Kind::Difference, message))
        }
        _ => Ok(()),
    }
}

/// What is played, and on which directory where none is named.
struct Source {
    recording: Recording,
    workspace: Option<PathBuf>,
    /// The kept session, whose workspace is brought back to how it began.
    session: Option<SessionId>,
}

/// A file of this name, or else a kept session with this id; that one plays where it was made.
fn source(name: &str) -> Result<Source> {
    if Path::new(name).exists() {
        return Ok(Source { recording: Recording::load(Path::new(name))?, workspace: None, session: None });
    }
    let store = Store::open()?;
    let begins = store.ids()?.iter().any(|id| id.as_str().starts_with(name));
    let found = store.find(name).map_err(|error| match begins {
        true => error,
        false => error.hint("neither a file nor a session has this name"),
    })?;
    let recording = Recording::of_session(&format!("the session {found}"), &store.events(&found))?;
    let workspace = PathBuf::from(History::of(recording.records()).workspace);
    let session = workspace.is_dir().then_some(found);
    Ok(Source { recording, workspace: session.is_some().then_some(workspace), session })
}
