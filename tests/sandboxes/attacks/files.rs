//! Files on their way in and out. What the host does with a set of changes that lies (names with `..`, links that lead out,
//! git's hooks, a parent that becomes a link while it writes) is in `workspace_apply.rs`, with no sandbox in between.

use agent::sandbox::{FileWrite, Node, WorkspaceMount, sandbox_ids};
use agent_testbed::agent::agent;
use agent_testbed::backends::{on_every_backend, on_every_backend_with, program_on_every_backend};
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[tokio::test]
async fn attack_14_reading_what_is_no_plain_file_ends_at_once() {
    on_every_backend(async |inside| {
        inside
            .output_of(
                "mkfifo pipe; ln -s pipe to-pipe; ln -s /etc/shadow shadow; ln -s /dev/zero zero; ln -s loop loop; \
                 /usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'; truncate -s 10G big",
            )
            .await;
        let started = Instant::now();
        for path in [
            "pipe", "to-pipe", "shadow", "zero", "/dev/zero", "/dev/tty", "/dev/random", "socket", "loop", ".", "missing",
            "/proc/kmsg", "/proc/self/environ", "/proc/1/environ", "/proc/1/mem",
        ] {
            let read = inside.sandbox.read_file(Path::new(path), 0, 10).await;
            assert!(read.is_err(), "{path} on {}", inside.backend);
        }
        let big = inside.sandbox.read_file(Path::new("big"), 9 << 30, 1000).await.expect("a piece");
        assert_eq!((big.bytes.len(), big.size), (1000, 10 << 30));
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    })
    .await;
}

#[test]
fn attack_14_the_tool_that_reads_is_bounded() {
    let shadow = fs::read_to_string("/etc/shadow").unwrap_or_default();
    program_on_every_backend(|backend| {
        let make = "mkfifo pipe; ln -s /etc/shadow shadow; truncate -s 10G big; head -c 3000000 /dev/zero | tr '\\0' x > line";
        let read = |path: &str| ("read_file", json!({ "path": path }));
        let model = endpoint()
            .tool_call("run_commands", json!({ "command": make }))
            .tool_calls(&["pipe", "shadow", "big", "line", "/dev/zero", "."].map(read))
            .text("done")
            .start();
        agent().endpoint(&model).sandbox(backend).args(["run", "read"]).run().expect_code(0);
        let messages = model.requests()[2].messages();
        let results: Vec<&str> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
        for result in &results[results.len() - 6..] {
            assert!(result.len() < 130_000, "{} bytes", result.len());
            let told = shadow.lines().next().is_some_and(|line| result.contains(line));
            assert!(!told, "on {backend}: {result}");
        }
    });
}

/// The workspace is the host's own directory here, and the place it must not lead to is right beside it.
#[tokio::test]
async fn attack_15_a_parent_that_becomes_a_link_leads_no_write_out() {
    let place = tempfile::tempdir().expect("a directory");
    let (tree, sentinel) = (place.path().join("tree"), place.path().join("sentinel"));
    let (uid, gid) = if std::env::var_os("AGENT_TEST_AS_ORDINARY_USER").is_some() {
        (12_345, 12_345)
    } else {
        sandbox_ids()
    };
    for directory in [place.path(), &tree, &sentinel] {
        fs::create_dir_all(directory).expect("a directory");
        std::os::unix::fs::chown(directory, Some(uid), Some(gid)).expect("the user inside may write");
    }
    fs::write(sentinel.join("file"), "before").expect("a file");
    on_every_backend_with(
        |spec| spec.workspace = WorkspaceMount::Bind(tree.clone()),
        async |inside| {
            let swap = format!(
                "end=$((SECONDS + 4)); while [ $SECONDS -lt $end ]; do mkdir d; rmdir d; rm -rf d; ln -s {} d; rm d; ln -s ../sentinel d; rm -f d; done 2>/dev/null; true",
                sentinel.display()
            );
            let write = async {
                let until = Instant::now() + Duration::from_secs(3);
                while Instant::now() < until {
                    let write = |follow| FileWrite {
                        path: "d/file".into(),
                        node: Node::Regular(b"after".to_vec()),
                        mode: None,
                        mtime_ns: None,
                        follow,
                    };
                    // Whether it succeeds depends on the race; where it writes must not.
                    inside.sandbox.write_files(vec![write(false), write(true)]).await.expect("answers");
                }
            };
            let (swapped, ()) = tokio::join!(inside.sh(&swap), write);
            assert!(matches!(swapped.outcome(), agent::sandbox::Outcome::Exited(0)), "{swapped:?}");
            assert_eq!(fs::read_to_string(sentinel.join("file")).expect("the sentinel"), "before");
            assert_eq!(fs::read_dir(&sentinel).expect("the sentinel").count(), 1);
        },
    )
    .await;
}

