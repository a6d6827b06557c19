//! Use as a library: a complete agent with a tool of its own.
//!
//! `cargo run --example library -- http://127.0.0.1:11434/v1 qwen3 "which port is free?"`

use agent::Result;
use agent::event::{Events, Listener, Record};
use agent::log::Store;
use agent::model::{Endpoint, OpenAi};
use agent::sandbox::local::Local;
use agent::session::{Builder, Frontend, ModelSettings, SandboxSettings, WorkspaceSettings, finish};
use agent::tools::{Context, Tool, ToolResult};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// A tool that runs on the host, in this program.
struct FreePort;

impl Tool for FreePort {
    fn name(&self) -> &str {
        "free_port"
    }
    fn description(&self) -> &str {
        "Finds a TCP port of the host that is free."
    }
    fn parameters(&self) -> Value {
        json!({ "type": "object", "properties": {} })
    }
    fn run<'a>(&'a self, _: Context<'a>, _: Value) -> BoxFuture<'a, Result<ToolResult>> {
        Box::pin(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            Ok(ToolResult::success(format!("port {}", listener.local_addr()?.port())))
        })
    }
}

/// A frontend that prints every event, and has nobody to ask.
struct Print(Arc<Events>);

impl Frontend for Print {
    fn events(&self) -> &Arc<Events> {
        &self.0
    }
}

struct ToStdout;

impl Listener for ToStdout {
    fn on_event(&mut self, _: &Record, line: &[u8]) -> Result<()> {
        println!("{}", String::from_utf8_lossy(line));
        Ok(())
    }
}

/// One prompt, from the settings to the answer.
pub async fn ask(base_url: &str, model: &str, workspace: &Path, kept: &Path, prompt: &str) -> Result<String> {
    let events = Arc::new(Events::new(1));
    events.listen(Box::new(ToStdout));
    let frontend = Arc::new(Print(events));
    let mut builder = Builder::new(
        ModelSettings::new(Arc::new(OpenAi::new(Endpoint::new(base_url, model)?)?)),
        WorkspaceSettings::new(workspace),
        SandboxSettings::new(Arc::new(Local)),
        Store::at(kept),
    );
    builder.tools.add(Arc::new(FreePort))?;
    let mut session = builder.open(frontend.clone()).await?;
    let answer = session.prompt(prompt).await;
    finish(&*frontend, Some(&session), &answer.as_ref().map(|_| ()).map_err(agent::Error::repeat)).await?;
    Ok(answer?.text)
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [base_url, model, prompt] = arguments.as_slice() else {
        return Err(agent::Error::usage("usage: library BASE_URL MODEL PROMPT"));
    };
    let kept = std::env::temp_dir().join("agent-library-example");
    let answer = ask(base_url, model, &std::env::current_dir()?, &kept, prompt).await?;
    println!("{answer}");
    Ok(())
}
