//! Compares `run_code` with a server of E2B's code interpreter: the same snippets through both, as a Markdown table.
//!
//! ```text
//! cargo run --example code_interpreter -- http://localhost:49999
//! ```
//!
//! The server is `template/server` of github.com/e2b-dev/code-interpreter, with Jupyter behind it. Ours runs in the local
//! sandbox, with the Python and Node of this machine; both need matplotlib, pandas and Pillow.

use agent::error::{Error, Result};
use agent::event::{Content, Events};
use agent::log::{ArtifactLimits, Artifacts};
use agent::machine::Machine;
use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Sandbox, Spec};
use agent::tools::code::display::{Run, collect};
use agent::tools::code::{CellReport, Language, Libraries, Ran, Request, Runner};
use agent::tools::{Bounds, Collector, Context};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const SNIPPETS: &str = include_str!("code_interpreter/snippets.json");
/// Of a cell, on both sides: one that is not answered is a row of the table as well.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest text in a cell of the table.
const SHOWN: usize = 60;

/// Cells that run one after the other in one interpreter. The last one is compared.
#[derive(Deserialize)]
struct Snippet {
    name: String,
    language: String,
    cells: Vec<String>,
}

/// What came of a cell.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Standard output and standard error.
    printed: String,
    value: String,
    /// The last line of the exception.
    error: String,
    /// What else there was to see, by its kind.
    kinds: BTreeSet<String>,
    notes: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server =
        std::env::args().nth(1).ok_or_else(|| Error::usage("name the server: http://localhost:49999"))?;
    let snippets: Vec<Snippet> = serde_json::from_str(SNIPPETS)?;
    let ours = Ours::start().await?;
    let theirs = Theirs { server, client: reqwest::Client::new() };
    let mut same = Vec::new();
    println!("| snippet | E2B | `run_code` |\n|---|---|---|");
    for snippet in &snippets {
        let (theirs, ours) = tokio::join!(theirs.run(snippet), ours.run(snippet));
        let name = format!("{}: {}", snippet.language, snippet.name);
        let [theirs, ours] = [theirs, ours].map(|seen| seen.unwrap_or_else(Seen::nothing));
        match (theirs == ours, ours.differs_only_by_notes(&theirs)) {
            (true, _) => same.push(name),
            (false, true) => println!("| {name} | the same | and {} |", ours.notes.join("; ")),
            (false, false) => println!("| {name} | {} | {} |", theirs.words(), ours.words()),
        }
    }
    ours.sandbox.shutdown().await;
    println!("\n{} of {} are the same: {}.", same.len(), snippets.len(), same.join(", "));
    Ok(())
}

impl Seen {
    /// What came of a cell that was not answered.
    fn nothing(error: Error) -> Self {
        Self { notes: vec![error.to_string()], ..Self::default() }
    }

    fn differs_only_by_notes(&self, other: &Self) -> bool {
        let parts =
            |seen: &Self| (seen.printed.clone(), seen.value.clone(), seen.error.clone(), seen.kinds.clone());
        parts(self) == parts(other)
    }

    fn words(&self) -> String {
        let code = |text: &str| format!("`{}`", shortened(text).replace('|', "\\|"));
        let mut parts = Vec::new();
        if !self.printed.is_empty() {
            parts.push(format!("prints {}", code(&self.printed)));
        }
        if !self.value.is_empty() {
            parts.push(format!("value {}", code(&self.value)));
        }
        if !self.error.is_empty() {
            parts.push(format!("error {}", code(&self.error)));
        }
        parts.extend(self.kinds.iter().cloned());
        parts.extend(self.notes.iter().cloned());
        if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
    }
}

