//! git inside a sandbox says the same as outside, whatever kind of repository and settings the user has.

use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::endpoint;
use agent_testing::skip;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A repository of a kind, made in the workspace by git.
struct Kind {
    name: &'static str,
    /// Makes it.
    script: &'static str,
    /// Where in the workspace the session works.
    place: &'static str,
}

/// The user's home, where git looks for settings.
fn home(call: &Agent) -> PathBuf {
    let home = call.workspace().parent().expect("a directory").join("home");
    std::fs::create_dir_all(&home).expect("the home");
    home
}

fn bash(directory: &Path, home: &Path, script: &str) -> Output {
    Command::new("bash")
        .args(["-ec", script])
        .current_dir(directory)
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("XDG_CONFIG_HOME")
        .output()
        .expect("bash")
}

const SETTINGS: &str = "[user]\n\tname = A\n\temail = a@example.org\n[init]\n\tdefaultBranch = main\n\
                        [protocol \"file\"]\n\tallow = always\n[advice]\n\tdetachedHead = false\n";
/// A repository to clone: two commits, a directory beside another.
const ORIGIN: &str = "git init -q ../origin; cd ../origin; mkdir in out; seq 20 > in/a; seq 30 > out/b; echo r > readme; git add -A; \
    git commit -qm one; echo more >> readme; git commit -qam two; git config uploadpack.allowFilter true; cd - > /dev/null;";
const EDITS: &str = "echo edited >> readme; echo new > untracked; echo staged > staged; git add staged;";

const KINDS: [Kind; 19] = [
    Kind { name: "plain", script: "git clone -q ../origin .;", place: "." },
    Kind {
        name: "split index",
        script: "git clone -q ../origin .; git update-index --split-index;",
        place: ".",
    },
    Kind { name: "shared", script: "git clone -q --shared ../origin .;", place: "." },
    Kind {
        name: "reference",
        script: "git clone -q --bare ../origin ../other; git clone -q --reference ../other ../origin .;",
        place: ".",
    },
    Kind { name: "shallow", script: "git clone -q --depth 1 \"file://$PWD/../origin\" .;", place: "." },
    Kind {
        name: "partial",
        script: "git clone -q --filter=blob:none \"file://$PWD/../origin\" .;",
        place: ".",
    },
    Kind {
        name: "sparse",
        script: "git clone -q ../origin .; git sparse-checkout init --cone; git sparse-checkout set in;",
        place: ".",
    },
    Kind {
        name: "sparse index",
        script: "git clone -q ../origin .; git sparse-checkout init --cone --sparse-index; git sparse-checkout set in;",
        place: ".",
    },
    Kind {
        name: "with a submodule",
        script: "git clone -q ../origin .; git submodule add -q \"$PWD/../origin\" sub; git commit -qm sub; echo x >> sub/readme;",
        place: ".",
    },
    Kind {
        name: "submodule",
        script: "git init -q .; git submodule add -q \"$PWD/../origin\" sub; git commit -qm sub; cd sub;",
        place: "sub",
    },
    Kind {
        name: "linked",
        script: "git -C ../origin worktree add -q \"$PWD/linked\"; cd linked;",
        place: "linked",
    },
    Kind {
        name: "subdirectory",
        script: "git clone -q ../origin .; cd in; echo i >> a; echo j > k; cd ..;",
        place: "in",
    },
    Kind {
        name: "SHA-256",
        script: "git init -q --object-format=sha256 .; cp ../origin/readme .; git add -A; git commit -qm one;",
        place: ".",
    },
    Kind {
        name: "reftable",
        script: "git init -q --ref-format=reftable . 2> /dev/null || exit 77; cp ../origin/readme .; git add -A; git commit -qm one;",
        place: ".",
    },
    Kind {
        name: "line ends of the user's settings",
        script: "git config --global core.autocrlf true; git config --global core.safecrlf false; git clone -q ../origin .; grep -q $'\\r' in/a;",
        place: ".",
    },
    Kind {
        name: "rules of the user's settings",
        script: "git clone -q ../origin .; echo '*.mine' > ~/rules; git config --global core.excludesFile '~/rules'; touch a.mine;",
        place: ".",
    },
    Kind {
        name: "rules in their usual place",
        script: "git clone -q ../origin .; mkdir -p ~/.config/git; echo '*.mine' > ~/.config/git/ignore; touch a.mine;",
        place: ".",
    },
    Kind {
        name: "Git LFS",
        script: "git clone -q ../origin .; echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes; \
                 printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5\\nsize 5\\n' > m.bin; \
                 git add -A; git commit -qm lfs; git config --global filter.lfs.clean \"git cat-file blob :%f\"; \
                 git config --global filter.lfs.smudge 'printf 12345'; rm m.bin; git checkout -q m.bin;",
        place: ".",
    },
    Kind {
        name: "a filter of the repository's",
        script: "git clone -q ../origin .; git config filter.upper.clean 'tr a-z A-Z'; git config filter.upper.smudge 'tr A-Z a-z'; \
                 echo '*.low filter=upper' > .gitattributes; echo abc > x.low; git add -A; git commit -qm filter; touch -d tomorrow x.low;",
        place: ".",
    },
];

