//! `run_code`: code in eleven languages, as far as the sandbox has them.
//!
//! Python and JavaScript run in interpreters that are kept from one call to the next (`interpreter.rs`); the others run each
//! snippet on its own (`snippet.rs`), and what they build is kept. Everything is outside the workspace. What programs show
//! besides text is in `display/`.

mod answer;
mod debian;
pub mod display;
mod interpreter;
mod language;
mod libraries;
mod report;
mod runner;
mod snippet;
mod source;
mod toolchains;

pub use answer::{Answer, Status};
pub use interpreter::{Ended, Gone};
pub use language::Language;
pub use libraries::Libraries;
pub use report::{CellReport, headline};
pub use runner::{CellRan, Ran, Request, Runner};
pub use snippet::Snippet;
pub use toolchains::{PROGRAMS, Remembered, Toolchains};

use super::{Collector, Context, Tool, ToolResult, arguments};
use agent_base::error::{Error, Result};
use agent_base::machine::Machine;
use agent_model::Message;
use agent_policy::policy::Action;
use agent_sandbox::TAIL_BYTES;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The directory of everything of `run_code` in the sandbox.
pub const CACHE: &str = "/home/agent/.cache/agent/code";
/// The tool's name.
const NAME: &str = "run_code";
/// Characters of a conversation's earlier code that are looked through for a language.
const MAX_ARGUMENTS: usize = 1 << 20;

/// The tool.
pub struct RunCode {
    languages: Vec<Language>,
    runner: Runner,
}

#[derive(Deserialize, JsonSchema)]
struct RunCodeArguments {
    /// The language.
    language: String,
    /// The code.
    code: Option<String>,
    /// Packages to install first: numpy==2.2.0.
    libraries: Option<Vec<String>>,
    /// The time limit in seconds.
    timeout_s: Option<f64>,
    /// Starts with a new interpreter.
    reset: Option<bool>,
}

impl RunCode {
    /// The tool for a sandbox with these toolchains, as far as they are known; what the sandbox turns out to have is
    /// remembered in `remembered`.
    pub fn new(known: Option<&Toolchains>, remembered: Option<Remembered>) -> Self {
        let languages = known.map_or_else(|| Language::ALL.to_vec(), Toolchains::languages);
        Self { languages, runner: Runner::new(remembered) }
    }

    /// The tool for a session's sandbox. `programs` are those of this machine, where the sandbox shows them.
    pub fn of_sandbox(machine: &Machine, backend: &str, image: Option<&str>, programs: &[String]) -> Self {
        let image = match programs {
            [] => image.unwrap_or_default().to_owned(),
            programs => programs.join(" "),
        };
        let remembered = Remembered::of(machine, backend, &image).ok();
        let seen = remembered.as_ref().and_then(Remembered::read);
        let known = seen.or_else(|| (!programs.is_empty()).then(|| Toolchains::of(programs.iter().cloned())));
        Self::new(known.as_ref(), remembered)
    }

    /// Takes note of a conversation of an earlier process: its interpreters are gone.
    pub fn resume(&self, messages: &[Message]) {
        for message in messages {
            let Message::Assistant { tool_calls, .. } = message else { continue };
            for call in
                tool_calls.iter().filter(|call| call.name == NAME && call.arguments.len() < MAX_ARGUMENTS)
            {
                let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
                if let Some(language) = arguments["language"].as_str().and_then(Language::parse) {
                    self.runner.resumed(language);
                }
            }
        }
    }
}

