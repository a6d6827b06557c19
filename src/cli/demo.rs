//! `agent demo`: recorded sessions against a real sandbox. No key, no network.

use super::arguments::PlaybackArgs;
use super::completions::values;
use super::console::Console;
use super::open::{From, drive, open, with_signals};
use super::run::recorded;
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::cli::ui::wrap::{columns_of, hanging};
use crate::demo::{TASKS, Task};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use clap::Args;
use std::path::{Path, PathBuf};

/// `agent demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    #[command(flatten)]
    playback: PlaybackArgs,
    /// Only this one of the recorded tasks
    #[arg(add = values::demo_tasks())]
    task: Option<String>,
}

impl DemoArgs {
    pub fn options(&self) -> Options {
        Options::of(&[&self.playback])
    }
}

/// Plays the tasks, or the named one.
pub async fn demo(options: &Options, arguments: DemoArgs) -> ExitCode {
    drive(options, Console::new(options), async |console, slot| {
        let tasks = tasks(arguments.task.as_deref())?;
        let empty = EmptyDirectory::create()?;
        let options = Options { workspace: Some(empty.0.clone()), ..options.clone() };
        let config = Config::load(&options)?;
        let recordings = tasks.iter().map(Task::recording).collect::<Result<Vec<_>>>()?;
        let replies = recordings.iter().flat_map(|recording| recording.replies()).collect();
        let columns = columns_of(&std::io::stderr());
        let print = |before: &str, text: &str, indent| {
            if !options.quiet {
                console.screen.say(&format!("{before}{}\n", hanging(text, indent, columns)));
            }
        };
        let intro =
            "This is a demo: the model's part is recorded, the tools run for real in a sandbox that is created for it.";
        print("", intro, 0);
        let session = slot.insert(open(&config, recorded("demo", replies), From::Workspace, console).await?);
        with_signals(session.conversation.interrupt(), async {
            for prompt in recordings.iter().flat_map(|recording| recording.prompts()) {
                print("\n> ", &prompt, 2);
                session.prompt(&prompt).await?;
                console.screen.settle()?;
            }
            Ok(())
        })
        .await
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

/// The demo works on a directory of its own, which is removed with it.
struct EmptyDirectory(PathBuf);

impl EmptyDirectory {
    fn create() -> Result<Self> {
        let path = machine().cache_dir()?.join(format!("demo-{}", std::process::id()));
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
