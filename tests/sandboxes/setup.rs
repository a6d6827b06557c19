//! `[workspace] setup`: what prepares a project once, whose result later sessions begin with.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::backends::{backend, program_on_every_backend};
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::path::Path;

/// Installs something into what git ignores, beside files of the project, and into `$HOME`; and changes the project.
const INSTALL: &str = "mkdir -p node_modules/dep lib/node_modules ~/.local/bin && cat lock.txt >node_modules/dep/version && \
                       echo two >lib/node_modules/two && echo tool >~/.local/bin/tool && date +%N >node_modules/when && echo no >>a.txt && \
                       echo no >untracked";

fn repository(call: Agent) -> Agent {
    let call = call
        .file(".gitignore", "node_modules\n")
        .file("a.txt", "a\n")
        .file("lock.txt", "one\n")
        .file("lib/b.txt", "b\n");
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"];
        let mut command = std::process::Command::new("git");
        let done =
            command.args(identity).args(arguments).current_dir(call.workspace()).output().expect("git");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "first"]);
    call
}

/// A project that the user's own file sets up.
fn project(command: &str) -> Agent {
    let call = agent();
    let root = call.workspace().canonicalize().expect("a path");
    let text = format!(
        "[workspace.setup.{:?}]\ncommand = {command:?}\nfiles = [\"lock.txt\"]\nnetwork = \"none\"\n",
        root.to_str().expect("text")
    );
    repository(call.config(&text))
}

/// Returns what `command` prints in a session, and the session.
fn session(call: Agent, command: &str) -> (String, Finished) {
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("done").start();
    let finished = call.endpoint(&model).args(["run", "go", "--json"]).run().expect_code(0);
    let result = model.requests()[1].messages().pop().expect("a result");
    (result["content"].as_str().expect("text").to_owned(), finished)
}

fn notices(finished: &Finished, part: &str) -> usize {
    let texts = finished.events_of("notice").into_iter();
    texts.filter(|notice| notice["text"].as_str().is_some_and(|text| text.contains(part))).count()
}

const SHOW: &str =
    "cat node_modules/dep/version lib/node_modules/two ~/.local/bin/tool a.txt node_modules/when; ls";

#[test]
fn a_project_is_set_up_once_and_again_when_its_lock_file_changes() {
    program_on_every_backend(|backend| {
        let (first, one) = session(project(INSTALL).sandbox(backend), SHOW);
        assert!(first.contains("one\ntwo\ntool\na\n") && !first.contains("untracked"), "{first}");
        assert_eq!(notices(&one, "Set up with"), 1, "{:?}", one.events_of("notice"));
        assert_eq!(notices(&one, "not kept: a.txt, untracked"), 1, "{:?}", one.events_of("notice"));
        let (second, two) = session(one.again().sandbox(backend), SHOW);
        assert_eq!(
            (second.split_once('\n').map(|(_, rest)| rest), notices(&two, "Set up with")),
            (first.split_once('\n').map(|(_, rest)| rest), 0)
        );
        let changes = two.events_of("session_finished")[0]["changes"].clone();
        assert!(
            changes.as_object().is_some_and(|counts| counts.values().all(|count| count == 0)),
            "{changes}"
        );
        std::fs::write(two.again().workspace().join("lock.txt"), "changed\n").expect("written");
        let (third, three) = session(two.again().sandbox(backend), SHOW);
        assert!(third.contains("changed\ntwo\ntool\na\n"), "{third}");
        assert_eq!(notices(&three, "Set up with"), 1);
    });
}

#[test]
fn what_a_session_does_with_the_result_of_a_setup_stays_in_the_session_and_its_forks_and_checks_have_it() {
    program_on_every_backend(|backend| {
        let command = "rm -r node_modules/dep; echo own >node_modules/own; echo own >>~/.local/bin/tool; echo new >new.txt";
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("done").start();
        let check = "test ! -e node_modules/dep && grep -q own node_modules/own && grep -q own ~/.local/bin/tool && \
                     grep -q two lib/node_modules/two && test -e new.txt";
        let call = project(INSTALL).sandbox(backend).endpoint(&model);
        let done = call.args(["run", "go", "--check-attempts", "1", "--check", check]).run().expect_code(0);
        let (after, _done) = session(done.again().sandbox(backend), SHOW);
        assert!(after.contains("one\ntwo\ntool\na\n"), "{after}");
    });
}

#[test]
fn a_setup_that_fails_is_reported_and_the_session_begins_without_it() {
    let (text, finished) = session(project("echo broken; false"), "echo works");
    assert!(text.contains("works"), "{text}");
    assert_eq!(
        notices(&finished, "failed (exit code 1), so the session begins without it. It printed: broken"),
        1
    );
}

