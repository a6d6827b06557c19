//! Tries which other protocols an endpoint speaks, for the advice of `agent doctor --endpoint`.

use super::{MAX_TOKENS, Step, TIMEOUT, thermometer, user};
use crate::{ChatModel, Endpoint, OpenAi, Protocol, Request};
use serde::Serialize;

/// A protocol in which the model called a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SpokenProtocol {
    /// The protocol.
    pub protocol: Protocol,
    /// Set if reasoning came that has to go back as it is: only there it is carried from one call to the next.
    pub carries_reasoning: bool,
}

/// Asks for a tool call in the protocol of each of these endpoints, one request of at most 256 tokens and 30 s each. What does not work
/// is left out: most endpoints speak one protocol.
pub async fn spoken_protocols(
    endpoints: impl IntoIterator<Item = Endpoint>,
    on_step: &mut (dyn FnMut(Step<'_>) + Send),
) -> Vec<SpokenProtocol> {
    let mut spoken = Vec::new();
    for mut endpoint in endpoints {
        let protocol = endpoint.protocol;
        on_step(Step::Trying(protocol.name()));
        endpoint.max_tokens = Some(endpoint.max_tokens.map_or(MAX_TOKENS, |tokens| tokens.min(MAX_TOKENS)));
        endpoint.retries.attempts = 0;
        let Ok(model) = OpenAi::new(endpoint) else { continue };
        let question = vec![user("Use the tool to look up the temperature in Paris.")].into();
        let tools = [thermometer()];
        let request = Request { tools: &tools, ..Request::plain(&question) };
        let asked = tokio::time::timeout(TIMEOUT, model.ask(request, &mut |_| {})).await;
        if let Ok(Ok(reply)) = asked
            && !reply.tool_calls.is_empty()
            && model.takes_tools()
        {
            spoken.push(SpokenProtocol { protocol, carries_reasoning: !reply.opaque.is_empty() });
        }
    }
    spoken
}
