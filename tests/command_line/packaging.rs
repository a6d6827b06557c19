//! The parts of a release: the archive with `install.sh`, the npm packages, the formula.

use agent_testing::skip;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

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

/// The program as releases have it, without symbols; with them where this machine has no `strip`.
fn stripped() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agent-stripped");
        let strip = Command::new("strip").arg(PROGRAM).arg("-o").arg(&path).status();
        if strip.is_ok_and(|status| status.success()) { path } else { PROGRAM.into() }
    });
    &PATH
}

/// The files of a release for this machine, which are packed once.
fn release(directory: &Path) {
    static PACKED: LazyLock<PathBuf> = LazyLock::new(|| {
        let packed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
        let _none_yet = fs::remove_dir_all(&packed);
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        run(Command::new(packaging("archive.sh")).arg(stripped()).arg(&target).arg(&packed));
        packed
    });
    fs::create_dir_all(directory).expect("a directory");
    let archive = archive_in(&PACKED);
    fs::copy(&archive, directory.join(archive.file_name().expect("its name"))).expect("a copy");
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
    assert_eq!(stdout(&run(Command::new(&installed).arg("--version"))), format!("agent {VERSION}"));
    let newest = run(Command::new(&installed).arg("update").env_clear().env("HOME", &home));
    assert_eq!(stdout(&newest), format!("agent {VERSION} is what the release has"));
    let listed = stdout(&run(Command::new("tar").arg("-tzf").arg(archive_in(&files))));
    for name in ["agent", "man/agent.1", "completions/agent.zsh", "LICENSE-MIT"] {
        assert!(listed.lines().any(|line| line == name), "{listed}");
    }
}

/// The files of a package, without what the program writes when it runs.
#[test]
fn the_debian_package_has_the_program_its_manual_page_and_completions() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return skip::missing("dpkg-deb");
    }
    let directory = tempfile::tempdir().unwrap();
    release(directory.path());
    let archive = archive_in(directory.path());
    let mut script = Command::new(packaging("deb.sh"));
    script.arg(VERSION).arg(archive).arg("amd64").arg(directory.path());
    run(script.env("DPKG_DEB_COMPRESSOR_TYPE", "none"));
    let package = directory.path().join(format!("agentsandbox_{VERSION}_amd64.deb"));
    let field = |name: &str| stdout(&run(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)));
    assert_eq!((field("Package"), field("Version")), ("agentsandbox".to_owned(), VERSION.to_owned()));
    assert_eq!((field("Depends"), field("Description").lines().count()), (String::new(), 2));
    let root = directory.path().join("root");
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(&package).arg(&root));
    run(Command::new("md5sum").args(["--check", "--quiet", "DEBIAN/md5sums"]).current_dir(&root));
    for path in [
        "man/man1/agent.1.gz",
        "doc/agentsandbox/copyright",
        "bash-completion/completions/agent",
        "zsh/vendor-completions/_agent",
        "fish/vendor_completions.d/agent.fish",
    ] {
        assert!(
            fs::metadata(root.join("usr/share").join(path)).is_ok_and(|found| found.len() > 100),
            "{path}"
        );
    }
    assert_eq!(
        stdout(&run(Command::new(root.join("usr/bin/agent")).arg("--version"))),
        format!("agent {VERSION}")
    );
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
    let program = format!("{architecture}={}", stripped().display());
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
    let mut script = Command::new(packaging("homebrew.sh"));
    let formula = stdout(&run(script.arg("1.2.3").arg(&sums).env("GITHUB_REPOSITORY", "somebody/agent")));
    let address =
        "https://github.com/somebody/agent/releases/download/v1.2.3/agent-x86_64-unknown-linux-musl.tar.gz";
    for expected in
        [&*format!("sha256 \"{intel}\""), &*format!("sha256 \"{arm}\""), "version \"1.2.3\"", address]
    {
        assert!(formula.contains(expected), "{formula}");
    }
    fs::write(&sums, &lines[0]).unwrap();
    let missing = Command::new(packaging("homebrew.sh")).arg("1.2.3").arg(&sums).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
}

/// This program in a place of its own, as `install.sh` leaves it, and the releases that it is updated from.
struct Installed {
    directory: tempfile::TempDir,
    releases: PathBuf,
    program: PathBuf,
}

