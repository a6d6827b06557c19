//! The form in which the page is sent an event of the session: everything in it made safe to show, as one server-sent event.

use super::{lines, markdown};
use agent_base::duration_text::duration_text;
use agent_base::sanitise;
use agent_event::{Event, FileEdit, Record};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt::Write;

/// Bytes of one string; the beginning and the end of what is longer are shown.
const MAX_TEXT: usize = 64 << 10;
/// Characters of a call's summary.
const MAX_SHORT: usize = 200;
/// Files of one call whose change is shown.
const MAX_EDITS: usize = 20;
/// Members of one list or object.
const MAX_MEMBERS: usize = 500;

/// One server-sent event. `id` is where a client continues after a break, so only what the session file keeps has one.
pub fn frame(id: Option<u64>, name: &str, data: &Value) -> Bytes {
    let mut text = String::new();
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    // JSON has no line feeds of its own.
    let _ = write!(text, "event: {name}\ndata: {data}\n\n");
    text.into()
}

/// The frame of a record of the session file, or of a live one.
pub fn of_record(record: &Record) -> Option<Bytes> {
    let (name, data) = shown(record)?;
    let id = (!record.event.is_live_only()).then_some(record.seq);
    Some(frame(id, &name, &data))
}

/// The event's name and what is shown of it; `None` for what a user does not need.
fn shown(record: &Record) -> Option<(String, Value)> {
    let event = match &record.event {
        // Its text goes through the formatter (see `feed`), its messages are the conversation itself.
        Event::TextDelta { .. } | Event::CallForm { .. } => return None,
        Event::ToolStarted { id, name, arguments } => json!({
            "type": "tool_started",
            "id": id,
            "name": visible(name),
            "short": short(arguments),
            "arguments": written_out(arguments),
        }),
        Event::AssistantMessage { text, reasoning, tool_calls, usage, finish_reason, .. } => json!({
            "type": "assistant_message",
            "html": markdown::to_html(text),
            "text": output(text),
            "reasoning": reasoning.as_deref().map(output),
            "calls": tool_calls.len(),
            "finish_reason": finish_reason,
            "usage": usage,
        }),
        Event::AnswerStopped { text, reason } => json!({
            "type": "answer_stopped",
            "html": markdown::to_html(text),
            "reason": visible(reason),
        }),
        Event::Rewound { prompt } => json!({"type": "rewound", "prompt": prompt}),
        Event::ToolFinished { id, name, ok, exit_code, duration_ms, truncated, result, edits, .. } => json!({
            "type": "tool_finished",
            "id": id,
            "name": visible(name),
            "ok": ok,
            "exit_code": exit_code,
            "took": duration_text(*duration_ms),
            "truncated": truncated,
            "result": output(result),
            "edits": edits.iter().take(MAX_EDITS).map(edit).collect::<Vec<_>>(),
        }),
        Event::ToolOutput { id, stream, data } => {
            json!({"type": "tool_output", "id": id, "stream": stream, "data": output(data)})
        }
        Event::ReasoningDelta { text } => json!({"type": "reasoning_delta", "text": output(text)}),
        other => match lines::of(other) {
            Some((text, kind)) => json!({"type": "line", "text": visible(&text), "kind": kind}),
            None => {
                let mut value = serde_json::to_value(other).ok()?;
                make_safe(&mut value);
                value
            }
        },
    };
    named(event, record)
}

/// The change of a file that a call wrote.
fn edit(edit: &FileEdit) -> Value {
    json!({
        "path": visible(&edit.path),
        "is_new": edit.is_new,
        "added": edit.added,
        "removed": edit.removed,
        "diff": visible(&edit.diff),
        "left_out": edit.left_out,
    })
}

