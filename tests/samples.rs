//! Recorded answers of real servers, replayed to the client.

use crate::endpoint_client::{Seen, ask, client};
use crate::support::endpoint::endpoint;
use agent::model::Reply;

async fn reply(name: &str) -> (Reply, Seen) {
    let endpoint = endpoint().sample(name).start();
    let (reply, seen) = ask(&client(&endpoint)).await;
    (reply.unwrap_or_else(|error| panic!("{name}: {error}")), seen)
}

#[tokio::test]
async fn text() {
    for (name, words) in [
        ("litellm/text", "Hello from mock"),
        ("litellm/text-stream", "Hello from mock"),
        ("litellm/slow-stream", "slow"),
        ("litellm/limited1", "ok"),
        ("llama-server-qwen2.5-coder-1.5b/badrole", "Qwen is a large language model"),
    ] {
        let (reply, seen) = reply(name).await;
        assert!(reply.text.starts_with(words), "{name}: {reply:?}");
        assert_eq!(seen.text, reply.text);
        assert_eq!(reply.tool_calls, []);
    }
}
