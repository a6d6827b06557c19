//! What the guest makes faster, side by side with what the same engine offers, and whole runs of the binary.
//!
//! `cargo bench` needs a Docker engine on this machine for most of it; without one only the local sandbox is measured.

use agent::machine::Machine;
use agent::sandbox::docker::Docker;
use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Command, FileWrite, Node, Program, Sandbox, Spec};
use bollard::body_full;
use bollard::query_parameters::{DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use divan::Bencher;
use futures_util::TryStreamExt;
use std::path::Path;
use std::process;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::Runtime;

fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    if DOCKER.is_none() {
        eprintln!("no engine answers: only the local sandbox is measured");
    }
    divan::main();
    RUNTIME.block_on(async {
        if let Some(docker) = &*DOCKER {
            let _ = docker.backend.destroy(&docker.session).await;
        }
    });
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// A sandbox in a container that all benches of commands and files share.
struct Shared {
    backend: Docker,
    session: String,
    container: String,
    image: String,
    sandbox: Sandbox,
    api: bollard::Docker,
}

static DOCKER: LazyLock<Option<Shared>> = LazyLock::new(|| {
    RUNTIME.block_on(async {
        let backend = Docker::connect(machine()).await.ok()?;
        let spec = spec("shared");
        let (channel, info) = backend.start(&spec, &|_, _, _| {}).await.ok()?;
        let sandbox = Sandbox::connect(channel).await.ok()?;
        let api = bollard::Docker::connect_with_defaults().ok()?;
        let container = format!("agent-{}", spec.session);
        let inspected = api.inspect_container(&container, None).await.ok()?;
        let image = inspected.image.or(info.image)?;
        sandbox.write_files(vec![ten()]).await.ok()?;
        Some(Shared { backend, session: spec.session, container, image, sandbox, api })
    })
});

fn spec(name: &str) -> Spec {
    Spec {
        idle_ttl: Duration::from_secs(30),
        ..Spec::new(format!("bench-{name}-{}-{}", process::id(), fastrand::u32(..)))
    }
}

fn shell(text: &str) -> Command {
    Command {
        program: Program::Shell(text.to_owned()),
        cwd: None,
        env: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        live_bytes: 1 << 20,
        stdin: false,
    }
}

fn ten() -> FileWrite {
    FileWrite {
        path: "ten".into(),
        node: Node::Regular(vec![b'x'; 10_000]),
        mode: None,
        mtime_ns: None,
        follow: true,
    }
}

fn files(directory: usize, count: usize) -> Vec<FileWrite> {
    let file = |n| FileWrite {
        path: format!("many-{directory}/file-{n}").into(),
        node: Node::Regular(vec![b'x'; 1_000]),
        mode: None,
        mtime_ns: None,
        follow: true,
    };
    (0..count).map(file).collect()
}

fn archive(files: &[(String, usize)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, size) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(*size as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, vec![b'x'; *size].as_slice()).expect("packed");
    }
    archive.into_inner().expect("packed")
}

