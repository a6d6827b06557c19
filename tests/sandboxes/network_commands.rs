//! `--network`, `/network` and the question about a host, as the user meets them.

use agent_testbed::agent::agent;
use agent_testbed::terminal::{Terminal, terminal};
use agent_testing::endpoint::endpoint;
use agent_testing::site::Site;
use serde_json::json;

#[test]
fn an_invalid_list_says_how_to_write_one() {
    for (list, hint) in [
        ("https://example.com", "no scheme"),
        ("localhost:8080", "127.0.0.1:8080"),
        ("10.0.0.1", "name its port"),
        ("*.com", "two labels"),
        ("none,example.com", "stand alone"),
        ("exa mple.com", "*.example.com"),
        ("!example.com", "public,!example.com"),
    ] {
        let finished = agent().args(["run", "hi", "--network", list]).run().expect_code(2);
        assert!(finished.stderr.contains(hint), "{list}: {}", finished.stderr);
    }
    agent().args(["run", "hi"]).env("AGENT_NETWORK", "10.0.0.1").run().expect_code(2);
}

#[test]
fn exec_reaches_what_was_named() {
    let (site, other) = (Site::http().file("/", "hello\n"), Site::http());
    let list = format!("registries,{}", site.host_and_port());
    let fetch =
        format!("curl -sS http://{}/; curl -sSf http://{}/", site.host_and_port(), other.host_and_port());
    let finished = agent().args(["exec", "--network", &list, "--", "sh", "-c", &fetch]).run().expect_code(22);
    assert_eq!(finished.stdout, "hello\n");
    let denied =
        format!("[DENIED] connect to {} (it is not on the list of --network)", other.host_and_port());
    assert!(finished.stderr.contains(&denied), "{}", finished.stderr);
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_flood_of_refused_hosts_is_cut_short() {
    let flood = "for i in $(seq 105); do curl -s http://host$i.test/; done; true";
    let told = agent()
        .args(["exec", "--network", "registries", "--", "sh", "-c", flood])
        .run()
        .expect_code(0)
        .stderr;
    assert_eq!(told.matches("[DENIED]").count(), 100, "{told}");
    assert_eq!(told.matches("the network refused more than 100 targets").count(), 1, "{told}");
}

#[test]
fn the_model_gets_the_reason_of_a_refusal_and_the_session_keeps_it() {
    let site = Site::http().file("/", "hello\n");
    let command = format!("curl -sS http://{}/ && curl -sSf https://evil.test/", site.host_and_port());
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Refused.").start();
    let finished = agent()
        .args(["run", "fetch", "--json", "--network", &site.host_and_port()])
        .endpoint(&model)
        .run()
        .expect_code(0);
    let result = finished.events_of("tool_finished")[0]["result"].as_str().unwrap().to_owned();
    assert!(result.contains("hello"), "{result}");
    assert!(
        result.ends_with("[the network refused: evil.test:443 (it is not on the list of --network)]"),
        "{result}"
    );
    let system = model.requests()[0].messages()[0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains(&format!("only to {} through the HTTP proxy", site.host_and_port())), "{system}");
    assert_eq!(finished.events_of("denied")[0]["what"], "connect to evil.test:443");
    let connections = finished.events_of("connection");
    assert_eq!((&connections[0]["allowed"], &connections[0]["host"]), (&json!(true), &json!("127.0.0.2")));
    assert_eq!((&connections[1]["allowed"], &connections[1]["host"]), (&json!(false), &json!("evil.test")));
    assert_eq!(finished.events().last().unwrap()["type"], "session_finished");
    let id = finished.events_of("session_started")[0]["session"].as_str().unwrap().to_owned();
    let report = finished.again().args(["sessions", "report", &id]).run().expect_code(0).stdout;
    assert!(report.contains("evil.test:443 (0 allowed, 1 refused"), "{report}");
    assert!(report.contains("connect to evil.test:443: it is not on the list"), "{report}");
}

#[test]
fn a_check_has_the_same_network() {
    let site = Site::http().file("/", "hello\n");
    let fetch = format!("curl -sSf http://{}/", site.host_and_port());
    let model = endpoint().text("Done.").start();
    agent()
        .args(["run", "hi", "--network", &site.host_and_port(), "--check", &fetch])
        .endpoint(&model)
        .run()
        .expect_code(0);
    assert_eq!(site.connections(), 1);
}

#[test]
fn a_refused_host_is_asked_about_once_for_the_session_or_never() {
    let (named, other) = (Site::http(), Site::http().file("/", "welcome\n"));
    let model = endpoint().start();
    let mut terminal = terminal().args(["--network", &named.host_and_port()]).endpoint(&model).start();
    terminal.wait_for_prompt();
    let fetch = format!("!curl -sS http://{}/", other.host_and_port());
    let question = format!("wants to connect to {}, a loopback address. Allow it?", other.host_and_port());

    terminal.type_line(&fetch);
    terminal.wait_for(&question);
    terminal.wait_for("[once/session/project/never]");
    terminal.type_line("once");
    terminal.wait_for("welcome");
    terminal.wait_for("exit 0");
    terminal.wait_for_prompt();

    // Ctrl-C refuses the connection this time.
    terminal.type_line(&format!("{fetch}; echo second"));
    terminal.wait_until("the second question", |screen| screen.matches("Allow it?").count() == 2);
    terminal.ctrl_c();
    terminal.wait_for("\nsecond");
    terminal.wait_for("[DENIED] connect to");
    terminal.wait_for_prompt();

    terminal.type_line(&format!("{fetch}; echo third"));
    terminal.wait_until("the third question", |screen| screen.matches("Allow it?").count() == 3);
    terminal.type_line("session");
    terminal.wait_for("\nthird");
    terminal.wait_for_prompt();
    terminal.type_line("/network");
    terminal.wait_for(&format!("allowed: {}, {}", named.host_and_port(), other.host_and_port()));

    terminal.type_line(&format!("/network deny {}", other.host_and_port()));
    terminal.wait_for(&format!("denied: {}", other.host_and_port()));
    terminal.type_line(&format!("{fetch}; echo fourth"));
    terminal.wait_for("(the user denied it)");
    terminal.wait_for("\nfourth");
    terminal.wait_for_prompt();
    assert_eq!(other.connections(), 2);
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn a_sandbox_without_a_network_gets_one_by_slash_network() {
    let site = Site::http().file("/", "welcome\n");
    let model = endpoint().start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("/network");
    terminal.wait_for("none: nothing but the sandbox's own loopback");
    terminal.type_line("/network allow localhost");
    terminal.wait_for("name the address and the port");
    terminal.type_line(&format!("/network allow {}", site.host_and_port()));
    terminal.wait_for(&format!("allowed: {}", site.host_and_port()));
    terminal.type_line(&format!("!curl -sS http://{}/", site.host_and_port()));
    terminal.wait_for("welcome");
    // What is typed before would go to the command's terminal.
    terminal.wait_for_prompt();
    terminal.type_line("/network frobnicate");
    terminal.wait_for("/network allow HOST,…");
    terminal.wait_for_prompt();
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn without_a_list_the_user_is_asked_and_the_answers_for_the_session_and_the_project_are_kept() {
    let (of_project, of_session) =
        (Site::http().file("/", "welcome\n"), Site::http().file("/", "good evening\n"));
    let (project, session) = (of_project.host_and_port(), of_session.host_and_port());
    let model = endpoint().start();
    let call = terminal();
    let start = |arguments: &[&str]| {
        let terminal = call.again().columns(120).endpoint(&model).args(arguments).start();
        terminal.wait_for_prompt();
        terminal
    };
    let leave = |mut terminal: Terminal| {
        terminal.wait_for_prompt();
        terminal.ctrl_d();
        assert_eq!(terminal.wait(), 0);
    };
    let mut first = start(&[]);
    for (site, answer, shown) in [(&project, "project", "welcome"), (&session, "session", "good evening")] {
        first.type_line(&format!("!curl -sS http://{site}/"));
        first.wait_for(&format!("wants to connect to {site}"));
        first.type_line(answer);
        first.wait_for(shown);
        first.wait_for_prompt();
    }
    leave(first);
    let written: Vec<_> = std::fs::read_dir(call.directory("workspace")).expect("it").collect();
    assert!(written.is_empty(), "a project cannot allow itself hosts: {written:?}");

    let mut resumed = start(&["resume", "--last"]);
    resumed.type_line("/network");
    resumed.wait_for(&format!("allowed: {project}, {session}"));
    resumed.type_line(&format!("!curl -sS http://{session}/"));
    resumed.wait_for("good evening");
    leave(resumed);
    assert_eq!((of_project.connections(), of_session.connections()), (1, 2));

    let mut later = start(&[]);
    later.type_line("/network");
    later.wait_for(&format!("allowed: {project}"));
    assert!(!later.screen().contains(&session), "{}", later.screen());
    later.wait_for_prompt();
    later.type_line(&format!("/network deny {project}"));
    later.wait_for(&format!("denied: {project}"));
    leave(later);

    let mut fresh = start(&[]);
    fresh.type_line("/network");
    fresh.wait_for("none: nothing but the sandbox's own loopback; you are asked about each host");
    leave(fresh);
}

#[test]
fn a_run_at_a_terminal_asks_and_a_list_of_its_own_asks_nothing() {
    let site = Site::http().file("/", "welcome\n");
    let fetch = json!({ "command": format!("curl -sS http://{}/", site.host_and_port()) });
    let model = || endpoint().tool_call("run_commands", fetch.clone()).text("Fetched.").start();
    let asking = model();
    let call = terminal();
    let mut terminal = call.again().columns(120).args(["run", "fetch"]).endpoint(&asking).start();
    terminal
        .wait_for(&format!("wants to connect to {}, a loopback address. Allow it?", site.host_and_port()));
    terminal.type_line("once");
    terminal.wait_for("Fetched.");
    assert_eq!((terminal.wait(), site.connections()), (0, 1));

    let listed = model();
    let call = call.again().columns(120).endpoint(&listed);
    let mut terminal = call.args(["run", "fetch", "--network", "registries"]).start();
    terminal.wait_for("Fetched.");
    assert!(!terminal.screen().contains("Allow it?"), "{}", terminal.screen());
    assert_eq!((terminal.wait(), site.connections()), (0, 1));
}

#[test]
fn none_on_the_command_line_asks_nothing() {
    let model = endpoint().start();
    let mut terminal = terminal().args(["--network", "none"]).endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("!curl -sS http://example.test/; echo \"[$http_proxy]\"");
    terminal.wait_for("\n[]");
    terminal.wait_for_prompt();
    assert!(!terminal.screen().contains("Allow it?"), "{}", terminal.screen());
}

#[test]
fn a_script_is_told_once_at_the_end_which_registries_it_missed() {
    let command = "curl -sS https://pypi.org/simple/; curl -sS https://files.pythonhosted.org/";
    let model =
        endpoint().tool_call("run_commands", json!({ "command": command })).text("No network.").start();
    let site = Site::http();
    let list = site.host_and_port();
    let with_list =
        agent().args(["run", "fetch", "--json", "--network", &list]).endpoint(&model).run().expect_code(0);
    let texts = |finished: &agent_testbed::agent::Finished| -> Vec<String> {
        let notices = finished.events_of("notice");
        let texts = notices.iter().map(|event| event["text"].as_str().expect("text").to_owned());
        texts.filter(|text| text.contains("registr")).collect()
    };
    let line = "2 connections to a package registry were refused; --network registries allows them";
    assert_eq!(texts(&with_list), [line]);
    for (arguments, count) in [(&["--json"][..], 1), (&["--json", "--network", "none"][..], 0)] {
        let model =
            endpoint().tool_call("run_commands", json!({ "command": command })).text("No network.").start();
        let call = agent().args(["run", "fetch"]).args(arguments).endpoint(&model);
        assert_eq!(texts(&call.run().expect_code(0)).len(), count, "{arguments:?}");
    }
}

#[test]
fn everything_public_except_what_is_named() {
    let fetch = "curl -sS http://evil.test/; curl -sS http://a.evil.test:8080/; curl -sS http://10.0.0.1/";
    let list = "public,!evil.test,!*.evil.test";
    let finished = agent().args(["exec", "--network", list, "--", "sh", "-c", fetch]).run().expect_code(0);
    assert!(
        finished.stdout.contains("may not connect to evil.test:80: the user denied it"),
        "{}",
        finished.stdout
    );
    assert!(finished.stdout.contains("remove the denial from the list of --network"), "{}", finished.stdout);
    assert!(finished.stdout.contains("a.evil.test:8080: the user denied it"), "{}", finished.stdout);
    assert!(finished.stdout.contains("10.0.0.1:80: it is a private address"), "{}", finished.stdout);
    assert_eq!(finished.stderr.matches("[DENIED]").count(), 3, "{}", finished.stderr);
}

#[test]
fn without_a_network_the_model_and_the_user_get_a_hint_how_to_allow_a_host() {
    let command = "curl -sS http://example.test/; curl -sS http://example.test/";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": command }))
        .tool_call("run_commands", json!({ "command": command }))
        .text("No network.")
        .start();
    let finished = agent().args(["run", "fetch", "--json"]).endpoint(&model).run().expect_code(0);
    for event in finished.events_of("tool_finished") {
        let result = event["result"].as_str().unwrap();
        assert!(
            result.contains("[the sandbox has no network; only the user can change that: --network"),
            "{result}"
        );
    }
    let notices = finished.events_of("notice");
    let notices =
        notices.iter().filter(|event| event["text"].as_str().unwrap().contains("the sandbox has none"));
    assert_eq!(notices.count(), 1, "once");
}

#[test]
fn the_user_is_asked_whether_a_library_may_come_from_its_registry() {
    let call = json!({ "language": "python", "code": "1", "libraries": ["no-such-library-at-all"] });
    let model = endpoint().tool_call("run_code", call).text("It is not there.").start();
    let mut terminal = terminal().endpoint(&model).columns(120).start();
    terminal.wait_for_prompt();
    terminal.type_line("use it");
    terminal.wait_for(
        "To install no-such-library-at-all (python), programs in the sandbox have to connect to pypi.org",
    );
    terminal.wait_for("[yes/no]");
    terminal.type_line("no");
    terminal.wait_for("It is not there.");
    let messages = model.last().messages();
    let result = messages.iter().rfind(|message| message["role"] == "tool").expect("a result");
    let text = result["content"].as_str().expect("text");
    assert!(
        text.contains("no-such-library-at-all is not installed, and the sandbox may not connect to pypi.org"),
        "{text}"
    );
    terminal.wait_for_prompt();
    terminal.type_line("/network");
    terminal.wait_for("nothing but the sandbox's own loopback");
}
