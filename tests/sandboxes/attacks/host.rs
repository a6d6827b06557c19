//! What is the host's: files, settings of its kernel, programs, secrets.

use agent::error::Kind;
use agent::sandbox::{Command, Outcome, Program, WorkspaceMount};
use agent_testbed::agent::agent;
use agent_testbed::backends::{
    AS_ORDINARY_USER, is_root, on_every_backend, on_every_backend_with, program_on_every_backend, shell,
};
use agent_testing::endpoint::endpoint;
use agent_testing::skip::left_out;
use serde_json::json;
use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A directory of the host's with a secret in it that everybody might read.
fn host_secret(place: impl AsRef<Path>) -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("agent-secret-").tempdir_in(place).expect("a directory");
    std::fs::write(directory.path().join("secret"), "s3cret").expect("a file");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("readable");
    directory
}

#[tokio::test]
async fn attack_04_no_host_path_and_no_engine_that_was_not_given() {
    on_every_backend(async |inside| {
        let home = PathBuf::from(std::env::var_os("HOME").expect("a home"));
        let places = [home.clone(), std::env::temp_dir(), "/var/tmp".into(), "/dev/shm".into()];
        for directory in places.iter().map(host_secret) {
            let secret = directory.path().join("secret");
            for prefix in ["", "/proc/self/root", "/proc/1/root", "/workspace/../../..", "/proc/self/cwd/../.."] {
                inside.expect_failure(&format!("cat {prefix}{}", secret.display())).await;
            }
        }
        inside.expect_failure("grep -q . /root/.bashrc /root/.profile /root/.ssh/* /root/.gitconfig").await;
        inside.expect_failure("cat /etc/shadow || cat /etc/sudoers").await;
        // In a pod there is nobody but the agent.
        let homes = if inside.backend == "kubernetes" { "agent" } else { "agent user" };
        assert_eq!(inside.output_of("cd /home && echo *").await, homes);
        for socket in ["docker.sock", "podman/podman.sock", "containerd/containerd.sock", "dbus/system_bus_socket"] {
            inside.expect_failure(&format!("ls /run/{socket} || ls /var/run/{socket}")).await;
        }
        let sockets = "find / \\( -path /proc -o -path /sys -o -path /usr \\) -prune -o -type s -print 2>/dev/null; true";
        assert_eq!(inside.output_of(sockets).await, "");
        for path in ["/x", "/usr/x", "/usr/bin/x", "/etc/x", "/lib/x", "/var/x"] {
            inside.expect_failure(&format!("touch {path}")).await;
        }
        inside.expect_failure("rm -f /usr/bin/true /etc/passwd; [ ! -e /usr/bin/true ] || [ ! -e /etc/passwd ]").await;
    })
    .await;
}

/// Only what is meant to be writable is mounted so: nothing below a read-only directory either.
#[tokio::test]
async fn attack_04_only_what_is_meant_for_it_is_mounted_writable() {
    on_every_backend(async |inside| {
        let mounts = inside.output_of("cat /proc/self/mountinfo").await;
        let writable = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(3);
            // What covers a file of /proc is /dev/null.
            let is_null = fields.next()? == "/null";
            let (point, options) = (fields.next()?, fields.next()?);
            // Of an overlay without a writable layer the file system itself is read-only.
            let of_all = line.rsplit(' ').next()?;
            let is_writable =
                [options, of_all].iter().all(|list| list.split(',').any(|option| option == "rw"));
            is_writable.then_some(point).filter(|_| !is_null)
        });
        // Docker's own, which belong to root.
        let meant = [
            "/workspace",
            "/home/agent",
            "/tmp",
            "/run",
            "/dev",
            "/proc",
            "/etc/hosts",
            "/etc/hostname",
            "/etc/resolv.conf",
            "/sys/fs/cgroup",
        ];
        // The guest is brought into a pod there; from then on nothing is written (Landlock).
        let of_pods = if inside.backend == "kubernetes" { &["/agent"][..] } else { &[] };
        inside.expect_failure("touch /agent/x").await;
        for point in writable {
            // gVisor leaves out that the volume, an overlay, is read-only.
            if inside.is_gvisor() && !meant.contains(&point) && !point.starts_with("/dev/") {
                inside.expect_failure(&format!("touch {point}/x")).await;
                continue;
            }
            let is_meant = meant.contains(&point) || of_pods.contains(&point) || point.starts_with("/dev/");
            assert!(is_meant, "{point} on {}", inside.backend);
        }
        let written =
            inside.sh("echo x >> /etc/hosts || echo x >> /etc/resolv.conf || touch /sys/fs/cgroup/x").await;
        assert_ne!(written.outcome(), Outcome::Exited(0));
    })
    .await;
}

