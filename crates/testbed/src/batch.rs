//! `agent batch` with tasks that each write a file, and what it left of them.

use crate::agent::Agent;
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A model that writes the file that the prompt names, with the prompt in it, and answers with the prompt.
pub fn writer() -> Endpoint {
    endpoint().by_rule(write_or_answer).start()
}

pub fn write_or_answer(body: &Value) -> Script {
    let (prompt, is_first) = prompt_of(body);
    let name = prompt.split_whitespace().last().unwrap_or("file").to_owned();
    match is_first {
        true => endpoint().tool_call("write_file", json!({"path": name, "data": format!("{prompt}\n")})),
        false => endpoint().text(&format!("wrote {name}")),
    }
}

/// The prompt of a request, and whether the model has not answered it yet.
pub fn prompt_of(body: &Value) -> (String, bool) {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let of_user = messages.iter().find(|message| message["role"] == "user");
    let prompt = of_user.and_then(|message| message["content"].as_str()).unwrap_or_default();
    (prompt.to_owned(), !messages.iter().any(|message| message["role"] == "tool"))
}

/// A task file with `count` tasks that each write a file.
pub fn tasks(count: usize) -> String {
    let line = |i| {
        json!({"id": format!("task-{i}"), "prompt": format!("write f{i}"), "files": {}}).to_string() + "\n"
    };
    (0..count).map(line).collect()
}

pub fn batch(call: Agent, model: &Endpoint, more: &[&str]) -> Agent {
    call.endpoint(model).args(["batch", "tasks.jsonl", "--out", "out"]).args(more)
}

pub fn results(workspace: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(workspace.join("out/results.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn by_id(workspace: &Path) -> BTreeMap<String, Value> {
    let named = |result: Value| (result["id"].as_str().unwrap().to_owned(), result);
    results(workspace).into_iter().map(named).collect()
}
