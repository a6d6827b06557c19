//! `agent diff`, `agent apply` and `agent undo` on a session that has ended.

use crate::support::agent::agent;
use crate::support::endpoint::endpoint;
use serde_json::json;

#[test]
fn a_change_is_reviewed_applied_and_taken_back() {
    let command = "echo new > added.txt && rm gone.txt && echo more >> kept.txt";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
    let call = agent().endpoint(&model).file("gone.txt", "x\n").file("kept.txt", "one\n");
    let ran = call.args(["run", "change"]).run().expect_code(0);

    let shown = ran.again().args(["diff"]).run().expect_code(0);
    insta::assert_snapshot!(shown.stdout, @r"
    new file added.txt
    @@ -0,0 +1 @@
    +new
    deleted gone.txt
    @@ -1 +0,0 @@
    -x
    modified kept.txt
    @@ -1 +1,2 @@
     one
    +more
    ");
    let names = ran.again().args(["diff", "--name-only", "kept.txt"]).run().expect_code(0);
    assert_eq!(names.stdout, "kept.txt\n");

    // There is nobody to ask: the call itself is the yes.
    ran.again().args(["apply", "./kept.txt"]).run().expect_code(0);
    assert_eq!(ran.host_file("kept.txt").as_deref(), Some("one\nmore\n"));
    assert!(ran.host_file("gone.txt").is_some());
    ran.again().args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(ran.host_file("gone.txt"), None);
    assert_eq!(ran.host_file("added.txt").as_deref(), Some("new\n"));

    ran.again().args(["undo"]).run().expect_code(0);
    ran.again().args(["undo"]).run().expect_code(0);
    assert_eq!(ran.host_file("kept.txt").as_deref(), Some("one\n"));
    assert_eq!(ran.host_file("gone.txt").as_deref(), Some("x\n"));
    assert_eq!(ran.host_file("added.txt"), None);
    ran.again().args(["undo"]).run().expect_code(2);

    let conflict = ran.again().file("kept.txt", "mine\n").args(["apply", "--yes"]).run().expect_code(7);
    assert!(conflict.stderr.contains("kept.txt: it changed on the host"), "{}", conflict.stderr);
    assert!(ran.host_file("gone.txt").is_some());
}