fn docker(arguments: &[&str]) {
    let done = process::Command::new("docker").args(arguments).output().expect("the docker client");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// `run_commands` of `true`, against `docker exec` of the same.
#[divan::bench_group(sample_count = 30, sample_size = 1)]
mod command {
    use super::*;

    #[divan::bench]
    fn guest(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        bencher.bench_local(|| {
            RUNTIME.block_on(shared.sandbox.run(shell("true"), &mut |_| {})).expect("it runs");
        });
    }

    #[divan::bench]
    fn docker_exec(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        bencher.bench_local(|| docker(&["exec", &shared.container, "bash", "-c", "true"]));
    }
}

/// 10 KB in and out, against the archive API.
#[divan::bench_group(sample_count = 30, sample_size = 1)]
mod file {
    use super::*;

    #[divan::bench]
    fn guest_write(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        bencher.bench_local(|| {
            RUNTIME.block_on(shared.sandbox.write_files(vec![ten()])).expect("written");
        });
    }

    #[divan::bench]
    fn archive_write(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        let bytes = archive(&[("ten".to_owned(), 10_000)]);
        bencher.bench_local(|| upload(shared, bytes.clone()));
    }

    #[divan::bench]
    fn guest_read(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        bencher.bench_local(|| {
            RUNTIME.block_on(shared.sandbox.read_file(Path::new("ten"), 0, 1 << 20)).expect("read")
        });
    }

    #[divan::bench]
    fn archive_read(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        bencher.bench_local(|| {
            let options = DownloadFromContainerOptionsBuilder::default().path("/workspace/ten").build();
            let stream = shared.api.download_from_container(&shared.container, Some(options));
            RUNTIME.block_on(stream.try_collect::<Vec<_>>()).expect("read");
        });
    }

    pub fn upload(shared: &Shared, bytes: Vec<u8>) {
        let options = UploadToContainerOptionsBuilder::default().path("/workspace").build();
        let done = shared.api.upload_to_container(&shared.container, Some(options), body_full(bytes.into()));
        RUNTIME.block_on(done).expect("uploaded");
    }
}

/// 500 files of 1 KB in one call, against one archive with the same: new ones, or in place of those that are there.
#[divan::bench_group(sample_count = 15, sample_size = 1)]
mod many_files {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The directory for one sample.
    fn directory(new: bool) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        if new { NEXT.fetch_add(1, Ordering::Relaxed) } else { 0 }
    }

    #[divan::bench(args = [true, false])]
    fn guest(bencher: Bencher, new: bool) {
        let Some(shared) = &*DOCKER else { return };
        bencher.with_inputs(|| files(directory(new), 500)).bench_local_values(|files| {
            RUNTIME.block_on(shared.sandbox.write_files(files)).expect("written");
        });
    }

    #[divan::bench(args = [true, false])]
    fn one_archive(bencher: Bencher, new: bool) {
        let Some(shared) = &*DOCKER else { return };
        let pack = || {
            let directory = directory(new);
            let names: Vec<_> = (0..500).map(|n| (format!("archived-{directory}/file-{n}"), 1_000)).collect();
            archive(&names)
        };
        bencher.with_inputs(pack).bench_local_values(|bytes| file::upload(shared, bytes));
    }
}

/// The protocol behind a simulated link of 80 ms there and back and 50 MB/s: 50 MB take 1.0 s at its full speed.
#[divan::bench_group(sample_count = 3, sample_size = 1)]
mod far {
    use super::*;
    use agent_testing::guest::Guest;
    use agent_testing::link::Link;
    use divan::counter::BytesCount;

    const LINK: Link = Link { delay: Duration::from_millis(40), bytes_per_second: Some(50_000_000) };
    const SIZE: usize = 50_000_000;

    fn start() -> Guest {
        RUNTIME.block_on(Guest::start_behind(LINK)).0
    }

    #[divan::bench]
    fn read_50_mb(bencher: Bencher) {
        let guest = start();
        std::fs::write(guest.path("large"), vec![b'x'; SIZE]).expect("a file");
        bencher.counter(BytesCount::new(SIZE)).bench_local(|| {
            let read = guest.sandbox.read_file(Path::new("large"), 0, u64::MAX);
            assert_eq!(RUNTIME.block_on(read).expect("read").bytes.len(), SIZE);
        });
    }

    /// Bytes that do not shrink, and source code.
    #[divan::bench(args = ["noise", "source"])]
    fn write_50_mb(bencher: Bencher, content: &str) {
        let guest = start();
        let source = include_bytes!("sandbox.rs");
        let bytes: Vec<u8> = match content {
            "noise" => std::iter::repeat_with(|| fastrand::u8(..)).take(SIZE).collect(),
            _ => source.iter().copied().cycle().take(SIZE).collect(),
        };
        let file = || FileWrite { node: Node::Regular(bytes.clone()), ..ten() };
        bencher.counter(BytesCount::new(SIZE)).with_inputs(file).bench_local_values(|file| {
            RUNTIME.block_on(guest.sandbox.write_files(vec![file])).expect("written");
        });
    }

    /// One round trip is 80 ms.
    #[divan::bench(sample_count = 10)]
    fn command(bencher: Bencher) {
        let guest = start();
        bencher.bench_local(|| {
            RUNTIME.block_on(guest.sandbox.run(shell("true"), &mut |_| {})).expect("it runs");
        });
    }

