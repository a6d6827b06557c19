//! The conversation: an unchanged prefix from turn to turn, compaction when the window fills up, and answers that are cut
//! off.

use agent_testbed::agent::agent;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};

const OVERFLOW: &str =
    "This model's maximum context length is 8192 tokens. However, you requested 60014 tokens.";

fn big_output() -> Value {
    json!({ "command": "head -c 20000 /dev/zero | tr '\\0' x; exit 1" })
}

#[test]
fn earlier_messages_are_sent_again_byte_for_byte() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo one" }))
        .tool_call("run_commands", json!({ "command": "echo two" }))
        .text("done")
        .start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    let chats = model.chat_requests();
    assert_eq!(chats.len(), 3);
    for pair in chats.windows(2) {
        let (before, after) = (pair[0]["messages"].as_array(), pair[1]["messages"].as_array());
        let (before, after) = (before.expect("messages"), after.expect("messages"));
        assert_eq!(before[..], after[..before.len()]);
        assert_eq!(pair[0]["tools"].to_string(), pair[1]["tools"].to_string());
    }
}

#[test]
fn an_overflow_in_the_middle_is_compacted_and_the_work_continues() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "made.txt", "data": "x" }))
        .tool_call("run_commands", big_output())
        .tool_call("run_commands", json!({ "command": "head -c 21000 /dev/zero | tr '\\0' y" }))
        .error(400, OVERFLOW)
        .text("Summary: files were made, a command failed.")
        .text("done after all")
        .start();
    let finished =
        agent().endpoint(&model).args(["run", "--json", "make the file, word for word"]).run().expect_code(0);
    assert_eq!(finished.events_of("compacted").len(), 1);
    let last = model.chat_requests().pop().expect("a request")["messages"].clone();
    let text = last.to_string();
    assert!(text.contains("make the file, word for word"), "the task is kept");
    assert!(text.len() < 40_000, "{} bytes are left", text.len());
    assert_eq!(finished.events().last().map(|event| event["status"].clone()), Some(json!("completed")));
}

#[test]
fn an_overflow_on_the_very_first_message_is_an_error_with_a_hint() {
    let model = endpoint().error(400, OVERFLOW).repeat_last().start();
    let finished = agent().endpoint(&model).args(["run", "go"]).run().expect_code(3);
    assert!(finished.stderr.contains("this is the very first message"), "{}", finished.stderr);
}

#[test]
fn nothing_is_compacted_if_compaction_is_disabled() {
    let model = endpoint().tool_call("run_commands", big_output()).error(400, OVERFLOW).repeat_last().start();
    let call = agent().endpoint(&model).args(["run", "--json", "go"]);
    let home = call.home("config");
    std::fs::create_dir_all(&home).expect("a directory");
    std::fs::write(home.join("config.toml"), "compaction = false\n").expect("written");
    let finished = call.run().expect_code(3);
    assert!(finished.events_of("compacted").is_empty());
    assert!(finished.stderr.contains("compaction is disabled"), "{}", finished.stderr);
}

#[test]
fn a_call_that_the_policy_denies_is_not_run_and_the_model_gets_the_reason() {
    let model =
        endpoint().tool_call("run_commands", json!({ "command": "git push origin main" })).text("ok").start();
    let call = agent().endpoint(&model).args(["run", "--json", "go"]);
    let home = call.home("config");
    std::fs::create_dir_all(&home).expect("a directory");
    std::fs::write(home.join("config.toml"), "[policy.deny.no-push]\ncommands = [\"git push\"]\n")
        .expect("written");
    let finished = call.run().expect_code(0);
    let denied = finished.events_of("denied");
    assert!(denied[0]["rule"].as_str().is_some_and(|rule| rule.contains("no-push")), "{denied:?}");
    let answer = model.requests()[1].messages().pop().expect("an answer")["content"].to_string();
    assert!(answer.contains("no-push"), "{answer}");
}

#[test]
fn a_call_that_a_small_model_writes_as_text_is_run() {
    let model =
        endpoint().sample("llama-server-qwen2.5-coder-1.5b/tools-auto").text("There is one file.").start();
    let finished =
        agent().endpoint(&model).file("only.txt", "x").args(["run", "list the files"]).run().expect_code(0);
    let answer = model.requests()[1].messages().pop().expect("an answer")["content"].to_string();
    assert!(answer.contains("only.txt"), "{answer}");
    assert_eq!(finished.stdout, "There is one file.\n");
}

/// An answer that was cut off counted as complete, and `--apply` wrote its changes.
#[test]
fn an_answer_that_was_cut_off_is_a_limit_and_nothing_is_applied() {
    let half = json!({ "role": "assistant", "content": "Half of the" });
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "a.txt", "data": "new" }))
        .message(half.clone(), "length")
        .text("The whole answer.")
        .start();
    let call = agent().endpoint(&model).args(["run", "--apply", "--json", "go"]);
    let finished = call.run().expect_code(5);
    assert_eq!(finished.events_of("limit_reached")[0]["limit"], "answer_tokens");
    assert_eq!(finished.events_of("assistant_message")[1]["text"], "Half of the");
    assert_eq!(finished.host_file("a.txt"), None);
    let session = finished.events_of("session_started")[0]["session"].clone();
    let session = session.as_str().expect("an id");
    let next = finished.again().endpoint(&model).args(["run", "--session", session, "continue"]).run();
    assert_eq!(next.expect_code(0).stdout, "The whole answer.\n");
    let messages = model.last().messages();
    assert_eq!(messages[messages.len() - 2], half);
}

