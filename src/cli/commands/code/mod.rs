//! `agent code`: code in a session's sandbox, or in a fresh one.

mod prompt;
mod shown;

use crate::cli::command_sandbox::{CommandSandbox, ProgramOutput, code_of, exit_code, pump};
use crate::cli::options::{BackendArgs, CopyArgs, DirectoryArg, Options, ResourceArgs, VerbosityArgs};
use crate::cli::print::failure;
use crate::cli::ui::json::output_error;
use crate::cli::ui::stderr;
use crate::error::{Error, Result};
use crate::event::Stream;
use crate::exit_code::ExitCode;
use crate::machine::Machine;
use crate::sandbox::{Outcome, Output};
use crate::session::Frontend;
use crate::tools::code::display::Run;
use crate::tools::code::{CellReport, Language, Libraries, Ran, Request, Runner, Snippet};
use crate::tools::{Collector, Reach, describe};
use clap::Args;
use futures_util::future::BoxFuture;
use prompt::{CodePrompt, PromptLine};
use serde_json::json;
use shown::{ShownFile, ShownFiles, environment};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode as ProcessExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The longest code, in bytes.
const MAX_CODE: u64 = 8 << 20;
/// The time limit where there is none: a user who waits can interrupt.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// `agent code`
#[derive(Debug, Args)]
pub struct CodeArgs {
    #[command(flatten)]
    directory: DirectoryArg,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    backend: BackendArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
    /// The session whose sandbox to use
    #[arg(short, long, value_name = "ID")]
    session: Option<String>,
    /// The language (default: by the file's name or its first line)
    #[arg(short, long, value_name = "LANG")]
    language: Option<String>,
    /// Install this library first; more than one: repeat it
    #[arg(long, value_name = "NAME")]
    lib: Vec<String>,
    /// The result as one JSON object, with the value of a last expression
    #[arg(long, help_heading = "Output", conflicts_with = "interactive")]
    json: bool,
    /// Copy the pictures and files that it shows into this directory
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    artifacts: Option<PathBuf>,
    /// A prompt on an interpreter of this language: python or javascript
    #[arg(short, long, value_name = "LANG", conflicts_with_all = ["file", "language"])]
    interactive: Option<String>,
    /// The file with the code; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "interactive")]
    file: Option<PathBuf>,
}

impl CodeArgs {
    fn options(&self) -> Options {
        Options::of(&[&self.directory, &self.copy, &self.backend, &self.resources, &self.verbosity])
    }
}

/// Runs the code; its exit code is this process's. Where `agent` itself fails it is 125, for wrong arguments 2.
pub async fn code(machine: &Arc<Machine>, arguments: CodeArgs) -> ProcessExitCode {
    let task = match CodeTask::of(&arguments) {
        Ok(task) => task,
        Err(error) => return failure(&error).into(),
    };
    exit_code(run(machine, &arguments, task).await)
}

/// The item, in words.
struct CodeTask {
    language: Language,
    libraries: Libraries,
    /// `None`: the prompt.
    code: Option<String>,
}

impl CodeTask {
    fn of(arguments: &CodeArgs) -> Result<Self> {
        let code = arguments.file.as_deref().map(read).transpose()?;
        let named = arguments.interactive.as_ref().or(arguments.language.as_ref());
        let language = match (named, &arguments.file) {
            (Some(name), _) => Language::parse(name).ok_or_else(|| {
                let names = Language::ALL.map(Language::name).join(", ");
                Error::usage(format!("there is no language {name:?}"))
                    .hint(format!("the languages are {names}"))
            })?,
            (None, Some(file)) => Language::of_path(file)
                .or_else(|| Language::of_shebang(code.as_deref().unwrap_or_default()))
                .ok_or_else(|| {
                    Error::usage("neither the file's name nor its first line names a language")
                        .hint("name it: agent code -l python FILE")
                })?,
            (None, None) => return Err(Error::usage("there is no code to run")),
        };
        if code.is_none() && !language.keeps_state() {
            return Err(Error::usage(format!("{} has no interpreter that is kept", language.name()))
                .hint("the prompt is for python and javascript"));
        }
        Ok(Self { language, libraries: Libraries::parse(language, &arguments.lib)?, code })
    }
}