/// The first line of the argument that says most.
pub fn short(arguments: &Value) -> String {
    let known = ["command", "path", "code", "task"].iter().find_map(|name| arguments.get(name));
    let first = known.or_else(|| arguments.as_object()?.values().next()).unwrap_or(arguments);
    let text = first.as_str().map_or_else(|| first.to_string(), str::to_owned);
    visible(text.lines().next().unwrap_or_default()).chars().take(MAX_SHORT).collect()
}

/// One argument a line, or a block of its own where it has several.
fn written_out(arguments: &Value) -> String {
    let Some(arguments) = arguments.as_object() else {
        return visible(arguments.as_str().unwrap_or(&arguments.to_string()));
    };
    let mut text = String::new();
    for (name, value) in arguments.iter().take(MAX_MEMBERS) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let between = if value.contains('\n') { ":\n" } else { ": " };
        let _ = writeln!(text, "{name}{between}{}", cut(&value));
    }
    visible(text.trim_end())
}

fn named(mut value: Value, record: &Record) -> Option<(String, Value)> {
    let name = value["type"].as_str()?.to_owned();
    value["seq"] = json!(record.seq);
    value["time"] = json!(record.time);
    Some((name, value))
}

/// Makes every string in `value` safe to show, and bounds all of it.
fn make_safe(value: &mut Value) {
    match value {
        Value::String(text) => *text = visible(text),
        Value::Array(items) => {
            items.truncate(MAX_MEMBERS);
            items.iter_mut().for_each(make_safe);
        }
        Value::Object(members) => {
            let old = std::mem::take(members);
            let safe = old.into_iter().take(MAX_MEMBERS).map(|(name, mut value)| {
                make_safe(&mut value);
                (visible(&name), value)
            });
            *members = safe.collect::<Map<_, _>>();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Text in which nothing is hidden: what would control a terminal or reorder text is shown as an escape.
pub fn visible(text: &str) -> String {
    agent_base::visible::visible(&cut(text))
}

/// Output of a program: its colours and other sequences are removed.
pub fn output(text: &str) -> String {
    sanitise::plain(&cut(text)).into_owned()
}

/// The beginning and the end of a text that is too long.
fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return Cow::Borrowed(text);
    }
    let begin = boundary(text, MAX_TEXT / 2);
    let end = boundary(text, text.len() - MAX_TEXT / 2);
    Cow::Owned(format!("{}\n… {} bytes are left out …\n{}", &text[..begin], end - begin, &text[end..]))
}

/// The last place at or before byte `at` where a character begins.
pub fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_event::Stream;

    fn record(event: Event) -> Record {
        Record { seq: 7, time: String::new(), session: String::new(), event }
    }

    fn text_of(event: Event) -> String {
        let frame = of_record(&record(event)).expect("a frame");
        String::from_utf8(frame.to_vec()).expect("text")
    }

    #[test]
    fn only_what_the_file_keeps_has_an_id() {
        assert!(text_of(Event::Notice { text: "x".into() }).starts_with("id: 7\nevent: line\ndata: {"));
        let live =
            Event::ToolOutput { id: "c".into(), stream: Stream::Stdout, data: "\x1b[31mred\x1b[0m".into() };
        let text = text_of(live);
        assert!(text.starts_with("event: tool_output\n") && text.contains("\"red\""), "{text}");
    }

    #[test]
    fn what_reorders_text_is_an_escape_and_long_text_is_cut() {
        let text = text_of(Event::Denied { what: "a\u{202e}b\x07".into(), rule: "\n".repeat(3) });
        assert!(text.contains("a\\\\u{202e}b\\\\u{7}"), "{text}");
        assert_eq!(text.matches("\n\n").count(), 1, "{text}");
        // A return and tags were dropped or shown as they are.
        assert_eq!(
            visible("1  # fine\rimport os\u{e0041}\u{fe01}"),
            "1  # fine␍import os\\u{e0041}\\u{fe01}"
        );
        let long = visible(&"é".repeat(MAX_TEXT));
        assert!(long.len() < MAX_TEXT + 100 && long.contains("bytes are left out"));
    }
}
