//! Files as users have them: their encodings, line ends and names, and how they get to the host.

use agent_testbed::agent::{Agent, Finished, agent};
use agent_testing::endpoint::{Endpoint, endpoint};
use agent_testing::skip;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const SHIFT_JIS: &[u8] = b"// \x90\xdd\x92\xe8\x83t\x83@\x83C\x83\x8b\nconst int x = 1;\n";

/// A run whose model makes these calls, one a message; the results that it got.
fn ran(call: Agent, calls: &[(&str, Value)]) -> (Finished, Vec<String>) {
    let script =
        calls.iter().fold(endpoint(), |model, (tool, arguments)| model.tool_call(tool, arguments.clone()));
    let model: Endpoint = script.text("done").start();
    let done =
        call.endpoint(&model).args(["run", "--sandbox", "local", "--apply", "go"]).run().expect_code(0);
    let requests = model.requests();
    let results = requests[1..].iter().map(|request| {
        let messages = request.body["messages"].as_array().expect("messages");
        messages.last().and_then(|last| last["content"].as_str()).expect("a result").to_owned()
    });
    let results = results.collect();
    (done, results)
}

fn bytes(done: &Finished, path: &str) -> Vec<u8> {
    std::fs::read(done.again().workspace().join(path)).expect("the file")
}

/// Bugs: a Shift-JIS file that passed through the model had U+FFFD for each of its bytes, and an edit put UTF-8 into it.
#[test]
fn a_file_in_another_encoding_is_read_edited_and_written_in_it() {
    let write = |data: &str| ("write_file", json!({ "path": "a.c", "data": data }));
    let call = agent().file("a.c", SHIFT_JIS);
    let (done, results) = ran(
        call,
        &[
            ("read_file", json!({ "path": "a.c" })),
            ("edit_file", json!({ "path": "a.c", "old": "int x = 1;", "new": "int x = 2; // 設定" })),
            ("edit_file", json!({ "path": "a.c", "old": "x = 2", "new": "x = '😀'" })),
            write("// 設定ファイル\nconst int y = 3;\n"),
            write("// 😀\n"),
        ],
    );
    assert!(results[0].contains("Shift_JIS") && results[0].contains("// 設定ファイル\n"), "{}", results[0]);
    assert_eq!(results[1], "edited a.c at line 2, in Shift_JIS");
    assert!(results[2].contains("is Shift_JIS, which has no 😀 (U+1F600)"), "{}", results[2]);
    assert!(results[3].ends_with(", in Shift_JIS"), "{}", results[3]);
    assert!(results[4].contains("not written") && results[4].contains("😀 (U+1F600)"), "{}", results[4]);
    assert_eq!(bytes(&done, "a.c"), [&SHIFT_JIS[..15], b"\nconst int y = 3;\n"].concat());
}

#[test]
fn a_diff_shows_text_in_any_encoding_as_text() {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let model = endpoint()
        .tool_call("edit_file", json!({ "path": "a.c", "old": "x = 1", "new": "x = 2" }))
        .tool_call("edit_file", json!({ "path": "w.txt", "old": "größer", "new": "kleiner" }))
        .text("done")
        .start();
    let call =
        agent().endpoint(&model).file("a.c", SHIFT_JIS).file("w.txt", utf16("\u{feff}größer\r\nz\r\n"));
    let ran = call.args(["run", "--sandbox", "local", "go"]).run().expect_code(0);
    let diff = ran.again().args(["diff"]).run().expect_code(0).stdout;
    assert!(
        diff.contains("(Shift_JIS, shown as UTF-8; a program that does not know the encoding reads @")
            && diff.contains(" // 設定ファイル"),
        "{diff}"
    );
    assert!(diff.contains("(UTF-16LE with a byte order mark, shown as UTF-8)"), "{diff}");
    assert!(diff.contains("-größer") && diff.contains("+kleiner"), "{diff}");
    ran.again().args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(bytes(&ran, "w.txt"), utf16("\u{feff}kleiner\r\nz\r\n"));
}

