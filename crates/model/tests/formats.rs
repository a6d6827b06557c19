//! Every published format of calls, written out: read as a whole, while it comes, and cut off anywhere.

use agent_event::ToolCall;
use agent_model::ToolSpec;
use agent_model::tool_calls::holdback::Holdback;
use agent_model::tool_calls::recover::{Recovered, RecoveredCall, recover};
use agent_model::tool_calls::repair::repair;
use serde_json::{Value, json};

const CALLS: &str = include_str!("formats/calls.txt");
const UNREADABLE: &str = include_str!("formats/unreadable.txt");
const ANSWERS: &str = include_str!("formats/answers.txt");

fn tools() -> Vec<ToolSpec> {
    let text = json!({ "type": "string" });
    let tool = |name: &str, properties: Value, required: &[&str]| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: json!({ "type": "object", "properties": properties, "required": required }).into(),
    };
    let command =
        json!({ "command": text, "timeout_s": { "type": "integer" }, "background": { "type": "boolean" } });
    let file = json!({ "type": "object", "properties": { "path": text, "data": text } });
    // Types as schemas of MCP servers say them: by alternatives, and elsewhere.
    let place = json!({ "type": "object", "properties": { "city": text, "floor": { "type": "integer" } } });
    let option = json!({
        "value": { "type": ["string", "object", "null"] },
        "level": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
        "place": { "anyOf": [place, { "type": "null" }] },
    });
    vec![
        tool("run_commands", command, &["command"]),
        tool("read_file", json!({ "path": text }), &["path"]),
        tool("write_file", json!({ "path": text, "data": text }), &["path", "data"]),
        tool(
            "edit_file",
            json!({ "path": text, "old": text, "new": text, "line": { "type": "integer" } }),
            &["path", "old", "new"],
        ),
        tool("write_files", json!({ "files": { "type": "array", "items": file } }), &["files"]),
        tool("set_option", option, &[]),
        tool("update_plan", json!({ "steps": { "type": "array", "items": text } }), &[]),
    ]
}

/// A sample: its name, the text of the model, and what is expected of it, as JSON.
struct Sample {
    name: &'static str,
    text: &'static str,
    expected: Vec<Value>,
}

fn samples(file: &'static str) -> Vec<Sample> {
    let sample = |part: &'static str| {
        let (name, rest) = part.split_once('\n').expect("a name");
        let end = rest.find("\n---- ").unwrap_or(rest.trim_end_matches('\n').len());
        let expected = rest[end..].lines().filter_map(|line| line.strip_prefix("---- "));
        let expected = expected.map(|json| serde_json::from_str(json).expect(json)).collect();
        Sample { name, text: &rest[..end], expected }
    };
    file.strip_prefix("==== ").expect("a sample").split("\n==== ").map(sample).collect()
}

/// The calls as they run: put right by the schema, as for those that came as such.
fn calls(recovered: &Recovered, tools: &[ToolSpec]) -> Vec<Value> {
    let call = |call: &RecoveredCall| {
        let mut call =
            ToolCall { id: "1".into(), name: call.name.clone(), arguments: call.arguments.clone() };
        repair(&mut call, tools, false);
        json!({ "name": call.name, "arguments": call.arguments.json() })
    };
    recovered.calls.iter().map(call).collect()
}

/// Returns what is shown of `text` that comes in pieces which end at `ends`.
fn shown(text: &str, ends: impl Iterator<Item = usize>, tools: &[ToolSpec]) -> usize {
    let (mut holdback, mut shown) = (Holdback::default(), 0);
    for end in ends {
        let next = holdback.showable(&text[..end], shown, tools);
        assert!(next >= shown && next <= end && text.is_char_boundary(next), "{text}");
        shown = next;
    }
    shown
}

fn ends(text: &str) -> impl Iterator<Item = usize> {
    text.char_indices().skip(1).map(|(at, _)| at).chain([text.len()])
}

/// Returns what was shown and is not the beginning of what is left, wherever the text was cut.
fn taken_back(text: &str, left: &str, tools: &[ToolSpec]) -> Option<String> {
    let cuts = ends(text).map(|cut| shown(text, [cut, text.len()].into_iter(), tools));
    let mut shown = cuts.chain([shown(text, ends(text), tools)]);
    let wrong = shown.find(|shown| !left.starts_with(text[..*shown].trim()))?;
    Some(format!("{:?} was shown of {left:?}", &text[..wrong]))
}

