//! Use as a library: a sandbox of your own, and a model's tool calls run in it.
//!
//! `cargo run --example library`

use agent::Result;
use agent::event::{Events, Limits, Listener, Record};
use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Network, Sandbox, Spec, WorkspaceMount};
use agent::tools::{Bounds, Context, Registry};
use serde_json::json;
use std::time::Duration;

/// Everything that happens arrives here, the same that `--json` prints.
struct Print;

impl Listener for Print {
    fn on_event(&mut self, _: &Record, line: &[u8]) -> Result<()> {
        println!("{}", String::from_utf8_lossy(line));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let spec = Spec {
        session: "library-example".to_owned(),
        image: None,
        limits: Limits::default(),
        network: Network::None,
        runtime: None,
        idle_ttl: Duration::from_secs(10),
        ephemeral: true,
        delete_after: None,
        workspace: WorkspaceMount::Empty,
    };
    let (channel, _) = Local.start(&spec, &|_, _, _| {}).await?;
    let sandbox = Sandbox::connect(channel).await?;

    let events = Events::new(1);
    events.listen(Box::new(Print));
    let context = Context { sandbox: &sandbox, events: &events, call: "call-1", bounds: Bounds::default() };
    if let Some(tool) = Registry::builtin().get("run_commands") {
        let result = tool.call(context, json!({ "command": "echo hello from inside; id -u" })).await?;
        events.flush().await?;
        println!("{}", result.text);
    }

    sandbox.shutdown().await;
    Local.destroy(&spec.session).await
}
