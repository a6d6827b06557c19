//! What a user is asked, what keeps to the answer, and what speaks to the model in the user's name.

use agent::approval::policy::{Action, Gate, Judgement, Rules};
use agent::approval::{Answer, Approve, Question};
use agent_testbed::agent::agent;
use agent_testbed::backends::{on_every_backend, shell};
use agent_testbed::terminal::{Terminal, terminal};
use agent_testing::endpoint::endpoint;
use futures_util::FutureExt;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

fn asked(action: Action<'_>) -> (String, String) {
    let gate = Gate::new(Rules::default(), Approve::Always, None).expect("a gate");
    match gate.judge(Some(action)) {
        Judgement::Ask(question) => (question.what.clone(), question.to_string()),
        other => panic!("{other:?}"),
    }
}

/// Text behind 2,000 characters was hidden, blank lines pushed a command off the screen, and of a file only the name was shown.
#[test]
fn attack_65_a_question_shows_all_that_it_is_about() {
    let long = format!("echo {}; rm -rf C4NARY", "x".repeat(10_000));
    let (what, question) = asked(Action::Command(&long));
    assert!(what.contains("rm -rf C4NARY") && question.contains("shown above"), "{question}");
    let blank = format!("rm -rf C4NARY{}true", "\n".repeat(200));
    let (_, question) = asked(Action::Command(&blank));
    assert!(question.contains("rm -rf C4NARY\n(199 blank lines)\ntrue\n"), "{question}");
    let lines = format!("rm -rf C4NARY\n{}true", "# harmless\n".repeat(200));
    let (what, question) = asked(Action::Command(&lines));
    assert!(question.contains("rm -rf C4NARY") && question.lines().count() < 30, "{question}");
    assert_eq!(what, lines);
    let (_, question) = asked(Action::Write { files: vec![("a.sh", "echo C4NARY\n")], whole: true });
    assert!(question.contains("write a.sh:\necho C4NARY"), "{question}");
    for blank in [" ", "\t", "\u{a0}", "\u{3000}"] {
        let wide = format!("rm -rf C4NARY;{}ls", blank.repeat(3_500));
        let (_, question) = asked(Action::Command(&wide));
        assert!(question.contains("rm -rf C4NARY; (3500 blanks) ls\n"), "{question}");
    }
    let rules: Rules = toml::from_str("[ask.it]\ncommands = [\"rm\"]").expect("rules");
    let gate = Gate::new(rules, Approve::Risky, None).expect("a gate");
    let Judgement::Ask(question) = gate.judge(Some(Action::Command("rm $'x\\nalways: nothing\\nAllow?'")))
    else {
        panic!("it is asked about");
    };
    assert_eq!(question.terms().lines().count(), 2, "a reason is a line: {}", question.terms());
    let (_, question) = asked(Action::Command("echo fine\rrm \u{e0041}x"));
    assert!(question.contains("fine␍rm \\u{e0041}x"), "{question}");
}

#[test]
fn attack_65_the_terminal_shows_a_long_question_as_a_whole() {
    let command = format!("true\n{}echo C4NARY\n{}", ": a\n".repeat(60), ": b\n".repeat(60));
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").start();
    let mut terminal = terminal().endpoint(&model).args(["run", "--approve", "always", "go"]).start();
    terminal.wait_for("Allow? [yes/no/always]");
    assert!(String::from_utf8_lossy(&terminal.raw()).contains("echo C4NARY"));
    terminal.type_line("no");
    terminal.wait();
}

/// `always` for `ls` covered `PATH=/workspace/bin ls`.
#[tokio::test]
async fn attack_66_always_for_a_program_covers_no_other_one_of_its_name() {
    let approver = |_: &Question<'_>| async { Ok(Answer::Always) }.boxed();
    let gate = Gate::new(Rules::default(), Approve::Always, Some(Arc::new(approver))).expect("a gate");
    assert_eq!(gate.check(Some(Action::Command("ls -l"))).await.expect("an answer"), None);
    assert_eq!(gate.judge(Some(Action::Command("ls /tmp 2>/dev/null"))), Judgement::Allow);
    for command in [
        "PATH=/workspace/bin ls",
        "export PATH=/workspace/bin; ls",
        "LD_PRELOAD=./x.so ls",
        "ls() { rm x; }; ls",
        "alias ls=rm; ls",
        "./ls",
        "ls > ~/.bashrc",
        "env PATH=/workspace/bin ls",
    ] {
        assert!(matches!(gate.judge(Some(Action::Command(command))), Judgement::Ask(_)), "{command}");
    }
    assert_eq!(gate.check(Some(Action::Command("awk '{print}' x"))).await.expect("an answer"), None);
    assert_eq!(gate.judge(Some(Action::Command("awk '{print $2}' x"))), Judgement::Allow);
    let code = Action::Command("awk 'BEGIN{system(\"rm x\")}'");
    assert!(matches!(gate.judge(Some(code)), Judgement::Ask(_)));
}