/// Bugs: a file that was rewritten as a whole lost its byte order mark and its CRLF line ends; bytes that cannot be decoded were lost.
#[test]
fn a_file_that_is_rewritten_keeps_its_form() {
    let data = "class P\n{\n  int a;\n}\n";
    let call = agent()
        .file("P.cs", "\u{feff}class P\r\n{\r\n}\r\n")
        .file("Q.cs", "\u{feff}class P\r\n{\r\n}\r\n")
        .file("bad.txt", b"\xc3\xb6 \xc3\xa4 \xc3\xbc\nx \xff y\nlast\n")
        .file(".editorconfig", "root = true\n[*.old]\ncharset = latin1\n");
    let (done, results) = ran(
        call,
        &[
            ("write_file", json!({ "path": "P.cs", "data": data })),
            (
                "write_files",
                json!({ "files": [{ "path": "Q.cs", "data": data }, { "path": "n.old", "data": "\u{f6}\n" }] }),
            ),
            ("read_file", json!({ "path": "bad.txt" })),
            ("edit_file", json!({ "path": "bad.txt", "old": "last", "new": "end" })),
            ("write_file", json!({ "path": "bad.txt", "data": "x \u{fffd} z\n" })),
        ],
    );
    assert!(results[0].contains("with its CRLF line ends"), "{}", results[0]);
    for name in ["P.cs", "Q.cs"] {
        assert_eq!(bytes(&done, name), "\u{feff}class P\r\n{\r\n  int a;\r\n}\r\n".as_bytes(), "{name}");
    }
    assert_eq!(bytes(&done, "n.old"), b"\xf6\n", "as .editorconfig says");
    assert!(results[2].contains("not UTF-8") && results[2].contains("x \u{fffd} y"), "{}", results[2]);
    assert!(results[4].contains("line 2 has bytes that cannot be decoded"), "{}", results[4]);
    assert_eq!(bytes(&done, "bad.txt"), b"\xc3\xb6 \xc3\xa4 \xc3\xbc\nx \xff y\nend\n");
}

/// New files had LF in projects of CRLF, and showed as changed from their first line to their last in other tools.
#[test]
fn a_new_file_has_the_line_ends_that_the_settings_say() {
    let call = agent()
        .file(".editorconfig", "root = true\n[*]\nend_of_line = crlf\n[*.sh]\nend_of_line = lf\n")
        .file(".gitattributes", "*.bat text eol=crlf\n*.py text eol=lf\n");
    let file = |path: &str| ("write_file", json!({ "path": path, "data": "a\nb\n" }));
    let one = json!({ "path": "one.txt", "data": "one line" });
    let (done, results) =
        ran(call, &[file("n.cs"), file("n.sh"), file("n.bat"), file("n.py"), ("write_file", one)]);
    assert!(results[0].contains("with CRLF line ends as the project's settings say"), "{}", results[0]);
    for (name, expected) in [
        ("n.cs", "a\r\nb\r\n"),
        ("n.sh", "a\nb\n"),
        ("n.bat", "a\r\nb\r\n"),
        ("n.py", "a\nb\n"),
        ("one.txt", "one line"),
    ] {
        assert_eq!(bytes(&done, name), expected.as_bytes(), "{name}");
    }
}

/// Bugs: names with special spaces or decomposed characters could not be opened, and the error listed names that looked the same.
#[test]
fn a_name_that_looks_the_same_is_found_and_named() {
    let shot = "Shot 4.42\u{202f}PM.txt";
    let call = agent().file(shot, "shot\n").file("cafe\u{301}.txt", "coffee\n").file("README.md", "read\n");
    let (done, results) = ran(
        call,
        &[
            ("read_file", json!({ "path": "Shot 4.42 PM.txt" })),
            ("edit_file", json!({ "path": "café.txt", "old": "coffee", "new": "tea" })),
            ("write_file", json!({ "path": "Shot 4.42 PM.txt", "data": "new\n" })),
            ("read_file", json!({ "path": "Readme.md" })),
            ("read_file", json!({ "path": "Shot.txt" })),
        ],
    );
    assert!(
        results[0].ends_with("shot\n") && results[0].contains("Shot 4.42\\u{202f}PM.txt"),
        "{}",
        results[0]
    );
    assert!(results[1].contains("cafe\\u{301}.txt"), "{}", results[1]);
    assert!(results[3].contains("README.md is meant") && results[3].ends_with("read\n"), "{}", results[3]);
    assert!(results[4].contains("Shot 4.42\\u{202f}PM.txt"), "{}", results[4]);
    assert_eq!((bytes(&done, shot), bytes(&done, "cafe\u{301}.txt")), (b"new\n".to_vec(), b"tea\n".to_vec()));
    assert_eq!(std::fs::read_dir(done.again().workspace()).expect("a directory").count(), 3);
    let model = endpoint().text("done").start();
    let asked =
        done.again().endpoint(&model).args(["run", "--sandbox", "local", "what is in @\"café.txt\"?"]);
    asked.run().expect_code(0);
    assert!(model.requests()[0].body.to_string().contains("tea"));
}

