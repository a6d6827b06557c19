//! `agent replay FILE|ID`: the model's part is recorded, the tools are real, and differences are reported.

use crate::cli::config::Config;
use crate::cli::console::Console;
use crate::cli::endpoint::recorded;
use crate::cli::open::{StartingPoint, drive, open};
use crate::cli::options::{CopyArgs, DirectoryArg, Options, PlaybackArgs};
use crate::cli::signals::with_signals;
use crate::error::{Error, Kind, Result};
use crate::exit_code::ExitCode;
use crate::log::replay::Comparison;
use crate::log::{History, Recording, SessionId, Store};
use crate::machine::Machine;
use crate::sanitise::plain;
use crate::session::{Frontend, ModelSettings};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `agent replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    playback: PlaybackArgs,
    /// A recorded session: a file, or the id of a kept one
    #[arg(value_name = "FILE|ID")]
    source: String,
    /// Exit with 6 where a result differs
    #[arg(long)]
    strict: bool,
}

impl ReplayArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.copy, &self.playback])
    }
}

/// Plays the recording, and ends with `session_finished` whatever happens.
pub async fn replay(machine: &Arc<Machine>, arguments: ReplayArgs) -> ExitCode {
    let options = &arguments.options();
    drive(options, Console::new(machine, options), async |console, slot| {
        let Replayable { recording, workspace, session } = source(machine, &arguments.source)?;
        // Another directory is used as it is.
        let rewound = session.filter(|_| options.directory.workspace.is_none());
        let mut options = options.clone();
        options.directory.workspace = options.directory.workspace.or(workspace);
        let config = Config::load(machine, &options)?;
        let comparison = Comparison::with(&recording);
        console.events().listen(Box::new(comparison.clone()));
        let model = ModelSettings { base_url: String::new(), ..recorded("recorded", recording.replies()) };
        let from = rewound.map_or(StartingPoint::Workspace, StartingPoint::BeginningOf);
        let session = slot.insert(open(&config, model, from, console).await?);
        let played = with_signals(session.conversation.interrupt(), async {
            let mut ended = Ok(());
            for prompt in recording.prompts() {
                console.screen.say(&format!("\n> {}\n", plain(&prompt)));
                match session.prompt(&prompt).await {
                    // The recorded session did not get further either.
                    Err(error) if error.kind() == Kind::Endpoint && recording.is_cut_off() => {
                        return console.notices(["the recording ends here, without an answer".to_owned()]);
                    }
                    // The recorded session may have been resumed after it.
                    Err(error) if error.kind() == Kind::Limit => ended = Err(error),
                    Err(error) => return Err(error),
                    Ok(_) => ended = Ok(()),
                }
            }
            ended
        })
        .await;
        console.events().flush().await?;
        let result = comparison.result();
        match options.is_json() {
            true => console.notices([result.to_text()])?,
            false => console.screen.say(&plain(&result.to_text())),
        }
        played?;
        match result.difference {
            Some(difference) if arguments.strict => {
                let message =
                    format!("the result of tool call {} differs from the recorded one", difference.call);
                Err(Error::new(Kind::Difference, message))
            }
            _ => Ok(()),
        }
    })
    .await
}

/// The recording that is replayed, and its default directory.
struct Replayable {
    recording: Recording,
    workspace: Option<PathBuf>,
    /// The kept session, whose workspace is rewound to its beginning.
    session: Option<SessionId>,
}

/// A file of this name, or a kept session with this id, which is replayed on its own workspace.
fn source(machine: &Machine, name: &str) -> Result<Replayable> {
    if Path::new(name).exists() {
        return Ok(Replayable {
            recording: Recording::load(Path::new(name))?,
            workspace: None,
            session: None,
        });
    }
    let store = Store::open(machine)?;
    let begins = store.ids()?.iter().any(|id| id.as_str().starts_with(name));
    let found = store.find(name).map_err(|error| match begins {
        true => error,
        false => error.hint("neither a file nor a session has this name"),
    })?;
    let recording = Recording::of_session(&format!("the session {found}"), &store.events(&found))?;
    let workspace = PathBuf::from(History::of(recording.records()).workspace);
    let session = workspace.is_dir().then_some(found);
    Ok(Replayable { recording, workspace: session.is_some().then_some(workspace), session })
}
