//! The compact form of a conversation, for small models.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NEXT_STEP: &str =
    "If this is what the task asks for, answer. Otherwise send the next step of the task.";

/// A server like llama.cpp's, with a model of this many parameters.
pub fn server(parameters: u64) -> Script {
    let model = json!({ "id": "test-model", "meta": { "n_params": parameters, "n_ctx": 8192 } });
    endpoint().models(200, json!({ "data": [model] }).to_string())
}

pub fn turn(step: Value) -> String {
    step.to_string()
}

/// A small model that writes a file, runs it, and answers.
fn working_model() -> Endpoint {
    server(1_543_714_304)
        .text(&turn(json!({ "tool": "write_file", "path": "hi.sh", "content": "echo hi\n" })))
        .text(&turn(json!({ "tool": "run_commands", "command": "sh hi.sh" })))
        .text(&turn(json!({ "tool": "answer", "text": "It prints hi." })))
        .start()
}

fn run(call: Agent, model: &Endpoint) -> Finished {
    call.endpoint(model).args(["run", "Write hi.sh and run it", "--json", "--session-key", "k"]).run()
}

fn roles(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().filter_map(|message| message["role"].as_str()).collect()
}

pub fn last_text(request: &Value) -> &str {
    let last = request["messages"].as_array().and_then(|messages| messages.last()).expect("a message");
    last["content"].as_str().expect("text")
}

#[test]
fn a_small_model_works_in_the_compact_form() {
    let model = working_model();
    let finished = run(agent(), &model).expect_code(0);
    let requests = model.chat_requests();
    assert_eq!(requests[0]["tools"], Value::Null);
    assert_eq!(requests[0]["temperature"], json!(0.2));
    assert_eq!(requests[0]["max_tokens"], json!(2048));
    assert_eq!(requests[0]["response_format"]["type"], "json_schema");
    assert_eq!(roles(&requests[2]), ["system", "user", "assistant", "user", "assistant", "user"]);
    let result = last_text(&requests[2]);
    assert!(result.starts_with("Result of run_commands:\nexit code 0, "), "{result}");
    assert!(result.contains("hi\n") && result.ends_with(NEXT_STEP), "{result}");
    // The prefix never changes.
    let messages = |request: &Value| request["messages"].as_array().cloned().expect("messages");
    assert_eq!(messages(&requests[1])[..], messages(&requests[2])[..4]);
    let notices = finished.events_of("notice");
    let reported =
        notices.iter().filter(|notice| notice["text"].to_string().contains("compact form")).count();
    assert_eq!(reported, 1, "{notices:?}");
    let answer = finished.events_of("assistant_message").pop().expect("an answer");
    assert_eq!(answer["text"], "It prints hi.");
}

#[test]
fn an_answer_in_which_a_small_model_repeats_itself_is_stopped() {
    // It went on to the limit of 2,048 tokens, which took minutes on a laptop and filled the window.
    let piece =
        json!({ "choices": [{ "index": 0, "delta": { "content": "a.txt, " }, "finish_reason": null }] });
    let model = server(1_543_714_304)
        .endless(&format!("data: {piece}\n\n"))
        .text(&turn(json!({ "tool": "answer", "text": "There is one file." })))
        .start();
    let finished =
        agent().endpoint(&model).args(["run", "Which files are here?", "--json"]).run().expect_code(0);
    let requests = model.chat_requests();
    assert!(requests[1].to_string().matches("a.txt").count() < 60, "{}", requests[1]);
    assert!(
        last_text(&requests[1]).starts_with("Your message was too long, or repeated itself"),
        "{}",
        requests[1]
    );
    let first = finished.events_of("assistant_message").remove(0);
    assert_eq!(first["finish_reason"], "length");
}

#[test]
fn a_resumed_session_keeps_its_form() {
    let first = run(agent(), &working_model()).expect_code(0);
    // Nothing reports the size now.
    let model = endpoint().text(&turn(json!({ "tool": "answer", "text": "Done." }))).start();
    let second = run(first.again(), &model).expect_code(0);
    let requests = model.chat_requests();
    assert_eq!(requests[0]["tools"], Value::Null);
    assert_eq!(roles(&requests[0])[..4], ["system", "user", "assistant", "user"]);
    assert!(second.events_of("call_form").is_empty());
}