    /// 500 files of 1 KB; four round trips are 320 ms.
    #[divan::bench(sample_count = 10)]
    fn put_500_files(bencher: Bencher) {
        let guest = start();
        let files = || files(fastrand::usize(..), 500);
        bencher.with_inputs(files).bench_local_values(|files| {
            RUNTIME.block_on(guest.sandbox.put_tree(files)).expect("written");
        });
    }
}

/// A sandbox that is ready for its first command, against a bare container of the same image.
#[divan::bench_group(sample_count = 8, sample_size = 1)]
mod ready {
    use super::*;

    fn start(backend: &dyn Backend) -> (Spec, Sandbox) {
        let spec = spec("ready");
        let sandbox = RUNTIME.block_on(async {
            let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("it starts");
            let sandbox = Sandbox::connect(channel).await.expect("it answers");
            sandbox.stat(Path::new(".")).await.expect("it works");
            sandbox
        });
        (spec, sandbox)
    }

    fn bench(bencher: Bencher, backend: &'static dyn Backend) {
        // What is returned is dropped, and so removed, outside the measured time.
        bencher.bench_local(|| Started { backend, made: Some(start(backend)) });
    }

    struct Started {
        backend: &'static dyn Backend,
        made: Option<(Spec, Sandbox)>,
    }

    impl Drop for Started {
        fn drop(&mut self) {
            if let Some((spec, sandbox)) = self.made.take() {
                drop(sandbox);
                let _ = RUNTIME.block_on(self.backend.destroy(&spec.session));
            }
        }
    }

    #[divan::bench]
    fn docker_sandbox(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        bench(bencher, &shared.backend);
    }

    #[divan::bench]
    fn docker_create_and_start(bencher: Bencher) {
        let Some(shared) = &*DOCKER else { return };
        bencher.bench_local(|| {
            let name = format!("agent-bench-bare-{}", fastrand::u32(..));
            let entry = [
                "create",
                "--name",
                &name,
                "-i",
                "--network",
                "none",
                "--entrypoint",
                "/.agent/guest",
                &shared.image,
                "serve",
            ];
            docker(&entry);
            docker(&["start", &name]);
            Bare(name)
        });
    }

    struct Bare(String);

    impl Drop for Bare {
        fn drop(&mut self) {
            docker(&["rm", "-f", &self.0]);
        }
    }

    #[divan::bench]
    fn local_sandbox(bencher: Bencher) {
        static LOCAL: LazyLock<Local> = LazyLock::new(|| Local::new(machine()));
        bench(bencher, &*LOCAL);
    }
}

/// The whole binary. (50 turns − 1 turn) / 49 is what a turn costs.
#[divan::bench_group(sample_count = 5, sample_size = 1)]
mod binary {
    use super::*;

    #[divan::bench(sample_count = 20)]
    fn version() {
        run(process::Command::new(env!("CARGO_BIN_EXE_agent")).arg("--version"));
    }

    #[divan::bench(args = [("docker", 1), ("docker", 50), ("local", 1), ("local", 50)])]
    fn turns(bencher: Bencher, (sandbox, turns): (&str, usize)) {
        if sandbox == "docker" && DOCKER.is_none() {
            return;
        }
        let home = tempfile::tempdir().expect("a directory");
        bencher.bench_local(|| {
            let mut script = agent_testing::endpoint::endpoint();
            for turn in 0..turns {
                // Another word each time: identical calls would be taken for a loop.
                let command = format!("true {turn}");
                script = script.tool_call("run_commands", serde_json::json!({ "command": command }));
            }
            let model = script.text("done").start();
            let workspace = home.path().join("workspace");
            std::fs::create_dir_all(&workspace).expect("a workspace");
            run(process::Command::new(env!("CARGO_BIN_EXE_agent"))
                .args(["run", "-q", "go", "--sandbox", sandbox])
                .current_dir(workspace)
                .env("AGENT_HOME", home.path().join("home"))
                .env("AGENT_BASE_URL", model.url())
                .env("AGENT_API_KEY", "key")
                .env("AGENT_MODEL", "model")
                .stdin(process::Stdio::null()));
        });
    }

    fn run(command: &mut process::Command) {
        let done = command.output().expect("it starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

fn machine() -> std::sync::Arc<Machine> {
    std::sync::Arc::new(Machine::of_this_process())
}
