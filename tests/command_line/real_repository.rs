//! A repository of a common shape, through a whole session of edit, test, undo, edit and apply: the host's tree is
//! exactly what the same edits make of it by hand, and nothing else of it was touched.

use agent_testbed::agent::agent;
use agent_testbed::backends::{BACKENDS, backend};
use agent_testbed::terminal::{Builder, terminal};
use agent_testing::endpoint::{Endpoint, endpoint};
use agent_testing::tree;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Some hundred files: history with a branch, a tag and a merge, a submodule, symlinks of every kind, executable and
/// read-only files, a pointer of git's large file storage, ignore files at two levels, files that are tracked although
/// ignored, and names that are not plain text.
const MAKE: &str = r#"
set -e
mkdir lib && cd lib && git init -q && echo sub > sub.txt && git add . && git commit -qm sub && cd ..
mkdir repo && cd repo && git init -q -b main
for module in $(seq -w 1 20); do
    mkdir -p src/module-$module/tests
    for file in $(seq -w 1 12); do echo "module $module file $file" > src/module-$module/file-$file.txt; done
    echo "test $module" > src/module-$module/tests/test.txt
done
echo 40 > src/answer.txt
printf 'test "$(cat src/answer.txt)" = 42 && echo passed\n' > test.sh
mkdir -p scripts docs/deep data/old odd assets
echo 'echo tool' > scripts/tool.sh && chmod 755 scripts/tool.sh && echo 'echo plain' > scripts/plain.sh
echo 'read only' > docs/read-only.txt && chmod 444 docs/read-only.txt
echo deep > docs/deep/page.txt && echo old > data/old/a && echo old > data/old/b && printf '\000\001\002' > data/binary
ln -s module-01 src/current && ln -s ../docs/deep/page.txt data/page && ln -s nowhere data/broken
echo odd > "$(printf 'odd/\377\376name')" && echo new > "$(printf 'odd/line\nfeed')" && echo q > 'odd/quo"te' && echo u > odd/ü
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 7 > assets/big.bin
echo 'assets/* filter=lfs diff=lfs merge=lfs -text' > .gitattributes
printf 'build/\n*.gen\n' > .gitignore && printf '*.tmp\n!keep.tmp\n' > src/module-01/.gitignore
echo kept > kept.gen && echo keep > src/module-01/keep.tmp
git -c filter.lfs.clean= -c filter.lfs.smudge= -c filter.lfs.required=false add . && git add -f kept.gen
git commit -qm first && git tag v1
git checkout -q -b side && echo side > side.txt && git add . && git commit -qm side
git checkout -q main && echo main > main.txt && git add . && git commit -qm main && git merge -q --no-edit side
git -c protocol.file.allow=always submodule --quiet add ../lib vendor/sub && git commit -qm submodule
mkdir build && echo ignored > build/out.o && echo ignored > other.gen && echo untracked > notes.txt
"#;

/// The second prompt's commands, in the sandbox and, for comparison, by hand.
const EDIT: &str = r#"
set -e
echo 42 > src/answer.txt
mv docs manual
rm -r data/old src/module-20 && mkdir data/old && echo new > data/old/c
chmod +x scripts/plain.sh && chmod -x scripts/tool.sh
rm src/current && ln -s module-03 src/current && rm data/broken && mkdir data/broken && echo x > data/broken/x
echo more >> "$(printf 'odd/\377\376name')" && rm 'odd/quo"te' && echo y > "$(printf 'odd/tab\there')"
echo changed >> kept.gen && echo changed >> src/module-01/keep.tmp && printf '\003' >> data/binary
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 99\n' 8 > assets/big.bin
echo more >> vendor/sub/sub.txt && echo more >> notes.txt
"#;

/// Changes that stay in the sandbox: build results, and what git does for itself.
const STAYS: &str = r#"
set -e
mkdir -p build && echo built > build/new.o && echo x > src/module-01/x.tmp && echo x > new.gen
git -c user.name=m -c user.email=m@example.com commit -qam inside && git branch inside && git tag -d v1
echo evil > .git/hooks/post-checkout && git config core.fsmonitor ./evil
sh test.sh
"#;