#[test]
fn a_sandbox_that_mounts_nothing_is_set_up_at_each_start() {
    let (first, finished) = session(project(INSTALL).sandbox("novita"), "cat node_modules/dep/version");
    assert!(first.contains("one"), "{first}");
    assert_eq!(notices(&finished, "runs at each start"), 1);
}

/// A project whose own file asks for a setup.
fn asking(command: &str) -> Agent {
    let text = format!("[workspace]\nsetup = {{ command = {command:?}, network = \"none\" }}\n");
    repository(agent().file(".agent/config.toml", text))
}

#[test]
fn a_projects_own_setup_runs_only_after_the_user_has_approved_it_as_it_is() {
    let there = "ls node_modules 2>&1";
    let (text, one) = session(asking(INSTALL), there);
    assert!(text.contains("cannot access"), "{text}");
    assert_eq!(notices(&one, "`agent sandbox setup` shows that"), 1, "{:?}", one.events_of("notice"));
    let refused = one.again().args(["sandbox", "setup"]).run().expect_code(2);
    assert!(refused.stdout.contains("network:  none"), "{}", refused.stdout);
    refused.again().args(["sandbox", "setup", "--yes"]).run().expect_code(0);
    let (text, two) = session(refused.again(), there);
    assert!(text.contains("dep"), "{text}");
    let file = two.again().workspace().join(".agent/config.toml");
    let other = std::fs::read_to_string(&file).expect("a file").replace("echo two", "echo three");
    std::fs::write(&file, other).expect("written");
    let (text, three) = session(two.again(), there);
    assert!(text.contains("cannot access"), "{text}");
    three.again().args(["sandbox", "setup", "--yes", "--again"]).run().expect_code(0);
    three.again().args(["sandbox", "setup", "--revoke"]).run().expect_code(0);
    let (text, _four) = session(three.again(), there);
    assert!(text.contains("cannot access"), "{text}");
}

#[test]
fn a_setup_that_names_a_file_outside_of_the_workspace_is_refused() {
    let text = "[workspace]\nsetup = { command = \"true\", files = [\"../secret\"] }\n";
    let call = repository(agent().file(".agent/config.toml", text));
    let refused = call.args(["sandbox", "setup", "--yes"]).run().expect_code(2);
    assert!(
        refused.stderr.contains("../secret is not the path of a file in the workspace"),
        "{}",
        refused.stderr
    );
    assert!(Path::new(refused.again().workspace()).exists());
}

#[test]
fn a_projects_settings_are_used_once_they_are_approved_and_cannot_widen_anything() {
    let text = "network = \"full\"\n[env]\nGREETING = \"hello\"\n[workspace]\nexclude = [\"*.bin\"]\ninclude = [\".env\"]\n\
        [policy.deny.publishing]\ncommands = [\"npm publish\"]\n";
    let call = repository(agent().file(".agent/config.toml", text).file("large.bin", "x"));
    let show = "echo \"<$GREETING>\"; ls -a; npm publish";
    let (text, one) = session(call, show);
    assert!(text.contains("<>") && text.contains("large.bin"), "{text}");
    assert_eq!(notices(&one, "set GREETING, and to leave out *.bin, and to apply the rules publishing"), 1);
    let shown = one.again().args(["sandbox", "setup", "--yes"]).run().expect_code(0).stdout;
    for line in [
        "variable: GREETING=hello",
        "left out: *.bin",
        "denied: publishing",
        "no effect: network",
        "no effect: workspace.include",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let (text, _two) = session(one.again(), "echo \"<$GREETING>\"; ls -a");
    assert!(text.contains("<hello>") && !text.contains("large.bin"), "{text}");
    let (text, _three) = session(one.again(), show);
    assert!(text.contains("project.publishing"), "{text}");
}

const DEV_CONTAINER: &str = r#"{
    // What an editor needs has no effect here.
    "customizations": { "vscode": { "extensions": ["one.two"] } },
    "image": "IMAGE",
    "containerEnv": { "GREETING": "hello", "FOLDER": "${containerWorkspaceFolder}" },
    "runArgs": ["--privileged"],
    "onCreateCommand": "mkdir -p node_modules/dep && echo created >node_modules/dep/log",
    "postCreateCommand": { "a": ["sh", "-c", "echo a >node_modules/dep/a"], "b": "echo $GREETING >node_modules/dep/b" },
}"#;

const SHOW_DEV: &str =
    "cat node_modules/dep/*; echo $GREETING; test \"$FOLDER\" = \"$PWD\" && echo here; cat /etc/marker; true";