/// Bugs: a file whose name has quotation marks could not be read, and a write to it reached another one.
#[test]
fn quotation_marks_around_a_path_are_taken_off_where_there_is_no_such_file() {
    let call = agent().file("'x'", "quoted\n").file("x", "bare\n").file("y", "y\n");
    let (done, results) = ran(
        call,
        &[
            ("read_file", json!({ "path": "'x'" })),
            ("write_file", json!({ "path": "'x'", "data": "new\n" })),
            ("edit_file", json!({ "path": "`y`", "old": "y", "new": "z" })),
            ("write_file", json!({ "path": "\"w\"", "data": "w\n" })),
        ],
    );
    assert_eq!(results[0], "quoted\n");
    assert!(results[2].contains("y is meant"), "{}", results[2]);
    for (name, expected) in [("'x'", "new\n"), ("x", "bare\n"), ("y", "z\n"), ("\"w\"", "w\n")] {
        assert_eq!(bytes(&done, name), expected.as_bytes(), "{name}");
    }
}

/// A bug: `~/notes.txt` was a file in a directory of the project that is called `~`.
#[test]
fn a_path_of_the_home_or_of_the_host_leads_there() {
    let call = agent().file("in.txt", "inside\n");
    let host = call.workspace().canonicalize().expect("a path").join("in.txt");
    let (done, results) = ran(
        call,
        &[
            ("write_file", json!({ "path": "~/notes.txt", "data": "n\n" })),
            ("write_files", json!({ "files": [{ "path": "$HOME/x.txt", "data": "x\n" }] })),
            ("run_commands", json!({ "command": "cat ~/notes.txt ~/x.txt" })),
            ("read_file", json!({ "path": host })),
        ],
    );
    assert!(results[2].trim_end().ends_with("\nn\nx") && results[3] == "inside\n", "{results:?}");
    assert_eq!(std::fs::read_dir(done.again().workspace()).expect("a directory").count(), 1);
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

/// A bug: what was new had the permission bits of the sandbox, and a directory below one with the group's bit lost it.
#[test]
fn what_is_new_has_the_bits_that_the_umask_leaves() {
    let make = "mkdir d && echo a > d/f && echo b > g && echo '#!/bin/sh' > x && chmod +x x && chmod 600 old && echo p > old";
    for (umask, expected) in [(0o002, [0o664, 0o2775, 0o775]), (0o077, [0o600, 0o2700, 0o700])] {
        let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("done").start();
        let call = agent().endpoint(&model).file("old", "o\n");
        let root = call.workspace().to_owned();
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o2775)).expect("the mode");
        let ran = call.args(["run", "--sandbox", "local", "go"]).run().expect_code(0);
        let script = format!("umask {umask:03o}; exec \"$0\" \"$@\"");
        let apply = |arguments: &[&str]| {
            let call = ran.again().args(arguments);
            call.under("sh", &["-c".as_ref(), script.as_ref()]).run().expect_code(0)
        };
        apply(&["apply", "--yes"]);
        assert_eq!([mode(&root.join("g")), mode(&root.join("d")), mode(&root.join("x"))], expected);
        assert_eq!(mode(&root.join("old")), 0o600, "what was there has the bits that were shown");
        let again = ran.again().args(["apply", "--yes"]).run().expect_code(0);
        assert!(again.stderr.contains("There is nothing to apply"), "{}", again.stderr);
        std::fs::set_permissions(root.join("d/f"), std::fs::Permissions::from_mode(0o640)).expect("the mode");
        apply(&["undo"]);
        assert!(!root.join("g").exists() && !root.join("d").exists());
    }
}