#[test]
fn the_configuration_decides_the_form() {
    let model = server(70_000_000_000).text(&turn(json!({ "tool": "answer", "text": "Hello." }))).start();
    let call = agent().config("[models.test-model]\nform = \"compact\"\n");
    call.endpoint(&model).args(["run", "hello"]).run().expect_code(0);
    assert_eq!(model.chat_requests()[0]["tools"], Value::Null);

    let model = server(1_000_000_000).text("Hello.").start();
    let call = agent().config("temperature = 0.5\n[models.test-model]\nform = \"native\"\n");
    call.endpoint(&model).args(["run", "hello"]).run().expect_code(0);
    let request = &model.chat_requests()[0];
    assert!(request["tools"].is_array());
    assert_eq!(request["temperature"], json!(0.5));
}

#[test]
fn the_first_request_does_not_wait_for_the_server_if_the_form_is_known() {
    let slow = || server(1_000_000_000).models_after(Duration::from_secs(600)).text("Hello.").start();
    for (config, name, form) in [
        ("[models.test-model]\nform = \"native\"\n", "test-model", "native"),
        ("", "some-model-0.5b", "compact"),
        ("", "some-model-70b", "native"),
    ] {
        let model = slow();
        let call = agent().config(config).endpoint(&model).args(["run", "--json", "-m", name, "hello"]);
        let finished = call.run().expect_code(0);
        let requests = model.all_requests();
        assert_eq!(model.chat_requests()[0]["tools"].is_array(), form == "native", "{name}");
        // Its answer was not waited for.
        assert!(requests.iter().filter(|request| request.method == "GET").count() <= 1, "{requests:?}");
        assert_eq!(finished.events_of("call_form").len(), usize::from(form == "compact"));
    }
}

/// The window is learned beside the first request and used from the second on.
#[test]
fn sessions_go_on_in_small_windows() {
    for (window, form) in [(4096, "native"), (4096, "compact"), (8192, "native"), (8192, "compact")] {
        let list = json!({ "data": [{ "id": "test-model", "meta": { "n_ctx": window } }] });
        let call = |path: &str| match form {
            "compact" => {
                json!({ "role": "assistant", "content": turn(json!({ "tool": "read_file", "path": path })) })
            }
            _ => {
                let function =
                    json!({ "name": "read_file", "arguments": json!({ "path": path }).to_string() });
                let call = json!({ "id": path, "type": "function", "function": function });
                json!({ "role": "assistant", "content": "", "tool_calls": [call] })
            }
        };
        let answer = match form {
            "compact" => turn(json!({ "tool": "answer", "text": "Done." })),
            _ => "Done.".to_owned(),
        };
        let mut script = endpoint().models(200, list.to_string()).window(window);
        for name in ["a", "b", "c", "d", "e", "f"] {
            script = script.message(call(&format!("{name}.txt")), "stop");
        }
        // A summary may be asked for anywhere; its text does not matter.
        let model = script.text(&answer).repeat_last().start();
        let mut call = agent().config(&format!("[models.test-model]\nform = \"{form}\"\n"));
        for name in ["a", "b", "c", "d", "e", "f"] {
            call = call.file(&format!("{name}.txt"), "words of a file\n".repeat(400));
        }
        let first = call
            .endpoint(&model)
            .args(["run", "--json", "--session-key", "k", "Read all of the files."])
            .run();
        let first = first.expect_code(0);
        assert!(!first.events_of("compacted").is_empty(), "{window} {form}");
        let prompt = format!("Explain this. {} What is it?", "fn main() {}\n".repeat(700));
        for _ in 0..3 {
            let next =
                first.again().endpoint(&model).args(["run", "--json", "--session-key", "k", &prompt]).run();
            next.expect_code(0);
        }
        let last = model.chat_requests().pop().expect("a request")["messages"].to_string();
        assert!(last.contains("What is it?"), "{window} {form}: {last}");
    }
}

/// A call, written as text, whose arguments cannot be read.
const UNREADABLE: &str =
    "<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": 'it's', \"data\": \"\n</tool_call>";

#[test]
fn a_model_of_unknown_size_reads_what_is_wrong_with_its_call_and_keeps_its_form() {
    // One such call moved it into the compact form for the whole session, however large it was.
    let model = endpoint().text(UNREADABLE).text("Done.").start();
    let finished = agent().endpoint(&model).args(["run", "--json", "hello"]).run().expect_code(0);
    let request = &model.chat_requests()[1];
    assert!(request["tools"].is_array() && last_text(request).contains("not valid JSON"), "{request}");
    assert!(finished.events_of("call_form").is_empty());
}

#[test]
fn an_answer_that_is_an_unreadable_call_ends_as_a_limit_and_is_not_applied() {
    for form in ["native", "compact"] {
        let model = server(1_000_000_000).text(UNREADABLE).repeat_last().start();
        let call = agent().config(&format!("[models.test-model]\nform = \"{form}\"\n"));
        let finished =
            call.endpoint(&model).args(["run", "--json", "--apply", "write a file"]).run().expect_code(5);
        assert_eq!(finished.events_of("limit_reached")[0]["limit"], "bad_calls", "{form}");
        assert_eq!(model.chat_requests().len(), 3, "{form}");
    }
}

