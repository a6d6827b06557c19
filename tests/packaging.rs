//! The parts of a release: the archive with `install.sh`, the npm packages, the formula.

use crate::support::skip;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent");
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn packaging(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(script)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A server with the files of `directory`, below any path.
fn files_of(directory: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, directory) = (listener.local_addr().expect("an address"), directory.to_owned());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let answer = match fs::read(directory.join(path.rsplit('/').next().unwrap_or_default())) {
                Ok(bytes) => {
                    [format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len()).into(), bytes]
                        .concat()
                }
                Err(_) => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
            };
            // A client that has gone away wants no answer.
            let _ = stream.write_all(&answer);
        }
    });
    format!("http://{address}")
}

/// The files of a release for this machine.
fn release(directory: &Path) {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    run(Command::new(packaging("archive.sh")).args([PROGRAM, &target]).arg(directory));
    let sums = "sha256sum -- *.tar.gz >SHA256SUMS";
    run(Command::new("sh").args(["-c", sums]).current_dir(directory));
}

fn archive_in(directory: &Path) -> PathBuf {
    let mut files = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    files.find(|path| path.extension().is_some_and(|end| end == "gz")).expect("the archive")
}

fn install(releases: &str, home: &Path) -> Output {
    let mut script = Command::new("sh");
    script.arg(packaging("install.sh")).env("AGENT_RELEASES", releases).env("HOME", home);
    script.output().expect("sh starts")
}

#[test]
fn the_script_installs_the_newest_release() {
    let directory = tempfile::tempdir().unwrap();
    let (files, home) = (directory.path().join("files"), directory.path().join("home"));
    release(&files);
    let output = install(&files_of(&files), &home);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains(&format!("agent {VERSION} is in")), "{output:?}");
    let installed = home.join(".local/bin/agent");
    assert_eq!(stdout(&run(Command::new(installed).arg("--version"))), format!("agent {VERSION}"));
    let listed = stdout(&run(Command::new("tar").arg("-tzf").arg(archive_in(&files))));
    for name in ["agent", "man/agent.1", "completions/agent.zsh", "LICENSE-MIT"] {
        assert!(listed.lines().any(|line| line == name), "{listed}");
    }
}

#[test]
fn nothing_is_installed_whose_hash_is_not_that_of_the_release() {
    let directory = tempfile::tempdir().unwrap();
    let (files, home) = (directory.path().join("files"), directory.path().join("home"));
    release(&files);
    fs::OpenOptions::new().append(true).open(archive_in(&files)).unwrap().write_all(b"more").unwrap();
    let output = install(&files_of(&files), &home);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was installed"), "{output:?}");
    assert!(!home.join(".local/bin/agent").exists());
}

#[test]
fn a_release_that_is_not_there_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let output = install(&files_of(directory.path()), directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("SHA256SUMS could not be fetched"),
        "{output:?}"
    );
}

#[test]
fn npm_installs_a_launcher_that_passes_streams_and_exit_codes_on() {
    if Command::new("npm").arg("--version").output().is_err() {
        return skip::missing("npm");
    }
    let directory = tempfile::tempdir().unwrap();
    let (packages, prefix) = (directory.path().join("packages"), directory.path().join("prefix"));
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = format!("{architecture}={PROGRAM}");
    run(Command::new(packaging("npm/pack.sh")).arg(VERSION).arg(&packages).arg(program));
    run(Command::new(packaging("npm/launcher.sh")).arg(VERSION).arg(&packages).args(["x64", "arm64"]));
    let files = fs::read_dir(&packages).unwrap().flatten().map(|entry| entry.path());
    run(Command::new("npm")
        .args(["install", "--offline", "--no-audit", "--no-fund", "--global", "--prefix"])
        .arg(&prefix)
        .args(files)
        .env("HOME", directory.path()));
    let agent = prefix.join("bin/agent");
    assert_eq!(stdout(&run(Command::new(&agent).arg("--version"))), format!("agent {VERSION}"));
    let home = directory.path().join("home");
    let exec = ["exec", "--sandbox", "local", "--", "sh", "-c", "cat; exit 7"];
    let mut child = Command::new(&agent)
        .args(exec)
        .env("AGENT_HOME", &home)
        .current_dir(&prefix)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"passed on\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), "passed on"));
}

#[test]
fn the_formula_names_both_archives_with_their_hashes() {
    let directory = tempfile::tempdir().unwrap();
    let sums = directory.path().join("SHA256SUMS");
    let (intel, arm) = ("1".repeat(64), "a".repeat(64));
    let lines = [
        format!("{intel}  agent-x86_64-unknown-linux-musl.tar.gz\n"),
        format!("{arm}  agent-aarch64-unknown-linux-musl.tar.gz\n"),
    ];
    fs::write(&sums, lines.concat()).unwrap();
    let formula = stdout(&run(Command::new(packaging("homebrew.sh")).arg("1.2.3").arg(&sums)));
    for expected in
        [format!("sha256 \"{intel}\""), format!("sha256 \"{arm}\""), "version \"1.2.3\"".to_owned()]
    {
        assert!(formula.contains(&expected), "{formula}");
    }
    fs::write(&sums, &lines[0]).unwrap();
    let missing = Command::new(packaging("homebrew.sh")).arg("1.2.3").arg(&sums).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
}