impl Installed {
    /// With a receipt that names `key`.
    fn new(key: &str) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (releases, program) = (directory.path().join("releases"), directory.path().join("bin/agent"));
        fs::create_dir(&releases).unwrap();
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        copy_program(&program);
        fs::create_dir_all(directory.path().join("agent/data")).unwrap();
        let receipt = format!("{}\n{}\n{}\n{key}\n", program.display(), files_of(&releases), "0".repeat(64));
        fs::write(directory.path().join("agent/data/installed"), receipt).unwrap();
        Self { directory, releases, program }
    }

    /// Makes a release of a program that says that it is this version.
    fn release(&self, version: &str) {
        let work = tempfile::tempdir().unwrap();
        let script = format!("#!/bin/sh\necho agent {version}\n");
        fs::write(work.path().join("agent"), script).unwrap();
        fs::set_permissions(work.path().join("agent"), fs::Permissions::from_mode(0o755)).unwrap();
        let archive = format!("agent-{}-unknown-linux-musl.tar.gz", std::env::consts::ARCH);
        run(Command::new("tar")
            .arg("-czf")
            .arg(self.releases.join(&archive))
            .arg("agent")
            .current_dir(&work));
        run(Command::new("sh").args(["-c", "sha256sum -- *.tar.gz >SHA256SUMS"]).current_dir(&self.releases));
    }

    fn update(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command
            .arg("update")
            .args(arguments)
            .env_clear()
            .env("AGENT_HOME", self.directory.path().join("agent"));
        loop {
            match command.output() {
                // Another test has forked while the program was written, and its child has not started its own yet.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    thread::sleep(Duration::from_millis(10))
                }
                output => return output.unwrap(),
            }
        }
    }

    /// Nothing was changed, for this reason.
    fn refuses(&self, arguments: &[&str], code: i32, why: &str) {
        let output = self.update(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.contains(why)), (Some(code), true), "{said}");
        let version = stdout(&run(Command::new(&self.program).arg("--version")));
        assert_eq!(version, format!("agent {VERSION}"));
        let left = fs::read_dir(self.program.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "nothing else is left");
    }
}

/// A second name of the test's own program is enough where the file system has both.
fn copy_program(to: &Path) {
    if fs::hard_link(PROGRAM, to).is_err() {
        fs::copy(PROGRAM, to).unwrap();
    }
}

#[test]
fn an_update_replaces_the_program_and_keeps_its_mode() {
    let installed = Installed::new("");
    // The mode belongs to the file, which the tests share.
    fs::remove_file(&installed.program).unwrap();
    fs::copy(PROGRAM, &installed.program).unwrap();
    fs::set_permissions(&installed.program, fs::Permissions::from_mode(0o750)).unwrap();
    installed.release("99.0.1");
    let output = installed.update(&["--json"]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["updated"].as_bool(), json["version"].as_str()), (Some(true), Some("99.0.1")));
    assert_eq!(stdout(&run(&mut Command::new(&installed.program))), "agent 99.0.1");
    assert_eq!(fs::metadata(&installed.program).unwrap().permissions().mode() & 0o7777, 0o750);
    let receipt = fs::read_to_string(installed.directory.path().join("agent/data/installed")).unwrap();
    let sums = fs::read_to_string(installed.releases.join("SHA256SUMS")).unwrap();
    assert_eq!(receipt.lines().nth(2), sums.split(' ').next());
}

#[test]
fn an_update_takes_nothing_that_is_not_the_release() {
    let installed = Installed::new("");
    installed.refuses(&[], 1, "SHA256SUMS could not be fetched: the server answered 404");
    installed.release("0.0.1");
    installed.refuses(&[], 1, "the newest release is 0.0.1, and this is");
    installed.refuses(&["0.0.2"], 1, "the release 0.0.2 has agent 0.0.1 in it");
    installed.release("not-a-version");
    installed.refuses(&[], 1, "does not print its version");
    installed.release("99.0.0");
    let archive = archive_in(&installed.releases);
    fs::OpenOptions::new().append(true).open(&archive).unwrap().write_all(b"more").unwrap();
    installed.refuses(&[], 1, "is not that of the release");
    fs::write(installed.releases.join("SHA256SUMS"), "").unwrap();
    installed.refuses(&[], 1, "the release has no agent-");
    let receipt = installed.directory.path().join("agent/data/installed");
    let elsewhere = fs::read_to_string(&receipt).unwrap().replace("127.0.0.1", "releases.invalid");
    fs::write(&receipt, elsewhere).unwrap();
    installed.refuses(&[], 1, "it is not an https address");
}

/// Signs a file as minisign does: the BLAKE2b of the content, then the signature with the trusted comment. Prints the public key.
const SIGN: &str = r#"
import base64, hashlib, sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
key, number = Ed25519PrivateKey.from_private_bytes(bytes(range(32))), b"8 bytes."
content, comment = open(sys.argv[1], "rb").read(), "a release"
signature = key.sign(hashlib.blake2b(content).digest())
encode = lambda data: base64.b64encode(data).decode()
lines = ["untrusted comment: x", encode(b"ED" + number + signature), "trusted comment: " + comment, encode(key.sign(signature + comment.encode()))]
open(sys.argv[1] + ".minisig", "w").write("\n".join(lines) + "\n")
print(encode(b"Ed" + number + key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)))
"#;