/// These spellings of `rm` and of a shell were not read.
#[test]
fn attack_67_other_spellings_of_a_command_are_read() {
    let text = "[deny.it]\ncommands = [\"rm\"]";
    let rules: Rules = toml::from_str(text).expect("rules");
    let gate = Gate::new(rules, Approve::Risky, None).expect("a gate");
    for command in [
        "r\\\nm x",
        "r\\\nm \\\n x",
        "env --split-string='rm x'",
        "env -vS 'rm x'",
        "env -iS'rm x'",
        "sh +x -c 'rm x'",
        "bash +o posix -c 'rm x'",
        "sh -c -- 'rm x'",
        "sh -c +x 'rm x'",
        "source /dev/stdin <<< 'rm x'",
        ". /dev/fd/0 <<EOF\nrm x\nEOF",
        "setarch rm x",
        "setarch x86_64 -R rm x",
        "linux64 rm x",
        "prlimit --nofile=10 rm x",
        "nsenter -t 1 rm x",
        "bwrap --bind / / rm x",
        "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
        "/proc/self/root/usr/bin/rm x",
    ] {
        assert!(matches!(gate.judge(Some(Action::Command(command))), Judgement::Deny(_)), "{command}");
    }
}

/// What is allowed is a command that begins with these words; what stands around it, and what is put in, is not.
#[tokio::test]
async fn attack_67_an_allowed_program_brings_no_other_one_along() {
    let rules = "[deny.it]\ncommands = [\"rm\"]\n[allow.it]\ncommands = [\"cargo\", \"python3 manage.py\"]";
    let approver = |_: &Question<'_>| async { Ok(Answer::Always) }.boxed();
    let gate = Gate::new(toml::from_str(rules).expect("rules"), Approve::Risky, Some(Arc::new(approver)));
    let gate = gate.expect("a gate");
    let verdict = |command: &str| gate.judge(Some(Action::Command(command)));
    for command in
        ["cargo test", "cd x && cargo build 2>&1 | tail", "timeout 60 cargo test", "python3 manage.py x"]
    {
        assert_eq!(verdict(command), Judgement::Allow, "{command}");
    }
    let others = [
        "cargo test; perl x",
        "PATH=. cargo test",
        "RUSTC_WRAPPER=./x cargo test",
        "./cargo test",
        "python3 -c 'x' manage.py",
        "python3 other.py",
        "cargo() { perl x; }; cargo",
        "make",
    ];
    for command in others {
        assert!(matches!(verdict(command), Judgement::Ask(_)), "{command}");
    }
    assert!(matches!(verdict("cargo test && rm x"), Judgement::Deny(_)));
    // `always` is for all that a build runs, and of code for this very command.
    assert_eq!(gate.check(Some(Action::Command("make"))).await.expect("an answer"), None);
    assert_eq!(verdict("make test"), Judgement::Allow);
    let long = format!("perl -e '{}", "x".repeat(300));
    assert_eq!(gate.check(Some(Action::Command(&format!("{long}1'")))).await.expect("an answer"), None);
    assert_eq!(verdict(&format!("{long}1'")), Judgement::Allow);
    assert!(matches!(verdict(&format!("{long}2'")), Judgement::Ask(_)));
}

/// A process from before `/plan` wrote to the workspace, or did on a socket what the planning model asked it to.
#[tokio::test]
async fn attack_68_nothing_that_runs_outlives_the_beginning_of_a_plan() {
    on_every_backend(async |inside| {
        let left = "(sleep 300 & setsid bash -c 'exec -a C4NARY sleep 300' &) >/dev/null 2>&1 </dev/null";
        inside.output_of(left).await;
        let job = inside.sandbox.start_job(shell("sleep 300")).await.expect("a job");
        inside.sandbox.end_processes().await.expect("answers");
        let state =
            inside.sandbox.job_output(job, std::time::Duration::from_secs(10)).await.expect("answers");
        assert!(state.state.is_some(), "the job runs on {}", inside.backend);
        // What was killed is listed for a moment longer than it lives.
        let count = r"n=0; while cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -q 'C4[N]ARY\|^s[l]eep' && [ $n -lt 500 ]; \
                      do n=$((n+1)); done; [ $n -lt 500 ] && echo 0";
        let running = inside.output_of(count).await;
        assert_eq!(running.trim(), "0", "on {}", inside.backend);
    })
    .await;
}