fn shortened(text: &str) -> String {
    let text = text.trim_end().replace('\n', "⏎");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

struct Theirs {
    server: String,
    client: reqwest::Client,
}

impl Theirs {
    async fn run(&self, snippet: &Snippet) -> Result<Seen> {
        let context = json!({ "language": snippet.language, "cwd": "/tmp" });
        let context: Value = serde_json::from_str(&self.post("contexts", &context).await?)?;
        let seen = self.execute(&context["id"], &snippet.cells).await;
        let address = format!("{}/contexts/{}", self.server, context["id"].as_str().unwrap_or_default());
        // A context whose kernel is gone cannot be removed, and is not used again.
        let _ = self.client.delete(address).timeout(TIMEOUT).send().await;
        seen
    }

    async fn execute(&self, context: &Value, cells: &[String]) -> Result<Seen> {
        let mut seen = Seen::default();
        for code in cells {
            let request = json!({ "code": code, "context_id": context });
            seen = events(&self.post("execute", &request).await?)?;
        }
        Ok(seen)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<String> {
        let request = self.client.post(format!("{}/{path}", self.server)).json(body).timeout(TIMEOUT);
        request.send().await.map_err(failed)?.text().await.map_err(failed)
    }
}

fn failed(error: reqwest::Error) -> Error {
    match error.is_timeout() {
        true => Error::unexpected(format!("no answer within {} s", TIMEOUT.as_secs())),
        false => Error::unexpected("no answer").caused_by(error),
    }
}

/// The server's events, a JSON object a line.
fn events(answer: &str) -> Result<Seen> {
    let mut seen = Seen::default();
    for line in answer.lines().filter(|line| !line.is_empty()) {
        let event: Value = serde_json::from_str(line)?;
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        match text("type") {
            "stdout" | "stderr" => seen.printed += text("text"),
            "error" => {
                seen.error = format!("{}: {}", text("name"), text("value")).trim_end_matches(": ").to_owned()
            }
            "result" => {
                if event["is_main_result"] == true {
                    seen.value = text("text").to_owned();
                }
                let others = event.as_object().into_iter().flatten();
                let kinds = others.filter(|(key, value)| {
                    !matches!(key.as_str(), "type" | "text" | "is_main_result" | "extra") && !value.is_null()
                });
                seen.kinds.extend(kinds.map(|(key, _)| key.clone()));
            }
            _ => {}
        }
    }
    Ok(seen)
}

struct Ours {
    sandbox: Sandbox,
    store: tempfile::TempDir,
}

impl Ours {
    async fn start() -> Result<Self> {
        let spec = Spec { idle_ttl: 10 * TIMEOUT, ..Spec::new(format!("compare-{}", std::process::id())) };
        let (channel, _) =
            Local::new(Arc::new(Machine::of_this_process())).start(&spec, &|_, _, _| {}).await?;
        Ok(Self { sandbox: Sandbox::connect(channel).await?, store: tempfile::tempdir()? })
    }

    async fn run(&self, snippet: &Snippet) -> Result<Seen> {
        let language =
            Language::parse(&snippet.language).ok_or_else(|| Error::usage("an unknown language"))?;
        let runner = Runner::new(None);
        let mut seen = Seen::default();
        for code in &snippet.cells {
            seen = self.cell(&runner, language, code).await?;
        }
        runner.discard().await;
        Ok(seen)
    }

    async fn cell(&self, runner: &Runner, language: Language, code: &str) -> Result<Seen> {
        let run = Run::begin(&self.sandbox).await?;
        let env = run.environment().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let request = Request {
            language,
            code: code.to_owned(),
            libraries: Libraries::parse(language, &[])?,
            timeout: TIMEOUT,
            reset: false,
            display: run.directory().display().to_string(),
            env,
            is_notebook: false,
        };
        let mut collector = Collector::new(Bounds::default().output_chars);
        let ran = runner.run(&self.sandbox, &(), &request, &mut |output| collector.push(output)).await?;
        let Ran::Cell(cell) = ran else { return Err(Error::usage("its state is not kept")) };
        let report = CellReport::of(&cell, TIMEOUT);
        let exit_code = report.exit_code.filter(|code| *code > 1 && report.notes.is_empty());
        let mut notes = report.notes;
        notes.extend(exit_code.map(|code| format!("exit code {code}")));
        let error =
            report.error.lines().rfind(|line| !line.starts_with("    at ")).unwrap_or_default().to_owned();
        let kinds = self.kinds(&run).await?;
        Ok(Seen { printed: collector.finish(None).text, value: report.value, error, kinds, notes })
    }

    async fn kinds(&self, run: &Run) -> Result<BTreeSet<String>> {
        let (events, artifacts) =
            (Events::new(1), Artifacts::of_session(self.store.path(), ArtifactLimits::default()));
        let context = Context {
            sandbox: &self.sandbox,
            events: &events,
            artifacts: &artifacts,
            call: "",
            reach: &(),
            bounds: Bounds::default(),
        };
        let content = collect(context, run).await?.content;
        let kinds = content.into_iter().filter_map(|part| match part {
            Content::Image { artifact } | Content::Artifact { artifact } => Some(artifact.media_type),
            Content::Text { .. } => None,
        });
        let short = |kind: String| {
            let name = kind.rsplit('/').next().unwrap_or_default();
            name.trim_end_matches("+xml").to_owned()
        };
        Ok(kinds.map(short).collect())
    }
}