/// They counted as answers because they had text.
#[test]
fn an_answer_that_broke_off_is_a_failure() {
    let half = json!({ "role": "assistant", "content": "Half of the" });
    let model = endpoint().message(half.clone(), "error").text("The whole answer.").start();
    let finished = agent().endpoint(&model).args(["run", "--json", "go"]).run().expect_code(0);
    assert_eq!(finished.events_of("retry").len(), 1);
    assert_eq!(finished.events_of("assistant_message")[0]["text"], "The whole answer.");
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "a.txt", "data": "new" }))
        .message(half.clone(), "content_filter")
        .start();
    let finished = agent().endpoint(&model).args(["run", "--apply", "go"]).run().expect_code(3);
    assert!(finished.stderr.contains("content filter"), "{}", finished.stderr);
    assert_eq!(finished.host_file("a.txt"), None);
    let model = endpoint().message(half, "MAX_TOKENS").start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(5);
}

#[test]
fn an_incomplete_answer_is_printed_and_an_empty_one_gets_a_placeholder_in_the_next_request() {
    let model = endpoint()
        .message(json!({ "role": "assistant", "content": "Half of the" }), "length")
        .message(json!({ "role": "assistant", "content": "" }), "length")
        .text("ok")
        .start();
    let first = agent().endpoint(&model).args(["run", "--session-key", "k", "go"]).run().expect_code(5);
    assert_eq!(first.stdout, "Half of the\n");
    assert!(first.stderr.contains("cut off") && first.stderr.contains("agent resume"), "{}", first.stderr);
    let next = || first.again().endpoint(&model).args(["run", "--session-key", "k", "continue"]).run();
    next().expect_code(5);
    next().expect_code(0);
    let messages = model.last().messages();
    assert_eq!(messages[messages.len() - 2]["content"], "[cut off]");
}

#[test]
fn a_summary_that_was_cut_off_is_completed_with_the_calls() {
    let model = endpoint()
        .tool_call("write_file", json!({ "path": "made.txt", "data": "x" }))
        .tool_call("run_commands", big_output())
        .tool_call("run_commands", json!({ "command": "head -c 21000 /dev/zero | tr '\\0' y" }))
        .error(400, OVERFLOW)
        .message(json!({ "role": "assistant", "content": "Summary: files were" }), "length")
        .text("done after all")
        .start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    let text = model.last().messages()[1]["content"].to_string();
    assert!(text.contains("files were [cut off here]") && text.contains("- write_file"), "{text}");
}

#[test]
fn a_session_that_was_resumed_after_an_incomplete_answer_is_replayed_to_its_end() {
    let half = json!({ "role": "assistant", "content": "Half of the" });
    let model =
        endpoint().message(half.clone(), "length").text("The whole answer.").message(half, "length").start();
    let first = agent().endpoint(&model).args(["run", "--session-key", "k", "one"]).run().expect_code(5);
    let next =
        |prompt: &str| first.again().endpoint(&model).args(["run", "--session-key", "k", prompt]).run();
    let id = next("two").expect_code(0).again().args(["sessions", "list", "--json"]).run().stdout;
    let list: Value = serde_json::from_str(&id).expect("a list");
    let id = list[0]["id"].as_str().expect("an id").to_owned();
    let replay = || first.again().args(["replay", &id]).run();
    assert_eq!(replay().expect_code(0).stdout, "The whole answer.\n");
    next("three").expect_code(5);
    replay().expect_code(5);
}

/// On a machine elsewhere each call is a round trip.
#[test]
fn calls_that_only_read_run_at_the_same_time_and_their_results_keep_the_order() {
    let read = |name: &str| ("read_file", json!({ "path": name }));
    let write = ("write_file", json!({ "path": "d.txt", "data": "four" }));
    let calls = [read("a.txt"), read("missing.txt"), read("c.txt"), write, read("d.txt")];
    let model = endpoint().tool_calls(&calls).text("Done.").start();
    let call = agent().file("a.txt", "one").file("c.txt", "three").endpoint(&model);
    let finished = call.args(["run", "read", "--json"]).run().expect_code(0);
    let events = finished.events();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    let tools: Vec<&str> = kinds.into_iter().filter(|kind| kind.starts_with("tool_")).collect();
    let (begun, ended) = ("tool_started", "tool_finished");
    assert_eq!(tools, [begun, begun, begun, ended, ended, ended, begun, ended, begun, ended]);
    let results: Vec<String> = model.requests()[1]
        .messages()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].to_string())
        .collect();
    for (result, part) in results.iter().zip(["one", "missing.txt", "three", "d.txt", "four"]) {
        assert!(result.contains(part), "{part}: {result}");
    }
}
