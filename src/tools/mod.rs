//! The tools that the model may call: one table, one file a tool.
//!
//! A tool's name and description stand here and in `prompts/tools/`, its JSON Schema comes from its argument
//! type, so what the model is told and what is accepted cannot drift apart.

mod edit_file;
mod job;
mod output;
mod read_file;
mod run_commands;
mod write_file;

pub use output::{Collected, Collector};

use crate::error::{Error, Kind, Result};
use crate::event::{Event, Events};
use crate::model::ToolSpec;
use crate::sandbox::{Finished, Outcome, Output, Sandbox, wire};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// How many characters of output a tool gives back to the model by default; head and tail are kept beyond it.
pub const OUTPUT_CHARS: usize = 30_000;

/// Mistakes in a call's arguments that the model is told of at once.
const MOST_MISFITS: usize = 5;

/// A tool that the model may call.
pub struct Tool {
    /// The name the model calls it by.
    pub name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
    run: for<'a> fn(Context<'a>, Value) -> BoxFuture<'a, Result<ToolResult>>,
}

/// All the tools, in the order the model is told of them.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "read_file",
        description: include_str!("../../prompts/tools/read_file.md"),
        schema: schema::<read_file::Arguments>,
        run: |context, arguments| Box::pin(async move { read_file::run(context, parse(arguments)?).await }),
    },
    Tool {
        name: "write_file",
        description: include_str!("../../prompts/tools/write_file.md"),
        schema: schema::<write_file::Arguments>,
        run: |context, arguments| Box::pin(async move { write_file::run(context, parse(arguments)?).await }),
    },
    Tool {
        name: "write_files",
        description: include_str!("../../prompts/tools/write_files.md"),
        schema: schema::<write_file::ManyArguments>,
        run: |context, arguments| {
            Box::pin(async move { write_file::run_many(context, parse(arguments)?).await })
        },
    },
    Tool {
        name: "edit_file",
        description: include_str!("../../prompts/tools/edit_file.md"),
        schema: schema::<edit_file::Arguments>,
        run: |context, arguments| Box::pin(async move { edit_file::run(context, parse(arguments)?).await }),
    },
    Tool {
        name: "run_commands",
        description: include_str!("../../prompts/tools/run_commands.md"),
        schema: schema::<run_commands::Arguments>,
        run: |context, arguments| {
            Box::pin(async move { run_commands::run(context, parse(arguments)?).await })
        },
    },
    Tool {
        name: "job_output",
        description: include_str!("../../prompts/tools/job_output.md"),
        schema: schema::<job::OutputArguments>,
        run: |context, arguments| Box::pin(async move { job::output(context, parse(arguments)?).await }),
    },
    Tool {
        name: "job_kill",
        description: include_str!("../../prompts/tools/job_kill.md"),
        schema: schema::<job::KillArguments>,
        run: |context, arguments| Box::pin(async move { job::kill(context, parse(arguments)?).await }),
    },
];

/// What a tool has at hand while it runs.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The session's sandbox.
    pub sandbox: &'a Sandbox,
    /// Where live output goes.
    pub events: &'a Events,
    /// The id of the call.
    pub call: &'a str,
    /// The bounds of what it may give back and how long it may take.
    pub bounds: Bounds,
}

/// The bounds of one tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Characters of output that go back to the model.
    pub output_chars: usize,
    /// How long a command may take where the model does not say.
    pub timeout: Duration,
    /// The longest time that the model may ask for.
    pub max_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            output_chars: OUTPUT_CHARS,
            timeout: Duration::from_secs(120),
            max_timeout: Duration::from_secs(3600),
        }
    }
}

/// What a tool gives back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether it did what was asked.
    pub ok: bool,
    /// The command's exit code, where a command ran and exited.
    pub exit_code: Option<i32>,
    /// Whether part of the output was left out.
    pub truncated: bool,
    /// What the model reads.
    pub text: String,
}

impl ToolResult {
    /// It did what was asked.
    pub fn success(text: impl Into<String>) -> Self {
        Self { ok: true, text: text.into(), ..Self::default() }
    }

    /// It did not, and the text says why.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Context<'_> {
    /// Hands a piece of a command's output to whoever watches.
    fn show(&self, output: Output<'_>) -> Result<()> {
        let Output::Data(stream, bytes) = output else { return Ok(()) };
        let data = String::from_utf8_lossy(bytes).into_owned();
        self.events.emit(Event::ToolOutput { id: self.call.to_owned(), stream, data })
    }
}

/// Tells of the sandbox's limits that a command ran into.
pub fn tell_limits(events: &Events, finished: &Finished) -> Result<()> {
    let mut reached = finished.limits_reached();
    reached.try_for_each(|limit| events.emit(Event::LimitReached { limit: limit.to_owned() }))
}

/// The tool of that name.
pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// What the model is told: the same in every request, so that prompt caches hit.
pub fn specs() -> Vec<ToolSpec> {
    TOOLS
        .iter()
        .map(|tool| ToolSpec {
            name: tool.name.to_owned(),
            description: tool.description.trim().to_owned(),
            parameters: (tool.schema)(),
        })
        .collect()
}

impl Tool {
    /// Runs the tool. A failure that the model can act on is a [`ToolResult`] that is not ok; an error means that
    /// the sandbox itself is gone or that the events could not be kept.
    pub async fn run(&self, context: Context<'_>, arguments: Value) -> Result<ToolResult> {
        match (self.run)(context, arguments).await {
            Err(error) if matches!(error.kind(), Kind::InSandbox | Kind::Usage) => {
                Ok(ToolResult::failure(format!("error: {error}")))
            }
            other => other,
        }
    }
}

/// The arguments in the tool's own type; what does not fit is said in words that the model can act on.
fn parse<A: DeserializeOwned + JsonSchema>(arguments: Value) -> Result<A> {
    let why = |error| misfits(&schema::<A>(), &arguments).unwrap_or_else(|| format!("{error}"));
    A::deserialize(&arguments)
        .map_err(|error| Error::usage(format!("the arguments do not fit the tool: {}", why(error))))
}

/// Where the arguments differ from the tool's schema, without repeating them: they may be long.
fn misfits(schema: &Value, arguments: &Value) -> Option<String> {
    let validator = jsonschema::validator_for(schema).ok()?;
    let misfits = validator.iter_errors(arguments).take(MOST_MISFITS);
    let said: Vec<String> = misfits
        .map(|misfit| match misfit.instance_path().as_str().trim_start_matches('/') {
            "" => misfit.masked_with("it").to_string(),
            place => misfit.masked_with(place).to_string(),
        })
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn schema<A: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft07().with(|settings| {
        // Small models and some servers do not follow `$ref` and stumble over the meta schema.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
    }
    schema
}

/// How a command ended, in the words that the model and the trace know.
pub fn describe(outcome: Outcome, timeout: Option<Duration>) -> String {
    match outcome {
        Outcome::Exited(code) => format!("exit code {code}"),
        Outcome::TimedOut => match timeout {
            Some(limit) => format!("Timed out after {} s", limit.as_secs_f64()),
            None => "Timed out".to_owned(),
        },
        Outcome::OomKilled => "killed: out of memory".to_owned(),
        Outcome::OverQuota { bytes } => {
            format!("killed: {}; remove what is not needed", wire::quota_used_up(bytes))
        }
        Outcome::Signaled(libc::SIGXFSZ) => {
            format!("killed by signal {}: a file grew past the disk quota", libc::SIGXFSZ)
        }
        Outcome::Signaled(signal) => format!("killed by signal {signal}"),
        Outcome::Lost => "lost: the sandbox did not say how the command ended".to_owned(),
    }
}