/// A directory of the host's below one that sandboxes show, where everybody may write. Root makes it, for the ordinary user's
/// run as well, and it is removed also where the test fails.
struct ShownDirectory {
    path: PathBuf,
    is_maker: bool,
}

impl ShownDirectory {
    /// `None`, with one line, where this user cannot make any.
    fn below(shown: &str, name: &str) -> Option<Self> {
        let is_maker = std::env::var_os(AS_ORDINARY_USER).is_none();
        // The ordinary user's run is a child of root's.
        let maker = if is_maker { std::process::id() } else { std::os::unix::process::parent_id() };
        let path = Path::new(shown).join(format!("agent-{name}-{maker}"));
        if !is_maker {
            assert!(path.is_dir(), "root made {}", path.display());
        } else if is_root() {
            std::fs::create_dir(&path).expect("a directory that sandboxes show");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("open to all");
        } else {
            left_out(format!("not tested: only root can make {}", path.display()));
            return None;
        }
        Some(Self { path, is_maker })
    }

    /// A socket that everybody may connect to, and that answers on the host.
    fn listen(&self, name: &str) -> (PathBuf, UnixListener) {
        let socket = self.path.join(format!("{name}-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a listener");
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).expect("open to all");
        UnixStream::connect(&socket).expect("it answers on the host");
        (socket, listener)
    }
}