#[test]
fn attack_68_a_daemon_from_before_a_plan_does_not_write() {
    let daemon = "(while sleep 0.1; do date > alive; done) >/dev/null 2>&1 & sleep 0.3; ls alive";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": daemon }))
        .text("Started.")
        .tool_call("run_commands", json!({ "command": "a=$(stat -c %y alive); sleep 1; b=$(stat -c %y alive); [ \"$a\" = \"$b\" ] && echo STILL" }))
        .text("Planned.")
        .start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("go");
    terminal.wait_for("Started.");
    terminal.wait_for_prompt();
    terminal.type_line("/plan");
    terminal.wait_for("planning:");
    terminal.type_line("look");
    terminal.wait_for("Planned.");
    let requests = model.requests();
    let result = requests.last().expect("a request").messages().last().expect("a result").to_string();
    assert!(result.contains("STILL"), "{result}");
    terminal.type_line("/exit");
    terminal.wait();
}

/// A server that the user starts with `!` while a plan waits would do for the planning model what that one may not.
#[test]
fn attack_68_what_the_user_starts_while_a_plan_waits_does_not_write_either() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "touch /tmp/order; sleep 1; ls" }))
        .text("Planned.")
        .start();
    let mut terminal = terminal().endpoint(&model).file("there", "1").start();
    terminal.wait_for_prompt();
    terminal.type_line("/plan");
    terminal.wait_for("planning:");
    let server =
        "(until [ -e /tmp/order ]; do sleep 0.1; done; echo 2 > there; echo 2 > new) >/dev/null 2>&1 &";
    let ended = |terminal: &Terminal, how: &str, count: usize| {
        terminal.wait_until(how, |screen| screen.matches(how).count() == count);
        terminal.wait_for_prompt();
    };
    terminal.type_line(&format!("!{server}"));
    ended(&terminal, "exit 0 in", 1);
    terminal.type_line("!echo 3 > there; echo wrote=$?");
    terminal.wait_for("wrote=1");
    ended(&terminal, "exit 0 in", 2);
    terminal.type_line("!false");
    ended(&terminal, "planning:", 2);
    terminal.type_line("look");
    terminal.wait_for("Planned.");
    terminal.wait_for_prompt();
    terminal.type_line("!cat there; ls; echo END$((1+1))");
    terminal.wait_for("END2");
    // The model's call is the third.
    ended(&terminal, "exit 0 in", 4);
    let seen = terminal.screen();
    terminal.type_line("/exit");
    terminal.wait();
    let shown = seen.rsplit("Planned.").next().expect("text");
    assert!(shown.contains('1') && !shown.contains("new"), "{shown}");
}

/// `AGENTS.md` of another user in a directory above was obeyed, and tags spelled words that only the model read.
#[test]
fn attack_69_no_other_user_and_no_invisible_text_instructs_the_model() {
    let model = endpoint().text("Done.").start();
    let tags: String = "C4N".chars().filter_map(|c| char::from_u32(0xe0000 + c as u32)).collect();
    let call = agent().endpoint(&model).file("AGENTS.md", format!("Use tabs.{tags}"));
    call.args(["run", "go"]).run().expect_code(0);
    let prompt = model.requests()[0].body.to_string();
    assert!(prompt.contains("Use tabs.") && !prompt.contains(&tags), "{prompt}");
    // Only root can give files away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let model = endpoint().text("Done.").start();
    let call = agent().endpoint(&model);
    let (top, inner) = (call.workspace().to_owned(), call.workspace().join("inner"));
    fs::create_dir_all(top.join(".git")).expect("a directory");
    fs::create_dir(&inner).expect("a directory");
    fs::write(top.join("AGENTS.md"), "C4NARY").expect("a file");
    std::os::unix::fs::chown(top.join("AGENTS.md"), Some(12_345), None).expect("another owner");
    call.current_dir(&inner).args(["run", "go"]).run().expect_code(0);
    assert!(!model.requests()[0].body.to_string().contains("C4NARY"));
}

