//! MCP servers in the sandbox: their tools, and what becomes of those that are hostile or broken.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use agent_testing::hostile_text::{PARTS, assert_harmless, hostile_text};
use serde_json::{Value, json};
use std::time::Duration;

const SERVER: &str = include_str!("mcp_servers/server.py");

/// A call with the scripted server, called `s`.
fn with_server(arguments: &[&str], more: &str) -> Agent {
    let arguments: Vec<String> = arguments.iter().map(|argument| format!(", {argument:?}")).collect();
    agent().file("server.py", SERVER).config(&format!(
        "[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"/workspace/server.py\"{}]\n{more}\n",
        arguments.join("")
    ))
}

/// Calls these tools of the server one after the other, and answers.
fn calls(calls: &[(&str, Value)]) -> Endpoint {
    let script = calls.iter().fold(endpoint(), |script: Script, (tool, arguments)| {
        script.tool_call(&format!("mcp__s__{tool}"), arguments.clone())
    });
    script.text("Done.").start()
}

fn run(call: Agent, model: &Endpoint) -> Finished {
    call.endpoint(model).args(["run", "--json", "use the tools"]).run().expect_code(0)
}

/// Returns what the model read of each call.
fn results(model: &Endpoint) -> Vec<String> {
    model.requests()[1..]
        .iter()
        .map(|request| request.messages().last().unwrap()["content"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn tool_names(model: &Endpoint, request: usize) -> Vec<String> {
    let body = model.requests()[request].body.clone();
    let tools = body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tools_of_a_server_are_called_in_every_era() {
    for era in ["modern", "legacy", "mute", "dying"] {
        let model = calls(&[("echo", json!({ "a": [1, "ü"] })), ("where", json!({}))]);
        let call = with_server(&[era], "env = { TOKEN = \"for it\" }");
        let place = call.workspace().display().to_string();
        let finished = run(call, &model);
        let results = results(&model);
        assert_eq!(results[0], "{\"a\": [1, \"\\u00fc\"]}", "{era}: {}", finished.stderr);
        let seen: Value = serde_json::from_str(&results[1]).unwrap();
        assert_eq!((&seen["cwd"], &seen["token"]), (&json!(place), &json!("for it")), "{era}");
        assert_ne!(seen["uid"], 0, "{era}: it runs as the sandbox's user");
    }
}

#[test]
fn what_a_server_writes_is_in_the_diff_and_nowhere_else() {
    let model =
        calls(&[("write", json!({ "path": "new.txt" })), ("write", json!({ "path": "/etc/hacked" }))]);
    let finished = run(with_server(&["modern"], ""), &model);
    assert!(results(&model)[1].contains("not known here") || results(&model)[1].contains("failed"));
    assert_eq!(finished.host_file("new.txt"), None);
    let shown = finished.again().args(["diff"]).run().expect_code(0);
    assert!(shown.stdout.contains("written by a server"), "{}", shown.stdout);
}

#[test]
fn schemas_descriptions_and_names_that_no_endpoint_takes_are_repaired() {
    let model = calls(&[("echo", json!({}))]);
    run(with_server(&["modern"], ""), &model);
    let body = model.requests()[0].body.clone();
    let tools: Vec<&Value> = body["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]).collect();
    let named = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(
        named("mcp__s__echo")["parameters"],
        json!({ "type": "object", "properties": { "a": {}, "b": { "type": "string" } } })
    );
    let description = named("mcp__s__where")["description"].as_str().unwrap();
    assert!(description.len() < 5_000 && !description.contains(['\u{1b}', '\u{202e}']), "{description}");
    let names = tool_names(&model, 0);
    assert_eq!(names.iter().filter(|name| *name == "mcp__s__echo").count(), 1, "once: {names:?}");
    assert!(
        names.iter().any(|name| name.starts_with("mcp__s__a_name_with_spaces_and_more") && name.len() == 64)
    );
    let prompt = model.requests()[0].messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(prompt.contains("The MCP server s says about its tools:\nBe kind to it."), "{prompt}");
}

#[test]
fn results_are_typed_and_bounded() {
    let model = calls(&[
        ("picture", json!({})),
        ("big", json!({})),
        ("refuse", json!({})),
        ("nonsense", json!({})),
        ("junk", json!({})),
    ]);
    let finished = run(with_server(&["modern"], ""), &model);
    let results = results(&model);
    for line in [
        "here it is",
        "[image image-1.png: image/png, ",
        "[file image: application/octet-stream, 10 bytes]",
        "its Base64 is not valid",
        "[resource memo://a: a memo]",
        "not known here",
    ] {
        assert!(results[0].contains(line), "{line}: {}", results[0]);
    }
    assert_eq!(finished.events_of("artifact").len(), 2);
    assert!(
        results[1].len() < 40_000 && results[1].contains("the whole output is in /tmp/mcp-s-"),
        "{:.200}",
        results[1]
    );
    assert!(results[1].starts_with("[output shortened: 200010 bytes"), "{:.200}", results[1]);
    assert_eq!(results[2], "there is no such file");
    assert_eq!(finished.events_of("tool_finished")[2]["ok"], false);
    assert!(results[3].contains("not one of the protocol"), "{}", results[3]);
    assert_eq!(results[4], "after the junk");
}

#[test]
fn a_server_that_dies_or_floods_costs_one_call() {
    let model = calls(&[
        ("die", json!({})),
        ("echo", json!({ "n": 1 })),
        ("flood", json!({})),
        ("echo", json!({ "n": 2 })),
        ("endless_line", json!({})),
        ("echo", json!({ "n": 3 })),
    ]);
    run(with_server(&["modern"], "").deadline(Duration::from_secs(400)), &model);
    let results = results(&model);
    assert!(
        results[0].contains("exit code 3") && results[0].contains("something went wrong in here"),
        "{}",
        results[0]
    );
    assert!(results[2].contains("more than 64 MiB"), "{}", results[2]);
    assert!(results[4].contains("longer than 8388608 bytes"), "{}", results[4]);
    assert_eq!([&results[1], &results[3], &results[5]], ["{\"n\": 1}", "{\"n\": 2}", "{\"n\": 3}"]);
}

#[test]
fn a_server_that_never_answers_costs_one_call() {
    let model = calls(&[("hang", json!({})), ("echo", json!({ "n": 1 }))]);
    run(with_server(&["modern"], "timeout = \"10s\""), &model);
    let results = results(&model);
    assert!(results[0].contains("did not answer within 10 s"), "{}", results[0]);
    assert_eq!(results[1], "{\"n\": 1}");
}

#[test]
fn signs_of_progress_extend_a_call_and_are_shown() {
    let model = calls(&[("slow", json!({}))]);
    let finished = run(with_server(&["modern"], "timeout = \"10s\""), &model);
    assert_eq!(results(&model), ["done at last"]);
    let shown: String =
        finished.events_of("tool_output").iter().filter_map(|event| event["data"].as_str()).collect();
    assert!(shown.contains("working (1 of 4)"), "{shown:?}");
}

/// A server's question is declined without being shown; its news, its result and the question about the call are text.
#[test]
fn attack_74_nothing_that_a_server_says_is_shown_as_it_is() {
    let words = hostile_text();
    let model = calls(&[("ask", json!({ "words": words }))]);
    let call = with_server(&["modern"], "").endpoint(&model);
    let shown = call.args(["run", "-v", "use the tools"]).run().expect_code(0);
    let results = results(&model);
    assert!(results[0].contains("decline"), "{}", results[0]);
    assert_harmless("the trace of a call", &shown.stderr);
    let model = calls(&[("ask", json!({ "words": words }))]);
    let call = terminal().endpoint(&model).file("server.py", SERVER);
    let config = call.directory("agent").join("config");
    std::fs::create_dir_all(&config).unwrap();
    let text = "[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"/workspace/server.py\", \"modern\"]\n";
    std::fs::write(config.join("config.toml"), text).unwrap();
    let mut terminal = call.args(["run", "--approve", "always", "use the tools"]).start();
    terminal.wait_for("Allow? [yes/no/always]");
    assert_harmless("the question about a call", &terminal.screen());
    terminal.type_line("yes");
    terminal.wait();
    let drawn = String::from_utf8_lossy(&terminal.raw()).into_owned();
    // The screen itself is cleared.
    for part in PARTS.into_iter().filter(|part| *part != "\x1b[2J") {
        assert!(!drawn.contains(part), "{part:?}: {drawn:?}");
    }
}

#[test]
fn servers_that_do_not_start_are_reported_and_the_session_goes_on() {
    for (era, why) in [("crash", "something went wrong in here"), ("never", "did not start within 4 s")] {
        let model = endpoint().text("Without it.").start();
        let finished = run(with_server(&[era], "start_timeout = \"4s\""), &model);
        let notices = finished.events_of("notice");
        assert!(notices.iter().any(|notice| notice["text"].as_str().unwrap().contains(why)), "{notices:?}");
        assert!(!tool_names(&model, 0).iter().any(|name| name.starts_with("mcp_")));
    }
    let model = endpoint().text("Without it.").start();
    let config = "[mcp.servers.s]\ncommand = \"no-such-program\"\n";
    let finished = run(agent().config(config), &model);
    let notices = finished.events_of("notice");
    let says =
        |notice: &Value| notice["text"].as_str().unwrap().contains("`no-such-program` is not in the sandbox");
    assert!(notices.iter().any(says), "{notices:?}");
}

#[test]
fn a_second_session_knows_the_tools_without_starting_the_server() {
    let model = calls(&[("echo", json!({}))]);
    let first = run(with_server(&["modern"], ""), &model);
    let names = tool_names(&model, 0);
    let model = endpoint().text("No need.").start();
    // The program is not there any more, and nothing misses it.
    std::fs::remove_file(first.again().workspace().join("server.py")).unwrap();
    let second = run(first.again(), &model);
    assert_eq!(tool_names(&model, 0), names);
    assert!(second.events_of("notice").is_empty(), "{:?}", second.events_of("notice"));
}

#[test]
fn many_tools_are_searched_and_judged_by_their_own_names() {
    let model = endpoint()
        .tool_call("mcp_search_tools", json!({ "query": "number 37" }))
        .tool_call("mcp_call_tool", json!({ "tool": "mcp__s__number_37", "arguments": {} }))
        .tool_call("mcp_call_tool", json!({ "tool": "mcp__s__number_3", "arguments": {} }))
        .tool_call("mcp_call_tool", json!({ "tool": "mcp__s__no_such", "arguments": {} }))
        .tool_call("mcp__s__number_5", json!({}))
        .text("Done.")
        .start();
    let rule = "[policy.deny.three]\ntools = [\"mcp__s__number_3\"]\nbecause = \"not that one\"";
    let finished = run(with_server(&["modern", "60"], rule), &model);
    let names = tool_names(&model, 0);
    assert!(
        names.contains(&"mcp_search_tools".to_owned()) && !names.iter().any(|name| name.starts_with("mcp__"))
    );
    assert!(
        model.requests().iter().all(|request| request.body["tools"] == model.requests()[0].body["tools"])
    );
    let results = results(&model);
    assert!(results[0].lines().next().unwrap().contains("\"tool\":\"mcp__s__number_37\""), "{}", results[0]);
    assert_eq!(results[1], "called number_37");
    assert!(
        results[2].contains("denied by the rule three (mcp__s__number_3)")
            && results[2].contains("not that one")
    );
    assert!(results[3].contains("there is no tool"), "{}", results[3]);
    assert_eq!(results[4], "called number_5");
    assert_eq!(finished.events_of("denied")[0]["what"], "mcp__s__number_3");
}

#[test]
fn resources_are_listed_and_read() {
    let model = endpoint()
        .tool_call("mcp_list_resources", json!({}))
        .tool_call("mcp_read_resource", json!({ "server": "s", "uri": "memo://a" }))
        .tool_call("mcp_read_resource", json!({ "server": "t", "uri": "memo://a" }))
        .text("Done.")
        .start();
    run(with_server(&["legacy"], ""), &model);
    let results = results(&model);
    assert_eq!(results[0], "s:\n  memo://a a memo\n");
    assert_eq!(results[1], "the memo");
    assert!(results[2].contains("there is no server \"t\""), "{}", results[2]);
}

#[test]
fn a_server_on_the_host_is_not_called_while_a_plan_waits() {
    let model = endpoint().tool_call("mcp__s__write", json!({ "path": "there" })).text("A plan.").start();
    let server = tempfile::tempdir().unwrap();
    std::fs::write(server.path().join("server.py"), SERVER).unwrap();
    let config = format!(
        "[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"{0}/server.py\"]\nwhere = \"host\"\ncwd = \"{0}\"\n",
        server.path().display()
    );
    agent().config(&config).endpoint(&model).args(["run", "--plan", "write"]).run().expect_code(0);
    assert!(
        results(&model)[0].contains("read-only until the user accepts the plan"),
        "{:?}",
        results(&model)
    );
    assert!(!server.path().join("there").exists());
    let model = calls(&[("write", json!({ "path": "there" }))]);
    run(agent().config(&config), &model);
    assert!(server.path().join("there").exists(), "{:?}", results(&model));
}

#[test]
fn a_server_in_the_sandbox_cannot_write_while_a_plan_waits() {
    let model = calls(&[("write", json!({ "path": "/workspace/new.txt" })), ("echo", json!({}))]);
    let call = with_server(&["modern"], "");
    let finished = call.endpoint(&model).args(["run", "--plan", "write"]).run().expect_code(0);
    let results = results(&model);
    assert!(results[0].contains("failed") || results[0].contains("Permission"), "{}", results[0]);
    assert_eq!(results[1], "{}", "it starts anew");
    let shown = finished.again().args(["diff"]).run().expect_code(0);
    assert!(!shown.stdout.contains("new.txt"), "{}", shown.stdout);
}