impl Tool for RunCode {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        agent_prompts::tools::RUN_CODE
    }

    fn parameters(&self) -> Value {
        let mut schema = arguments::schema::<RunCodeArguments>();
        let names: Vec<&str> = self.languages.iter().map(|language| language.name()).collect();
        schema["properties"]["language"] = json!({ "type": "string", "enum": names });
        schema
    }

    fn action<'a>(&self, arguments: &'a Value) -> Option<Action<'a>> {
        let code = arguments.get("code").and_then(Value::as_str).unwrap_or_default();
        let language = Language::parse(arguments.get("language")?.as_str()?)?;
        let names: Vec<String> = serde_json::from_value(arguments["libraries"].clone()).unwrap_or_default();
        let libraries = Libraries::parse(language, &names).ok().filter(|libraries| !libraries.is_empty());
        if language == Language::Bash {
            return Some(Action::Command(code));
        }
        let (file, install) = (file_name(language), libraries.map(|libraries| libraries.command()));
        Some(Action::Code { language: language.name(), file, code, install })
    }

    fn discard_state(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { self.runner.discard().await })
    }

    fn run<'a>(&'a self, context: Context<'a>, arguments: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async move { self.call(context, arguments::read(&arguments)?).await })
    }
}

impl RunCode {
    async fn call(&self, context: Context<'_>, arguments: RunCodeArguments) -> Result<ToolResult> {
        let there = self.runner.toolchains(context.sandbox).await?;
        let Some(language) = Language::parse(&arguments.language) else {
            return Err(unknown(&arguments.language, there));
        };
        let libraries = Libraries::parse(language, &arguments.libraries.unwrap_or_default())?;
        let bounds = context.bounds;
        let asked = arguments.timeout_s.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        let timeout = asked.map_or(bounds.timeout, |seconds| {
            Duration::from_secs_f64(seconds.min(bounds.max_timeout.as_secs_f64()))
        });
        let pictures = display::Run::begin(context.sandbox).await?;
        let env = pictures.environment().into_iter().map(|(name, value)| (name.into(), value.into()));
        let request = Request {
            language,
            code: arguments.code.unwrap_or_default(),
            libraries,
            timeout,
            reset: arguments.reset.unwrap_or(false),
            display: pictures.directory().display().to_string(),
            is_notebook: false,
            env: env.collect(),
        };
        let mut collector = Collector::new(bounds.output_chars);
        let (mut live, mut listening, mut shown) = (context.live_output(), Ok(()), 0);
        let ran = self
            .runner
            .run(context.sandbox, context.reach, &request, &mut |output| {
                collector.push(output);
                // Beyond this, only the result has it, as with a command.
                if listening.is_ok() && shown < TAIL_BYTES {
                    listening = live.emit(output);
                }
                if let agent_sandbox::Output::Data(_, bytes) = output {
                    shown += bytes.len();
                }
            })
            .await?;
        listening.and(live.finish())?;
        let result = report::result(context, ran, timeout, collector)?;
        Ok(result.with_collected(display::collect(context, &pictures).await?))
    }
}

/// A name for the policy, from whose extension it knows the language.
fn file_name(language: Language) -> &'static str {
    match language {
        Language::Python => "run_code.py",
        Language::JavaScript => "run_code.js",
        Language::TypeScript => "run_code.ts",
        Language::Go => "run_code.go",
        Language::Ruby => "run_code.rb",
        Language::Rust => "run_code.rs",
        Language::Java => "run_code.java",
        Language::Cpp => "run_code.cpp",
        Language::C => "run_code.c",
        Language::R => "run_code.R",
        Language::Bash => "run_code.sh",
    }
}

/// The error for a language that nobody knows.
pub fn unknown(name: &str, there: &Toolchains) -> Error {
    let shown: String = name.chars().take(40).collect();
    Error::usage(format!("there is no language {shown:?}; this sandbox has {}", listed(there)))
}

/// The error for a language that the sandbox does not have.
pub fn missing(language: Language, there: &Toolchains) -> Error {
    let (image, package) = language.brought_by();
    Error::usage(format!(
        "this sandbox cannot run {}; it has {}. An image with it would bring it (--image {image}), or Debian's package {package}",
        language.name(),
        listed(there)
    ))
}

fn listed(there: &Toolchains) -> String {
    let names: Vec<&str> = there.languages().into_iter().map(Language::name).collect();
    if names.is_empty() { "no language at all".to_owned() } else { names.join(", ") }
}