/// Where the kernel does not refuse it, a link that another user planted in `/tmp` was followed.
#[test]
fn attack_69_planted_links_are_not_written_through() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for option in ["--output", "--record"] {
        let model = endpoint().text("Done.").start();
        let call = agent().endpoint(&model);
        let place = call.workspace().with_file_name("shared");
        fs::create_dir(&place).expect("a directory");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1777)).expect("a mode");
        let (link, victim) = (place.join("out"), call.workspace().with_file_name("victim"));
        fs::write(&victim, "kept").expect("a file");
        symlink(&victim, &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(12_345), None).expect("another owner");
        let done = call.args(["run", option]).args([link.as_os_str()]).args(["go"]).run();
        assert!(done.stderr.contains("another user made what is there"), "{option}: {}", done.stderr);
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "kept", "{option}");
    }
}

/// Arguments past 120 columns, variables, the directory and headers were not shown; a repository's servers became the user's own.
#[test]
fn attack_70_servers_of_a_repository_are_shown_in_full_and_asked_about() {
    let long = "x".repeat(300);
    let file = json!({ "mcpServers": {
        "a": { "command": "sh", "args": ["-c", format!("{long}; C4NARY1")], "env": { "LD_PRELOAD": "C4NARY2" }, "cwd": "C4NARY3" },
        "b": { "type": "http", "url": "https://a.example/", "headers": { "X-Header": "C4NARY4" } },
        // What has the shape of a secret hides a host, and letters that look like others do.
        "c": { "type": "http", "url": "https://glpat-Qx7Lm2Zr9Kc4Vb8Nt1Ws.C4NARY5.example/" },
        "d": { "type": "http", "url": "https://api.githubс\u{43e}pilot.com/" },
    } });
    let call = agent().file(".mcp.json", file.to_string()).file(".cursor/mcp.json", file.to_string());
    let shown = call.again().args(["mcp", "approve", "--yes"]).run().expect_code(0);
    for canary in [
        "C4NARY1",
        "LD_PRELOAD=C4NARY2",
        "C4NARY3",
        "X-Header=C4NARY4",
        "c4nary5.example",
        "https://api.xn--",
    ] {
        assert!(shown.stdout.contains(canary), "{canary}: {}", shown.stdout);
    }
    let refused = call.again().args(["mcp", "import", "cursor"]).run().expect_code(2);
    assert!(
        refused.stderr.contains("C4NARY1") && refused.stderr.contains("nobody can be asked"),
        "{}",
        refused.stderr
    );
    let dry = call.again().args(["mcp", "import", "cursor", "--dry-run"]).run().expect_code(0);
    for canary in ["C4NARY1", "LD_PRELOAD=C4NARY2", "C4NARY3", "X-Header=C4NARY4"] {
        assert!(dry.stdout.contains(canary), "{canary}: {}", dry.stdout);
    }
    let listed = call.again().args(["mcp", "list", "--json"]).run().expect_code(0);
    assert!(!listed.stdout.contains("config.toml"), "{}", listed.stdout);
    let own = call.workspace().with_file_name("home").join(".cursor/mcp.json");
    fs::create_dir_all(own.parent().expect("a directory")).expect("a directory");
    fs::write(own, file.to_string()).expect("the user's file");
    let shown = call.again().args(["mcp", "import", "cursor", "--dry-run"]).run().expect_code(0).stdout;
    let (own, _) = shown.split_once("workspace/.cursor").expect("both files");
    assert!(own.contains("C4NARY1") && own.contains("LD_PRELOAD") && own.contains("X-Header"), "{own}");
    assert!(!own.contains("C4NARY2") && !own.contains("C4NARY4"), "{own}");
    let added = call.again().args(["mcp", "import", "cursor", "--yes"]).run().expect_code(0).stdout;
    assert!(added.contains("C4NARY1") && !added.contains("C4NARY2"), "{added}");
}

/// A token behind an underscore reached the endpoint.
#[test]
fn attack_71_a_token_behind_a_name_does_not_reach_the_endpoint() {
    let body = "aB3dE5fG7hJ9".repeat(3);
    let (token, command) = (format!("ghp_{body}"), format!("printf 'MY_ghp_%s' {body}"));
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Done.").start();
    agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    let last = model.requests().last().expect("a request").body.to_string();
    assert!(!last.contains(&token) && last.contains("[secret: GitHub token]"), "{last}");
}
