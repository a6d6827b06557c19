//! The scripts of `action.yml`, with events as GitHub writes them, a repository to push to, and a `gh` that notes its calls.

use crate::support::counterpart::root;
use crate::support::endpoint::{Endpoint, endpoint};
use crate::support::skip;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const GH: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\" >>\"$GH_CALLS\"\ncase $* in *--input*) cat >>\"$GH_CALLS\" ;; esac\n\
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

    /// Runs a script of the action on `event`, with these inputs.
    fn run(&self, script: &str, event: &str, inputs: &[(&str, &str)]) -> Output {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let defaults = ["CHECK", "MAX_TURNS", "MAX_TIME", "MAX_COST", "BASE", "SEVERITY", "PROMPT"]
            .map(|name| (name, ""));
        let server = format!("file://{}", self.path("server").display());
        let mut command = Command::new(root().join("packaging/action").join(script));
        command
            .current_dir(self.path("checkout"))
            .env_clear()
            .envs(defaults)
            .envs([("PATH", path.as_str()), ("GITHUB_EVENT_NAME", event), ("GITHUB_REPOSITORY", "o/r")])
            .envs([
                ("GITHUB_SERVER_URL", server.as_str()),
                ("GITHUB_RUN_ID", "42"),
                ("GITHUB_REF_NAME", "main"),
            ])
            .envs([
                ("MODE", "run"),
                ("LABEL", "agent"),
                ("GH_TOKEN", "gh-secret"),
                ("RESULT", "pull-request"),
            ])
            .envs([("PROGRAM", env!("CARGO_BIN_EXE_agent")), ("AGENT_SANDBOX", "local"), ("GH_REFUSES", "")])
            .env("HOME", self.path("home"))
            .env("AGENT_HOME", self.path("agent"))
            .env("RUNNER_TEMP", self.path("temp"))
            .env("GITHUB_EVENT_PATH", self.path("event.json"))
            .env("GITHUB_OUTPUT", self.path("output"))
            .env("GITHUB_STEP_SUMMARY", self.path("summary"))
            .env("GH_CALLS", self.path("calls"))
            .envs(inputs.iter().copied());
        command.output().unwrap()
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

fn issue(title: &str, association: &str) -> Value {
    json!({
        "action": "labeled",
        "label": { "name": "agent" },
        "issue": { "number": 5, "title": title, "body": "Body `touch pwned`.\r\nMore", "author_association": association },
    })
}

fn pull_request(repository: &str, head: &str) -> Value {
    json!({ "action": "opened", "pull_request": {
        "number": 7, "title": "T", "body": null, "author_association": "MEMBER",
        "head": { "sha": head, "repo": { "full_name": repository } }, "base": { "sha": "" },
    } })
}

#[test]
fn an_issue_becomes_a_pull_request_and_no_text_of_it_is_obeyed() {
    let title = "Fix $(touch pwned) `touch pwned` \"; touch pwned #\n::set-output name=x::y";
    let Some(job) = Job::new(&issue(title, "NONE")) else { return };
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

#[test]
fn strangers_forks_and_other_labels_start_nothing() {
    let comment = |association: &str, body: &str| json!({ "comment": { "author_association": association, "body": body }, "issue": { "number": 1, "title": "t", "body": "b" } });
    let mut opened = issue("t", "NONE");
    opened["action"] = json!("opened");
    let mut other = issue("t", "OWNER");
    other["label"]["name"] = json!("bug");
    let cases = [
        ("issues", opened, "run"),
        ("issues", other, "run"),
        ("issue_comment", comment("NONE", "/agent do it"), "run"),
        ("issue_comment", comment("CONTRIBUTOR", "/agent do it"), "run"),
        ("issue_comment", comment("OWNER", "please /agent"), "run"),
        ("issue_comment", comment("OWNER", "/agents"), "run"),
        ("pull_request", pull_request("stranger/r", ""), "run"),
        ("pull_request", pull_request("stranger/r", ""), "review"),
    ];
    for (event, payload, mode) in cases {
        let Some(job) = Job::new(&payload) else { return };
        let output = job.run("prompt.sh", event, &[("MODE", mode)]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(job.read("output"), "go=false\n", "{event} {payload}");
    }
    let Some(job) = Job::new(&comment("OWNER", "/agent do it\nnow")) else { return };
    assert!(job.run("prompt.sh", "issue_comment", &[]).status.success());
    assert!(job.read("temp/agent/prompt").ends_with("A comment says what to do:\n\ndo it\nnow\n"));
    let refused = job.run("prompt.sh", "pull_request_target", &[("PROMPT", "x")]);
    assert_eq!((refused.status.code(), job.read("output").as_str()), (Some(1), "go=true\n"));
}

#[test]
fn suggestions_stand_on_the_lines_that_they_replace() {
    let Some(job) = Job::new(&json!({})) else { return };
    let head = job.sh("git -C checkout rev-parse HEAD").trim().to_owned();
    fs::write(job.path("event.json"), pull_request("o/r", &head).to_string()).unwrap();
    fs::create_dir_all(job.path("temp/agent")).unwrap();
    fs::write(job.path("temp/agent/prompt"), "p\n").unwrap();
    fs::write(job.path("temp/agent/answer.txt"), "a\n").unwrap();
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
    let Some(job) = Job::new(&issue("t", "OWNER")) else { return };
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