#[test]
fn user_and_assistant_alternate_after_a_failure() {
    let model = endpoint().error(400, "out of order").start();
    let first = run(agent(), &model).expect_code(3);
    let model = endpoint().text("Done.").start();
    run(first.again(), &model).expect_code(0);
    let request = &model.chat_requests()[0];
    assert_eq!(roles(request), ["system", "user", "assistant", "user"]);
}

#[test]
fn models_are_listed_with_what_is_known_about_them() {
    let list = json!({ "data": [
        { "id": "small", "meta": { "n_params": 1_500_000_000u64, "n_ctx": 8192 } },
        { "id": "of-unknown-size", "max_model_len": 32768 },
        { "id": "unknown" },
    ] });
    let model = endpoint().models(200, list.to_string()).start();
    let finished = agent().endpoint(&model).args(["models"]).run().expect_code(0);
    let expected = "small            8192 tokens, compact form\nof-unknown-size  32768 tokens\nunknown\n";
    assert_eq!(finished.stdout, expected);
    let finished = agent().endpoint(&model).args(["models", "--json"]).run().expect_code(0);
    let listed: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!(listed[0], json!({ "name": "small", "context_window": 8192, "form": "compact" }));
    assert_eq!(listed[2], json!({ "name": "unknown", "context_window": null, "form": null }));
}

#[test]
fn doctor_recommends_how_to_use_a_model() {
    let call = turn(json!({ "tool": "run_commands", "command": "ls" }));
    let model = server(1_500_000_000).text("ready").text(&call).start();
    let finished = agent().endpoint(&model).args(["doctor", "--endpoint"]).run().expect_code(0);
    let expected = "recommended    form compact, temperature 0.2, context window 8192 tokens\n\nReady.\n";
    assert!(finished.stdout.ends_with(expected), "{}", finished.stdout);
}

#[test]
fn doctor_names_the_settings_of_a_model_that_calls_tools_in_the_compact_form_only() {
    let call = turn(json!({ "tool": "run_commands", "command": "ls" }));
    let model = endpoint().text("ready").text("It is warm in Paris.").text(&call).start();
    let finished = agent().endpoint(&model).args(["doctor", "--endpoint"]).run().expect_code(0);
    let settings = "[models.\"test-model\"] form = \"compact\"; [models.\"test-model\"] assist = true;";
    let stdout = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(stdout.contains(settings), "{}", finished.stdout);
}

#[test]
fn doctor_names_the_protocol_in_which_an_endpoint_serves() {
    let thermometer = json!({ "city": "Paris" });
    // Neither tools nor the compact form by `chat`.
    let model = endpoint()
        .text("ready")
        .text("It is warm.")
        .text("No.")
        .tool_call("get_temperature", thermometer)
        .start();
    let finished = agent().endpoint(&model).args(["doctor", "--endpoint"]).run();
    let seen = finished.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(seen.contains("it calls tools by these as well: responses"), "{}", finished.stdout);
    assert!(seen.contains("[models.\"test-model\"] protocol = \"responses\""), "{}", finished.stdout);
    assert_ne!(finished.code, 0, "{}", finished.stdout);
}

#[test]
fn a_server_that_reports_nothing_usable_about_its_model_is_asked_all_the_same() {
    let entry = |meta: Value| json!({ "data": [{ "id": "test-model", "meta": meta }] }).to_string();
    for (status, body) in [
        (500, String::new()),
        (404, "<html>not found</html>".to_owned()),
        (200, "null".to_owned()),
        (200, json!({ "data": [{ "id": 1, "owned_by": [] }, 2] }).to_string()),
        (200, entry(json!({ "n_params": -1, "n_ctx": 0 }))),
        (200, entry(json!({ "n_params": 1, "n_ctx": 1 }))),
        (200, entry(json!({ "n_params": "many", "n_ctx": u64::MAX }))),
    ] {
        let model = endpoint().models(status, &body).text("Hello.").start();
        agent().endpoint(&model).args(["run", "hello"]).run().expect_code(0);
        let requests = model.chat_requests();
        assert!(requests.len() == 1 && requests[0]["tools"].is_array(), "{body}: {requests:?}");
    }
}

#[test]
fn a_server_that_does_not_report_its_models_in_time_is_not_waited_for() {
    let model = server(1_000_000_000).models_after(Duration::from_secs(60)).text("Hello.").start();
    let start = Instant::now();
    agent().endpoint(&model).args(["run", "hello"]).run().expect_code(0);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert!(model.chat_requests()[0]["tools"].is_array());
}

