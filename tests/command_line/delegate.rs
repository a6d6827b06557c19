//! `--delegate`: parts of the work in sessions of their own.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::backends::program_on_every_backend;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn is_part(body: &Value) -> bool {
    body["messages"][1]["content"].as_str().unwrap_or_default().contains("handed you this part")
}

/// The results of the tools that the conversation has so far.
fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap().iter();
    let results = messages.filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn command(text: &str) -> Script {
    endpoint().tool_call("run_commands", json!({ "command": text }))
}

/// Delegates `parts` in one message and answers then.
fn delegate(body: &Value, parts: &[Value]) -> Script {
    let calls: Vec<(&str, Value)> = parts.iter().map(|part| ("delegate", part.clone())).collect();
    match results(body).len() {
        0 => endpoint().tool_calls(&calls),
        _ => endpoint().text("all parts are done"),
    }
}

/// Runs the first line of the task as a command, and answers then.
fn work(body: &Value) -> Script {
    let task = body["messages"][1]["content"].as_str().unwrap().lines().next().unwrap();
    match results(body).len() {
        0 => command(task),
        _ => endpoint().text(&format!("did {task}")),
    }
}

fn model(parts: &[Value]) -> Endpoint {
    let parts = parts.to_vec();
    let rule = move |body: &Value| if is_part(body) { work(body) } else { delegate(body, &parts) };
    endpoint().by_rule(rule).strict().start()
}

/// Returns what the model read of each part, in the order of the calls.
fn read(model: &Endpoint) -> Vec<String> {
    let requests = model.chat_requests();
    results(requests.iter().rfind(|body| !is_part(body)).unwrap())
}

fn own_session(finished: &Finished) -> String {
    finished.events()[0]["session"].as_str().unwrap().to_owned()
}

/// Lets each caller wait until both have called.
#[derive(Default)]
struct Meeting(Mutex<usize>, Condvar);

impl Meeting {
    fn arrive(&self) {
        let mut arrived = self.0.lock().unwrap();
        *arrived += 1;
        self.1.notify_all();
        let (_arrived, late) = self.1.wait_timeout_while(arrived, LIMIT, |arrived| *arrived < 2).unwrap();
        assert!(!late.timed_out(), "the other part has not begun");
    }
}

#[test]
fn two_parts_are_done_at_the_same_time_and_merged() {
    program_on_every_backend(|backend| {
        let parts = [
            json!({ "task": "echo one >> a.txt; mkdir -p d; echo new > d/n.txt" }),
            json!({ "task": "cat early.txt > b.txt; rm gone.txt", "paths": ["b.txt", "gone.txt"] }),
        ];
        let meeting = Arc::new(Meeting::default());
        let model = endpoint()
            .by_rule(move |body| match (is_part(body), results(body).len()) {
                (true, 0) => {
                    meeting.arrive();
                    work(body)
                }
                (true, _) => work(body),
                // What the delegating session itself has done before is there.
                (false, 0) => command("echo early > early.txt"),
                (false, 1) => {
                    let calls: Vec<_> = parts.iter().map(|part| ("delegate", part.clone())).collect();
                    endpoint().tool_calls(&calls)
                }
                (false, _) => endpoint().text("all parts are done"),
            })
            .strict()
            .start();
        let call = agent().sandbox(backend).endpoint(&model).file("a.txt", "a\n").file("gone.txt", "g\n");
        let finished = call.args(["run", "--delegate", "--json", "--apply", "go"]).run().expect_code(0);
        assert_eq!(finished.host_file("a.txt").as_deref(), Some("a\none\n"));
        assert_eq!(finished.host_file("b.txt").as_deref(), Some("early\n"));
        assert_eq!(finished.host_file("d/n.txt").as_deref(), Some("new\n"));
        assert_eq!(finished.host_file("gone.txt"), None);
        let read = read(&model);
        assert!(read[1].contains("did echo one") && read[1].contains("- d/n.txt"), "{}", read[1]);
        assert!(read[2].contains("did cat early") && read[2].contains("-g"), "{}", read[2]);
        shows_the_tree(&finished);
        // Another prompt of the session follows: the strict endpoint accepts the conversation.
        let again = finished.again().sandbox(backend).endpoint(&model);
        again.args(["run", "--session", &own_session(&finished), "more"]).run().expect_code(0);
    });
}

