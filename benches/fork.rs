//! How soon a fork is ready, and many sandboxes at once, on local sandboxes and, where an engine answers, in Docker.
//!
//! `cargo bench --bench fork` measures both, `-- fork` or `-- many` one of them.

use agent::error::Result;
use agent::event::Events;
use agent::log::Store;
use agent::machine::Machine;
use agent::model::{ChatModel, OnProgress, Reply, Request};
use agent::sandbox::WORKSPACE;
use agent::sandbox::docker::Docker;
use agent::sandbox::host_tree::share_looks;
use agent::sandbox::local::Local;
use agent::sandbox::{Backend, Command, Program, Sandbox, Spec};
use agent::session::{Builder, ModelSettings, Resume, SandboxSettings, Session, Start};
use futures_util::future::{BoxFuture, join_all};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files of the workspace that is forked.
const FILES: usize = 50_000;
/// Forks, and empty sandboxes to compare them with, of which the median counts.
const REPETITIONS: usize = 9;

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let names: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let measured = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load: {}", load.trim());
    let machine = Arc::new(Machine::of_this_process());
    share_looks(&machine);
    let local: Arc<dyn Backend> = Arc::new(Local::new(Arc::clone(&machine)));
    let mut backends = vec![(local, 64)];
    match Docker::connect(Arc::clone(&machine)).await {
        Ok(docker) => backends.push((Arc::new(docker), 30)),
        Err(error) => println!("docker: not measured: {error}"),
    }
    for (backend, count) in backends {
        if measured("fork") {
            forks(&machine, &backend).await.expect("it is forked");
        }
        if measured("many") {
            many(&backend, count).await.expect("they start");
        }
    }
}

/// A fork of a session with many files, from the request to a sandbox with all of them, against an empty sandbox.
async fn forks(machine: &Arc<Machine>, backend: &Arc<dyn Backend>) -> Result<()> {
    let home = tempfile::tempdir()?;
    let (files, empty) = (home.path().join("files"), home.path().join("empty"));
    std::fs::create_dir(&empty)?;
    for directory in 0..FILES / 100 {
        let directory = files.join(format!("d{directory}"));
        std::fs::create_dir_all(&directory)?;
        for file in 0..100 {
            std::fs::write(directory.join(format!("f{file}")), format!("{file}\n"))?;
        }
    }
    let rest = Place { machine, backend, store: &Store::at(home.path().join("agent")) };
    let source = rest.open(&files, Start::New).await?;
    let sandbox = source.startup().ready().await?.sandbox.clone();
    shell(&sandbox, "echo changed > d0/f0; echo new > new; mkdir -p ~/.cache; echo kept > ~/.cache/kept")
        .await?;
    let (mut of_empty, mut of_fork) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        let session = rest.open(&empty, Start::New).await?;
        session.startup().ready().await?;
        of_empty.push(started.elapsed());
        session.finish(&Ok(())).await?;

        let started = Instant::now();
        let fork = source.fork().await?;
        let asked = started.elapsed();
        let resume = Resume::open(rest.store, fork.id)?;
        let workspace = resume.find_workspace(rest.store, backend, Arc::clone(machine)).await?;
        let session = rest.open(&files, Start::Resume(Box::new(resume), workspace)).await?;
        let opened = started.elapsed();
        let ready = session.startup().ready().await?;
        of_fork.push(started.elapsed());
        if std::env::var_os("BENCH_STEPS").is_some() {
            println!("  forked {asked:?}, opened {opened:?}, ready {:?}", started.elapsed());
        }
        let check = "grep -q changed d0/f0 && test -f new && test -f d499/f99 && grep -q kept ~/.cache/kept";
        shell(&ready.sandbox, check).await?;
        session.finish(&Ok(())).await?;
    }
    source.finish(&Ok(())).await?;
    let (empty, fork) = (median(of_empty), median(of_fork));
    println!(
        "{}: an empty sandbox is ready in {:.0} ms, a fork of {FILES} files in {:.0} ms: {:.0} ms more",
        backend.name(),
        ms(empty),
        ms(fork),
        ms(fork) - ms(empty)
    );
    Ok(())
}

/// Many sandboxes at once, against one.
async fn many(backend: &Arc<dyn Backend>, count: usize) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut of_one = Vec::new();
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        let (session, sandbox) = start(backend).await?;
        of_one.push(started.elapsed());
        sandbox.shutdown().await;
        backend.destroy(&session).await?;
    }
    let one = median(of_one);
    let started = Instant::now();
    let all = join_all((0..count).map(|_| start(backend))).await;
    let took = started.elapsed();
    let all: Vec<(String, Sandbox)> = all.into_iter().collect::<Result<_>>()?;
    join_all(all.iter().map(|(session, sandbox)| async move {
        sandbox.shutdown().await;
        backend.destroy(session).await
    }))
    .await
    .into_iter()
    .collect::<Result<()>>()?;
    let alone = ms(one) * count as f64 / cores as f64;
    println!(
        "{}: one sandbox answers in {:.0} ms, {count} at once in {:.0} ms: {:.2} x (count / cores) x one",
        backend.name(),
        ms(one),
        ms(took),
        ms(took) / alone
    );
    Ok(())
}

/// A sandbox in which a command has run.
async fn start(backend: &Arc<dyn Backend>) -> Result<(String, Sandbox)> {
    let session = format!("bench-many-{}-{}", std::process::id(), fastrand::u32(..));
    let spec = Spec::new(&session);
    let (channel, _) = backend.start(&spec, &|_, _, _| {}).await?;
    let sandbox = Sandbox::connect(channel).await?;
    shell(&sandbox, "true").await?;
    Ok((session, sandbox))
}

async fn shell(sandbox: &Sandbox, text: &str) -> Result<()> {
    let command = Command {
        program: Program::Shell(text.to_owned()),
        cwd: Some(Path::new(WORKSPACE).to_owned()),
        env: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        live_bytes: 1 << 10,
        stdin: false,
    };
    let finished = sandbox.run(command, &mut |_| {}).await?;
    assert_eq!(finished.outcome, agent::sandbox::Outcome::Exited(0), "{text}");
    Ok(())
}

/// What all sessions have in common.
struct Place<'a> {
    machine: &'a Arc<Machine>,
    backend: &'a Arc<dyn Backend>,
    store: &'a Store,
}

impl Place<'_> {
    async fn open(&self, root: &Path, start: Start) -> Result<Session> {
        let model = ModelSettings::new(Arc::new(Silent));
        let builder = Builder {
            sandbox: SandboxSettings::new(Arc::clone(self.backend)),
            store: self.store.clone(),
            start,
            ..Builder::new(Arc::clone(self.machine), root, model)?
        };
        builder.open(Arc::new(Arc::new(Events::new(1)))).await
    }
}

/// Nobody asks it anything.
struct Silent;

impl ChatModel for Silent {
    fn ask<'a>(&'a self, _: Request<'a>, _: OnProgress<'a>) -> BoxFuture<'a, Result<Reply>> {
        Box::pin(async { Ok(Reply::default()) })
    }

    fn models(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn name(&self) -> &str {
        "silent"
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
