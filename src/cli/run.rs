//! `agent run`: one prompt, one answer.

use super::apply::{after_failure, after_run};
use super::arguments::{CheckArgs, JsonArg, SessionOptions};
use super::completions::values;
use super::console::Console;
use super::open::{From, drive, open, with_signals};
use super::{answer, earlier, endpoint, plan, prompt};
use crate::cli::config::Config;
use crate::cli::machine;
use crate::cli::options::Options;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::log::{Recording, Store};
use crate::model::Replayed;
use crate::session::{ModelSettings, Resume, check_workspace};
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `agent run`
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    json: JsonArg,
    /// Plan first: the workspace is read-only until you accept the plan
    #[arg(long, help_heading = "Run")]
    plan: bool,
    /// The prompt; `-` reads standard input
    pub prompt: Option<String>,
    /// Also write the final answer to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// The final answer has to be JSON that satisfies this schema
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub output_schema: Option<PathBuf>,
    /// Continue this session
    #[arg(long, value_name = "ID", conflicts_with = "session_key", help_heading = "Session", add = values::sessions())]
    pub session: Option<String>,
    /// Continue the session with this key, or start it
    #[arg(long, value_name = "KEY", help_heading = "Session")]
    pub session_key: Option<String>,
}

impl RunArgs {
    pub fn options(&self) -> Options {
        let options = Options::of(&[&self.session_options, &self.check, &self.json]);
        Options { plan: self.plan, ..options }
    }
}

/// How often a failed check goes back to the model by default.
pub const CHECK_ATTEMPTS: u32 = 3;

/// Runs, and ends with `session_finished` whatever happens.
pub async fn run(options: &Options, arguments: RunArgs) -> ExitCode {
    drive(options, Console::new(options), async |console, slot| {
        refuse_empty_checks(&options.check)?;
        let schema = arguments.output_schema.as_deref().map(answer::read_schema).transpose()?;
        arguments.output.as_deref().map(answer::check_writable).transpose()?;
        let resume = named_session(&arguments)?;
        if let (Some(resume), Some(_), None) = (&resume, &arguments.session_key, &options.workspace) {
            // A key is the caller's own name for a thread, and may be used in another directory by mistake.
            check_workspace(&resume.id, &resume.history, Path::new("."))?;
        }
        let mut config = Config::load(&options_of(resume.as_ref(), options)?)?;
        let (mut model, notices) = model(&mut config, resume.as_ref()).await?;
        let (prompt, notice) = prompt::read(arguments.prompt.clone()).await?;
        model.answer_schema = schema.as_ref().map(|schema| schema.value().clone());
        let session = slot.insert(
            open(
                &config,
                model,
                resume.map_or(From::Workspace, |resume| From::Session(Box::new(resume))),
                console,
            )
            .await?,
        );
        console.notices(notices.into_iter().chain(notice))?;
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
                if !config.options.check.is_empty() {
                    let attempts = config.options.check_attempts.unwrap_or(CHECK_ATTEMPTS);
                    let answer = session.run_checks(&config.options.check, attempts).await?;
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

/// The options of a call that resumes a session, or of one that does not.
pub fn options_of(resume: Option<&Resume>, options: &Options) -> Result<Options> {
    resume.map_or_else(|| Ok(options.clone()), |resume| earlier::options(resume, options))
}

/// The model that answers, the endpoint's or a recorded one; and notices about it.
pub async fn model(config: &mut Config, resume: Option<&Resume>) -> Result<(ModelSettings, Vec<String>)> {
    if let Some(path) = &config.options.replay {
        return Ok((recorded("recorded", Recording::load(path)?.replies()), Vec::new()));
    }
    let connected = match resume {
        Some(resume) => earlier::connect(&resume.history, config).await?,
        None => endpoint::connect(config).await?,
    };
    let settings = ModelSettings {
        price: config.price(connected.model.name()),
        base_url: connected.base_url,
        context_window: connected.window,
        compaction: config.file.compaction.unwrap_or(true),
        ..ModelSettings::new(connected.model)
    };
    Ok((settings, connected.notices))
}

/// A model whose replies were recorded.
pub fn recorded(name: &str, replies: Vec<crate::model::Reply>) -> ModelSettings {
    let model = ModelSettings::new(Arc::new(Replayed::new(name, replies)));
    ModelSettings { base_url: "recorded".to_owned(), ..model }
}

/// The session that the call names.
fn named_session(arguments: &RunArgs) -> Result<Option<Resume>> {
    let store = Store::open(&machine())?;
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

/// An empty command passes whatever the change is.
pub fn refuse_empty_checks(checks: &[String]) -> Result<()> {
    match checks.iter().any(|command| command.trim().is_empty()) {
        true => Err(Error::config("--check is empty").hint("is the variable set that it comes from?")),
        false => Ok(()),
    }
}
