//! Virtual machines: how they end, and what is left of them.

use agent::machine::Machine;
use agent::sandbox::vm::{Board, Settings, Vm};
use agent::sandbox::{Backend, FileWrite, Node, Outcome, Sandbox, Spec, State};
use agent_testbed::agent::{agent, share_images};
use agent_testbed::backends::{output_of, shell, spec, virtual_machines, vm_cache};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long something may take that an emulated processor does on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// A machine that runs, and the process of its QEMU.
async fn started(vm: &Vm, spec: &Spec) -> (Sandbox, i32) {
    let (channel, info) = vm.start(spec, &|_, _, _| {}).await.expect("the machine starts");
    assert_eq!(info.backend, "vm");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    let data = agent_testing::machine().data_dir().expect("a data directory");
    let qemu = qemu_in(&data.join("machines").join(&spec.session)).expect("QEMU runs");
    (sandbox, qemu)
}

/// The QEMU of the machine with this private directory: the child of its keeper.
fn qemu_in(directory: &Path) -> Option<i32> {
    let processes = fs::read_to_string(directory.join("processes")).ok()?;
    let keeper = processes.lines().nth(1)?.split(' ').next()?.to_owned();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
    let qemu: i32 = children.split_whitespace().next()?.parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{qemu}/comm")).ok()?;
    name.starts_with("qemu").then_some(qemu)
}

