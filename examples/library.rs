//! Use as a library: a complete agent with a tool of its own.
//!
//! `cargo run --example library -- http://127.0.0.1:11434/v1 qwen3 "which port is free?"`

use agent::event::Events;
use agent::sandbox::machine::Machine;
use agent::session::{Builder, ModelSettings};
use agent::tools::{Context, Tool, ToolResult};
use agent::{Error, Result, model::Endpoint};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;
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
    fn run<'a>(&'a self, _: Context<'a>, _: Value) -> BoxFuture<'a, Result<ToolResult>> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        async { Ok(ToolResult::success(format!("port {}", listener?.port()))) }.boxed()
    }
}

pub async fn ask(mut builder: Builder, prompt: &str) -> Result<String> {
    builder.tools.add(Arc::new(FreePort))?;
    // `Events` can have listeners; `Frontend` has what else a session tells and asks its user.
    let mut session = builder.open(Arc::new(Arc::new(Events::new(1)))).await?;
    let answer = session.prompt(prompt).await;
    session.finish(&answer).await?;
    Ok(answer?.text)
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [base_url, model, prompt] = arguments.as_slice() else {
        return Err(Error::usage("usage: library BASE_URL MODEL PROMPT"));
    };
    let model = ModelSettings::openai(Endpoint::new(base_url, model)?)?;
    let builder = Builder::new(Machine::of_this_process(), std::env::current_dir()?, model)?;
    println!("{}", ask(builder, prompt).await?);
    Ok(())
}
