//! The scripts of `action.yml`, with events as GitHub writes them, a repository to push to, and a `gh` that notes its calls.

use crate::action_runner::{ActionRun, Texts};
use agent_testing::counterpart::root;
use agent_testing::endpoint::{Endpoint, endpoint};
use agent_testing::skip;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const GH: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\" >>\"$GH_CALLS\"\ncase $* in *--input*) cat >>\"$GH_CALLS\" ;; esac\n\
    case $* in *collaborators/writer/permission*) echo write; exit ;; *collaborators/owner/permission*) echo admin; exit ;; \
    *collaborators/reader/permission*) echo read; exit ;; *collaborators/*) exit 1 ;; esac\n\
    echo https://github.example/pull/7\n[ -z \"$GH_REFUSES\" ] || case $* in *$GH_REFUSES*) exit 1 ;; esac\n";

/// A job: its checkout, what the runner gives it, and a stubbed `gh`.
struct Job {
    directory: TempDir,
}

impl Job {
    /// With this event; `None` where the machine lacks `jq`.
    fn new(event: &Value) -> Option<Self> {
        if Command::new("jq").arg("--version").output().is_err() {
            skip::missing("jq");
            return None;
        }
        let job = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["bin", "temp", "server/o"] {
            fs::create_dir_all(job.path(name)).unwrap();
        }
        fs::write(job.path("event.json"), event.to_string()).unwrap();
        fs::write(job.path("bin/gh"), GH).unwrap();
        fs::set_permissions(job.path("bin/gh"), fs::Permissions::from_mode(0o755)).unwrap();
        let git = "git init -q --bare server/o/r.git; git init -q -b main checkout; cd checkout; seq 5 > lines; \
            echo broken > state; git add -A; git -c user.name=A -c user.email=a@example.org commit -qm one";
        job.sh(git);
        Some(job)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sh(&self, script: &str) -> String {
        let output =
            Command::new("bash").args(["-ec", script]).current_dir(&self.directory).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What a runner gives each step, and what the tests' `gh` needs.
    fn environment(&self, event: &str) -> Texts {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let server = format!("file://{}", self.path("server").display());
        let texts = [
            ("PATH", path.as_str()),
            ("GITHUB_EVENT_NAME", event),
            ("GITHUB_REPOSITORY", "o/r"),
            ("GITHUB_SERVER_URL", &server),
            ("GITHUB_RUN_ID", "42"),
            ("GITHUB_REF_NAME", "main"),
            ("GH_REFUSES", ""),
        ];
        let files = [
            ("HOME", "home"),
            ("AGENT_HOME", "agent"),
            ("RUNNER_TEMP", "temp"),
            ("GITHUB_EVENT_PATH", "event.json"),
            ("GITHUB_OUTPUT", "output"),
            ("GITHUB_STEP_SUMMARY", "summary"),
            ("GH_CALLS", "calls"),
        ];
        let files = files.map(|(name, file)| (name.to_owned(), self.path(file).display().to_string()));
        texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into_iter().chain(files).collect()
    }

    /// Runs a script of the action on `event`, with these inputs.
    fn run(&self, script: &str, event: &str, inputs: &[(&str, &str)]) -> Output {
        let defaults = ["CHECK", "MAX_TURNS", "MAX_TIME", "MAX_COST", "BASE", "SEVERITY", "PROMPT"]
            .map(|name| (name, ""));
        let mut command = Command::new(root().join("packaging/action").join(script));
        command
            .current_dir(self.path("checkout"))
            .env_clear()
            .envs(defaults)
            .envs(self.environment(event))
            .envs([
                ("MODE", "run"),
                ("LABEL", "agent"),
                ("GH_TOKEN", "gh-secret"),
                ("RESULT", "pull-request"),
            ])
            .envs([("PROGRAM", env!("CARGO_BIN_EXE_agent")), ("AGENT_SANDBOX", "local")])
            .envs(inputs.iter().copied());
        command.output().unwrap()
    }

    /// Runs all steps of the action, with this model and these inputs.
    fn act(&self, event: &str, model: &Endpoint, inputs: &[(&str, &str)]) -> Option<ActionRun> {
        let url = model.url();
        let mut all = vec![
            ("program", env!("CARGO_BIN_EXE_agent")),
            ("sandbox", "local"),
            ("model", "m"),
            ("base-url", url.as_str()),
            ("api-key", "model-secret"),
        ];
        all.extend(inputs);
        ActionRun::of(&self.path("checkout"), &self.environment(event), &all)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Runs the agent with this model.
    fn work(&self, event: &str, model: &Endpoint, inputs: &[(&str, &str)]) -> Output {
        let url = model.url();
        let mut all =
            vec![("AGENT_BASE_URL", url.as_str()), ("AGENT_API_KEY", "model-secret"), ("AGENT_MODEL", "m")];
        all.extend(inputs);
        self.run("run.sh", event, &all)
    }
}

/// An issue of a stranger's that `labeler` gave the label.
fn issue(title: &str, labeler: &str) -> Value {
    json!({
        "action": "labeled",
        "label": { "name": "agent" },
        "sender": { "login": labeler },
        "issue": { "number": 5, "title": title, "body": "Body `touch pwned`.\r\nMore", "user": { "login": "stranger" } },
    })
}

fn pull_request(repository: &str, head: &str) -> Value {
    json!({ "action": "opened", "pull_request": {
        "number": 7, "title": "T", "body": null, "user": { "login": "reader" }, "author_association": "MEMBER",
        "head": { "sha": head, "repo": { "full_name": repository } }, "base": { "sha": "" },
    } })
}

#[test]
fn an_issue_becomes_a_pull_request_and_no_text_of_it_is_obeyed() {
    let title = "Fix $(touch pwned) `touch pwned` \"; touch pwned #\n::set-output name=x::y";
    let Some(job) = Job::new(&issue(title, "writer")) else { return };
    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({ "command": "env; cat .git/config; echo fixed > state; echo ::add-mask::x" }),
        )
        .text("Done, @everyone ![x](https://evil.example)\n::add-mask::y")
        .start();
    assert!(job.run("prompt.sh", "issues", &[]).status.success());
    job.sh("cd checkout; git config http.extraheader 'AUTHORIZATION: basic checkout-secret'");
    let ran = job.work("issues", &model, &[("CHECK", "grep -q fixed state")]);
    assert!(ran.status.success(), "{ran:?}");
    let stdout = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(stdout.starts_with("::stop-commands::") && stdout.lines().count() == 2, "{stdout}");
    let sent = model.requests()[1].body.to_string();
    assert!(sent.contains("fixed") || sent.contains("exit code 0"), "{sent}");
    for secret in ["gh-secret", "model-secret", "checkout-secret"] {
        assert!(!sent.contains(secret), "{secret}");
    }
    let prompt = model.requests()[0].messages()[1]["content"].as_str().unwrap().to_owned();
    assert!(
        prompt.starts_with("The task is #5 of this repository.\n\nFix $(touch pwned) `touch pwned`"),
        "{prompt}"
    );
    let proposed = job.run("propose.sh", "issues", &[]);
    assert!(proposed.status.success(), "{proposed:?}");
    assert_eq!(job.sh("git --git-dir server/o/r.git show agent/42-1:state"), "fixed\n");
    let subject = job.sh("git --git-dir server/o/r.git log -1 --format=%s agent/42-1");
    assert_eq!(subject, "Fix $(touch pwned) `touch pwned` \"; touch pwned #\n");
    let calls = job.read("calls");
    assert!(calls.contains("--title\nFix $(touch pwned) `touch pwned` \"; touch pwned #\n"), "{calls}");
    let body = job.read("temp/agent/body.md");
    assert!(body.starts_with("For #5. Made by") && body.contains("\n    Done, @everyone ![x]"), "{body}");
    let output = job.read("output");
    for line in ["go=true", "exit-code=0", "changed=true", "pull-request=https://github.example/pull/7"] {
        assert!(output.lines().any(|found| found == line), "{line}: {output}");
    }
    assert!(!job.path("checkout/pwned").exists());
    assert!(!job.sh("git -C checkout config --list").contains("gh-secret"));
}

/// The names of inputs, variables and outputs by which the steps reach each other.
#[test]
fn all_steps_together_make_a_pull_request_and_fail_with_the_agents_code() {
    let Some(job) = Job::new(&issue("Fix the state", "writer")) else { return };
    let fix =
        || endpoint().tool_call("write_file", json!({ "path": "state", "data": "fixed\n" })).text("Done.");
    let Some(run) = job.act("issues", &fix().start(), &[("check", "grep -q fixed state")]) else { return };
    assert!(run.succeeded && run.used.is_empty());
    assert_eq!((run.output("exit-code").as_str(), run.output("changed").as_str()), ("0", "true"));
    assert_eq!(run.output("pull-request"), "https://github.example/pull/7");
    assert!(fs::read_to_string(run.output("events")).unwrap().contains("session_finished"));
    assert_eq!(job.sh("git -C server/o/r.git show agent/42-1:state"), "fixed\n");

    let job = Job::new(&issue("Fix the state", "writer")).expect("as before");
    let run = job.act("issues", &fix().start(), &[("check", "grep -q other state"), ("max-turns", "2")]);
    let run = run.expect("as before");
    assert!(!run.succeeded && run.output("exit-code") != "0" && run.output("pull-request").is_empty());
    assert!(!job.read("calls").contains("create"), "{}", job.read("calls"));

    let stranger = Job::new(
        &json!({ "action": "labeled", "label": { "name": "bug" }, "issue": issue("x", "NONE")["issue"] }),
    );
    let model = endpoint().start();
    let run = stranger.expect("as before").act("issues", &model, &[]).expect("as before");
    assert!(run.succeeded && run.output("exit-code").is_empty() && model.requests().is_empty());

    // The findings are uploaded before the job fails.
    let job = Job::new(&json!({})).expect("as before");
    job.sh("cd checkout; echo more >> state");
    let finding = json!({ "file": "state", "line": 2, "severity": "error", "title": "t", "message": "m" });
    let model = endpoint().text(&json!({ "findings": [finding] }).to_string()).start();
    let run = job.act("push", &model, &[("mode", "review"), ("severity", "warning")]).expect("as before");
    assert_eq!((run.output("findings").as_str(), run.output("exit-code").as_str()), ("1", "6"));
    let (action, with) = &run.used[0];
    assert!(!run.succeeded && action.starts_with("github/codeql-action/upload-sarif@"));
    assert_eq!((&with["sarif_file"], with["token"].as_str()), (&run.output("sarif"), "gh-secret"));
}

#[test]
fn strangers_forks_and_other_labels_start_nothing() {
    let comment = |author: &str, body: &str| json!({ "comment": { "user": { "login": author }, "author_association": "COLLABORATOR", "body": body }, "issue": { "number": 1, "title": "t", "body": "b" } });
    let mut opened = issue("t", "writer");
    opened["action"] = json!("opened");
    let mut other = issue("t", "owner");
    other["label"]["name"] = json!("bug");
    let cases = [
        ("issues", opened, "run"),
        ("issues", other, "run"),
        // A member of the organisation, or a collaborator, may be one who only reads or gives labels.
        ("issues", issue("t", "reader"), "run"),
        ("issue_comment", comment("reader", "/agent do it"), "run"),
        ("issue_comment", comment("stranger", "/agent do it"), "run"),
        ("issue_comment", comment("writer/../owner", "/agent do it"), "run"),
        ("issue_comment", comment("", "/agent do it"), "run"),
        ("issue_comment", comment("owner", "please /agent"), "run"),
        ("issue_comment", comment("owner", "/agents"), "run"),
        ("pull_request", pull_request("o/r", ""), "run"),
        ("pull_request", pull_request("stranger/r", ""), "run"),
        ("pull_request", pull_request("stranger/r", ""), "review"),
    ];
    for (event, payload, mode) in cases {
        let Some(job) = Job::new(&payload) else { return };
        let output = job.run("prompt.sh", event, &[("MODE", mode)]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(job.read("output"), "go=false\n", "{event} {payload}");
    }
    let Some(job) = Job::new(&comment("owner", "/agent do it\nnow")) else { return };
    assert!(job.run("prompt.sh", "issue_comment", &[]).status.success());
    assert!(job.read("temp/agent/prompt").ends_with("A comment says what to do:\n\ndo it\nnow\n"));
    let refused = job.run("prompt.sh", "pull_request_target", &[("PROMPT", "x")]);
    assert_eq!((refused.status.code(), job.read("output").as_str()), (Some(1), "go=true\n"));
}

/// A job on a pull request to which the agent has answered, and the commit that it is about.
fn answered_pull_request(answer: &str) -> Option<(Job, String)> {
    let job = Job::new(&json!({}))?;
    let head = job.sh("git -C checkout rev-parse HEAD").trim().to_owned();
    fs::write(job.path("event.json"), pull_request("o/r", &head).to_string()).unwrap();
    fs::create_dir_all(job.path("temp/agent")).unwrap();
    fs::write(job.path("temp/agent/prompt"), "p\n").unwrap();
    fs::write(job.path("temp/agent/answer.txt"), answer).unwrap();
    Some((job, head))
}

#[test]
fn suggestions_stand_on_the_lines_that_they_replace() {
    let Some((job, head)) = answered_pull_request("a\n") else { return };
    job.sh("cd checkout; printf '1\\ntwo\\n```\\n4\\nbetween\\n5\\n' > lines");
    let inputs = [("RESULT", "suggestion")];
    let proposed = job.run("propose.sh", "pull_request", &inputs);
    assert!(proposed.status.success(), "{proposed:?}");
    let calls = job.read("calls");
    let review: Value = serde_json::from_str(&calls[calls.find("\n{").unwrap()..]).unwrap();
    let expected = json!([
        { "path": "lines", "side": "RIGHT", "line": 3, "body": "````suggestion\ntwo\n```\n````", "start_line": 2, "start_side": "RIGHT" },
        { "path": "lines", "side": "RIGHT", "line": 4, "body": "```suggestion\n4\nbetween\n```" },
    ]);
    assert_eq!((&review["comments"], review["commit_id"].as_str()), (&expected, Some(head.as_str())));
    fs::remove_file(job.path("calls")).unwrap();
    let refused = job.run("propose.sh", "pull_request", &[inputs[0], ("GH_REFUSES", "reviews")]);
    assert!(refused.status.success(), "{refused:?}");
    let calls = job.read("calls");
    assert!(calls.contains("repos/o/r/issues/7/comments") && calls.contains("    +between"), "{calls}");
}

/// GitHub refuses a comment of more than 65,536 characters; lines of a patch are indented.
#[test]
fn a_long_change_becomes_a_comment_that_says_that_it_is_cut() {
    let Some((job, _)) = answered_pull_request(&"\n".repeat(40_000)) else { return };
    job.sh("cd checkout; yes '' | head -n 70000 > lines");
    let proposed = job.run("propose.sh", "pull_request", &[("RESULT", "suggestion")]);
    assert!(proposed.status.success(), "{proposed:?}");
    let calls = job.read("calls");
    assert!(calls.contains("repos/o/r/issues/7/comments"), "{}", &calls[..200]);
    let comment: Value = serde_json::from_str(&calls[calls.find("\n{").unwrap()..]).unwrap();
    let body = comment["body"].as_str().unwrap();
    assert!(body.encode_utf16().count() <= 65_000 && body.ends_with("(cut: it is too long for a comment)\n"));
}

#[test]
fn a_review_leaves_sarif_a_summary_and_the_exit_code() {
    let Some(job) = Job::new(&json!({})) else { return };
    job.sh("cd checkout; echo more >> state");
    let finding = json!({ "file": "state", "line": 2, "severity": "error", "title": "# not a heading", "message": "m" });
    let model = endpoint().text(&json!({ "findings": [finding] }).to_string()).start();
    let url = model.url();
    let inputs = [
        ("AGENT_BASE_URL", url.as_str()),
        ("AGENT_API_KEY", "k"),
        ("AGENT_MODEL", "m"),
        ("SEVERITY", "warning"),
    ];
    let reviewed = job.run("review.sh", "push", &inputs);
    assert!(reviewed.status.success(), "{reviewed:?}");
    let output = job.read("output");
    let sarif = job.path("temp/agent/review.sarif");
    assert_eq!(output, format!("sarif={}\nfindings=1\nexit-code=6\n", sarif.display()));
    assert_eq!(job.read("summary"), "### agent review: 1 finding\n\n    error state:2 # not a heading\n");
    let log: Value = serde_json::from_slice(&fs::read(sarif).unwrap()).unwrap();
    assert_eq!(log["version"], "2.1.0");
}

#[test]
fn a_change_of_a_workflow_is_not_proposed() {
    let Some(job) = Job::new(&issue("t", "owner")) else { return };
    fs::create_dir_all(job.path("temp/agent")).unwrap();
    job.sh("mkdir -p checkout/.github/workflows; echo x > checkout/.github/workflows/x.yml");
    let refused = job.run("propose.sh", "issues", &[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stdout).contains(".github/workflows"), "{refused:?}");
    assert!(!job.path("calls").exists());
}

/// No expression stands in a script: a text of an event that was put there would be code.
#[test]
fn scripts_of_the_action_and_of_workflows_get_texts_through_the_environment() {
    let mut files: Vec<PathBuf> = vec![root().join("action.yml")];
    for directory in [".github/workflows", "examples/ci"] {
        files.extend(fs::read_dir(root().join(directory)).unwrap().map(|entry| entry.unwrap().path()));
    }
    let is_yaml = |path: &&PathBuf| path.extension().is_some_and(|end| end == "yml");
    for file in files.iter().filter(is_yaml) {
        for line in lines_of_scripts(file) {
            let allowed = line.contains("matrix.") && !line.contains("github.event");
            assert!(!line.contains("${{") || allowed, "{}: {line}", file.display());
        }
    }
}

/// The lines below each `run:`, and those on its line.
fn lines_of_scripts(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut found, mut script) = (Vec::new(), None);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(depth) = script
            && indent(line) > depth
        {
            found.push(line.to_owned());
            continue;
        }
        script = None;
        if let Some((_, rest)) = line
            .trim_start()
            .trim_start_matches("- ")
            .split_once("run:")
            .filter(|(before, _)| before.is_empty())
        {
            found.push(rest.to_owned());
            // A step's first key stands behind its dash.
            script = Some(indent(line) + if line.trim_start().starts_with("- ") { 2 } else { 0 });
        }
    }
    found
}
