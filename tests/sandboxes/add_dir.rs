//! `--add-dir`: directories beside the workspace, at their own paths, in local sandboxes and in containers.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::backends::program_on_every_backend;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A directory beside the workspace of `agent`, with these files.
fn beside(agent: &Agent, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let directory = agent.workspace().with_file_name(name);
    for (file, content) in files {
        let path = directory.join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("a file");
    }
    directory.canonicalize().expect("it is there")
}

fn read_only(directory: &Path) -> String {
    format!("{}:ro", directory.display())
}

const LIBRARY: [(&str, &str); 5] = [
    ("src/lib.rs", "pub fn answer() -> u32 { 42 }\n"),
    (".env", "TOKEN=hidden-one\n"),
    ("keys/id_rsa", "hidden-two\n"),
    (".git/config", "[remote \"origin\"]\n\turl = https://me:hidden-three@example.org/lib.git\n"),
    ("src/cache.bin", "x"),
];

#[test]
fn a_read_only_directory_is_seen_at_its_own_path_without_its_secrets() {
    program_on_every_backend(|name| {
        let agent = agent();
        let library = beside(&agent, "library", &LIBRARY);
        let path = library.display();
        let script = format!(
            "cat {path}/src/lib.rs; find {path} | sort; grep -r hidden- {path}; cat {path}/.env {path}/keys/id_rsa; true"
        );
        let seen = said_beside(&agent, name, &library, &script);
        assert!(seen.contains("answer() -> u32 { 42 }"), "on {name}: {seen}");
        assert!(seen.contains("src/cache.bin"), "on {name}: {seen}");
        for hidden in ["hidden-", "/.env", "id_rsa", ".git/config"] {
            assert!(!seen.contains(hidden), "on {name}, {hidden}: {seen}");
        }
    });
}

/// Logs and references were taken for files with URLs in them: a repository with a commit could not be added.
#[test]
fn a_read_only_repository_is_seen_without_the_urls_of_others() {
    program_on_every_backend(|name| {
        let agent = agent();
        let library =
            beside(&agent, "library", &[("a", "1\n"), ("ignored/kept", "1\n"), (".gitignore", "ignored\n")]);
        host(
            &library,
            &format!(
                "{REPOSITORY}; git update-ref refs/remotes/origin/feature/x HEAD; \
                 git init -q --bare ignored/x.git; git -C ignored/x.git config remote.a.url https://u:hidden-one@h/x; \
                 echo 'x https://u:hidden-two@h/x' > .git/FETCH_HEAD"
            ),
        );
        let path = library.display();
        let script = format!(
            "git config --global safe.directory '*'; git -C {path} log --oneline; git -C {path} branch --all; grep -r hidden- {path}; \
             ls {path}/ignored/x.git"
        );
        let seen = said_beside(&agent, name, &library, &script);
        for expected in ["first", "remotes/origin/feature/x", "objects"] {
            assert!(seen.contains(expected), "on {name}: {expected}: {seen}");
        }
        assert!(!seen.contains("hidden-"), "on {name}: {seen}");
    });
}

/// What a script prints in a sandbox that reads `library` too.
fn said_beside(agent: &Agent, backend: &str, library: &Path, script: &str) -> String {
    let call = agent.again().sandbox(backend);
    let arguments = ["exec", "--add-dir", &read_only(library), "--", "sh", "-c", script];
    call.args(arguments).run().expect_code(0).stdout
}

/// It is a symlink inside, at which such a sandbox did not start.
#[test]
fn a_directory_below_var_tmp_is_added() {
    program_on_every_backend(|name| {
        let library = tempfile::tempdir_in("/var/tmp").expect("a directory");
        std::fs::write(library.path().join("a"), "found\n").expect("a file");
        let path = library.path().to_str().expect("text");
        let script = format!("cat {path}/a");
        let call = agent().sandbox(name).args(["exec", "--add-dir", path, "--", "sh", "-c", &script]);
        assert_eq!(call.run().expect_code(0).stdout, "found\n", "on {name}");
    });
}

