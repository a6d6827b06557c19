//! Help for small models, by what they did and what came of it.

use crate::small_models::{last_text, server, turn};
use agent_testbed::agent::{Finished, agent};
use agent_testing::endpoint::{Endpoint, Script, endpoint};
use serde_json::{Value, json};

fn small() -> Script {
    server(1_500_000_000)
}

fn write(path: &str, content: &str) -> String {
    turn(json!({ "tool": "write_file", "path": path, "content": content }))
}

fn edit(path: &str, old: &str, new: &str) -> String {
    turn(json!({ "tool": "edit_file", "path": path, "old": old, "new": new }))
}

fn run(command: &str) -> String {
    turn(json!({ "tool": "run_commands", "command": command }))
}

fn answer(text: &str) -> String {
    turn(json!({ "tool": "answer", "text": text }))
}

fn work(model: &Endpoint, prompt: &str) -> Finished {
    let call = agent().file("a.py", "def half(n):\n    return n / 3\n").endpoint(model);
    call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0)
}

fn nudges(finished: &Finished) -> Vec<String> {
    let texts = finished.events_of("nudge").into_iter();
    texts.map(|event| event["text"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn a_question_is_answered_without_a_change_or_a_run() {
    // "Why is the build slow?" was answered with "you have not changed a file yet".
    for prompt in ["Why is the build slow?", "Warum ist der Build so langsam?", "为什么构建这么慢？"]
    {
        let model = small().text(&answer("It links everything twice.")).start();
        assert!(nudges(&work(&model, prompt)).is_empty(), "{prompt}");
        assert_eq!(model.chat_requests().len(), 1, "{prompt}");
    }
}

#[test]
fn a_search_that_finds_nothing_is_no_failed_step() {
    let model = small().text(&run("grep -rn TIMEOUT .")).text(&answer("There is none.")).start();
    let finished = work(&model, "Is there a TIMEOUT?");
    assert!(nudges(&finished).is_empty());
    assert!(!last_text(&model.chat_requests()[1]).contains("failed"), "{}", model.chat_requests()[1]);
}

#[test]
fn a_program_that_prints_nothing_may_be_right() {
    // A silent `npx tsc --noEmit` ended with exit code 5.
    let model = small()
        .text(&edit("a.py", "n / 3", "n / 2"))
        .text(&run("python3 -B a.py"))
        .text(&answer("half is right."))
        .start();
    assert!(nudges(&work(&model, "Fix half in a.py, run it and show the output.")).is_empty());
}

#[test]
fn a_script_that_nothing_has_run_is_pointed_out_once_in_every_language() {
    for prompt in [
        "Write hi.sh.",
        "Schreib ein Skript hi.sh, das grüßt.",
        "写一个脚本hi.sh。",
        "hi.sh スクリプトを書いて",
    ] {
        let model =
            small().text(&write("hi.sh", "echo hi\n")).text(&answer("Done.")).text(&answer("Done.")).start();
        let finished = work(&model, prompt);
        let nudges = nudges(&finished);
        assert_eq!(nudges.len(), 1, "{prompt}: {nudges:?}");
        assert!(nudges[0].contains("sh hi.sh"), "{nudges:?}");
        assert!(finished.host_file("hi.sh").is_some(), "an answer that is given again stands: {prompt}");
    }
}

#[test]
fn a_failure_is_pointed_out_once_and_an_answer_can_always_be_sent() {
    let model = small()
        .text(&run("python3 -B missing.py"))
        .text(&answer("It fails: missing.py does not exist."))
        .text(&answer("It fails: missing.py does not exist."))
        .start();
    let finished = work(&model, "What happens when you run missing.py?");
    assert_eq!(nudges(&finished).len(), 1);
    for request in model.chat_requests() {
        assert!(request["response_format"].to_string().contains(r#"{"const":"answer"}"#), "{request}");
    }
}

#[test]
fn code_and_plans_in_place_of_a_step_are_pointed_out() {
    for text in ["```python\nprint(1)\n```", "1. Read a.py.\n2. Correct it."] {
        let model = small()
            .text(text)
            .text(&edit("a.py", "n / 3", "n / 2"))
            .text(&run("python3 -B a.py"))
            .text(&answer("Done."))
            .start();
        let finished = work(&model, "half is wrong");
        assert!(nudges(&finished)[0].contains("Nothing was done yet"), "{text}");
        assert_eq!(finished.host_file("a.py").as_deref(), Some("def half(n):\n    return n / 2\n"));
    }
}

#[test]
fn files_that_a_prompt_names_are_sent_along_and_may_be_rewritten() {
    // "Convert bot.py to asyncio" was refused twice.
    let bot = "import time\n\n\ndef main():\n    time.sleep(1)\n";
    for prompt in ["Convert bot.py to asyncio.", "Stell `bot.py` auf asyncio um", "把bot.py改成asyncio"] {
        let model = small()
            .text(&write("bot.py", "import asyncio\n\n\nasync def main():\n    await asyncio.sleep(1)\n"))
            .text(&run("python3 -B bot.py"))
            .text(&answer("It uses asyncio."))
            .start();
        let call = agent().file("bot.py", bot).endpoint(&model);
        let finished = call.args(["run", prompt, "--json", "--apply"]).run().expect_code(0);
        assert!(last_text(&model.chat_requests()[0]).contains(bot), "{prompt}");
        assert_eq!(finished.events_of("attached")[0]["name"], "bot.py");
        let results = finished.events_of("tool_finished");
        assert!(results.iter().all(|result| result["ok"] == true), "{results:?}");
        assert!(finished.host_file("bot.py").is_some_and(|content| content.contains("async def main")));
    }
}

#[test]
fn a_file_that_was_not_read_is_shown_before_it_is_overwritten() {
    let sub = "def sub(a, b):\n    return a - b\n";
    let model = small()
        .text(&write("ops.py", sub))
        .text(&edit("ops.py", "    return a + b", &format!("    return a + b\n\n\n{sub}")))
        .text(&run("python3 -B ops.py"))
        .text(&answer("Added."))
        .start();
    let call = agent().file("ops.py", "def add(a, b):\n    return a + b\n").endpoint(&model);
    let finished = call.args(["run", "Add a function sub.", "--json", "--apply"]).run().expect_code(0);
    let refusal = last_text(&model.chat_requests()[1]).to_owned();
    assert!(
        refusal.contains("not written: ops.py exists") && refusal.contains("def add(a, b):"),
        "{refusal}"
    );
    assert!(
        finished
            .host_file("ops.py")
            .is_some_and(|content| content.contains("add") && content.contains("sub"))
    );
}

#[test]
fn an_edit_that_misses_by_indentation_or_quotation_marks_is_made() {
    let model = small()
        .text(&edit("a.py", "        return n / 3", "        return n / 2"))
        .text(&edit("b.js", "  print('a')\n  print('b')", "  print('c')"))
        .text(&edit("c.txt", "say 'hello'", "say 'bye'"))
        .text(&run("sh -c true"))
        .text(&answer("Done."))
        .start();
    let call = agent()
        .file("a.py", "def half(n):\n    return n / 3\n")
        .file("b.js", "{\n    print('a')\n    print('b')\n}\n")
        .file("c.txt", "say \"hello\"\n")
        .endpoint(&model);
    let finished = call.args(["run", "Go", "--json", "--apply"]).run().expect_code(0);
    assert_eq!(finished.host_file("a.py").as_deref(), Some("def half(n):\n    return n / 2\n"));
    assert_eq!(finished.host_file("b.js").as_deref(), Some("{\n    print('c')\n}\n"));
    assert_eq!(finished.host_file("c.txt").as_deref(), Some("say 'bye'\n"));
}

#[test]
fn a_change_in_place_that_matches_no_line_is_reported() {
    for command in
        ["sed -i 's/^PORT = \".*\"/PORT = 9000/' settings.toml", "sed -Ei.bak '/xyz/d' settings.toml"]
    {
        let model = small().text(&run(command)).text(&answer("PORT is 9000.")).start();
        let call = agent().file("settings.toml", "PORT = 8080\n").endpoint(&model);
        call.args(["run", "Set the port to 9000.", "--json"]).run().expect_code(0);
        let result = last_text(&model.chat_requests()[1]).to_owned();
        assert!(result.contains("matches no line.\n\nsettings.toml holds:\nPORT = 8080\n"), "{result}");
    }
}

#[test]
fn a_syntax_error_is_reported_with_the_write() {
    for (path, content, part) in [
        ("a/new.py", "def f()\n    return 1\n", "SyntaxError"),
        ("new.sh", "if true; then\n  echo\n", "syntax error"),
    ] {
        let model = small()
            .text(&write(path, content))
            .text(&run("ls"))
            .text(&answer("x"))
            .text(&answer("x"))
            .start();
        work(&model, "Write it.");
        let result = last_text(&model.chat_requests()[1]).to_owned();
        assert!(result.contains(&format!("{path} has a syntax error:")) && result.contains(part), "{result}");
    }
}

#[test]
fn a_failed_program_comes_with_the_line_that_fails() {
    let model = small()
        .text(&write("hi.sh", "echo hi\nhello world\n"))
        .text(&run("sh hi.sh"))
        .text(&write("hi.sh", "echo hi\n"))
        .text(&run("sh hi.sh"))
        .text(&answer("Done."))
        .start();
    work(&model, "Say hi.");
    let result = last_text(&model.chat_requests()[2]).to_owned();
    assert!(result.contains("Line 2 of hi.sh, with those around it:\necho hi\nhello world\n"), "{result}");
}

#[test]
fn a_failed_check_is_reported_without_its_command_and_with_its_failing_lines() {
    let check =
        "python3 -B - <<'END'\nfrom a import half\nassert half(4) == 2, half(4)\nassert half(0) == 0\nEND";
    let model = small()
        .text(&edit("a.py", "n / 3", "n / 4"))
        .text(&run("python3 -B a.py"))
        .text(&answer("Done."))
        .text(&edit("a.py", "n / 4", "n / 2"))
        .text(&run("python3 -B a.py"))
        .text(&answer("Done."))
        .start();
    let call = agent().file("a.py", "def half(n):\n    return n / 3\n").endpoint(&model);
    call.args(["run", "half is wrong", "--json", "--check", check]).run().expect_code(0);
    let feedback = last_text(&model.chat_requests()[3]).to_owned();
    assert!(feedback.starts_with("The check of the task fails (exit code 1)."), "{feedback}");
    assert!(!feedback.contains("<<'END'"), "{feedback}");
    // The error says where it failed only by its number.
    let lines = "These lines of the command failed:\nfrom a import half\nassert half(4) == 2, half(4)\nassert half(0) == 0\n\n";
    assert!(feedback.contains(lines), "{feedback}");
    assert!(feedback.contains("a.py holds:\n") && feedback.contains("return n / 4"), "{feedback}");
}

#[test]
fn a_large_model_is_left_alone() {
    let model = server(70_000_000_000)
        .tool_call("write_file", json!({ "path": "hi.sh", "data": "echo hi\nif\n" }))
        .text("1. Done.\n2. Good.")
        .start();
    let finished = work(&model, "Look at a.py and write hi.sh.");
    assert!(nudges(&finished).is_empty() && finished.events_of("attached").is_empty());
    let results: Vec<Value> = finished.events_of("tool_finished");
    assert_eq!(results[0]["result"], "wrote hi.sh: 2 lines, 11 bytes");
}

#[test]
fn help_and_the_form_of_the_calls_are_settings_of_their_own() {
    let plan = "1. Read a.py.\n2. Correct it.";
    let helped = |parameters: u64, config: &str, variable: Option<&str>, arguments: &[&str]| {
        let model = server(parameters).text(plan).repeat_last().start();
        let call = agent().config(&format!("[models.test-model]\n{config}")).endpoint(&model);
        let call = variable.into_iter().fold(call, |call, value| call.env("AGENT_ASSIST", value));
        let finished = call.args(["run", "--json", "Fix a.py."]).args(arguments).run().expect_code(0);
        (model.chat_requests()[0]["tools"].is_array(), !nudges(&finished).is_empty())
    };
    let (small, large) = (1_000_000_000, 70_000_000_000);
    for (parameters, config, variable, arguments, expected) in [
        (small, "", None, &[][..], (false, true)),
        (small, "form = \"native\"", None, &[], (true, true)),
        (small, "assist = false", None, &[], (false, false)),
        (small, "assist = true", None, &["--assist", "off"], (false, false)),
        (large, "", None, &[], (true, false)),
        (large, "form = \"compact\"", None, &[], (false, false)),
        (large, "assist = true", None, &[], (true, true)),
        (large, "assist = false", Some("true"), &[], (true, true)),
        (large, "assist = true", Some("true"), &["--assist=off"], (true, false)),
        (large, "", None, &["--assist", "on"], (true, true)),
    ] {
        assert_eq!(
            helped(parameters, config, variable, arguments),
            expected,
            "{parameters} {config} {arguments:?}"
        );
    }
}

#[test]
fn a_model_of_unknown_size_is_left_alone() {
    let model = endpoint().text("1. Read a.py.\n2. Correct it.").start();
    assert!(nudges(&work(&model, "Fix a.py.")).is_empty());
}