fn sh(directory: &Path, script: &str) {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).current_dir(directory).env_clear();
    shell.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", directory);
    shell
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.com");
    shell.env("GIT_COMMITTER_NAME", "a").env("GIT_COMMITTER_EMAIL", "a@example.com");
    let done = shell.output().expect("a shell");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// When each file that is there was written last.
fn times(root: &Path, files: &tree::Manifest) -> BTreeMap<PathBuf, SystemTime> {
    let time = |path: &Path| root.join(path).symlink_metadata().and_then(|metadata| metadata.modified());
    let files = files.iter().filter(|(_, node)| !node.is_directory());
    files.map(|(path, _)| (path.as_path().to_owned(), time(path.as_path()).expect("a time"))).collect()
}

fn script() -> Endpoint {
    let run = |script: &str| json!({ "command": script });
    endpoint()
        .tool_call("edit_file", json!({ "path": "src/answer.txt", "old": "40", "new": "41" }))
        .tool_call("run_commands", run("rm -r src/module-05 scripts; sh test.sh"))
        .text("It does not pass.")
        .tool_call(
            "edit_file",
            json!({ "path": "src/module-07/file-03.txt", "old": "file 03", "new": "file three" }),
        )
        .tool_call("run_commands", run(EDIT))
        .tool_call("run_commands", run(STAYS))
        .text("It passes.")
        .start()
}

#[test]
fn a_session_of_edit_test_undo_edit_and_apply_changes_exactly_what_was_asked() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for name in BACKENDS {
        if runtime.block_on(backend(name)).is_some() {
            through_a_session(name, "auto");
        }
    }
    through_a_session("local", "overlay");
}

fn through_a_session(backend: &str, mode: &str) {
    let place = tempfile::tempdir().expect("a directory");
    sh(place.path(), MAKE);
    let (host, expected) = (place.path().join("repo"), place.path().join("expected"));
    sh(place.path(), "cp -a repo expected");
    sh(&expected, EDIT);
    sh(&expected, "sed -i 's/file 03/file three/' src/module-07/file-03.txt");
    let before = tree::read(&host, None);
    assert!(before.len() > 300, "{} files", before.len());
    let (times_before, git_before) = (times(&host, &before), tree::read(&host.join(".git"), None));

    let model = script();
    let builder: Builder = terminal().endpoint(&model).env("AGENT_SANDBOX", backend);
    let host_text = host.to_str().expect("a plain path").to_owned();
    let mut terminal = builder.args(["-C", &host_text, "--workspace-mode", mode]).start();
    terminal.wait_for_prompt();
    terminal.type_line("make the test pass");
    terminal.wait_for("It does not pass.");
    terminal.wait_for_prompt();
    terminal.type_line("/undo");
    terminal.wait_for("the workspace is at checkpoint 0");
    terminal.type_line("!git status --short; echo status $?");
    terminal.wait_for("\n?? notes.txt\nstatus 0\n");
    assert_eq!(tree::read(&host, None), before, "nothing is written before it is applied");
    terminal.type_line("try again");
    terminal.wait_for("It passes.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_for("[yes/no/each]");
    terminal.type_line("y");
    terminal.wait_for("written: ");
    terminal.wait_for_prompt();

    let after = tree::read(&host, None);
    let wanted = tree::read(&expected, None);
    let differing: Vec<_> =
        after.keys().chain(wanted.keys()).filter(|path| after.get(*path) != wanted.get(*path)).collect();
    assert!(differing.is_empty(), "{backend}: not as it should be: {differing:?}");
    assert_eq!(tree::read(&host.join(".git"), None), git_before, "git's own files are as they were");
    let times_after = times(&host, &after);
    for (path, node) in
        before.iter().filter(|(path, node)| after.get(*path) == Some(*node) && !node.is_directory())
    {
        let path = path.as_path();
        assert_eq!(
            times_after.get(path),
            times_before.get(path),
            "{} ({node:?}) was not touched",
            path.display()
        );
    }
    sh(
        &host,
        "git fsck --no-progress && git status --porcelain && git rev-parse v1 && ! git rev-parse --verify -q inside",
    );

    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
    let home = terminal.root().join("agent");
    let undone = agent().env("AGENT_HOME", home).args(["undo", "-C", &host_text]).run().expect_code(0);
    assert!(undone.stderr.contains("applies it again"), "{}", undone.stderr);
    assert_eq!(tree::read(&host, None), before);
}