fn signal(process: i32, signal: i32) {
    // SAFETY: no memory is involved; the process is one that the test has started.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

fn is_there(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a command says whose machine has come to its end.
async fn failure(sandbox: &Sandbox) -> String {
    let first = sandbox.run(shell("sleep 300"), &mut |_| {}).await;
    // The command that was running is lost; the next one says why.
    match first {
        Err(error) => error.to_string(),
        Ok(finished) => {
            assert_eq!(finished.outcome, Outcome::Lost);
            sandbox.run(shell("true"), &mut |_| {}).await.expect_err("there is no guest").to_string()
        }
    }
}

#[tokio::test]
async fn a_machine_whose_qemu_is_killed_says_so_and_leaves_nothing() {
    let Some(vm) = virtual_machines() else { return };
    let spec = spec();
    let (sandbox, qemu) = started(&vm, &spec).await;
    signal(qemu, libc::SIGKILL);
    let failure = failure(&sandbox).await;
    assert!(failure.contains("the virtual machine has ended: QEMU, signal: 9"), "{failure}");
    let directory = agent_testing::machine().data_dir().unwrap().join("machines").join(&spec.session);
    wait_until("its directory is gone", || !directory.exists());
    vm.destroy(&spec.session).await.expect("a machine that is gone can be removed");
}

#[tokio::test]
async fn a_machine_that_is_stopped_is_given_up_by_name() {
    let Some(vm) = virtual_machines() else { return };
    let spec = spec();
    let (sandbox, qemu) = started(&vm, &spec).await;
    signal(qemu, libc::SIGSTOP);
    let failure = failure(&sandbox).await;
    assert!(failure.contains("has not answered for 30 s: it is stopped, or its kernel hangs"), "{failure}");
    wait_until("QEMU is gone", || !is_there(qemu));
    vm.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_machine_that_does_not_boot_shows_its_console() {
    let Some(_) = virtual_machines() else { return };
    // Modules that are none: what the kernel needs first is damaged.
    let modules = tempfile::tempdir().expect("a directory");
    let names = ["virtio_mmio", "virtio_console", "virtio_blk", "erofs", "ext4"];
    let table: String = names.iter().map(|name| format!("{name}.ko:\n")).collect();
    fs::write(modules.path().join("modules.dep"), table).expect("written");
    for name in names {
        fs::write(modules.path().join(format!("{name}.ko")), "no module").expect("written");
    }
    let machine = Arc::new(Machine::of_this_process());
    let settings =
        Settings { modules: Some(modules.path().to_owned()), cache: Some(vm_cache()), ..Settings::default() };
    settings.keep(&machine);
    let vm = Vm::connect(machine).expect("QEMU and a kernel are there");
    let spec = spec();
    let error = vm.start(&spec, &|_, _, _| {}).await.err().expect("it does not boot").to_string();
    assert!(error.starts_with("the virtual machine ended before it had booted: QEMU, "), "{error}");
    assert!(error.contains("guest: load /modules/virtio_mmio.ko: "), "{error}");
    assert!(!vm.list().await.expect("the list").iter().any(|listed| listed.session == spec.session));
}

/// A cache with what is in that of all tests, but for what has another content (`Some`) or is left out (an empty one).
fn cache_but(changed: impl Fn(&str) -> Option<Vec<u8>>) -> tempfile::TempDir {
    let cache = tempfile::tempdir_in(vm_cache().parent().expect("a directory")).expect("a directory");
    for entry in fs::read_dir(vm_cache()).expect("images").map(|entry| entry.expect("an image")) {
        let (name, here) = (entry.file_name(), cache.path().join(entry.file_name()));
        match changed(&name.to_string_lossy()) {
            None => fs::hard_link(entry.path(), here).expect("linked"),
            Some(content) if content.is_empty() => {}
            Some(content) => fs::write(&here, content).expect("written"),
        }
    }
    cache
}

/// The backend over another cache.
fn with_cache(cache: &tempfile::TempDir) -> Vm {
    let machine = Arc::new(Machine::of_this_process());
    Settings { cache: Some(cache.path().to_owned()), ..Settings::default() }.keep(&machine);
    Vm::connect(machine).expect("QEMU and a kernel are there")
}

/// Has images, kernel and state be there.
async fn prepared(vm: &Vm) {
    let before = spec();
    drop(started(vm, &before).await);
    vm.destroy(&before.session).await.expect("removed");
}

#[tokio::test]
async fn a_kernel_that_panics_is_named_with_its_last_words() {
    let Some(vm) = virtual_machines() else { return };
    prepared(&vm).await;
    let cache = cache_but(|name| {
        if name.starts_with("state-") || name.starts_with("disk-") {
            return Some(Vec::new());
        }
        let mut kernel =
            name.starts_with("kernel-").then(|| fs::read(vm_cache().join(name)).expect("a kernel"))?;
        // A kernel that finds no program to start.
        for (found, other) in [("rdinit=", "rdinix="), ("/init\0", "/inix\0")] {
            let mut at = 0;
            while let Some(next) =
                kernel[at..].windows(found.len()).position(|bytes| bytes == found.as_bytes())
            {
                at += next;
                kernel[at..at + found.len()].copy_from_slice(other.as_bytes());
            }
        }
        Some(kernel)
    });
    let spec = spec();
    let error =
        with_cache(&cache).start(&spec, &|_, _, _| {}).await.err().expect("it does not boot").to_string();
    let expected = "the kernel of the virtual machine has panicked: Kernel panic - not syncing: ";
    assert!(error.starts_with(expected), "{error}");
    assert!(!vm.list().await.expect("the list").iter().any(|listed| listed.session == spec.session));
}

#[test]
fn a_disk_without_space_ends_a_machine_by_name() {
    if virtual_machines().is_none() || !rustix::process::geteuid().is_root() {
        return; // Mounting a small file system needs root.
    }
    let command = ["exec", "--sandbox", "vm", "--", "sh", "-c", "head -c 200M /dev/urandom > big; sync"];
    let call = agent().deadline(LONG).args(command);
    if !agent_testbed::backends::is_vm() {
        share_images(&call.home("cache"));
    }
    let home = call.home("data");
    let machines = home.join("machines");
    fs::create_dir_all(&machines).expect("a directory");
    let mount = |arguments: &[&str]| {
        let status = std::process::Command::new("mount").args(arguments).arg(&machines).status();
        assert!(status.expect("mount runs").success(), "mount {arguments:?}");
    };
    // The state has been made by then, or is made now, and has space.
    mount(&["-t", "tmpfs", "-o", "size=1g", "tmpfs"]);
    let _unmounted = Unmount(machines.clone());
    let running = call.start();
    let mut found = None;
    wait_until("QEMU runs", || {
        // Not the one whose state is saved.
        found = only_machine(&home).filter(|(directory, _)| !directory.to_string_lossy().contains("state-"));
        found.is_some()
    });
    mount(&["-o", "remount,size=64m"]);
    let finished = running.wait();
    assert_ne!(finished.code, 0);
    assert!(finished.stderr.contains("this machine has no space left for its disk"), "{}", finished.stderr);
    let (directory, qemu) = found.expect("it ran");
    wait_until("QEMU and its directory are gone", || !is_there(qemu) && !directory.exists());
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The keeper of a machine.
fn keeper_of(session: &str) -> Option<i32> {
    let data = agent_testing::machine().data_dir().expect("a data directory");
    let processes = fs::read_to_string(data.join("machines").join(session).join("processes")).ok()?;
    processes.lines().nth(1)?.split(' ').next()?.parse().ok()
}

#[tokio::test]
async fn a_paused_machine_is_a_file_whose_processes_go_on_also_without_its_keeper() {
    let Some(vm) = virtual_machines() else { return };
    let spec = Spec { ephemeral: false, idle_ttl: Duration::from_secs(60), ..spec() };
    let (sandbox, qemu) = started(&vm, &spec).await;
    let count = "n=0; while :; do n=$((n + 1)); echo $n > count; sleep 0.1; done";
    output_of(
        &sandbox,
        &format!("(setsid sh -c '{count}' >/dev/null 2>&1 &); until [ -s count ]; do sleep 0.1; done"),
    )
    .await;
    let goes_on = "n=$(cat count); until [ \"$(cat count)\" -gt $((n + 2)) ]; do sleep 0.1; done; echo $n";
    let first: u32 = output_of(&sandbox, goes_on).await.parse().expect("a number");
    let directory = agent_testing::machine().data_dir().unwrap().join("machines").join(&spec.session);
    let state = directory.join("workspace/state");

    vm.pause(&spec.session).await.expect("paused");
    assert!(state.is_file() && !is_there(qemu), "it is a file");
    vm.pause(&spec.session).await.expect("it is paused already");
    vm.resume(&spec.session).await.expect("resumed");
    let second: u32 = output_of(&sandbox, goes_on).await.parse().expect("a number");
    assert!(second > first, "{first}, {second}");
    assert!(!state.exists(), "what was restored is gone");

    // As where this machine is switched off meanwhile.
    let keeper = keeper_of(&spec.session).expect("a keeper");
    signal(keeper, libc::SIGUSR1);
    wait_until("it is saved", || state.is_file());
    signal(keeper, libc::SIGKILL);
    wait_until("its keeper is gone", || !is_there(keeper));
    drop(sandbox);
    vm.resume(&spec.session).await.expect("resumed by another keeper");
    let sandbox = Sandbox::connect(vm.attach(&spec.session).await.expect("a stream")).await.expect("a guest");
    let third: u32 = output_of(&sandbox, goes_on).await.parse().expect("a number");
    assert!(third > second, "{second}, {third}");
    let drift = drift(&sandbox).await;
    assert!((-0.5..5.0).contains(&drift), "{drift} s");
    vm.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_kept_machine_is_paused_and_after_its_end_started_again_with_its_disk() {
    let Some(vm) = virtual_machines() else { return };
    let spec = Spec { ephemeral: false, idle_ttl: Duration::from_secs(3), ..spec() };
    let state = async || {
        let listed = vm.list().await.expect("the list");
        listed.into_iter().find(|listed| listed.session == spec.session).map(|listed| listed.state)
    };
    let (sandbox, _) = started(&vm, &spec).await;
    assert_eq!(output_of(&sandbox, "echo kept > file; cat file").await, "kept");
    vm.pause(&spec.session).await.expect("paused");
    assert_eq!(state().await, Some(State::Paused));
    tokio::time::sleep(Duration::from_secs(6)).await;
    vm.resume(&spec.session).await.expect("resumed");
    assert_eq!(output_of(&sandbox, "cat file").await, "kept");
    let drift = drift(&sandbox).await;
    assert!((-0.5..5.0).contains(&drift), "the clock went on while it was paused: {drift} s");
    drop(sandbox);
    let deadline = Instant::now() + LONG;
    while state().await != Some(State::Stopped) {
        assert!(Instant::now() < deadline, "it does not end without a client");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    vm.resume(&spec.session).await.expect("started again");
    let sandbox = Sandbox::connect(vm.attach(&spec.session).await.expect("a stream")).await.expect("a guest");
    assert_eq!(output_of(&sandbox, "cat file").await, "kept");
    vm.destroy(&spec.session).await.expect("removed");
    assert_eq!(state().await, None);
}

/// Seconds since 1970 here, and how far the machine's clock is from it.
async fn drift(sandbox: &Sandbox) -> f64 {
    let inside: f64 = output_of(sandbox, "date +%s.%N").await.parse().expect("a number");
    let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    here.as_secs_f64() - inside
}

#[tokio::test]
async fn machines_of_one_state_share_no_random_number_and_know_the_time() {
    let Some(vm) = virtual_machines() else { return };
    let mut seen = Vec::new();
    for _ in 0..2 {
        let spec = spec();
        let (sandbox, qemu) = started(&vm, &spec).await;
        let arguments = fs::read_to_string(format!("/proc/{qemu}/cmdline")).expect("QEMU runs");
        assert!(arguments.contains("-incoming\0fd:") && !arguments.contains("-kernel"), "{arguments}");
        let drift = drift(&sandbox).await;
        assert!((-0.5..5.0).contains(&drift), "{drift} s");
        seen.extend(
            output_of(&sandbox, "cd /proc/sys/kernel/random; cat boot_id uuid")
                .await
                .lines()
                .map(str::to_owned),
        );
        seen.push(output_of(&sandbox, "od -An -N16 -tx8 /dev/urandom").await);
        vm.destroy(&spec.session).await.expect("removed");
    }
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((all, seen.len()), (6, 6), "{seen:?}");
}

#[tokio::test]
async fn a_machine_boots_where_its_state_is_damaged() {
    let Some(vm) = virtual_machines() else { return };
    prepared(&vm).await;
    let cache = cache_but(|name| name.starts_with("state-").then(|| b"no state".to_vec()));
    let vm = with_cache(&cache);
    let spec = spec();
    let (sandbox, qemu) = started(&vm, &spec).await;
    let arguments = fs::read_to_string(format!("/proc/{qemu}/cmdline")).expect("QEMU runs");
    assert!(arguments.contains("-kernel"), "{arguments}");
    assert_eq!(output_of(&sandbox, "echo booted").await, "booted");
    // Others like it boot at once from then on.
    let mut files = fs::read_dir(cache.path()).expect("the cache").flatten();
    let is_given_up = |file: fs::DirEntry| {
        file.file_name().to_string_lossy().starts_with("state-")
            && file.metadata().is_ok_and(|found| found.len() == 0)
    };
    assert!(files.any(is_given_up), "no state is given up");
    vm.destroy(&spec.session).await.expect("removed");
}

#[test]
fn a_machine_has_terminals_and_its_ports_are_forwarded() {
    use agent_testbed::terminal::terminal;
    use agent_testing::endpoint::endpoint;
    use std::io::{Read, Write};
    if virtual_machines().is_none() {
        return;
    }
    let builder = terminal();
    share_images(&builder.directory("agent/cache"));
    let command = "tty; stty size; read x; echo \"<$x>\"; exit 3";
    let mut shown = builder.args(["exec", "--sandbox", "vm", "--", "sh", "-c", command]).start();
    shown.wait_for("\n40 100");
    shown.type_line("typed");
    shown.wait_for("<typed>");
    assert_eq!(shown.wait(), 3);

    let server = "import http.server as h\nh.HTTPServer((\"127.0.0.1\", 5173), h.SimpleHTTPRequestHandler).serve_forever()";
    let model = endpoint()
        .tool_call("run_commands", serde_json::json!({ "command": format!("echo served > page; python3 -c '{server}'"), "background": true }))
        .text("It runs.")
        .start();
    let call =
        agent().deadline(LONG).sandbox("vm").endpoint(&model).args(["run", "--keep", "--json", "serve it"]);
    let finished = call.run().expect_code(0);
    let local = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let forwarding = finished.again().args(["forward", &format!("5173:{}", local.port())]).start();
    let mut answer = String::new();
    wait_until("the server answers", || {
        answer.clear();
        let Ok(mut stream) = std::net::TcpStream::connect(local) else { return false };
        let asked = stream.write_all(b"GET /page HTTP/1.0\r\n\r\n");
        asked.and_then(|()| stream.read_to_string(&mut answer)).is_ok_and(|length| length > 0)
    });
    assert!(answer.ends_with("served\n"), "{answer}");
    forwarding.signal(libc::SIGINT);
    forwarding.wait();
    let id = finished.events()[0]["session"].as_str().expect("an id").to_owned();
    finished.again().args(["sandbox", "rm", &id]).run().expect_code(0);
}

/// An archive as `docker save` writes it, with the shell of this machine and two layers.
fn image_archive() -> tempfile::NamedTempFile {
    let append = |builder: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        builder.append_data(&mut header, name, content).expect("appended");
    };
    let libraries = std::process::Command::new("ldd").arg("/bin/sh").output().expect("ldd runs").stdout;
    let libraries = String::from_utf8(libraries).expect("text");
    let mut below = tar::Builder::new(Vec::new());
    for file in libraries.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/sh"]) {
        append(&mut below, file.trim_start_matches('/'), &fs::read(file).expect("a file"));
    }
    append(&mut below, "etc/below", b"below");
    let mut above = tar::Builder::new(Vec::new());
    append(&mut above, "etc/.wh.below", b"");
    append(&mut above, "etc/above", b"above\n");
    let mut archive = tar::Builder::new(Vec::new());
    let config = br#"{"architecture": "amd64", "config": {"Env": ["PATH=/bin", "OF_IMAGE=yes"]}}"#;
    let manifest = br#"[{"Config": "config.json", "Layers": ["1/layer.tar", "2/layer.tar"]}]"#;
    append(&mut archive, "config.json", config);
    append(&mut archive, "manifest.json", manifest);
    append(&mut archive, "1/layer.tar", &below.into_inner().expect("a layer"));
    append(&mut archive, "2/layer.tar", &above.into_inner().expect("a layer"));
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), archive.into_inner().expect("an archive")).expect("written");
    file
}

#[tokio::test]
async fn an_archive_of_an_image_is_the_root_on_either_board() {
    let Some(_) = virtual_machines() else { return };
    let archive = image_archive();
    let look = "read x < /etc/above; echo $x $OF_IMAGE $PATH; [ -e /etc/below ] || echo hidden; \
        [ -e /usr/bin/env ] || echo no other program; (echo x > /bin/new) 2>/dev/null || echo read-only; echo y > file && echo written";
    for board in [Board::Microvm, Board::Q35] {
        let machine = Arc::new(Machine::of_this_process());
        Settings { cache: Some(vm_cache()), board: Some(board), ..Settings::default() }.keep(&machine);
        let vm = Vm::connect(machine).expect("QEMU and a kernel are there");
        let spec = Spec { image: Some(archive.path().display().to_string()), ..spec() };
        let (sandbox, qemu) = started(&vm, &spec).await;
        let arguments = fs::read_to_string(format!("/proc/{qemu}/cmdline")).expect("QEMU runs");
        assert_eq!(arguments.contains("\0q35"), board == Board::Q35, "{arguments}");
        let expected = "above yes /bin\nhidden\nno other program\nread-only\nwritten";
        assert_eq!(output_of(&sandbox, look).await, expected, "{board:?}");
        vm.destroy(&spec.session).await.expect("removed");
    }
}

/// The private directory of the only machine of this home, and its QEMU.
fn only_machine(home: &Path) -> Option<(PathBuf, i32)> {
    let mut machines = fs::read_dir(home.join("machines")).ok()?.flatten();
    let directory = machines.next()?.path();
    qemu_in(&directory).map(|qemu| (directory, qemu))
}

#[test]
fn nothing_is_left_of_a_machine_whose_agent_is_killed_or_interrupted() {
    if virtual_machines().is_none() {
        return;
    }
    for (what, number) in
        [("interrupted while it boots", libc::SIGINT), ("killed while it boots", libc::SIGKILL)]
    {
        let call = agent().deadline(LONG).args(["exec", "--sandbox", "vm", "--", "sleep", "600"]);
        let home = call.home("data");
        if !agent_testbed::backends::is_vm() {
            share_images(&home.with_file_name("cache"));
        }
        let running = call.start();
        let mut found = None;
        wait_until("QEMU runs", || {
            found = only_machine(&home);
            found.is_some()
        });
        let (directory, qemu) = found.expect("it runs");
        let at = Instant::now();
        running.signal(number);
        let finished = running.wait();
        assert!(at.elapsed() < Duration::from_secs(5), "{what}: it ended after {:?}", at.elapsed());
        assert_eq!(finished.code, 128 + number, "{what}: {}", finished.stderr);
        wait_until("QEMU and its directory are gone", || !is_there(qemu) && !directory.exists());
    }
}

#[test]
fn what_a_machine_cannot_have_is_refused_by_name() {
    if virtual_machines().is_none() {
        return;
    }
    for (options, expected) in [
        (["--network", "full"], "the vm sandbox cannot provide --network full"),
        (["--image", "../no/archive"], "is not the name of an image"),
        (["--workspace-mode", "overlay"], "the workspace cannot be an overlay"),
    ] {
        let call = agent().args(["exec", "--sandbox", "vm"]).args(options).args(["--", "true"]);
        let finished = call.run();
        assert_ne!(finished.code, 0, "{options:?}");
        assert!(finished.stderr.contains(expected), "{options:?}: {}", finished.stderr);
    }
}

#[test]
fn doctor_tries_a_machine() {
    if virtual_machines().is_none() {
        return;
    }
    let call = agent().deadline(LONG).args(["doctor", "--sandbox", "vm"]);
    if !agent_testbed::backends::is_vm() {
        share_images(&call.home("cache"));
    }
    let said = call.run().stdout;
    assert!(
        said.contains("qemu-system") && said.contains("a sandbox started and ran a command in"),
        "{said}"
    );
}

#[test]
fn what_a_session_changed_is_shown_applied_and_undone() {
    use agent_testing::endpoint::endpoint;
    use serde_json::json;
    if virtual_machines().is_none() {
        return;
    }
    let model = endpoint()
        .tool_call(
            "run_commands",
            json!({ "command": "uname -r; echo changed > file.txt; echo new > new.txt" }),
        )
        .text("done")
        .start();
    let call = agent().deadline(LONG).sandbox("vm").file("file.txt", "before\n").endpoint(&model);
    if !agent_testbed::backends::is_vm() {
        share_images(&call.home("cache"));
    }
    let finished = call.args(["run", "--json", "change it"]).run().expect_code(0);
    let diff = finished.again().args(["diff"]).run().expect_code(0).stdout;
    assert!(diff.contains("+changed") && diff.contains("+new"), "{diff}");
    finished.again().args(["apply", "--yes"]).run().expect_code(0);
    assert_eq!(finished.host_file("file.txt").as_deref(), Some("changed\n"));
    finished.again().args(["undo"]).run().expect_code(0);
    assert_eq!(finished.host_file("file.txt").as_deref(), Some("before\n"));
    assert_eq!(finished.host_file("new.txt"), None);
}

/// A program without libraries, for images of nothing else.
const STATIC: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) {
    FILE *file = fopen("/shared/written", "w");
    if (file) fputs("by a container\n", file);
    printf("process %d\n", getpid());
}"#;

#[tokio::test]
async fn docker_builds_and_runs_containers_inside_of_a_machine() {
    let Some(vm) = virtual_machines() else { return };
    if !["/usr/bin/dockerd", "/usr/sbin/dockerd"].iter().any(|engine| Path::new(engine).exists()) {
        agent_testing::skip::left_out(
            "not tested: Docker in a virtual machine (Debian: apt install docker.io)",
        );
        return;
    }
    let sandbox_spec = Spec { docker: true, ..spec() };
    let (sandbox, _) = started(&vm, &sandbox_spec).await;
    // Compiled here, because an emulated processor takes its time.
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("hello.c"), STATIC).expect("written");
    let compiled = std::process::Command::new("cc")
        .args(["-static", "-o", "hello", "hello.c"])
        .current_dir(directory.path())
        .status();
    assert!(compiled.expect("cc runs").success());
    let program = fs::read(directory.path().join("hello")).expect("a program");
    let node = Node::Regular(program);
    let hello = FileWrite { path: "hello".into(), node, mode: Some(0o755), mtime_ns: None, follow: false };
    sandbox.write_files(vec![hello]).await.expect("copied").remove(0).expect("copied");
    let build = "printf 'FROM scratch\nCOPY hello /hello\nCMD [\"/hello\"]\n' >Dockerfile && \
        DOCKER_BUILDKIT=0 docker build --quiet --tag hello . >/dev/null 2>&1 && \
        docker run --rm hello && docker run --rm --memory 64m --volume \"$PWD\":/shared hello && cat written";
    assert_eq!(output_of(&sandbox, build).await, "process 1\nprocess 1\nby a container");
    // What a container must not: mounts, namespaces, other users.
    let more = "mkdir m && mount -t tmpfs none m && touch m/x && umount m && unshare --user --map-root-user id -u && \
        setpriv --reuid 1000 --regid 1000 --clear-groups id -u && cat /proc/self/cgroup";
    assert_eq!(output_of(&sandbox, more).await, "0\n1000\n0::/processes");
    vm.destroy(&sandbox_spec.session).await.expect("removed");
}