fn shows_the_tree(finished: &Finished) {
    let session = own_session(finished);
    let started = finished.events_of("session_started");
    assert!(started[1..].iter().all(|event| event["parent"] == session), "{started:?}");
    let delegated = finished.events_of("delegate_finished");
    assert!(delegated.iter().all(|event| event["status"] == "completed" && event["usage"]["input"] == 20));
    let last = finished.events().pop().unwrap();
    assert_eq!((&last["type"], &last["session"]), (&json!("session_finished"), &json!(session)));
    // Three requests of its own, and two of each part.
    assert_eq!((&last["usage"]["input"], &last["delegated"]["input"]), (&json!(70), &json!(40)));
    let list = finished.again().args(["sessions", "list", "--json"]).run().expect_code(0);
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    assert_eq!((&list[0]["id"], &list[0]["parent"]), (&json!(session), &Value::Null));
    assert_eq!((&list[1]["parent"], &list[2]["parent"]), (&json!(session), &json!(session)));
    let text = finished.again().args(["sessions", "list"]).run().expect_code(0).stdout;
    assert!(text.contains("delegated: echo one"), "{text}");
    let report = finished.again().args(["sessions", "report", &session]).run().expect_code(0).stdout;
    assert!(report.contains("Delegated (2)") && report.contains("exit 0"), "{report}");
    assert!(report.contains("echo one >> a.txt") && report.contains("files merged"), "{report}");
    let page = finished.again().args(["sessions", "report", &session, "--html"]).run().expect_code(0).stdout;
    assert!(page.contains("<h2>Delegated <small>2</small></h2>"), "{page}");
    // The newest session of the workspace is the user's own.
    let diff = finished.again().args(["diff", "--json"]).run().expect_code(0);
    assert!(!diff.stdout.contains("error"), "{}", diff.stdout);
    finished.again().args(["sessions", "verify", list[1]["id"].as_str().unwrap()]).run().expect_code(0);
}

#[test]
fn changes_of_the_same_file_are_merged_or_reported_as_conflicts() {
    let model = model(&[
        json!({ "task": "sed -i '2s/.*/first/' same.txt; sed -i '1s/.*/top/' both.txt; echo 1 > own1.txt" }),
        json!({ "task": "sed -i '2s/.*/second/' same.txt; sed -i '9s/.*/end/' both.txt; echo 2 > own2.txt" }),
    ]);
    let lines: String = (1..10).map(|line| format!("line {line}\n")).collect();
    let call = agent().endpoint(&model).file("same.txt", &lines).file("both.txt", &lines);
    let finished = call.args(["run", "--delegate", "--json", "--apply", "go"]).run().expect_code(0);
    let same = finished.host_file("same.txt").unwrap();
    let (winner, loser) = if same.contains("first") { (0, 1) } else { (1, 0) };
    let kept = ["first", "second"][winner];
    assert_eq!(same, lines.replace("line 2", kept), "nothing of the other part is in it");
    let merged = lines.replace("line 1", "top").replace("line 9", "end");
    assert_eq!(finished.host_file("both.txt").unwrap(), merged);
    assert_eq!(finished.host_file("own1.txt").as_deref(), Some("1\n"));
    assert_eq!(finished.host_file("own2.txt").as_deref(), Some("2\n"));
    let read = read(&model);
    assert!(!read[winner].contains("conflict"), "{}", read[winner]);
    let told = &read[loser];
    assert!(told.contains("1 file conflicts and was not merged"), "{told}");
    assert!(
        told.contains("both sides changed the same lines: line 2 (line 2 in the delegated change)"),
        "{told}"
    );
    assert!(told.contains(["+first", "+second"][loser]), "its own version is in the diff: {told}");
    assert!(told.contains("Merged with other changes of the same files:\n- both.txt"), "{told}");
    let events = finished.events_of("delegate_finished");
    assert!(events.iter().any(|event| event["conflicts"] == json!(["same.txt"])), "{events:?}");
}