#[test]
fn attack_16_only_plain_files_come_out_and_only_into_the_workspace() {
    program_on_every_backend(|backend| {
        let make = "mkdir -p .git/hooks sub; printf '#!/bin/sh\\ntouch /tmp/pwned' | tee .git/hooks/post-checkout > sub/run; \
             chmod 6777 sub/run .git/hooks/post-checkout; mkfifo pipe; ln sub/run hard; \
             ln -s ../outside up; ln -s /etc/passwd absolute; ln -s sub/run fine; \
             printf x > \"$(printf 'new\\nline')\"; printf x > \"$(printf '\\033]0;PWNED\\007\\033[2J')\"; \
             printf x > \"$(printf 'not-utf8-\\377')\"; printf x > -rf; printf x > ...; \
             mkdir deep && cd deep && for n in $(seq 40); do mkdir $(printf '%0200d' 0) && cd $(printf '%0200d' 0); done; touch end; true";
        let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("done").start();
        let call =
            agent().endpoint(&model).sandbox(backend).file("kept", "kept").args(["run", "--json", "make"]);
        let outside = call.workspace().parent().expect("a parent").join("outside");
        fs::write(&outside, "outside").expect("a file");
        let root = outside.parent().expect("a parent").to_owned();
        let before = names(&root);
        let finished = call.run();
        let diff = finished.again().args(["diff"]).run();
        assert!(!diff.stdout.contains(['\u{1b}', '\u{7}']), "on {backend}: {:?}", diff.stdout);
        let applied = finished.again().args(["apply", "--yes"]).run();
        assert!(!applied.stderr.contains(['\u{1b}', '\u{7}']), "on {backend}: {:?}", applied.stderr);
        let workspace = root.join("workspace");
        assert_eq!(
            fs::read_to_string(workspace.join("sub/run")).expect("it came out"),
            "#!/bin/sh\ntouch /tmp/pwned",
            "{}",
            applied.stderr
        );
        use std::os::unix::fs::PermissionsExt;
        let mode =
            |name: &str| fs::metadata(workspace.join(name)).expect("a file").permissions().mode() & 0o7777;
        assert_eq!(
            mode("sub/run") & 0o7022,
            0,
            "neither set-user-id nor writable by others: {:o}",
            mode("sub/run")
        );
        for barred in ["pipe", "up", "absolute", ".git/hooks/post-checkout"] {
            assert!(workspace.join(barred).symlink_metadata().is_err(), "{barred} on {backend}");
        }
        assert_eq!(fs::read_to_string(&outside).expect("it is still there"), "outside");
        assert_eq!(names(&root), before, "on {backend}");
    });
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.filter(|name| !matches!(name.to_str(), Some("agent" | "home"))).collect();
    names.sort();
    names
}

/// A hundred thousand files take a while where other tests run beside.
const MANY: Duration = Duration::from_secs(600);

#[test]
fn attack_16_too_much_to_come_out_is_said_and_bounded() {
    program_on_every_backend(|backend| {
        let many = "import os\nfor d in range(110):\n    os.mkdir(str(d))\n    for f in range(1000): os.close(os.open(f\"{d}/{f}\", os.O_CREAT))";
        let make = format!(
            "/usr/bin/python3 -c '{many}'; truncate -s 9G sparse; head -c 300000000 /dev/zero > zeros"
        );
        let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("done").start();
        let call = agent().endpoint(&model).sandbox(backend).deadline(MANY).args(["run", "make"]);
        // Beside the sandbox's own files, which may be on their way out still.
        let data = call.home("data/sessions");
        let finished = call.run();
        assert!(finished.stderr.contains("the sandbox changed more than"), "{}", finished.stderr);
        assert!(size(&data) < 100 << 20, "{} bytes are kept", size(&data));
    });
}

/// Bytes of all files below a directory.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok().map(|metadata| (entry.path(), metadata)))
        .map(|(path, metadata)| if metadata.is_dir() { size(&path) } else { metadata.len() })
        .sum()
}