/// Returns what git lists, without the path from the top of the work tree.
fn listed(output: &[u8], place: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let prefix = format!("{place}/");
    let mut lines: Vec<String> = text.lines().map(|line| line.replacen(&prefix, "", 1)).collect();
    lines.sort();
    lines
}

/// Bugs: without the user's settings each file of a CRLF checkout looked modified, and so did each file of a missing filter.
#[test]
fn git_says_the_same_inside_and_outside() {
    let mut differences = Vec::new();
    for Kind { name, script, place } in KINDS {
        let call = agent();
        let home = home(&call);
        std::fs::write(home.join(".gitconfig"), SETTINGS).expect("the settings");
        let edits = if place == "in" { "" } else { EDITS };
        let made = bash(call.workspace(), &home, &format!("{ORIGIN}{script}{edits}"));
        if made.status.code() == Some(77) {
            skip::left_out(format!("this git makes no repository of the kind: {name}"));
            continue;
        }
        assert!(made.status.success(), "{name}: {}", String::from_utf8_lossy(&made.stderr));
        let directory = call.workspace().join(place);
        let status = "git status --porcelain .";
        let outside = bash(&directory, &home, status);
        assert!(outside.status.success(), "{name}: {}", String::from_utf8_lossy(&outside.stderr));
        let outside = listed(&outside.stdout, place);
        let objects = call.workspace().parent().expect("a directory").display().to_string();
        let call = call.config(&format!("git_object_stores = [{objects:?}]\n"));
        let call = call.current_dir(&directory).env("HOME", &home);
        let inside = call.args(["exec", "--sandbox", "local", "--", "sh", "-c", status]).run();
        let found = listed(inside.stdout.as_bytes(), place);
        if found != outside {
            differences.push(format!("{name}: outside {outside:?}, inside {found:?}\n{}", inside.stderr));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A bug: `git stash` and `git checkout .` inside put pointers into the place of contents, and the diff offered them.
#[test]
fn contents_of_git_lfs_are_never_replaced_by_pointers() {
    let pointer = "version https://git-lfs.github.com/spec/v1\\noid sha256:5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5\\nsize 5\\n";
    for command in
        ["git status --short; git stash; git checkout .", "rm m.bin; git checkout m.bin; cat m.bin"]
    {
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("ok").start();
        let call = agent().endpoint(&model);
        let home = home(&call);
        std::fs::write(home.join(".gitconfig"), SETTINGS).expect("the settings");
        let script = format!(
            "git init -q .; echo '*.bin filter=lfs -text' > .gitattributes; printf '{pointer}' > m.bin; git add -A; git commit -qm lfs; \
             printf 12345 > m.bin"
        );
        assert!(bash(call.workspace(), &home, &script).status.success());
        let done = call.env("HOME", &home).args(["run", "--sandbox", "local", "--apply", "go"]).run();
        let done = done.expect_code(0);
        assert_eq!(done.host_file("m.bin").as_deref(), Some("12345"), "{command}: {}", done.stderr);
        let listed = model.requests()[1].body.to_string();
        assert!(!listed.contains(" M m.bin"), "{listed}");
    }
}

/// A bug: `apply --commit` did not know who commits where the environment says it, as in CI.
#[test]
fn a_commit_is_by_whom_the_environment_says() {
    let model = endpoint().tool_call("run_commands", json!({ "command": "echo new > f" })).text("ok").start();
    let call = agent().endpoint(&model).file("f", "old\n");
    let home = home(&call);
    let script = "git init -q -b main .; git add -A; git -c user.name=x -c user.email=x@y commit -qm one";
    assert!(bash(call.workspace(), &home, script).status.success());
    let ran = call.args(["run", "go"]).run().expect_code(0);
    let variables = [
        ("GIT_AUTHOR_NAME", "An Author"),
        ("GIT_AUTHOR_EMAIL", "author@example.org"),
        ("GIT_AUTHOR_DATE", "2001-02-03T04:05:06+00:00"),
        ("GIT_COMMITTER_NAME", "A Committer"),
        ("GIT_COMMITTER_EMAIL", "committer@example.org"),
        ("GIT_COMMITTER_DATE", "2002-02-03T04:05:06+00:00"),
    ];
    let apply = variables.iter().fold(ran.again(), |call, (name, value)| call.env(name, value));
    let workspace = apply.workspace().to_owned();
    apply.args(["apply", "--yes", "--commit", "-m", "Write"]).run().expect_code(0);
    let log =
        bash(&workspace, &home, "git log -1 --format='%an %ae %at %cn %ce %ct'; git reflog -1 --format=%gn");
    assert_eq!(
        String::from_utf8_lossy(&log.stdout),
        "An Author author@example.org 981173106 A Committer committer@example.org 1012709106\nA Committer\n"
    );
}