#[test]
fn a_part_changes_only_the_files_that_it_was_given() {
    let model = model(&[
        json!({ "task": "mkdir src; echo x > src/in.txt; echo y > out.txt", "paths": ["src"] }),
        json!({ "task": "true", "paths": ["../elsewhere"] }),
    ]);
    let call = agent().endpoint(&model).args(["run", "--delegate", "--json", "--apply", "go"]);
    let finished = call.run().expect_code(0);
    assert_eq!(finished.host_file("src/in.txt").as_deref(), Some("x\n"));
    assert_eq!(finished.host_file("out.txt"), None);
    let read = read(&model);
    assert!(read[0].contains("Not merged because they are not in `paths`:\n- out.txt"), "{}", read[0]);
    assert!(read[1].contains("\"../elsewhere\" in `paths` is not in the workspace"), "{}", read[1]);
    assert_eq!(finished.events_of("delegate_started").len(), 1);
    assert_eq!(finished.events_of("delegate_finished")[0]["outside"], json!(["out.txt"]));
}

#[test]
fn the_tool_is_offered_only_where_it_is_enabled_and_not_to_parts() {
    let tools = |model: &Endpoint| -> Vec<Vec<String>> {
        let names = |body: &Value| {
            let tools = body["tools"].as_array().unwrap().iter();
            tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
        };
        model.chat_requests().iter().map(names).collect()
    };
    let parts = model(&[json!({ "task": "true" })]);
    let call = agent().endpoint(&parts).config("delegate = true\n");
    let finished = call.args(["run", "go"]).run().expect_code(0);
    let (own, part) = (&tools(&parts)[0], &tools(&parts)[1]);
    assert_eq!(own.last().unwrap(), "delegate");
    assert_eq!(own[..own.len() - 1], part[..]);
    let off = endpoint().text("nothing").start();
    finished.again().endpoint(&off).args(["run", "--delegate=false", "go"]).run().expect_code(0);
    assert_eq!(tools(&off)[0], *part);
    let default = endpoint().text("nothing").start();
    agent().endpoint(&default).args(["run", "go"]).run().expect_code(0);
    assert_eq!(tools(&default)[0], *part);
    let refused = agent().endpoint(&off).args(["run", "--delegate", "--workspace-mode", "bind", "go"]).run();
    assert!(refused.expect_code(2).stderr.contains("--delegate=false"));
}

#[test]
fn a_limit_that_a_part_reaches_is_that_of_the_whole_prompt() {
    let model = endpoint()
        .by_rule(|body| match is_part(body) {
            true => command(&format!("echo {} > n.txt", results(body).len())),
            false => delegate(body, &[json!({ "task": "count" })]),
        })
        .start();
    let call =
        agent().endpoint(&model).args(["run", "--delegate", "--json", "--max-tokens-total", "70", "go"]);
    let finished = call.run().expect_code(5);
    let delegated = &finished.events_of("delegate_finished")[0];
    assert_eq!((&delegated["status"], &delegated["merged"]), (&json!("limit"), &json!(0)));
    // One request of the session and four of the part: 15 tokens each.
    assert_eq!(model.chat_requests().len(), 5);
    let result = finished.events_of("tool_finished").pop().unwrap()["result"].as_str().unwrap().to_owned();
    assert!(result.contains("the delegated part failed: the limit of 70 tokens"), "{result}");
    let late = endpoint()
        .by_rule(|body| match is_part(body) {
            true => command("sleep 1000"),
            false => delegate(body, &[json!({ "task": "sleep" })]),
        })
        .start();
    let call = agent().endpoint(&late).args(["run", "--delegate", "--json", "--max-time", "5s", "go"]);
    let finished = call.run().expect_code(5);
    assert_eq!(finished.events_of("delegate_finished")[0]["status"], "limit");
}

#[test]
fn a_part_that_fails_costs_one_call() {
    let model = endpoint()
        .by_rule(|body| match is_part(body) {
            true => endpoint().error(400, "this request is not understood"),
            false => delegate(body, &[json!({ "task": "fail" }), json!({ "task": " " })]),
        })
        .start();
    let finished = agent().endpoint(&model).args(["run", "--delegate", "go"]).run().expect_code(0);
    let read = read(&model);
    assert!(read[0].starts_with("error: the delegated part failed: "), "{}", read[0]);
    assert!(read[0].contains("Nothing of it was merged"), "{}", read[0]);
    assert!(read[1].contains("the task is empty"), "{}", read[1]);
    assert_eq!(finished.stdout, "all parts are done\n");
}