fn read(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(MAX_CODE + 1).read_to_end(&mut bytes),
        false => {
            std::fs::File::open(file).and_then(|opened| opened.take(MAX_CODE + 1).read_to_end(&mut bytes))
        }
    };
    let name = file.display();
    read.map_err(|error| Error::usage(format!("{name} could not be read: {error}")))?;
    if bytes.len() as u64 > MAX_CODE {
        return Err(Error::usage(format!("{name} is longer than {} MiB", MAX_CODE >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| Error::usage(format!("{name} is not UTF-8 text")))
}

async fn run(machine: &Arc<Machine>, arguments: &CodeArgs, task: CodeTask) -> Result<u8> {
    let session = arguments.session.as_deref();
    let inside = CommandSandbox::start(machine, &arguments.options(), session).await?;
    let result = run_inside(&inside, arguments, &task).await;
    inside.end().await.and(result)
}

async fn run_inside(inside: &CommandSandbox, arguments: &CodeArgs, task: &CodeTask) -> Result<u8> {
    let runner = Runner::new(None);
    let mut shown = ShownFiles::new(&inside.config, arguments.artifacts.clone())?;
    match &task.code {
        None => converse(inside, &runner, task, &mut shown).await,
        Some(code) if arguments.json => inside.run(run_for_json(inside, &runner, task, code, &shown)).await,
        Some(code) => inside.run(run_plainly(inside, &runner, task, code, &mut shown)).await,
    }
}

/// The network of a session's sandbox is that session's.
struct AsItIs;

impl Reach for AsItIs {
    fn reach<'a>(&'a self, _: &'a [&'a str], _: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(async { Ok(None) })
    }
}

/// Asks about the hosts that libraries come from.
fn reach(inside: &CommandSandbox) -> &dyn Reach {
    match &inside.fresh {
        Some(fresh) => fresh.reach(inside.console.approver()),
        None => &AsItIs,
    }
}

/// As a program: standard input is the caller's, and both outputs are passed on.
async fn run_plainly(
    inside: &CommandSandbox,
    runner: &Runner,
    task: &CodeTask,
    code: &str,
    shown: &mut ShownFiles,
) -> Result<u8> {
    let (language, libraries) = (task.language, &task.libraries);
    let there = runner.prepare(&inside.sandbox, reach(inside), language, libraries).await?;
    let snippet = Snippet::plan(language, code, libraries, there)?;
    snippet.put(&inside.sandbox).await?;
    if let Some(build) = snippet.build_command(inside.timeout().unwrap_or(NO_TIMEOUT)) {
        let mut output = ProgramOutput::new();
        let mut written = Ok(());
        let built = inside
            .sandbox
            .run(build, &mut |piece| {
                if let (Ok(()), Output::Data(_, bytes)) = (&written, piece) {
                    written = output.write(Stream::Stderr, bytes);
                }
            })
            .await?;
        written?;
        if built.outcome != Outcome::Exited(0) {
            return Ok(code_of(&built));
        }
    }
    let run = Run::begin(&inside.sandbox).await?;
    let mut command = snippet.command(environment(&run), inside.timeout());
    (command.live_bytes, command.stdin) = (u64::MAX, true);
    let finished = pump(&inside.sandbox, command).await?;
    shown.show(&inside.sandbox, &run).await?;
    Ok(code_of(&finished))
}

fn request(inside: &CommandSandbox, task: &CodeTask, code: &str, run: &Run) -> Request {
    Request {
        language: task.language,
        code: code.to_owned(),
        libraries: task.libraries.clone(),
        timeout: inside.timeout().unwrap_or(NO_TIMEOUT),
        reset: false,
        display: run.directory().display().to_string(),
        is_notebook: false,
        env: environment(run),
    }
}

