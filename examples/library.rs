//! Use as a library: a complete agent with a tool of its own. `Builder::open` and a `Frontend` have what else a session tells
//! and asks its user.
//!
//! `cargo run --example library -- http://127.0.0.1:11434/v1 qwen3 "which port is free?"`

use agent::model::Endpoint;
use agent::session::{Builder, ModelSettings};
use agent::tools::{Context, Tool, ToolResult};
use agent::{Error, Result, machine::Machine};
use futures_util::future::{BoxFuture, FutureExt};
use std::sync::Arc;

/// A tool that runs on the host, in this program.
pub struct FreePort;

impl Tool for FreePort {
    fn name(&self) -> &str {
        "free_port"
    }
    fn description(&self) -> &str {
        "Finds a TCP port of the host that is free."
    }
    fn run<'a>(&'a self, _: Context<'a>, _: serde_json::Value) -> BoxFuture<'a, Result<ToolResult>> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        async { Ok(ToolResult::success(format!("port {}", listener?.port()))) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let [base_url, model, prompt] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err(Error::usage("usage: library BASE_URL MODEL PROMPT"));
    };
    let model = ModelSettings::openai(Endpoint::new(base_url, model)?)?;
    let mut builder = Builder::new(Machine::of_this_process(), std::env::current_dir()?, model)?;
    builder.tools.add(Arc::new(FreePort))?;
    println!("{}", builder.answer(prompt).await?);
    Ok(())
}
