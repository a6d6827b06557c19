//! Arbitrary text as a model's answer, searched for tool calls while it streams and at its end: `cargo +nightly fuzz run recover`.
//!
//! No answer may cost more than a moment, whatever is in it.

#![no_main]

use agent_model::ToolSpec;
use agent_model::tool_calls::holdback::Holdback;
use agent_model::tool_calls::recover::recover;
use libfuzzer_sys::fuzz_target;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Processor time, so that other work on the machine does not count: far more than any answer takes with coverage instrumentation.
const LIMIT: Duration = Duration::from_secs(5);

static TOOLS: LazyLock<[ToolSpec; 2]> = LazyLock::new(|| {
    let tool = |name: &str, properties| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: Arc::new(json!({ "type": "object", "properties": properties })),
    };
    let text = json!({ "type": "string" });
    [
        tool("run_commands", json!({ "command": text, "timeout_s": { "type": "integer" } })),
        tool("write_file", json!({ "path": text, "data": text })),
    ]
});

/// What this thread has used of a processor.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

fuzz_target!(|text: &str| {
    let started = processor_time();
    let (mut holdback, mut shown) = (Holdback::default(), 0);
    // In pieces of some characters, and repeated: work that grows with the square shows in long answers.
    let answer = text.repeat((64 << 10) / text.len().max(1) + 1);
    let ends = answer.char_indices().map(|(at, _)| at).step_by(1021).chain([answer.len()]);
    for end in ends {
        let showable = holdback.showable(&answer[..end], shown, &*TOOLS);
        assert!(showable <= end && answer.is_char_boundary(showable));
        shown = shown.max(showable);
    }
    let _ = recover(&answer, &*TOOLS, false);
    let recovered = recover(text, &*TOOLS, false);
    let cut_off = recover(text, &*TOOLS, true);
    let spent = processor_time().saturating_sub(started);
    assert!(spent < LIMIT, "{spent:?} for {} bytes", text.len());
    // What was shown while it came is what is left, or the beginning of it.
    let mut holdback = Holdback::default();
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let shown = ends.fold(0, |shown, end| holdback.showable(&text[..end], shown, &*TOOLS));
    let left = recovered.as_ref().map_or(text, |recovered| &recovered.text);
    // A bracket alone is what a call has left over.
    let shown = text[..shown].trim().trim_matches(['{', '}', '[', ']', ',', ';', '`', ' ', '\n']);
    assert!(left.contains(shown), "{shown:?} was shown of {left:?}");
    for recovered in recovered.into_iter().chain(cut_off) {
        assert!(recovered.text.len() <= text.len());
    }
});