/// As a cell: one object with the output, the value and the exception.
async fn run_for_json(
    inside: &CommandSandbox,
    runner: &Runner,
    task: &CodeTask,
    code: &str,
    shown: &ShownFiles,
) -> Result<u8> {
    let mut collector = Collector::exact(inside.config.bounds.output_chars);
    let run = Run::begin(&inside.sandbox).await?;
    let request = request(inside, task, code, &run);
    let mut on_output = |output: Output<'_>| collector.push(output);
    let ran = runner.run(&inside.sandbox, reach(inside), &request, &mut on_output).await?;
    let files = shown.take(&inside.sandbox, &run).await?;
    let (mut object, code) = match &ran {
        Ran::Cell(cell) => {
            let report = CellReport::of(cell, request.timeout);
            let collected = collector.finish(None);
            let object = json!({
                "language": task.language.name(),
                "outcome": report.outcome,
                "exit_code": report.exit_code,
                "output": collected.text,
                "truncated": collected.truncated,
                "value": Some(&report.value).filter(|value| !value.is_empty()),
                "error": Some(&report.error).filter(|error| !error.is_empty()),
                "notes": report.notes,
                "duration_ms": cell.duration.as_millis() as u64,
            });
            (object, report.exit_code.map_or(124, |code| code as u8))
        }
        Ran::Snippet(ran) => {
            let collected = collector.finish(ran.finished.spool.as_deref());
            let object = json!({
                "language": task.language.name(),
                "outcome": describe(ran.finished.outcome, Some(request.timeout)),
                "exit_code": match ran.finished.outcome { Outcome::Exited(code) => Some(code), _ => None },
                "built": !ran.is_build_failure,
                "output": collected.text,
                "truncated": collected.truncated,
                "duration_ms": ran.finished.duration.as_millis() as u64,
            });
            (object, code_of(&ran.finished))
        }
    };
    object["artifacts"] = files.iter().map(ShownFile::to_json).collect();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{object}").and_then(|()| out.flush()).map_err(output_error)?;
    Ok(code)
}

/// The prompt: one cell after the other, until the end of the input.
async fn converse(
    inside: &CommandSandbox,
    runner: &Runner,
    task: &CodeTask,
    shown: &mut ShownFiles,
) -> Result<u8> {
    let (language, libraries) = (task.language, &task.libraries);
    inside
        .run(async { runner.prepare(&inside.sandbox, reach(inside), language, libraries).await.map(drop) })
        .await?;
    let mut prompt = CodePrompt::open(language)?;
    loop {
        let line;
        (prompt, line) = prompt.read().await?;
        match line {
            PromptLine::End => return Ok(0),
            PromptLine::Interrupted => continue,
            PromptLine::Code(code) if code.trim().is_empty() => continue,
            PromptLine::Code(code) => {
                let cell = cell(inside, runner, task, &code, shown);
                match inside.run(cell).await {
                    // The program was interrupted, and the next line waits until it has stopped.
                    Err(error) if error.exit_code() == ExitCode::Interrupted => {
                        stderr::write("interrupted\n")
                    }
                    result => result?,
                }
            }
        }
    }
}

async fn cell(
    inside: &CommandSandbox,
    runner: &Runner,
    task: &CodeTask,
    code: &str,
    shown: &mut ShownFiles,
) -> Result<()> {
    let run = Run::begin(&inside.sandbox).await?;
    let request = request(inside, task, code, &run);
    let mut terminal = ProgramOutput::new();
    let (mut written, mut is_line_open) = (Ok(()), false);
    let ran = runner
        .run(&inside.sandbox, reach(inside), &request, &mut |output| {
            if let (Ok(()), Output::Data(stream, bytes)) = (&written, output) {
                is_line_open = bytes.last() != Some(&b'\n');
                written = terminal.write(stream, bytes);
            }
        })
        .await?;
    written?;
    let Ran::Cell(cell) = ran else { return Ok(()) };
    let report = CellReport::of(&cell, request.timeout);
    if is_line_open {
        terminal.write(Stream::Stdout, b"\n")?;
    }
    if !report.value.is_empty() {
        terminal.write(Stream::Stdout, format!("{}\n", report.value).as_bytes())?;
    }
    terminal.write(Stream::Stderr, report.error.as_bytes())?;
    if report.exit_code.is_none() || !report.notes.is_empty() {
        let notes = report.notes.iter().map(|note| format!("[{note}]\n")).collect::<String>();
        terminal.write(Stream::Stderr, format!("{}\n{notes}", report.outcome).as_bytes())?;
    }
    shown.show(&inside.sandbox, &run).await
}
