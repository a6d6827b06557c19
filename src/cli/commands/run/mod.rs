//! `agent run`: one prompt, one answer.

mod answer;

use crate::cli::config::Config;
use crate::cli::console::Console;
use crate::cli::endpoint::{self, Connected};
use crate::cli::open::{StartingPoint, drive, open, resumed_options};
use crate::cli::options::{EndArgs, JsonArg, Options, PlanArg, SessionOptions};
use crate::cli::session_end::{after_failure, after_run};
use crate::cli::signals::with_signals;
use crate::cli::working_directory::WorkingDirectory;
use crate::cli::{plan, prompt};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::log::Store;
use crate::machine::Machine;
use crate::session::Resume;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// `agent run`
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    end: EndArgs,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    plan: PlanArg,
    /// The prompt; `-` reads standard input
    pub prompt: Option<String>,
    /// Also write the final answer to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// The final answer has to be JSON that satisfies this schema
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output_schema: Option<PathBuf>,
    /// Continue this session
    #[arg(long, value_name = "ID", conflicts_with = "session_key", help_heading = "Session")]
    pub session: Option<String>,
    /// Continue the session with this key, or start it
    #[arg(long, value_name = "KEY", help_heading = "Session")]
    pub session_key: Option<String>,
}

impl RunArgs {
    pub fn options(&self) -> Options {
        Options::of(&[&self.session_options, &self.end, &self.json, &self.plan])
    }
}

/// Runs, and ends with `session_finished` whatever happens.
pub async fn run(machine: &Arc<Machine>, arguments: RunArgs) -> ExitCode {
    let options = &arguments.options();
    drive(options, Console::of_run(machine, options), async |console, slot| {
        options.checks.refuse_empty()?;
        let schema = arguments.output_schema.as_deref().map(answer::read_schema).transpose()?;
        arguments.output.as_deref().map(answer::check_writable).transpose()?;
        let resume = named_session(machine, &arguments)?;
        if let (Some(resume), Some(_), None) = (&resume, &arguments.session_key, &options.directory.workspace)
        {
            // A key is the caller's own name for a thread, and may be used in another directory by mistake.
            WorkingDirectory::of(machine, &options.directory)?.check(&resume.id, &resume.history)?;
        }
        let mut config = Config::load(machine, &resumed_options(machine, resume.as_ref(), options)?)?;
        let Connected { mut settings, notices } = endpoint::model(&mut config, resume.as_ref()).await?;
        let (prompt, notice) = prompt::read(arguments.prompt.clone()).await?;
        settings.answer_schema = schema.as_ref().map(|schema| schema.value().clone());
        let session = slot.insert(open(&config, settings, StartingPoint::of(resume), console).await?);
        console.notices(notices.into_iter().chain(notice))?;
        console.ask_about_hosts(session.startup().gateway().asks_about_all());
        with_signals(session.conversation.interrupt(), async {
            let work = async {
                let prompt = schema.as_ref().map_or(prompt.clone(), |schema| schema.in_prompt(&prompt));
                plan::begin(&config, session).await?;
                let mut text = session.prompt(&prompt).await?.text;
                if session.plan().is_read_only() {
                    let Some(answer) = plan::decide(console, session).await? else { return Ok(()) };
                    text = answer.text;
                }
                if let Some(schema) = &schema {
                    text = session.satisfy(schema, text).await?;
                    console.screen.replace_answer(&text);
                }
                if !config.options.checks.commands.is_empty() {
                    let checks = &config.options.checks;
                    let answer = session.run_checks(&checks.commands, checks.rules()).await?;
                    text = answer.filter(|_| schema.is_none()).unwrap_or(text);
                }
                if let Some(path) = &arguments.output {
                    answer::write(path, &text)?;
                }
                after_run(&config, console, session).await
            };
            let result = work.await;
            if result.is_err() {
                after_failure(console, session).await;
            }
            result
        })
        .await
    })
    .await
}

/// The session that the call names.
fn named_session(machine: &Machine, arguments: &RunArgs) -> Result<Option<Resume>> {
    let store = Store::open(machine)?;
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
    id.map(|id| Resume::open(&store, id)).transpose()
}