impl Drop for ShownDirectory {
    fn drop(&mut self) {
        if self.is_maker {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A bug: a read-only mount does not keep anybody from connecting to a socket below it.
#[tokio::test]
async fn attack_25_the_sockets_of_host_programs_below_visible_directories_are_covered() {
    let Some(directory) = ShownDirectory::below("/usr/local/lib", "attack-25") else { return };
    let (socket, _listener) = directory.listen("daemon");
    let connect = format!(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ntry:\n    s.connect(\"{}\"); print(\"connected\")\nexcept OSError as e: print(\"refused\")",
        socket.display()
    );
    on_every_backend(async |inside| {
        assert_eq!(inside.python(&connect).await, "refused", "on {}", inside.backend);
        inside.expect_failure("ls /nix/var/nix/daemon-socket").await;
    })
    .await;
}

/// Sockets that begin to listen only after the sandbox has started, and FIFOs, below directories that are visible inside.
#[tokio::test]
async fn attack_33_later_sockets_and_fifos_of_host_programs_are_not_reached() {
    let Some(directory) = ShownDirectory::below("/usr/local/lib", "attack-33") else { return };
    let fifo = directory.path.join(format!("fifo-{}", std::process::id()));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o666)).expect("a FIFO");
    std::fs::set_permissions(&fifo, PermissionsExt::from_mode(0o666)).expect("open to all");
    let open =
        |write: bool| OpenOptions::new().read(!write).write(write).custom_flags(libc::O_NONBLOCK).open(&fifo);
    // Somebody reads, so that opening it to write succeeds.
    let _reader = open(false).expect("a reader");
    on_every_backend(async |inside| {
        let (socket, _listener) = directory.listen("late");
        open(true).expect("it has a reader on the host");
        let attempt = format!(
            "import os, socket\ndef no(f):\n    try: f(); print(\"reached\")\n    except OSError: pass\n\
             no(lambda: socket.socket(socket.AF_UNIX).connect(\"{}\"))\n\
             no(lambda: os.open(\"{}\", os.O_WRONLY | os.O_NONBLOCK))",
            socket.display(),
            fifo.display()
        );
        let shown = format!("test -e {0} && echo {0}", fifo.display());
        match inside.backend {
            // Nothing of a node is mounted in its pods.
            "kubernetes" => inside.expect_failure(&shown).await,
            // gVisor shows no FIFOs of the host's.
            _ if inside.is_gvisor() => {}
            _ => assert_eq!(inside.output_of(&shown).await, fifo.to_str().expect("UTF-8")),
        }
        assert_eq!(inside.python(&attempt).await, "", "on {}", inside.backend);
    })
    .await;
}

/// Settings with a password, which their owner alone may read, and who starts the sandbox.
#[tokio::test]
async fn attack_34_private_settings_of_the_caller_are_covered() {
    let Some(directory) = ShownDirectory::below("/usr/local/etc", "attack-34") else { return };
    let file = directory.path.join(format!("{}.conf", std::process::id()));
    std::fs::write(&file, "password = C4NARY").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("private");
    on_every_backend(async |inside| {
        assert_eq!(std::fs::read_to_string(&file).expect("the caller reads it"), "password = C4NARY");
        let shown = format!("test -e {}", file.display());
        match inside.backend {
            // Nothing of a node is mounted in its pods.
            "kubernetes" => inside.expect_failure(&shown).await,
            _ => drop(inside.output_of(&shown).await),
        }
        let found = inside.sh(&format!("cat {}", file.display())).await.text();
        assert!(!found.contains("C4NARY"), "on {}", inside.backend);
    })
    .await;
}

/// The name of the user, and where the workspace is.
#[tokio::test]
async fn attack_35_the_mounts_do_not_tell_where_the_workspace_and_the_toolchains_are() {
    let place = tempfile::Builder::new().prefix("agent-s3cret-user").tempdir().expect("a directory");
    let tree = place.path().join("tree");
    std::fs::create_dir(&tree).expect("a directory");
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).expect("open");
    on_every_backend_with(
        |spec| spec.workspace = WorkspaceMount::Overlay { lower: tree.clone(), hidden: Vec::new() },
        async |inside| {
            let mounts =
                inside.output_of("cat /proc/self/mountinfo; cat /proc/self/mountstats || true").await;
            if inside.backend == "docker" {
                left_out("not held on docker: the engine mounts the overlay with its whole paths");
                return;
            }
            assert!(!mounts.contains("s3cret-user"), "{mounts}");
            for line in mounts.lines().filter(|line| line.contains("lowerdir=")) {
                assert!(!line.contains("dir=/"), "{line}");
            }
            assert_eq!(inside.output_of("touch new && ls").await, "new");
        },
    )
    .await;
}

#[tokio::test]
async fn attack_05_the_kernels_settings_are_not_written_and_its_memory_is_not_read() {
    let settings =
        ["kernel/core_pattern", "kernel/panic", "kernel/modprobe", "vm/panic_on_oom", "kernel/sysrq"];
    let read = || settings.map(|name| std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok());
    let before = read();
    on_every_backend(async |inside| {
        for name in settings {
            inside.expect_failure(&format!("echo '|/workspace/pwn' > /proc/sys/{name}")).await;
        }
        inside.expect_failure("echo c > /proc/sysrq-trigger").await;
        inside.expect_failure("echo 1 > /proc/1/oom_score_adj || echo 0 > /proc/irq/0/smp_affinity").await;
        inside
            .expect_failure("find / -name release_agent -o -name uevent_helper 2>/dev/null | grep . && echo /workspace/pwn | tee $(find / -name release_agent -o -name uevent_helper 2>/dev/null)")
            .await;
        inside.expect_failure("find /sys/fs/cgroup -type d -exec mkdir {}/mine ';' 2>/dev/null; ls -d /sys/fs/cgroup/mine /sys/fs/cgroup/*/mine").await;
        for masked in ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware/efi", "/sys/firmware/dmi"] {
            assert_eq!(inside.output_of(&format!("cat {masked} {masked}/* 2>/dev/null | head -c 1 | wc -c")).await, "0", "{masked}");
        }
        inside.expect_failure("head -c 1 /dev/mem || head -c 1 /dev/kmsg || head -c 1 /dev/sda || head -c 1 /dev/vda").await;
    })
    .await;
    assert_eq!(read(), before);
}

