//! `agent review`: findings with file and line, and nothing changed.

use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::endpoint;
use agent_testing::skip;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A branch with a commit, an edit that is not committed and a new file; the default branch has another commit.
const HISTORY: &str = "git init -q -b main; printf 'one\\ntwo\\n' > a.py; echo old > 'ü b.txt'; git add -A; git commit -qm one; \
    git switch -qc topic; echo committed >> a.py; git commit -qam topic; \
    git switch -q main; echo elsewhere > c.txt; git add -A; git commit -qm main; git switch -q topic; \
    echo edited > 'ü b.txt'; echo new > new.py; echo ignored > x.log; echo '*.log' > .git/info/exclude;";

fn repository() -> Agent {
    let call = agent();
    git(call.workspace(), HISTORY);
    call
}

fn git(directory: &Path, script: &str) {
    let identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"].join(" ");
    let script = script.replace("git commit", &format!("git {identity} commit"));
    let output = Command::new("bash").args(["-ec", &script]).current_dir(directory).output().expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn finding(file: &str, line: u64, severity: &str, title: &str) -> Value {
    json!({ "file": file, "line": line, "severity": severity, "title": title, "message": "It fails.\nRepair it." })
}

fn answer(findings: &[Value]) -> String {
    json!({ "findings": findings }).to_string()
}

#[test]
fn findings_are_printed_and_nothing_is_changed() {
    let findings = [
        finding("a.py", 3, "warning", "the third line is wrong"),
        finding("./new.py", 1, "error", "the new file is wrong"),
        finding("missing.py", 1, "error", "not there"),
        finding("a.py", 4, "error", "behind the end"),
        finding(".git/config", 1, "error", "git's own"),
        finding("../outside", 1, "error", "outside"),
    ];
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo planted >> a.py; cat a.py" }))
        .text(&answer(&findings))
        .start();
    let done = repository().endpoint(&model).args(["review"]).run().expect_code(0);
    assert_eq!(
        done.stdout,
        "new.py:1: error: the new file is wrong\n    It fails.\n    Repair it.\n\
         a.py:3: warning: the third line is wrong\n    It fails.\n    Repair it.\n\
         2 findings: 1 error, 1 warning\n"
    );
    for left_out in ["missing.py:1", "a.py:4", ".git/config:1", "../outside:1"] {
        let expected = format!("a finding is left out, because {left_out} ");
        assert!(done.stderr.contains(&expected), "{left_out}: {}", done.stderr);
    }
    let requests = model.requests();
    let prompt = requests[0].messages()[1]["content"].as_str().unwrap().to_owned();
    for part in ["+committed", "+edited", "+new\n", "b/new.py"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    for part in ["elsewhere", "ignored"] {
        assert!(!prompt.contains(part), "{part}: {prompt}");
    }
    let result = requests[1].messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(result.contains("Permission denied") && !result.contains("planted\n"), "{result}");
    assert_eq!(done.host_file("a.py").as_deref(), Some("one\ntwo\ncommitted\n"));
}

#[test]
fn a_severity_decides_the_exit_code() {
    let model = endpoint().text(&answer(&[finding("a.py", 1, "warning", "w")])).repeat_last().start();
    let place = repository();
    let code = |severity: &str| {
        place.again().endpoint(&model).args(["review", "-q", "--severity", severity]).run().code
    };
    assert_eq!([code("error"), code("warning"), code("note")], [0, 6, 6]);
}

#[test]
fn an_answer_that_is_not_of_the_form_is_asked_for_again() {
    let wrong = json!({ "findings": [{ "file": "a.py", "line": "first" }] }).to_string();
    let model = endpoint().text(&wrong).text(&answer(&[finding("a.py", 2, "note", "n")])).start();
    let done =
        repository().endpoint(&model).args(["review", "--format", "json", "main"]).run().expect_code(0);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    let expected = json!([{ "file": "a.py", "line": 2, "end_line": 2, "severity": "note", "title": "n",
                            "message": "It fails.\nRepair it." }]);
    assert_eq!(report["findings"], expected);
    assert_eq!((&report["dropped"], report["base"].as_str().map(str::len)), (&json!(0), Some(40)));
    assert_eq!(model.requests().len(), 2);
}

#[test]
fn what_cannot_be_reviewed_is_said_before_a_model_is_asked() {
    let model = endpoint().text("never").start();
    let refused = agent().endpoint(&model).args(["review"]).run().expect_code(2);
    assert!(refused.stderr.contains("there is no git repository here"), "{}", refused.stderr);
    let place = repository();
    let unknown = place.again().endpoint(&model).args(["review", "no-such-branch"]).run().expect_code(2);
    assert!(unknown.stderr.contains("no-such-branch is not a commit"), "{}", unknown.stderr);
    git(place.workspace(), "git add -A; git commit -qm all; git switch -q main; git reset -q --hard topic;");
    let nothing = place.again().endpoint(&model).args(["review"]).run().expect_code(0);
    assert!(nothing.stderr.contains("nothing has changed since"), "{}", nothing.stderr);
    assert_eq!(nothing.stdout, "no findings\n");
    assert!(model.requests().is_empty());
}

/// The schema of the standard, which a package of its authors holds.
fn schema_of_sarif() -> Option<Value> {
    const PACKAGE: &str = "@microsoft/jest-sarif@1.0.0-beta.0";
    let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sarif-2.1.0.json");
    if !kept.exists() {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let packed = Command::new("npm").args(["pack", "--silent", PACKAGE]).current_dir(&directory).output();
        if !packed.is_ok_and(|packed| packed.status.success()) {
            skip::missing("npm, and the package with SARIF's schema");
            return None;
        }
        let unpack = "tar -xzf *.tgz package/lib/schemas/sarif-2.1.0-rtm.5.json";
        let unpacked = Command::new("sh").args(["-c", unpack]).current_dir(&directory).status().unwrap();
        assert!(unpacked.success());
        std::fs::rename(directory.path().join("package/lib/schemas/sarif-2.1.0-rtm.5.json"), &kept).unwrap();
    }
    let mut schema: Value = serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();
    // A stray bracket, which only a lenient engine takes; we write no language.
    for definition in ["run", "toolComponent"] {
        let language = &mut schema["definitions"][definition]["properties"]["language"];
        language.as_object_mut().expect("a property").remove("pattern").expect("the pattern");
    }
    Some(schema)
}

#[test]
fn sarif_is_valid_and_shows_what_the_model_wrote_without_obeying_it() {
    let hostile = json!({
        "file": "ü b.txt", "line": 1, "end_line": 1, "severity": "error",
        "title": "\u{1b}]0;owned\u{7}right\u{202e}left",
        "message": "see [the manual](https://evil.example/login) \u{200b}now",
    });
    let model = endpoint().text(&answer(&[hostile, finding("a.py", 1, "note", "n")])).repeat_last().start();
    let place = repository();
    let done = place.again().endpoint(&model).args(["review", "--format", "sarif"]).run().expect_code(0);
    let log: Value = serde_json::from_str(&done.stdout).unwrap();
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&result["level"], &result["ruleId"]), (&json!("error"), &json!("review/error")));
    let location = &result["locations"][0]["physicalLocation"];
    assert_eq!(location["artifactLocation"]["uri"], "%C3%BC%20b.txt");
    assert_eq!(location["region"], json!({ "startLine": 1, "endLine": 1 }));
    assert_eq!(
        result["message"]["text"],
        "\\\\u{1b}\\]0;owned\\\\u{7}right\\\\u{202e}left\n\nsee \\[the manual\\](https://evil.example/login) \\\\u{200b}now"
    );
    let text = place.again().endpoint(&model).args(["review"]).run().expect_code(0).stdout;
    assert!(text.starts_with("ü b.txt:1: error: \\u{1b}]0;owned\\u{7}right\\u{202e}left\n"), "{text}");
    let Some(schema) = schema_of_sarif() else { return };
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator.iter_errors(&log).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let mut broken = log.clone();
    broken["runs"][0]["results"][0]["level"] = json!("terrible");
    assert!(!validator.is_valid(&broken));
}