/// A bug: a file that is a mount of its own could not be written, and nothing of the change was.
#[test]
fn a_file_that_is_a_mount_is_written_in_place() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo 'a: 2' > conf.yaml; echo n > new.txt" }))
        .text("done")
        .start();
    let call = agent().endpoint(&model).file("src.yaml", "a: 1\n").file("conf.yaml", "a: 1\n");
    let root = call.workspace().to_owned();
    let mount =
        Command::new("mount").arg("--bind").args([root.join("src.yaml"), root.join("conf.yaml")]).status();
    if !mount.is_ok_and(|status| status.success()) {
        skip::missing("the right to mount");
        return;
    }
    let done = call.args(["run", "--sandbox", "local", "--workspace-mode", "copy", "--apply", "go"]).run();
    let written = std::fs::read_to_string(root.join("src.yaml"));
    let undone = done.again().args(["undo"]).run();
    let back = std::fs::read_to_string(root.join("src.yaml"));
    let unmounted = Command::new("umount").arg(root.join("conf.yaml")).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    let done = done.expect_code(0);
    undone.expect_code(0);
    assert_eq!((written.expect("a file").as_str(), back.expect("a file").as_str()), ("a: 2\n", "a: 1\n"));
    assert!(done.stderr.contains("applied") || done.stderr.contains("written"), "{}", done.stderr);
}

/// A bug: a file that was replaced lost its access control list, its attributes and its other names without a word.
#[test]
fn a_file_that_is_replaced_keeps_its_attributes() {
    let command = "echo two > a; echo two > linked";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("done").start();
    let call = agent().endpoint(&model).file("a", "one\n").file("linked", "one\n");
    let root = call.workspace().to_owned();
    std::fs::hard_link(root.join("linked"), root.parent().expect("a directory").join("outside"))
        .expect("a link");
    let set = rustix::fs::setxattr(root.join("a"), "user.test", b"kept", rustix::fs::XattrFlags::empty());
    let acl = Command::new("setfacl").args(["-m", "u:12345:r"]).arg(root.join("a")).status();
    let has_acl = acl.is_ok_and(|status| status.success());
    if set.is_err() {
        skip::missing("extended attributes of the file system");
        return;
    }
    if !has_acl {
        skip::left_out("no access control list: there is no setfacl");
    }
    let ran = call.args(["run", "--sandbox", "local", "go"]).run().expect_code(0);
    let done = ran.again().args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(std::fs::read(root.join("a")).expect("a file"), b"two\n");
    let mut value = [0; 10];
    let length = rustix::fs::getxattr(root.join("a"), "user.test", &mut value[..]).expect("the attribute");
    assert_eq!(&value[..length], b"kept");
    let mut list = [0; 200];
    assert_eq!(
        rustix::fs::getxattr(root.join("a"), "system.posix_acl_access", &mut list[..]).is_ok(),
        has_acl
    );
    assert!(done.stderr.contains("linked was a hard link"), "{}", done.stderr);
    assert_eq!(std::fs::read(root.parent().expect("a directory").join("outside")).expect("a file"), b"one\n");
}

#[test]
fn what_root_applies_in_another_users_tree_is_that_users() {
    if !rustix::process::geteuid().is_root() {
        skip::missing("root");
        return;
    }
    let command = "mkdir -p d/e && echo a > d/e/f && ln -s f d/e/l";
    let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("done").start();
    let call = agent().endpoint(&model);
    let root = call.workspace().to_owned();
    chown(&root, Some(12_345), Some(12_345)).expect("the owner");
    let done = call.args(["run", "--sandbox", "local", "--apply", "go"]).run().expect_code(0);
    for path in ["d", "d/e", "d/e/f", "d/e/l"] {
        let there =
            std::fs::symlink_metadata(root.join(path)).unwrap_or_else(|_| panic!("{path}: {}", done.stderr));
        assert_eq!(there.uid(), 12_345, "{path}");
    }
}

/// A bug: instructions behind a symlink were left out without a word.
#[test]
fn instructions_behind_a_link_that_leads_out_are_named() {
    let model = endpoint().text("done").start();
    let call = agent().endpoint(&model).file("docs/agents.md", "ALWAYS-USE-TABS");
    let root = call.workspace().to_owned();
    std::fs::create_dir(root.join(".git")).expect("a directory");
    std::os::unix::fs::symlink("docs/agents.md", root.join("AGENTS.md")).expect("a link");
    let done = call.args(["run", "--sandbox", "local", "go"]).run().expect_code(0);
    assert!(model.requests()[0].body.to_string().contains("ALWAYS-USE-TABS"));
    std::fs::remove_file(root.join("AGENTS.md")).expect("the link");
    std::os::unix::fs::symlink("/etc/hostname", root.join("AGENTS.md")).expect("a link");
    let model = endpoint().text("done").start();
    let done = done.again().endpoint(&model).args(["run", "--sandbox", "local", "go"]).run().expect_code(0);
    let said = "AGENTS.md is not read: it is a symlink that leads out of the repository.";
    assert!(done.stderr.contains(said), "{}", done.stderr);
}