#[test]
fn a_dev_container_prepares_the_project_once_it_is_approved() {
    program_on_every_backend(|backend| {
        let text = DEV_CONTAINER.replace("\"image\": \"IMAGE\",", "");
        let call = repository(agent().file(".devcontainer/devcontainer.json", text));
        let (text, one) = session(call.sandbox(backend), SHOW_DEV);
        assert!(!text.contains("created") && !text.contains("hello"), "{text}");
        assert_eq!(
            notices(&one, ".devcontainer/devcontainer.json of this project asks to set it up once"),
            1
        );
        let shown = one.again().args(["sandbox", "setup", "--yes"]).run().expect_code(0);
        let named = "no effect: runArgs: the engine's options are agent's own\n";
        assert!(shown.stdout.contains("variable: GREETING=hello\n"), "{}", shown.stdout);
        assert!(shown.stdout.ends_with(named), "{}", shown.stdout);
        let (text, two) = session(shown.again().sandbox(backend), SHOW_DEV);
        assert!(text.contains("a\nhello\ncreated\nhello\nhere\n"), "{text}");
        assert_eq!(notices(&two, "Set up with"), 1, "{:?}", two.events_of("notice"));
    });
}

/// An image with a shell, made from this machine's programs.
const IMAGE: &str = r#"
set -eu
mkdir -p image/etc image/tmp image/usr/bin
for program in dash cat mkdir; do
  cp "$(readlink -f "$(command -v $program)")" "image/usr/bin/$program"
  ldd "image/usr/bin/$program" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "image$(dirname "$library")"
    cp -Ln "$library" "image$library" || true
  done
done
ln -s usr/bin image/bin
ln -s dash image/usr/bin/sh
echo 'of the image' >image/etc/marker
tar c -C image . | docker import - "$1" >/dev/null
"#;

#[tokio::test]
async fn the_image_of_a_dev_container_is_used_where_there_are_images_and_named_where_not() {
    if backend("docker").await.is_none() {
        return;
    }
    let made = tempfile::tempdir().expect("a directory");
    let image = format!("local.test/dev-{}", std::process::id());
    let sh = |script: &str| {
        let arguments = ["-c", script, "sh", &image];
        let done = std::process::Command::new("sh")
            .args(arguments)
            .current_dir(made.path())
            .output()
            .expect("a shell");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    sh(IMAGE);
    let text = DEV_CONTAINER.replace("IMAGE", &image);
    let first = repository(agent().file(".devcontainer.json", text));
    let first = first.args(["sandbox", "setup", "--yes"]).run().expect_code(0);
    assert!(first.stdout.contains(&format!("image:    {image}\n")), "{}", first.stdout);
    let (inside, two) = session(first.again().sandbox("docker"), SHOW_DEV);
    assert!(inside.contains("a\nhello\ncreated\nhello\nhere\nof the image\n"), "{inside}");
    let named =
        two.again().sandbox("docker").args(["exec", "--image", "host", "--", "cat", "/etc/marker"]).run();
    assert_ne!(named.code, 0, "an image that the user names comes first");
    let (inside, three) = session(named.again().sandbox("local"), SHOW_DEV);
    assert!(inside.contains("hello\nhere\n") && !inside.contains("of the image"), "{inside}");
    assert_eq!(
        notices(&three, "is not used: it needs --sandbox docker"),
        1,
        "{:?}",
        three.events_of("notice")
    );
    sh("docker rmi $(docker images -q --filter label=agent.image=$1) $1");
}

#[test]
fn the_user_is_asked_once_about_what_a_project_asks_for() {
    for (answer, is_set_up, is_asked_again) in
        [("yes", true, false), ("no", false, false), ("later", false, true)]
    {
        let text = "[workspace]\nsetup = { command = \"mkdir node_modules; echo dep >node_modules/x\", network = \"none\" }\n";
        let show = ["exec", "--", "sh", "-c", "cat node_modules/x; echo end"];
        let builder = terminal().args(show);
        let workspace = builder.directory("workspace");
        std::fs::create_dir(workspace.join(".agent")).expect("a directory");
        std::fs::write(workspace.join(".agent/config.toml"), text).expect("a file");
        std::fs::write(workspace.join(".gitignore"), "node_modules\n").expect("a file");
        let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(&workspace).status();
        assert!(git.expect("git").success());
        let again = builder.again().args(show);
        let mut terminal = builder.start();
        terminal.wait_for("asks to set it up once with `mkdir node_modules;");
        terminal.wait_for("[yes/later/no]");
        terminal.type_line(answer);
        terminal.wait_for("\nend");
        assert_eq!(terminal.screen().contains("\ndep"), is_set_up, "{}", terminal.screen());
        let terminal = again.start();
        match is_asked_again {
            true => terminal.wait_for("[yes/later/no]"),
            false => {
                terminal.wait_for("\nend");
                assert!(!terminal.screen().contains("asks to"), "{}", terminal.screen());
            }
        }
    }
}