#[test]
fn rules_and_the_trace_of_a_part_are_those_of_its_session() {
    let model = model(&[json!({ "task": "git push origin main" })]);
    let rules = "[policy.deny.publishing]\ncommands = [\"git push\"]\nbecause = \"not yet\"\n";
    let call = agent().endpoint(&model).config(rules).args(["run", "--delegate", "go"]);
    let finished = call.run().expect_code(0);
    let stderr = &finished.stderr;
    assert!(stderr.contains("  1: [DENIED]") && stderr.contains("publishing"), "{stderr}");
    assert!(stderr.contains("  1: [DEBUG] run_commands called with command: git push"), "{stderr}");
    assert!(stderr.contains("(delegated: 20 tokens in, 10 out)"), "{stderr}");
}

#[test]
fn hooks_hold_for_parts_too() {
    let model = model(&[json!({ "task": "echo forbidden > a.txt" })]);
    let hook = "[[hooks]]\nevent = \"before_tool\"\ntools = [\"run_commands\"]\nwhere = \"host\"\n\
                command = \"grep -q forbidden && { echo not here >&2; exit 2; }\"\n\
                [[hooks]]\nevent = \"after_tool\"\ntools = [\"delegate\"]\ncommand = \"echo well done >&2; exit 2\"\n";
    let call = agent().endpoint(&model).config(hook).args(["run", "--delegate", "--json", "go"]);
    let finished = call.run().expect_code(0);
    assert_eq!(finished.events_of("denied")[0]["rule"], "a hook: not here");
    assert!(read(&model)[0].ends_with("[a hook of the user's says: well done]"), "{:?}", read(&model));
}

#[test]
fn nothing_is_delegated_before_the_user_accepts_the_plan() {
    let model = model(&[json!({ "task": "echo early > a.txt" })]);
    let call = agent().endpoint(&model).args(["run", "--delegate", "--plan", "--json", "go"]);
    let finished = call.run().expect_code(0);
    assert!(
        read(&model)[0].contains("nothing was delegated: the workspace is read-only"),
        "{:?}",
        read(&model)
    );
    assert!(finished.events_of("delegate_started").is_empty());
}

#[test]
fn a_question_about_the_command_of_a_part_names_the_part() {
    let model = model(&[json!({ "task": "echo one > a.txt" })]);
    let builder = terminal().endpoint(&model);
    let mut asked = builder.args(["run", "--delegate", "--approve", "always", "go"]).start();
    asked.wait_for("part 1: echo one > a.txt");
    asked.wait_for("[yes/no/always]");
    asked.type_line("yes");
    asked.wait_for("Apply? [yes/no/each]");
    asked.type_line("no");
    assert_eq!(asked.wait(), 0);
}

#[test]
fn a_part_that_is_resumed_has_the_home_directory_that_it_began_with() {
    let is_prompted = |body: &Value| body["messages"].as_array().unwrap().last().unwrap()["role"] == "user";
    let rule = move |body: &Value| match (is_part(body), results(body).len()) {
        (true, _) if is_prompted(body) => command("cat ~/.tools/version"),
        (true, _) => endpoint().text("looked"),
        (false, 0) => command("mkdir -p ~/.tools && echo installed > ~/.tools/version"),
        (false, 1) => endpoint().tool_call("delegate", json!({ "task": "true" })),
        (false, _) => endpoint().text("all parts are done"),
    };
    let model = endpoint().by_rule(rule).start();
    let finished = agent().endpoint(&model).args(["run", "--delegate", "--json", "go"]).run().expect_code(0);
    let part = finished.events_of("delegate_started")[0]["delegate"].as_str().unwrap().to_owned();
    let resumed = finished.again().endpoint(&model).args(["run", "--session", &part, "look", "--json"]);
    let resumed = resumed.run().expect_code(0);
    let result = resumed.events_of("tool_finished").pop().unwrap()["result"].as_str().unwrap().to_owned();
    assert!(result.contains("installed"), "{result}");
}

