//! `--add-dir`: directories beside the workspace, at their own paths, in local sandboxes and in containers.

use crate::support::agent::{Agent, agent};
use crate::support::backends::{backend, is_ordinary_user};
use std::path::{Path, PathBuf};

/// The backends that show directories of this machine and are there.
fn backends() -> Vec<&'static str> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let is_there =
        |name: &&str| !(*name == "docker" && is_ordinary_user()) && runtime.block_on(backend(name)).is_some();
    ["local", "docker"].into_iter().filter(is_there).collect()
}

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
    for name in backends() {
        let agent = agent();
        let library = beside(&agent, "library", &LIBRARY);
        let path = library.display();
        let script = format!(
            "cat {path}/src/lib.rs; find {path} | sort; grep -r hidden- {path}; cat {path}/.env {path}/keys/id_rsa; true"
        );
        let seen = agent
            .sandbox(name)
            .args(["exec", "--add-dir", &read_only(&library), "--", "sh", "-c", &script])
            .run()
            .expect_code(0)
            .stdout;
        assert!(seen.contains("answer() -> u32 { 42 }"), "on {name}: {seen}");
        assert!(seen.contains("src/cache.bin"), "on {name}: {seen}");
        for hidden in ["hidden-", "/.env", "id_rsa", ".git/config"] {
            assert!(!seen.contains(hidden), "on {name}, {hidden}: {seen}");
        }
    }
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
    for name in backends() {
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
        let said = agent
            .sandbox(name)
            .args(["exec", "--add-dir", &read_only(&library), "--", "sh", "-c", &script])
            .run()
            .expect_code(0)
            .stdout;
        assert_eq!(said, "end\n", "on {name}");
        assert_eq!(std::fs::read_to_string(library.join("src/lib.rs")).expect("the host's"), LIBRARY[0].1);
    }
}

#[test]
fn a_symlink_in_an_added_directory_leads_to_nothing_of_the_host() {
    for name in backends() {
        let agent = agent();
        let library = beside(&agent, "library", &LIBRARY);
        let outside = beside(&agent, "outside", &[("secret.txt", "of-the-host")]);
        std::os::unix::fs::symlink(outside.join("secret.txt"), library.join("link")).expect("a link");
        std::os::unix::fs::symlink(&outside, library.join("directory")).expect("a link");
        let path = library.display();
        let script =
            format!("cat {path}/link {path}/directory/secret.txt {path}/../outside/secret.txt; true");
        let seen = agent
            .sandbox(name)
            .args(["exec", "--add-dir", &read_only(&library), "--", "sh", "-c", &script])
            .run()
            .expect_code(0)
            .stdout;
        assert_eq!(seen, "", "on {name}");
    }
}

#[test]
fn what_cannot_be_added_is_refused_by_name_with_a_hint() {
    let agent = agent();
    let inside = agent.workspace().join("sub");
    std::fs::create_dir_all(&inside).expect("a directory");
    let file = agent.workspace().join("file");
    std::fs::write(&file, "x").expect("a file");
    let around = agent.workspace().parent().expect("a parent").to_owned();
    let refused = |directory: &str, reason: &str| {
        let directory = format!("{directory}:ro");
        let said = agent.again().sandbox("local").args(["exec", "--add-dir", &directory, "true"]).run();
        let said = said.expect_code(2).stderr;
        assert!(said.contains(reason) && said.contains("hint:"), "{directory}: {said}");
    };
    refused("/", "it is the whole machine");
    refused("/etc", "it is a directory of the system");
    refused("/nonexistent", "cannot be added");
    refused(file.to_str().expect("text"), "it is not a directory");
    refused(inside.to_str().expect("text"), "it is in the workspace already");
    refused(around.to_str().expect("text"), "the workspace is in it");
}