/// Each way that changes something, as the user inside: none of them may.
#[test]
fn nothing_writes_to_a_read_only_directory() {
    const WAYS: [&str; 14] = [
        "echo x > D/src/lib.rs",
        "echo x > D/new",
        "mv D/src/lib.rs D/src/other.rs",
        "mv D/src D/elsewhere",
        "ln D/src/lib.rs D/hard",
        "ln -s /etc/passwd D/soft",
        "chmod 777 D/src/lib.rs",
        "touch -d 2001-01-01 D/src/lib.rs",
        "rm -rf D/src",
        "mkdir D/made",
        "mknod D/pipe p",
        "truncate -s 0 D/src/lib.rs",
        "cp /dev/null /proc/self/root/D/src/lib.rs",
        "exec 3< D/src/lib.rs; echo x > /proc/self/fd/3",
    ];
    program_on_every_backend(|name| {
        let agent = agent();
        let library = beside(&agent, "library", &LIBRARY);
        let path = library.to_str().expect("text");
        let tries: Vec<String> = WAYS
            .iter()
            .enumerate()
            .map(|(number, way)| {
                let way = way.replace("/D/", &format!("{path}/")).replace("D/", &format!("{path}/"));
                format!("( {way} ) 2>/dev/null && echo way-{number}-works")
            })
            .collect();
        let script = format!(
            "{}; mount -o remount,rw {path} 2>/dev/null && echo remounted; echo end",
            tries.join("; ")
        );
        let said = said_beside(&agent, name, &library, &script);
        assert_eq!(said, "end\n", "on {name}");
        assert_eq!(std::fs::read_to_string(library.join("src/lib.rs")).expect("the host's"), LIBRARY[0].1);
    });
}

#[test]
fn a_symlink_in_an_added_directory_leads_to_nothing_of_the_host() {
    program_on_every_backend(|name| {
        let agent = agent();
        let library = beside(&agent, "library", &LIBRARY);
        let outside = beside(&agent, "outside", &[("secret.txt", "of-the-host")]);
        std::os::unix::fs::symlink(outside.join("secret.txt"), library.join("link")).expect("a link");
        std::os::unix::fs::symlink(&outside, library.join("directory")).expect("a link");
        let path = library.display();
        let script =
            format!("cat {path}/link {path}/directory/secret.txt {path}/../outside/secret.txt; true");
        let seen = said_beside(&agent, name, &library, &script);
        assert_eq!(seen, "", "on {name}");
    });
}

#[test]
fn what_cannot_be_added_is_refused_by_name_with_a_hint() {
    let agent = agent();
    let inside = agent.workspace().join("sub");
    std::fs::create_dir_all(&inside).expect("a directory");
    let file = agent.workspace().join("file");
    std::fs::write(&file, "x").expect("a file");
    let refused = |directory: &str, reason: &str| {
        let directory = format!("{directory}:ro");
        let said = agent.again().sandbox("local").args(["exec", "--add-dir", &directory, "true"]).run();
        let said = said.expect_code(125).stderr;
        assert!(said.contains(reason) && said.contains("hint:"), "{directory}: {said}");
    };
    refused("/", "it is the whole machine");
    refused("/etc", "it is a directory of the system");
    refused("/nonexistent", "cannot be added");
    refused(file.to_str().expect("text"), "it is not a directory");
    refused(inside.to_str().expect("text"), "it is in the workspace already");
}

