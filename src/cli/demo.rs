//! `agent demo`: recorded sessions against a real sandbox. No key, no network.

use super::open::{Answering, Audience, Opened, Opening, finish, with_signals};
use crate::cli::config::Config;
use crate::cli::options::{DemoArgs, Options};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::log::demo::{TASKS, Task};
use crate::model::Replayed;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Plays the tasks, or the one that was named.
pub async fn demo(options: &Options, arguments: DemoArgs) -> ExitCode {
    let audience = Audience::new(options);
    let mut opened = None;
    let result = play(options, arguments, &audience, &mut opened).await;
    finish(&audience, opened, &result).await
}

async fn play(
    options: &Options,
    arguments: DemoArgs,
    audience: &Audience,
    slot: &mut Option<Opened>,
) -> Result<()> {
    let tasks = tasks(arguments.task.as_deref())?;
    let empty = EmptyDirectory::make()?;
    let options = Options { workspace: Some(empty.0.clone()), ..options.clone() };
    let config = Config::load(&options)?;
    let recordings = tasks.iter().map(Task::recording).collect::<Result<Vec<_>>>()?;
    let replies = recordings.iter().flat_map(|recording| recording.replies()).collect();
    let model = Arc::new(Replayed::new("demo", replies));
    let answering = Answering { model, base_url: "recorded".to_owned(), window: None };
    let tell = |text: &str| {
        if !options.quiet {
            audience.screen.say(text);
        }
    };
    tell(
        "This is a demo: the model's part is recorded, the tools run for real in a sandbox that is made for it.\n",
    );
    let opening =
        Opening { config: &config, answering, audience, past: None, like: None, answer_schema: None };
    let opened = slot.insert(opening.open().await?);
    let interrupt = opened.session.interrupt();
    with_signals(interrupt, async {
        for wish in recordings.iter().flat_map(|recording| recording.prompts()) {
            tell(&format!("\n> {wish}\n"));
            opened.session.turn(&wish).await?;
            audience.screen.settle()?;
        }
        Ok(())
    })
    .await
}

fn tasks(name: Option<&str>) -> Result<Vec<Task>> {
    let Some(name) = name else { return Ok(TASKS.to_vec()) };
    match TASKS.iter().find(|task| task.name == name) {
        Some(task) => Ok(vec![*task]),
        None => {
            let names: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
            Err(Error::usage(format!("the demo has no task {name:?}"))
                .hint(format!("the tasks are {}", names.join(", "))))
        }
    }
}

/// The demo works on nothing of the person's: a directory of its own that goes with it.
struct EmptyDirectory(PathBuf);

impl EmptyDirectory {
    fn make() -> Result<Self> {
        let path = crate::paths::cache_dir()?.join(format!("demo-{}", std::process::id()));
        crate::paths::make_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for EmptyDirectory {
    fn drop(&mut self) {
        // Empty, so nothing can be lost; what is left is a directory in the cache.
        let _ = std::fs::remove_dir(Path::new(&self.0));
    }
}
