//! `agent demo`: recorded sessions against a real sandbox. No key, no network.

use crate::cli::config::Config;
use crate::cli::console::Console;
use crate::cli::endpoint::recorded;
use crate::cli::open::{StartingPoint, drive, open};
use crate::cli::options::{Options, PlaybackArgs};
use crate::cli::signals::with_signals;
use crate::cli::ui::wrap::{columns_of, hanging};
use crate::demo::{TASKS, Task};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `agent demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    #[command(flatten)]
    playback: PlaybackArgs,
    /// Only this one of the recorded tasks
    task: Option<String>,
}

impl DemoArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.playback])
    }
}

/// Plays the tasks, or the named one.
pub async fn demo(machine: &Arc<Machine>, arguments: DemoArgs) -> ExitCode {
    let options = &arguments.options();
    drive(options, Console::new(machine, options), async |console, slot| {
        let tasks = tasks(arguments.task.as_deref())?;
        let empty = EmptyDirectory::create(machine)?;
        let config = Config::load(machine, &options.on(&empty.0))?;
        let recordings = tasks.iter().map(Task::recording).collect::<Result<Vec<_>>>()?;
        let replies = recordings.iter().flat_map(|recording| recording.replies()).collect();
        let columns = columns_of(&std::io::stderr());
        let print = |before: &str, text: &str, indent| {
            if !options.is_quiet() {
                console.screen.say(&format!("{before}{}\n", hanging(text, indent, columns)));
            }
        };
        let intro =
            "This is a demo: the model's part is recorded, the tools run for real in a sandbox that is created for it.";
        print("", intro, 0);
        let session = slot.insert(open(&config, recorded("demo", replies), StartingPoint::Workspace, console).await?);
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
    fn create(machine: &Machine) -> Result<Self> {
        let path = machine.cache_dir()?.join(format!("demo-{}", std::process::id()));
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