/// A shell command on the host, in `directory`.
fn host(directory: &Path, command: &str) -> String {
    let output = std::process::Command::new("sh").args(["-ec", command]).current_dir(directory).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const REPOSITORY: &str = "git init -q -b main . && git config user.name me && git config user.email me@example.org && \
     git add -A && git commit -qm first";

/// A session on `backend` with a repository as the workspace and another one added, in which the model has changed both: its own
/// tools and a command. The second directory.
fn session_of_two(backend: &str, command: &str) -> (Finished, PathBuf) {
    let call = agent().file("app.txt", "one\n");
    host(call.workspace(), REPOSITORY);
    let library =
        beside(&call, "library", &[("lib.txt", "one\n"), ("src/old.txt", "old\n"), (".husky/x", "")]);
    beside(
        &call,
        "library/",
        &[(".gitignore", "ignored\n.env\n"), (".env", "TOKEN=hidden\n"), ("ignored/x", "built\n")],
    );
    host(&library, &format!("{REPOSITORY} && git config core.hooksPath .husky"));
    let path = library.display();
    let model = endpoint()
        .tool_call("write_file", json!({ "path": format!("{path}/new.txt"), "content": "new\n" }))
        .tool_call("edit_file", json!({ "path": format!("{path}/lib.txt"), "old": "one", "new": "two" }))
        .tool_call(
            "run_commands",
            json!({ "command": format!("set -e; echo two > app.txt; {command}; echo it is done") }),
        )
        .text("ok")
        .start();
    let call = call.endpoint(&model).sandbox(backend);
    let ran =
        call.args(["run", "--add-dir", library.to_str().expect("text"), "change both"]).run().expect_code(0);
    let result = model.last().messages().last().expect("a result")["content"].to_string();
    assert!(result.contains("it is done"), "{result}");
    (ran, library)
}

#[test]
fn what_changed_in_several_directories_is_one_review() {
    program_on_every_backend(|name| {
        let (ran, library) = session_of_two(
            name,
            "cd ../library && test -e ignored/x && ! test -e .env && git mv src/old.txt src/moved.txt && rm ignored/x && touch ignored/y",
        );
        let path = library.display().to_string();
        assert_eq!(std::fs::read_to_string(library.join("lib.txt")).expect("the host's"), "one\n");
        let names = ran.again().args(["diff", "--name-only"]).run().expect_code(0).stdout;
        let expected =
            format!("app.txt\n{path}/lib.txt\n{path}/new.txt\n{path}/src/moved.txt\n{path}/src/old.txt\n");
        assert_eq!(names, expected, "on {name}");
        let text = ran.again().args(["diff"]).run().expect_code(0).stdout;
        assert!(text.contains("-one\n+two") && text.contains("+new"), "on {name}: {text}");
        let one =
            ran.again().args(["diff", "--name-only", &format!("{path}/src")]).run().expect_code(0).stdout;
        assert_eq!(one.lines().count(), 2, "on {name}: {one}");
        let patch =
            ran.again().args(["diff", "--patch", &format!("{path}/lib.txt")]).run().expect_code(0).stdout;
        assert!(patch.contains("--- a/lib.txt\n+++ b/lib.txt"), "{patch}");
        let several = ran.again().args(["diff", "--patch"]).run().expect_code(2).stderr;
        assert!(several.contains("a patch is about one directory"), "{several}");
        let applied = ran
            .again()
            .args(["apply", "--yes", "--json", "--commit", "-m", "Change both"])
            .run()
            .expect_code(0);
        let json: Value = serde_json::from_str(&applied.stdout).expect("json");
        assert_eq!(json["commits"].as_array().map(Vec::len), Some(2), "{json}");
        assert_eq!(ran.host_file("app.txt").as_deref(), Some("two\n"));
        assert_eq!(
            host(&library, "cat lib.txt new.txt src/moved.txt; git log --format=%s; git status --short"),
            "two\nnew\nold\nChange both\nfirst\n"
        );
        let undone = ran.again().args(["undo", "--json"]).run().expect_code(0).stdout;
        let json: Value = serde_json::from_str(&undone).expect("json");
        assert_eq!(json["undone"]["modified"], 2, "{json}");
        assert_eq!(host(&library, "cat lib.txt src/old.txt; ls"), "one\nold\nignored\nlib.txt\nsrc\n");
        assert_eq!(ran.host_file("app.txt").as_deref(), Some("one\n"));
    });
}

#[test]
fn a_conflict_in_one_directory_writes_nothing_in_any() {
    let (ran, library) = session_of_two("local", "true");
    std::fs::write(library.join("lib.txt"), "three\n").expect("a file");
    let refused = ran.again().args(["apply", "--yes", "--json"]).run().expect_code(7);
    let conflict = format!("{}/lib.txt", library.display());
    assert!(refused.stderr.contains(&conflict), "{}", refused.stderr);
    let json: Value = serde_json::from_str(&refused.stdout).expect("json");
    assert_eq!(json["conflicts"][0]["path"], json!(conflict));
    assert_eq!(ran.host_file("app.txt").as_deref(), Some("one\n"));
    assert!(!library.join("new.txt").exists());
}

#[test]
fn a_write_that_fails_in_one_directory_takes_the_other_back() {
    let (ran, library) = session_of_two("local", "mkdir ../library/made && echo x > ../library/made/x");
    // A directory that cannot be written to is found by the write alone.
    let closed = |mode: &str| host(&library, &format!("chmod {mode} ."));
    closed("555");
    let failed = ran.again().without_permission_override().args(["apply", "--yes"]).run();
    closed("755");
    assert_ne!(failed.code, 0, "{}", failed.stderr);
    assert_eq!(ran.host_file("app.txt").as_deref(), Some("one\n"), "{}", failed.stderr);
    assert_eq!(host(&library, "cat lib.txt; ls"), "one\nignored\nlib.txt\nsrc\n");
    ran.again().args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(host(&library, "cat lib.txt new.txt made/x"), "two\nnew\nx\n");
}

#[test]
fn hooks_and_other_programs_of_an_added_directory_are_named_as_risks() {
    let (ran, library) = session_of_two(
        "local",
        "cd ../library && echo evil > .husky/pre-commit && mkdir -p .github/workflows && echo a > .github/workflows/ci.yml && \
         echo evil > .git/hooks/pre-commit",
    );
    let path = library.display();
    let risks = ran.again().args(["diff", "--risks"]).run().expect_code(0).stdout;
    assert!(risks.contains(&format!("{path}/.husky/pre-commit (git hook)")), "{risks}");
    assert!(risks.contains(&format!("{path}/.github/workflows/ci.yml (")), "{risks}");
    ran.again().args(["apply", "--yes"]).run().expect_code(0);
    assert!(!library.join(".git/hooks/pre-commit").exists());
}

/// The directory was a directory when it was looked at, and leads elsewhere when the change is written.
#[test]
fn an_added_directory_that_has_become_a_symlink_is_not_written_through() {
    let (ran, library) = session_of_two("local", "true");
    let victim = beside(&ran.again(), "victim", &[("lib.txt", "one\n")]);
    std::fs::rename(&library, library.with_file_name("moved")).expect("it moves");
    std::os::unix::fs::symlink(&victim, &library).expect("a link");
    let refused = ran.again().args(["apply", "--yes"]).run();
    assert_ne!(refused.code, 0, "{}", refused.stderr);
    assert_eq!(host(&victim, "cat lib.txt; ls"), "one\nlib.txt\n");
    assert_eq!(ran.host_file("app.txt").as_deref(), Some("one\n"));
}

#[test]
fn a_resumed_session_has_its_directories_and_what_it_changed_there() {
    let (ran, library) = session_of_two("local", "true");
    let path = library.display();
    let command =
        format!("cat {path}/lib.txt {path}/new.txt; rm {path}/new.txt; echo three > {path}/lib.txt");
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let json = ran.again().args(["diff", "--json"]).run().expect_code(0).stdout;
    let id =
        serde_json::from_str::<Value>(&json).expect("json")["session"].as_str().expect("an id").to_owned();
    ran.again()
        .endpoint(&model)
        .sandbox("local")
        .args(["run", "--session", &id, "go on"])
        .run()
        .expect_code(0);
    let result = model.last().messages().last().expect("a result")["content"].to_string();
    assert!(result.contains("two\\nnew"), "{result}");
    let names = ran.again().args(["diff", "--name-only"]).run().expect_code(0).stdout;
    assert_eq!(names, format!("app.txt\n{path}/lib.txt\n"));
}

#[test]
fn what_is_about_one_workspace_refuses_a_directory_that_could_be_written_to() {
    let call = agent().file("a.txt", "1\n");
    let library = beside(&call, "library", &[("lib.txt", "one\n")]);
    let model = endpoint().text("ok").start();
    let path = library.to_str().expect("text");
    for arguments in [&["--delegate"][..], &["--workspace-mode", "bind"]] {
        let call = call.again().endpoint(&model).sandbox("local").args(["run", "--add-dir", path]);
        let refused = call.args(arguments).args(["x"]).run();
        assert_ne!(refused.code, 0);
        assert!(refused.stderr.contains("writes to one directory"), "{}", refused.stderr);
        assert!(refused.stderr.contains(":ro"), "{}", refused.stderr);
    }
}

#[test]
fn a_plan_and_a_review_write_to_no_added_directory_either() {
    let call = agent().file("a.txt", "1\n");
    let library = beside(&call, "library", &[("lib.txt", "one\n")]);
    let path = library.to_str().expect("text");
    let model = endpoint().text("ok").start();
    let refused =
        call.endpoint(&model).sandbox("local").args(["run", "--plan", "--add-dir", path, "x"]).run();
    assert!(refused.code != 0 && refused.stderr.contains("add it as"), "{}", refused.stderr);
}

#[test]
fn a_prompt_is_undone_in_all_directories_and_one_is_added_while_a_session_goes_on() {
    let builder = terminal().file("app.txt", "one\n");
    let root = builder.directory("workspace");
    let library = root.with_file_name("library");
    std::fs::create_dir_all(&library).expect("a directory");
    std::fs::write(library.join("lib.txt"), "one\n").expect("a file");
    let path = library.canonicalize().expect("it is there").display().to_string();
    let run = |command: String| ("run_commands", json!({ "command": command }));
    let steps = [
        run("echo two > app.txt; echo mine > /home/agent/kept".to_owned()),
        run(format!("echo two > {path}/lib.txt")),
        run(format!("echo three > app.txt; echo three > {path}/lib.txt; echo x > {path}/new.txt")),
    ];
    let model = steps.into_iter().enumerate().fold(endpoint(), |script, (number, (tool, arguments))| {
        script.tool_call(tool, arguments).text(&format!("Step {number} is done."))
    });
    let model = model.start();
    let mut terminal = builder.endpoint(&model).env("AGENT_SANDBOX", "local").start();
    terminal.wait_for_prompt();
    terminal.type_line("first");
    terminal.wait_for("Step 0 is done.");
    terminal.wait_for_prompt();
    terminal.type_line("/add-dir /etc");
    terminal.wait_for("/etc cannot be added: it is a directory of the system");
    // No checkpoint has it yet.
    terminal.type_line("!echo own > own.txt; echo end-of 0");
    terminal.wait_for("\nend-of 0\n");
    terminal.wait_for_prompt();
    terminal.type_line(&format!("/add-dir {path}"));
    terminal.wait_for("was added: the sandbox is started again with the session's changes");
    terminal.wait_for_prompt();
    terminal.type_line("second");
    terminal.wait_for("Step 1 is done.");
    terminal.wait_for_prompt();
    terminal.type_line("third");
    terminal.wait_for("Step 2 is done.");
    terminal.wait_for_prompt();
    let all = format!("!cat app.txt {path}/*; echo end-of");
    terminal.type_line("!cat own.txt; echo end-of own");
    terminal.wait_for("\nown\nend-of own\n");
    terminal.type_line(&format!("{all} 1"));
    terminal.wait_for("\nthree\nthree\nx\nend-of 1\n");
    terminal.type_line("/undo");
    terminal.wait_for("the workspace is at checkpoint");
    terminal.type_line(&format!("{all} 2"));
    terminal.wait_for("\ntwo\ntwo\nend-of 2\n");
    // The prompt before changed the added directory alone.
    terminal.type_line("/undo");
    terminal.type_line(&format!("{all} 3"));
    terminal.wait_for("\ntwo\none\nend-of 3\n");
    terminal.type_line("/redo");
    terminal.type_line("/redo");
    terminal.type_line(&format!("{all} 4"));
    terminal.wait_for("\nthree\nthree\nx\nend-of 4\n");
    terminal.type_line("/add-dir");
    terminal.wait_for(&path);
    terminal.type_line("/apply");
    terminal.wait_for("[yes/no/each]");
    terminal.type_line("y");
    terminal.wait_for("2 files added, 2 modified, 0 deleted");
    assert_eq!(host(&library, "cat lib.txt new.txt"), "three\nx\n");
    assert_eq!(host(&root, "cat app.txt"), "three\n");
}