#[test]
fn a_release_with_a_key_has_to_be_signed_with_it() {
    let sign = |sums: &Path| Command::new("python3").args(["-c", SIGN]).arg(sums).output().unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sums"), "").unwrap();
    let signed = sign(&directory.path().join("sums"));
    if !signed.status.success() {
        return skip::missing("Python's cryptography");
    }
    let installed = Installed::new(&stdout(&signed));
    installed.release("99.0.2");
    installed.refuses(&[], 1, "SHA256SUMS.minisig could not be fetched");
    let sums = installed.releases.join("SHA256SUMS");
    fs::copy(directory.path().join("sums.minisig"), installed.releases.join("SHA256SUMS.minisig")).unwrap();
    installed.refuses(&[], 1, "the signature of the release is not valid");
    run(Command::new("python3").args(["-c", SIGN]).arg(&sums));
    install_with_a_key(&stdout(&signed), &installed.releases);
    let output = installed.update(&["v99.0.2"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).starts_with("agent 99.0.2 is in "), "{output:?}");
}

/// `install.sh` with this key takes the signed release, and nothing of it once its list has another line.
fn install_with_a_key(key: &str, releases: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("install.sh");
    let text = fs::read_to_string(packaging("install.sh")).unwrap();
    fs::write(&script, text.replace("\nKEY=\n", &format!("\nKEY={key}\n"))).unwrap();
    let install = |name: &str| {
        let mut command = Command::new("sh");
        command
            .arg(&script)
            .env("AGENT_RELEASES", files_of(releases))
            .env("HOME", directory.path().join(name));
        command.env("AGENT_REQUIRE_SIGNATURE", "true").output().unwrap()
    };
    let output = install("one");
    assert!(output.status.success(), "{output:?}");
    let sums = releases.join("SHA256SUMS");
    let before = fs::read(&sums).unwrap();
    fs::write(&sums, [before.as_slice(), b"\n"].concat()).unwrap();
    let output = install("two");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the signature of the release is not valid"), "{said}");
    fs::write(&sums, before).unwrap();
}

#[test]
fn the_action_installs_for_its_job_and_leaves_the_users_receipt() {
    let directory = tempfile::tempdir().unwrap();
    let (files, home) = (directory.path().join("files"), directory.path().join("home"));
    release(&files);
    let receipt = home.join(".local/share/agent/installed");
    fs::create_dir_all(receipt.parent().unwrap()).unwrap();
    fs::write(&receipt, "the user's").unwrap();
    let output = Command::new(packaging("action/install.sh"))
        .env("GITHUB_SERVER_URL", files_of(&files))
        .env("ACTION_REPOSITORY", "somebody/agent")
        .envs([("HOME", &home), ("RUNNER_TEMP", &directory.path().join("temp"))])
        .env("GITHUB_OUTPUT", directory.path().join("output"))
        .env("PROGRAM", "")
        .env_remove("AGENT_RELEASES")
        .env_remove("AGENT_HOME")
        .env_remove("XDG_DATA_HOME")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let program = directory.path().join("temp/agent/bin/agent");
    assert_eq!(
        fs::read_to_string(directory.path().join("output")).unwrap(),
        format!("program={}\n", program.display())
    );
    assert_eq!(fs::read_to_string(&receipt).unwrap(), "the user's");
}

#[test]
fn what_a_package_manager_installed_is_left_to_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let of = |place: &str, mark: Option<&str>, hint: &str| {
        let program = directory.path().join(place);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        copy_program(&program);
        if let Some(mark) = mark {
            fs::create_dir_all(directory.path().join(mark)).unwrap();
        }
        let mut command = Command::new(&program);
        let refused = command.arg("update").env_clear().env("AGENT_HOME", directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status.code(), said.contains(hint)), (Some(2), true), "{said}");
    };
    of("npm/node_modules/agentsandbox-linux-x64/bin/agent", None, "npm install --global");
    of("brew/Cellar/agentsandbox/1/bin/agent", None, "brew upgrade");
    of(
        "venv/bin/agent",
        Some("venv/lib/python3.12/site-packages/agentsandbox-0.1.0.dist-info"),
        "pip install --upgrade",
    );
    of("cargo/bin/agent", Some("cargo/.crates.toml"), "cargo install");
    of("elsewhere/agent", None, "run install.sh of a release");
}