/// Names that are known to hold secrets, and tokens in files of settings. What only looks a little like one comes in.
#[test]
fn attack_27_well_known_secret_files_stay_on_the_host() {
    let secret = [
        "prod.env",
        ".envs/local",
        ".dev.vars",
        "config/master.key",
        "infra/terraform.tfstate",
        "infra/terraform.tfstate.backup",
        "infra/prod.tfvars",
        ".vault_pass",
        "secrets.yml",
        "kubeconfig",
        "age.key",
        ".m2/settings.xml",
        ".env.swp",
        "..env.swp",
        ".env~",
        ".bash_history",
        ".hg/hgrc",
        "deploy/app.p12",
    ];
    let token = format!("token: ghp_{}\n", "aB3dE5fG7hJ9".repeat(3));
    let plain = ["fine.yml", "environment.py", "hash.json", "example.env.sample"];
    let mut call = agent().args(["exec", "--", "find", ".", "-type", "f"]);
    for name in secret {
        call = call.file(name, "x = 1\n");
    }
    for name in ["config/app.yml", "settings.toml", "notes"] {
        call = call.file(name, &token);
    }
    for name in plain {
        call = call.file(
            name,
            "id: 7f9c24e5-2b6a-4c1f-9d58-0a1b2c3d4e5f\nsha: 3b18e512dba79e4c8300dd08aeb37f8e728b8dad\n",
        );
    }
    let done = call.run().expect_code(0);
    let mut inside: Vec<&str> = done.stdout.lines().map(|line| line.trim_start_matches("./")).collect();
    inside.sort_unstable();
    let mut expected = plain;
    expected.sort_unstable();
    assert_eq!(inside, expected);
}

/// A file that the sandbox had already followed the host with a token in it, and so did logs of git and directories that are left out.
#[test]
fn attack_27_what_becomes_secret_while_a_session_is_open_stays_on_the_host() {
    for mode in ["copy", "overlay"] {
        let first =
            endpoint().tool_call("run_commands", json!({ "command": "echo x >> a" })).text("done").start();
        let call = agent().file("a", "1\n").file(".npmrc", "registry=https://r/\n").file("s.yml", "x: 1\n");
        let root = call.workspace().to_owned();
        let host = |script: &str| {
            let done = Command::new("bash").args(["-ec", script]).current_dir(&root).status();
            assert!(done.expect("bash").success(), "{script}");
        };
        host(
            "git init -q .; git add a; git -c user.name=a -c user.email=a@b commit -qm a; git init -q --bare .bare; \
             echo 1 > .bare/FETCH_HEAD",
        );
        let shared = ["--workspace-mode", mode, "--exclude", "private"];
        let kept =
            call.endpoint(&first).args(["run", "--keep", "--json", "go"]).args(shared).run().expect_code(0);
        let id = kept.events()[0]["session"].as_str().expect("an id").to_owned();
        let token = "aB3dE5fG7hJ9".repeat(3);
        host(&format!(
            "echo '//r/:_authToken=C4NARY' >> .npmrc; echo '# C4NARY ghp_{token}' >> s.yml; mkdir -p .git/git-crypt/keys private/in; \
             echo C4NARY | tee .git/git-crypt/keys/default > private/in/x; echo 'x https://u:C4NARY@h/x' | tee -a .git/logs/HEAD \
             > .git/FETCH_HEAD; git -C .bare config remote.a.url https://u:C4NARY@h/x; echo 'x https://u:C4NARY@h/x' > .bare/FETCH_HEAD; \
             echo 2 > new"
        ));
        let look = "cat new; grep -rh C4NARY . ; git log --oneline | wc -l; ls .bare/refs; echo looked";
        let second = endpoint().tool_call("run_commands", json!({ "command": look })).text("done").start();
        let joined = kept.again().endpoint(&second).args(["run", "--json", "--session", &id, "go"]).run();
        joined.expect_code(0).again().args(["sandbox", "rm", &id]).run().expect_code(0);
        let result = second.last().messages().last().expect("a result")["content"].to_string();
        assert!(result.contains("2\\n1\\nheads") && result.contains("looked"), "{mode}: {result}");
        assert!(!result.contains("C4NARY"), "{mode}: {result}");
    }
}

/// A NUL byte anywhere made `(binary)` of a script in the review.
#[test]
fn attack_28_a_nul_byte_does_not_hide_a_script_from_the_review() {
    let make = "printf '#!/bin/sh\\necho C4NARY\\n#\\000\\n' > tool.sh; printf 'echo C4NARY2\\n#\\000\\n' > other; cp /bin/true program; printf C4NARY3 >> program";
    let model = endpoint().tool_call("run_commands", json!({ "command": make })).text("Done.").start();
    let done = agent().endpoint(&model).args(["run", "go"]).run().expect_code(0);
    let diff = done.again().args(["diff"]).run().expect_code(0);
    assert!(
        diff.stdout.contains("+echo C4NARY\n") && diff.stdout.contains("+echo C4NARY2\n"),
        "{}",
        diff.stdout
    );
    assert!(!diff.stdout.contains("C4NARY3") && diff.stdout.contains("(binary"), "{}", diff.stdout);
}