#[test]
fn what_the_session_goes_on_writing_is_not_a_change_of_a_part() {
    let part = json!({ "task": "cat target/cache && cat noise.txt > copy.txt && echo mine >> a.txt" });
    let rule = move |body: &Value| match (is_part(body), results(body).len()) {
        (true, _) => work(body),
        (false, 0) => {
            let noise = "(while :; do echo x >> noise.txt; sleep 0.01; done) > /dev/null 2>&1 &";
            command(&format!(
                "mkdir target; echo built > target/cache; {noise} while ! test -s noise.txt; do sleep 0.01; done"
            ))
        }
        (false, 1) => endpoint().tool_call("delegate", part.clone()),
        (false, _) => endpoint().text("all parts are done"),
    };
    let model = endpoint().by_rule(rule).start();
    let call = agent().endpoint(&model).file("a.txt", "a\n").file(".gitignore", "target\n");
    let call = call.args(["run", "--delegate", "--json", "--workspace-mode", "overlay", "go"]);
    let finished = call.run().expect_code(0);
    let part = &finished.events_of("delegate_finished")[0];
    let part_session = part["delegate"].as_str().unwrap();
    let diff = finished.again().args(["diff", part_session]).run().expect_code(0).stdout;
    assert!(diff.contains("+mine") && diff.contains("copy.txt"), "{diff}");
    assert!(!diff.contains("+++ b/noise.txt"), "{diff}");
    let command = finished.events_of("tool_finished");
    let text = command.iter().map(|event| event["result"].to_string()).collect::<String>();
    assert!(text.contains("built"), "what git ignores is copied: {text}");
}

/// Sandboxes of the sessions of a call.
fn sandboxes(call: Agent) -> usize {
    let listed = call.args(["sandbox", "list", "--json"]).run().expect_code(0);
    let sessions = listed.again().args(["sessions", "list"]).run().expect_code(0).stdout;
    let all: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    all.iter().filter(|sandbox| sessions.contains(sandbox["session"].as_str().unwrap())).count()
}

/// A busy engine removes a container after the session that asked for it has ended.
pub fn await_no_sandbox(finished: &Finished) {
    let deadline = Instant::now() + LIMIT;
    while sandboxes(finished.again()) > 0 {
        assert!(Instant::now() < deadline, "a sandbox is left");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn ctrl_c_stops_the_parts_and_the_session_continues() {
    let model = model(&[json!({ "task": "sleep 1000" }), json!({ "task": "sleep 1001" })]);
    let running = agent().endpoint(&model).args(["run", "--delegate", "--json", "go"]).start();
    running.wait_for_event("\"command\":\"sleep 1000\"");
    running.wait_for_event("\"command\":\"sleep 1001\"");
    running.signal(libc::SIGINT);
    let finished = running.wait().expect_code(130);
    let ended = finished.events_of("session_finished");
    assert_eq!(ended.len(), 3);
    assert!(ended.iter().all(|event| event["status"] == "interrupted"), "{ended:?}");
    await_no_sandbox(&finished);
    let again = finished.again().endpoint(&model);
    again.args(["run", "--session", &own_session(&finished), "more"]).run().expect_code(0);
}

#[test]
fn a_kill_leaves_no_sandbox_of_a_part() {
    let model = model(&[json!({ "task": "sleep 1000" })]);
    let running = agent().endpoint(&model).args(["run", "--delegate", "go"]).start();
    running.wait_for_event("\"command\":\"sleep 1000\"");
    running.signal(libc::SIGKILL);
    let killed = running.wait();
    await_no_sandbox(&killed);
    let list = killed.again().args(["sessions", "list"]).run().expect_code(0).stdout;
    assert_eq!(list.matches("unfinished").count(), 2, "{list}");
}

#[test]
fn an_interrupt_ends_a_hook_after_a_part_and_keeps_the_parts_result() {
    let model = model(&[json!({ "task": "echo 1 > one" })]);
    let config = "[[hooks]]\nevent = \"after_tool\"\ntools = [\"delegate\"]\nwhere = \"host\"\n\
                  command = \"touch begun; sleep 600\"\ntimeout = \"10m\"\n";
    let running = agent().endpoint(&model).config(config).args(["run", "--json", "--delegate", "go"]).start();
    let begun = running.home("config").join("begun");
    let deadline = Instant::now() + LIMIT;
    while !begun.exists() {
        assert!(Instant::now() < deadline, "the hook does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(libc::SIGINT);
    let finished = running.wait().expect_code(130);
    let events = finished.events_of("tool_finished");
    let last = events.iter().rfind(|event| event["name"] == "delegate").unwrap();
    assert_eq!(last["ok"], true, "{last}");
}
