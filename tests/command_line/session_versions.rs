//! Session files that earlier versions wrote (`tests/samples/sessions`): each is read, verified, reported and continued.

use agent::hash::Hash;
use agent::log::{History, read_records};
use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::endpoint;
use agent_testing::skip::missing;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An id for files whose sessions were kept under another name.
const ID: &str = "20261120-120000-k3f9";

fn kept() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/sessions");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 2, "{files:?}");
    files
}

/// Puts the lines into the store, with the hash of the line before in each, as the version that wrote them did.
fn put(call: &Agent, lines: &[String]) {
    let directory = call.home("data").join("sessions").join(ID);
    std::fs::create_dir_all(&directory).unwrap();
    let (mut text, mut last) = (String::new(), "0".repeat(64));
    for line in lines {
        let line = format!("{},\"prev\":\"{last}\"}}", line.strip_suffix('}').unwrap());
        last = Hash::of(&line).to_string();
        text += &format!("{line}\n");
    }
    std::fs::write(directory.join("events.jsonl"), text).unwrap();
    std::fs::write(directory.join("head"), format!("{:020} {last}\n", lines.len())).unwrap();
}

/// The lines of a file in another workspace, without the hashes, which are of the whole lines.
fn lines_on(file: &Path, workspace: &Path) -> Vec<String> {
    let text =
        std::fs::read_to_string(file).unwrap().replace("/home/user/project", workspace.to_str().unwrap());
    let without = |line: &str| {
        let (line, _) = line.rsplit_once(",\"prev\":\"").expect("the hash of the line before");
        format!("{line}}}")
    };
    text.lines().map(without).collect()
}

fn has_engine() -> bool {
    let is_there = Command::new("docker").arg("info").output().is_ok_and(|output| output.status.success());
    if !is_there {
        missing("a running Docker engine");
    }
    is_there
}

#[test]
fn what_an_earlier_version_wrote_is_verified_shown_reported_and_continued() {
    for file in kept() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let place = agent();
        let lines = lines_on(&file, place.workspace());
        put(&place, &lines);
        let stdout_of = |arguments: &[&str]| place.again().args(arguments).run().expect_code(0).stdout;
        let verified = stdout_of(&["sessions", "verify", ID]);
        assert!(
            verified.contains(&format!("{} lines are as they were written", lines.len())),
            "{name}: {verified}"
        );
        let records = read_records(&file).unwrap();
        assert_eq!(records.len(), lines.len(), "{name}: no line is left out");
        let history = History::of(&records);
        let prompt = &history.last_prompt;
        assert!(stdout_of(&["sessions", "show", ID]).contains(&format!("> {prompt}")), "{name}: {prompt}");
        stdout_of(&["sessions", "report", ID, "--json"]);
        if lines.iter().any(|line| line.contains("\"backend\":\"docker\"")) && !has_engine() {
            continue;
        }
        let model = endpoint().text("Further.").start();
        let arguments = ["run", "-q", "--session", ID, "go further"];
        let continued = place.again().endpoint(&model).args(arguments).run().expect_code(0);
        assert_eq!(continued.stdout, "Further.\n", "{name}");
        let messages = model.requests()[0].messages();
        let calls = messages.iter().filter(|message| message["role"] == "tool").count();
        assert_eq!(messages.len(), history.messages.len() + 2, "{name}: {messages:#?}");
        assert!(calls >= 3, "{name}: the results of its calls are there");
        assert!(stdout_of(&["sessions", "verify", ID]).contains("lines are as they were written"), "{name}");
    }
}