/// Checks all samples, and fails with all that is wrong.
fn check_all(file: &'static str, check: impl Fn(&Sample, &mut Vec<String>)) {
    let mut wrong = Vec::new();
    samples(file).iter().for_each(|sample| check(sample, &mut wrong));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_format_is_read_and_its_marks_are_never_shown() {
    let tools = tools();
    check_all(CALLS, |Sample { name, text, expected }, wrong| {
        let Some(recovered) = recover(text, &tools, false) else {
            return wrong.push(format!("{name}: nothing is read in {text:?}"));
        };
        let left = expected.get(1).and_then(Value::as_str).unwrap_or_default();
        let calls = Value::from(calls(&recovered, &tools));
        if calls != expected[0] || recovered.text != left {
            wrong.push(format!("{name}: {calls} and {:?} of {text:?}", recovered.text));
        }
        wrong.extend(taken_back(text, left, &tools).map(|what| format!("{name}: {what}")));
    });
}

#[test]
fn what_was_cut_off_does_not_run_in_part() {
    let tools = tools();
    check_all(CALLS, |Sample { name, text, expected }, wrong| {
        for end in ends(text) {
            let Some(recovered) = recover(&text[..end], &tools, true) else { continue };
            for (call, whole) in calls(&recovered, &tools).iter().zip(expected[0].as_array().expect("calls"))
            {
                let is_unreadable = call["arguments"].is_null() || call["name"] == "";
                if !is_unreadable && call != whole {
                    wrong.push(format!("{name}: {call} of {:?}", &text[..end]));
                }
            }
        }
    });
}

#[test]
fn what_has_the_shape_of_a_call_and_cannot_be_read_is_one() {
    let tools = tools();
    check_all(UNREADABLE, |Sample { name, text, expected }, wrong| {
        let recovered = recover(text, &tools, false).unwrap_or_default();
        let is_one = |call: &RecoveredCall| {
            let could_run = call.arguments.parse().is_ok_and(|(value, _)| !value.is_string());
            call.name == expected[0] && (call.name.is_empty() || !could_run)
        };
        let is_left = expected.get(1).is_none_or(|left| recovered.text == *left);
        if recovered.calls.len() != 1 || !recovered.calls.iter().all(is_one) || !is_left {
            wrong.push(format!("{name}: {recovered:?} of {text:?}"));
        }
        wrong.extend(taken_back(text, &recovered.text, &tools).map(|what| format!("{name}: {what}")));
    });
}

#[test]
fn answers_are_no_calls() {
    let tools = tools();
    check_all(ANSWERS, |Sample { name, text, .. }, wrong| {
        let recovered = recover(text, &tools, false);
        wrong.extend(recovered.map(|recovered| format!("{name}: {recovered:?}")));
        wrong.extend(taken_back(text, text, &tools).map(|what| format!("{name}: {what}")));
    });
}

/// A part of an answer, with something that looks like a call in some of them.
fn part(samples: &[Sample], random: &mut fastrand::Rng) -> String {
    let words = [
        "The",
        "tool",
        "run_commands",
        "reads",
        "a",
        "file",
        "<",
        "`read_file`",
        "{x}",
        "[1]",
        "it's",
        "\"so\"",
        "—",
        "é",
    ];
    let sentence = |random: &mut fastrand::Rng| {
        let count = random.usize(3..14);
        let words: Vec<&str> = (0..count).map(|_| words[random.usize(..words.len())]).collect();
        format!("So {}.", words.join(" "))
    };
    let call = samples[random.usize(..samples.len())].text.replace("```", "");
    match random.u8(0..9) {
        0..3 => sentence(random),
        3 => format!("- {}\n- {}", sentence(random), sentence(random)),
        4 => format!("It is so:\n\n```text\n{call}\n```\n\n{}", sentence(random)),
        5 => format!("It is so:\n\n```json\n{call}\n```\n\n{}", sentence(random)),
        6 => {
            let line = call.lines().next().unwrap_or_default().replace('`', "");
            format!("Write `{line} ` there. {}", sentence(random))
        }
        7 => "| a | b |\n|---|---|\n| `<tool_call>` | [x](y) |".to_owned(),
        _ => format!("```rust\nfn f() -> Vec<u8> {{\n    {}\n}}\n```", sentence(random)),
    }
}

#[test]
fn ten_thousand_answers_have_no_calls() {
    let tools = tools();
    let samples = samples(CALLS);
    let mut random = fastrand::Rng::with_seed(26);
    for _ in 0..10_000 {
        let parts: Vec<String> = (0..random.usize(1..6)).map(|_| part(&samples, &mut random)).collect();
        let answer = format!("This is done.\n\n{}\n\nThat is all.", parts.join("\n\n"));
        assert_eq!(recover(&answer, &tools, false), None, "{answer}");
        let shown = shown(&answer, ends(&answer).step_by(7), &tools);
        assert!(answer.is_char_boundary(shown));
    }
}

/// Pieces of formats, in any order.
fn fragments(samples: &[Sample], random: &mut fastrand::Rng) -> String {
    let fragment = |random: &mut fastrand::Rng| {
        let text = samples[random.usize(..samples.len())].text;
        let ends: Vec<usize> = std::iter::once(0).chain(ends(text)).collect();
        let mut cut = || ends[random.usize(..ends.len())];
        let (one, other) = (cut(), cut());
        text[one.min(other)..one.max(other)].to_owned()
    };
    (0..random.usize(1..5)).map(|_| fragment(random)).collect()
}

#[test]
fn nothing_that_was_shown_of_broken_calls_is_taken_back() {
    let tools = tools();
    let samples: Vec<Sample> = [CALLS, ANSWERS].into_iter().flat_map(samples).collect();
    let mut random = fastrand::Rng::with_seed(27);
    for _ in 0..3_000 {
        let text = fragments(&samples, &mut random);
        let recovered = recover(&text, &tools, false);
        let left = recovered.as_ref().map_or(text.as_str(), |recovered| &recovered.text);
        let shown = shown(&text, ends(&text), &tools);
        // A bracket alone is what a call has left over.
        let shown = text[..shown].trim().trim_matches(['{', '}', '[', ']', ',', ';', '`', ' ', '\n']);
        assert!(left.contains(shown), "{shown:?} was shown of {left:?}: {text:?}");
    }
}