#[test]
fn a_large_model_gets_nothing_more_than_its_messages_and_tools() {
    let model = server(70_000_000_000).text("Hello.").start();
    agent().endpoint(&model).args(["run", "hello"]).run().expect_code(0);
    let request = &model.chat_requests()[0];
    let fields: Vec<&String> = request.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["model", "messages", "tools", "stream", "stream_options"]);
    assert_eq!(roles(request), ["system", "user"]);
}

#[test]
fn a_message_that_was_cut_off_is_asked_for_once_more_and_shorter() {
    let half = json!({ "role": "assistant", "content": "one two three" });
    let model = server(1_500_000_000).message(half.clone(), "length").message(half, "length").start();
    run(agent(), &model).expect_code(5);
    let requests = model.chat_requests();
    assert_eq!(requests.len(), 2);
    assert!(last_text(&requests[1]).contains("too long"), "{}", last_text(&requests[1]));
}

#[test]
fn an_empty_answer_is_followed_by_one_reminder_which_a_resumed_session_remembers() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "true" })).text("").text("").start();
    let first = run(agent(), &model).expect_code(3);
    assert!(first.events_of("retry").is_empty(), "{:?}", first.events_of("retry"));
    assert_eq!(model.chat_requests().len(), 3);
    let model = endpoint().text("Done.").start();
    run(first.again(), &model).expect_code(0);
    let request = &model.chat_requests()[0];
    assert_eq!(
        roles(request),
        ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "user"]
    );
}

#[test]
fn paths_that_begin_with_the_workspace_name_are_in_the_workspace() {
    let write = json!({ "path": "workspace/a.txt", "data": "one\n" });
    let edit = json!({ "path": "workspace/a.txt", "old": "one", "new": "two" });
    let model = endpoint()
        .tool_calls(&[
            ("write_file", write),
            ("edit_file", edit),
            ("read_file", json!({ "path": "/workspace/a.txt" })),
        ])
        .text("ok")
        .start();
    let finished = agent().endpoint(&model).args(["run", "go", "--apply"]).run().expect_code(0);
    assert_eq!(finished.host_file("a.txt").as_deref(), Some("two\n"));
    let messages = model.requests()[1].messages();
    assert_eq!(messages[3]["content"], "wrote workspace/a.txt: 1 line, 4 bytes");
}

#[test]
fn steps_that_repeat_are_sent_as_a_list() {
    let fails = turn(json!({ "tool": "run_commands", "command": "cat missing.txt" }));
    let model = server(1_543_714_304)
        .text(&fails)
        .text(&fails)
        .text(&turn(json!({ "tool": "run_commands", "command": "echo found" })))
        .text(&turn(json!({ "tool": "answer", "text": "There is none." })))
        .start();
    agent().endpoint(&model).args(["run", "What does missing.txt hold?", "--json"]).run().expect_code(0);
    let requests = model.chat_requests();
    assert_eq!(roles(&requests[2]), ["system", "user"]);
    let list = last_text(&requests[2]);
    assert!(
        list.starts_with(
            "What does missing.txt hold?\n\nDone so far:\n- run_commands cat missing.txt\n  result: "
        ),
        "{list}"
    );
    assert_eq!(requests[2]["temperature"], json!(0.9));
    let offered = requests[2]["response_format"].to_string();
    assert!(!offered.contains("run_commands") && offered.contains("read_file"), "{offered}");
    assert_eq!(roles(&requests[3]), ["system", "user", "assistant", "user"]);
}

#[test]
fn a_missing_file_is_reported_with_the_files_that_are_there() {
    let model = endpoint()
        .tool_call("read_file", json!({ "path": "parse.py" }))
        .tool_call("edit_file", json!({ "path": "lib/a.py", "old": "nothing like it", "new": "x" }))
        .tool_call("write_file", json!({ "path": "a.json", "data": "name: demo\n" }))
        .text("Done.")
        .start();
    let call = agent().file("main.py", "import lib.a\n").file("lib/a.py", "def parse():\n    pass\n");
    let finished = call.endpoint(&model).args(["run", "Look", "--json"]).run().expect_code(0);
    let results: Vec<String> =
        finished.events_of("tool_finished").iter().map(|event| event["result"].to_string()).collect();
    assert!(results[0].contains("the files are: main.py, lib/a.py"), "{results:?}");
    assert!(results[1].contains("it holds:\\ndef parse():"), "{results:?}");
    assert!(results[2].contains("it is not valid JSON"), "{results:?}");
}