/// CVE-2024-21626: a descriptor that leads to a directory of the host's.
#[tokio::test]
async fn attack_06_no_descriptor_leads_to_the_host() {
    on_every_backend(async |inside| {
        for number in (0..64).chain([255, 1023]) {
            for place in [format!("/proc/self/fd/{number}"), format!("/proc/1/fd/{number}"), format!("/dev/fd/{number}")] {
                let command = Command { cwd: Some(place.clone().into()), ..shell("cat ../../../../etc/shadow") };
                let error = inside.sandbox.run(command, &mut |_| {}).await.expect_err("no such place");
                assert_eq!(error.kind(), Kind::InSandbox, "{place}: {error}");
                let file = format!("{place}/../../../etc/shadow");
                assert!(inside.sandbox.read_file(Path::new(&file), 0, 10).await.is_err(), "{file}");
            }
        }
        // The same behind a name of the workspace's own. The guest has directories open, of the sandbox's.
        inside.output_of("for n in $(seq 0 63); do ln -s /proc/self/fd/$n l$n; done").await;
        for number in 0..64 {
            let script = concat!("up=../../../../../..; cat $up/etc/shadow || cat $up", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
            let command = Command { cwd: Some(format!("l{number}").into()), ..shell(script) };
            let outcome = inside.sandbox.run(command, &mut |_| {}).await.map(|finished| finished.outcome);
            assert!(!matches!(outcome, Ok(Outcome::Exited(0))), "l{number} on {}", inside.backend);
        }
        let through = "for n in $(seq 0 63); do cat /proc/self/fd/$n/../../../etc/shadow /proc/[0-9]*/cwd/../../etc/shadow; done";
        assert!(!inside.sh(through).await.text().contains("root:"), "on {}", inside.backend);
    })
    .await;
}

/// CVE-2019-5736: the program behind `/proc/PID/exe`.
#[tokio::test]
async fn attack_07_no_program_of_the_hosts_is_overwritten() {
    let on_path =
        |name: &str| ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(|place| Path::new(place).join(name));
    let programs = ["docker", "dockerd", "containerd", "containerd-shim-runc-v2", "runc", "true"];
    let mut programs: Vec<PathBuf> =
        programs.iter().flat_map(|name| on_path(name)).filter(|path| path.exists()).collect();
    programs.push(env!("CARGO_BIN_EXE_agent").into());
    let stamps = || {
        let stamp = |path: &PathBuf| {
            std::fs::metadata(path).and_then(|metadata| Ok((metadata.len(), metadata.modified()?)))
        };
        programs.iter().map(|path| stamp(path).expect("it is still there")).collect::<Vec<_>>()
    };
    let before = stamps();
    on_every_backend(async |inside| {
        // While programs of the guest's start all the time, every way to write to what they are is tried.
        let writer = "import glob, os, time\nwritten, end = 0, time.time() + 3\n\
             places = [\"/.agent/guest\", \"/usr/bin/true\"]\n\
             while time.time() < end:\n\
            \x20   for place in places + glob.glob(\"/proc/[0-9]*/exe\") + glob.glob(\"/proc/[0-9]*/task/*/exe\"):\n\
            \x20       for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):\n\
            \x20           try: written += os.write(os.open(place, flags), b\"pwned\")\n\
            \x20           except OSError: pass\n\
             print(written)";
        let starting = async {
            for _ in 0..50 {
                inside.output_of("true").await;
            }
        };
        let (written, ()) = tokio::join!(inside.python(writer), starting);
        assert_eq!(written, "0", "on {}", inside.backend);
        // The guest as an interpreter: what starts this script is a copy of the guest until it has started it.
        inside.output_of("printf '#!/proc/self/exe\\n' > s && chmod +x s").await;
        let script = Command { program: Program::Argv(vec!["/workspace/s".into()]), ..shell("") };
        assert_ne!(inside.run(script).await.outcome(), Outcome::Exited(0), "on {}", inside.backend);
        assert_eq!(inside.output_of("echo still here").await, "still here");
    })
    .await;
    assert_eq!(stamps(), before);
}

#[test]
fn attack_09_no_key_no_token_no_variable_of_the_hosts() {
    program_on_every_backend(|backend| {
        let look = "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; \
                    grep -rsl C4NARY /workspace /home /tmp /run /etc /var /dev/shm; true";
        let model = endpoint().tool_call("run_commands", json!({ "command": look })).text("done").start();
        agent()
            .endpoint(&model)
            .sandbox(backend)
            .env("AGENT_API_KEY", "C4NARY-key")
            .env("OPENAI_API_KEY", "C4NARY-other")
            .env("GITHUB_TOKEN", "C4NARY-token")
            .env("AWS_SECRET_ACCESS_KEY", "C4NARY-aws")
            .env("SSH_AUTH_SOCK", "/tmp/C4NARY.sock")
            .file(".env", "TOKEN=C4NARY-dotenv\n")
            .file("sub/.env.local", "TOKEN=C4NARY-dotenv\n")
            .file("id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----\nC4NARY\n")
            .file(".netrc", "machine example.org login a password C4NARY\n")
            .file(".aws/credentials", "aws_secret_access_key = C4NARY\n")
            .args(["run", "look around"])
            .run()
            .expect_code(0);
        let result = model.requests()[1].messages().pop().expect("a result")["content"].to_string();
        assert!(result.contains("LOGNAME=agent"), "{result}");
        // The command line of the look itself holds the word.
        assert!(!result.replace("grep -rsl C4NARY", "").contains("C4NARY"), "on {backend}: {result}");
    });
}
