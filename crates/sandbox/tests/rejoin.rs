//! A stream that is cut: the handle joins the guest again, and finds there what it left.

use agent_base::error::Error;
use agent_sandbox::wire::{MAGIC, Message, VERSION, encode};
use agent_sandbox::{Channel, Command, Outcome, Reopen, Reopened, Sandbox, WalkOptions};
use agent_testing::guest::{self, DEADLINE, program, shell, wait_until};
use futures_util::FutureExt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::task::AbortHandle;

/// A guest behind streams that a test cuts.
struct Cut {
    sandbox: Sandbox,
    cable: Arc<Cable>,
    guest: Child,
    directory: TempDir,
}

#[derive(Default)]
struct Cable {
    name: String,
    /// Set if another stream can be had.
    is_open: AtomicBool,
    /// Set if the guest learns that a stream was cut.
    tells: AtomicBool,
    is_gone: AtomicBool,
    opened: AtomicU32,
    carriers: Mutex<Vec<AbortHandle>>,
    held: Mutex<Vec<(Child, OwnedFd)>>,
}

impl Cable {
    /// A stream to the guest, through a process as `kubectl exec` starts one.
    fn channel(self: &Arc<Self>) -> Channel {
        let mut attach = tokio::process::Command::new(program())
            .args(["attach", "--socket", &self.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the guest's program starts");
        let (mut stdin, mut stdout) =
            (attach.stdin.take().expect("a pipe"), attach.stdout.take().expect("a pipe"));
        let held = stdin.as_fd().try_clone_to_owned().expect("a descriptor");
        let (near, far) = tokio::io::duplex(1 << 16);
        let (mut from_host, mut to_host) = tokio::io::split(far);
        let carrier = tokio::spawn(async move {
            let _ = tokio::join!(
                tokio::io::copy(&mut from_host, &mut stdin),
                tokio::io::copy(&mut stdout, &mut to_host)
            );
        });
        self.carriers.lock().unwrap().push(carrier.abort_handle());
        self.held.lock().unwrap().push((attach, held));
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (reader, writer) = tokio::io::split(near);
        let cable = Arc::clone(self);
        let reopen: Reopen = Arc::new(move || {
            let cable = Arc::clone(&cable);
            async move { cable.reopened() }.boxed()
        });
        Channel { is_slow: true, reopen: Some(reopen), ..Channel::new(reader, writer) }
    }

    fn reopened(self: &Arc<Self>) -> Reopened {
        match (self.is_gone.load(Ordering::Relaxed), self.is_open.load(Ordering::Relaxed)) {
            (true, _) => Reopened::Gone(Error::sandbox("the pod was evicted").hint("give it more room")),
            (_, true) => Reopened::Open(self.channel()),
            _ => Reopened::NotYet(Error::sandbox("nobody answers")),
        }
    }

    fn cut(&self) {
        self.carriers.lock().unwrap().drain(..).for_each(|carrier| carrier.abort());
        if self.tells.load(Ordering::Relaxed) {
            self.held.lock().unwrap().clear();
        }
    }

    fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }
}

impl Cut {
    async fn start() -> Self {
        let directory = TempDir::new().expect("a directory");
        let name = format!("agent-rejoin-{}-{}", std::process::id(), fastrand::u32(..));
        let (guest, own) = guest::start(directory.path(), &["--user-socket", &name]);
        let cable = Arc::new(Cable { name, ..Cable::default() });
        cable.set_open(true);
        cable.tells.store(true, Ordering::Relaxed);
        let sandbox = Sandbox::connect(cable.channel()).await.expect("the guest answers");
        // The guest's own first client goes.
        drop(own);
        Self { sandbox, cable, guest, directory }
    }

    /// Runs what never ends until the stream is cut.
    async fn cut_in_mid_command(&self) -> (i32, Outcome) {
        let endless = shell("echo $$ >pid; exec sleep 100000");
        let mut on_output = |_: agent_sandbox::Output<'_>| {};
        let running = self.sandbox.run(endless, &mut on_output);
        let pid = self.directory.path().join("workspace/pid");
        let read = || std::fs::read_to_string(&pid).ok().and_then(|text| text.trim().parse::<i32>().ok());
        let cutting = async {
            wait_until("the command runs", || read().is_some()).await;
            self.cable.cut();
        };
        let (finished, ()) = tokio::join!(running, cutting);
        (read().expect("a process"), finished.expect("an outcome").outcome)
    }

    async fn text_of(&self, text: &str) -> String {
        let mut bytes = Vec::new();
        let mut keep = |output: agent_sandbox::Output<'_>| {
            if let agent_sandbox::Output::Data(_, piece) = output {
                bytes.extend_from_slice(piece);
            }
        };
        let finished = self.sandbox.run(shell(text), &mut keep).await.expect("the guest answers");
        assert_eq!(finished.outcome, Outcome::Exited(0));
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        guest::signal(self.guest.id().expect("it runs") as i32, libc::SIGTERM);
    }
}

fn job(text: &str) -> Command {
    Command { timeout: None, ..shell(text) }
}

#[tokio::test]
async fn a_cut_stream_is_joined_again_and_its_jobs_run() {
    let cut = Cut::start().await;
    let job = cut.sandbox.start_job(job("while :; do echo up; sleep 0.1; done")).await.expect("a job");
    let (process, outcome) = cut.cut_in_mid_command().await;
    assert_eq!(outcome, Outcome::Lost);
    let output = cut.sandbox.job_output(job, Duration::from_secs(10)).await.expect("its output");
    assert!(output.state.is_none() && !output.output.is_empty(), "{output:?}");
    assert_eq!(cut.text_of("cat pid").await, process.to_string());
    wait_until("the command of the cut client ends", || !guest::is_alive(process)).await;
    // Again and again.
    for _ in 0..3 {
        cut.cable.cut();
        // A command that is started before the end was seen is lost with the connection; what can be asked again is not.
        cut.sandbox.stat(Path::new("pid")).await.expect("it is there");
        assert_eq!(cut.text_of("echo again").await, "again");
    }
}

#[tokio::test]
async fn what_is_asked_for_while_a_stream_is_cut_waits_for_the_next() {
    let cut = Cut::start().await;
    cut.cable.set_open(false);
    cut.cable.cut();
    let asked = async {
        let started = Instant::now();
        cut.sandbox.stat(Path::new(".")).await.expect("it is there");
        started.elapsed()
    };
    let opened = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        cut.cable.set_open(true);
    };
    let (waited, ()) = tokio::join!(asked, opened);
    assert!(waited >= Duration::from_millis(700), "{waited:?}");
    assert_eq!(cut.text_of("echo later").await, "later");
}

#[tokio::test]
async fn requests_that_were_under_way_are_sent_again() {
    let cut = Cut::start().await;
    let job = cut.sandbox.start_job(job("sleep 2; echo late; sleep 1000")).await.expect("a job");
    let output = cut.sandbox.job_output(job, Duration::from_secs(30));
    let cutting = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cut.cable.cut();
    };
    let (output, ()) = tokio::join!(output, cutting);
    assert!(!output.expect("its output").output.is_empty());
    std::fs::write(cut.directory.path().join("workspace/file"), "x".repeat(1 << 20)).expect("written");
    for round in 0..10 {
        let cutting = async {
            tokio::time::sleep(Duration::from_micros(200 * round)).await;
            cut.cable.cut();
        };
        let (read, ()) = tokio::join!(cut.sandbox.read_file(Path::new("file"), 0, 2 << 20), cutting);
        assert_eq!(read.expect("the file").bytes.len(), 1 << 20);
        let cutting = async { cut.cable.cut() };
        let (listed, ()) = tokio::join!(cut.sandbox.walk(Path::new(""), WalkOptions::default()), cutting);
        assert_eq!(listed.expect("the tree").len(), 1);
    }
}

/// A link that is dead without anybody having said so to the guest.
#[tokio::test]
async fn a_client_that_the_guest_still_waits_for_is_replaced() {
    let cut = Cut::start().await;
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    cut.sandbox.listen(port, &[("PROXY".to_owned(), "here".to_owned())]).await.expect("the outlet");
    let mut tunnels = cut.sandbox.tunnels().expect("the first to take them");
    cut.cable.tells.store(false, Ordering::Relaxed);
    let (process, outcome) = cut.cut_in_mid_command().await;
    assert_eq!(outcome, Outcome::Lost);
    // The outlet is the new client's, with its variables.
    assert_eq!(cut.text_of("echo $PROXY").await, "here");
    wait_until("the command of the cut client ends", || !guest::is_alive(process)).await;
    let mut program = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("the outlet is open");
    program.write_all(b"ping").await.expect("written");
    let tunnel =
        tokio::time::timeout(DEADLINE, tunnels.next()).await.expect("it is offered").expect("a tunnel");
    let mut stream = tunnel.accept();
    let mut ping = [0; 4];
    stream.read_exact(&mut ping).await.expect("its bytes");
    assert_eq!(&ping, b"ping");
}

#[tokio::test]
async fn a_sandbox_that_is_gone_is_named_and_not_waited_for() {
    let cut = Cut::start().await;
    cut.cable.is_gone.store(true, Ordering::Relaxed);
    let (_, outcome) = cut.cut_in_mid_command().await;
    assert_eq!(outcome, Outcome::Lost);
    for _ in 0..2 {
        let started = Instant::now();
        let error = cut.sandbox.stat(Path::new(".")).await.expect_err("it is gone");
        assert_eq!(error.to_string(), "the connection to the sandbox broke: the pod was evicted");
        assert_eq!((error.hint_text(), error.exit_code() as u8), (Some("give it more room"), 4));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_opened_again_is_given_up() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(near);
    let reopen: Reopen =
        Arc::new(|| async { Reopened::NotYet(Error::sandbox("the API server cannot be reached")) }.boxed());
    let channel = Channel { reopen: Some(reopen), ..Channel::new(reader, writer) };
    let (sandbox, ()) = tokio::join!(Sandbox::connect(channel), guest::greet(&mut far));
    let sandbox = sandbox.expect("the guest answers");
    drop(far);
    let error = sandbox.stat(Path::new(".")).await.expect_err("nobody answers");
    assert_eq!(
        error.to_string(),
        "the connection to the sandbox broke: it could not be joined again for 120 s: the API server cannot be reached"
    );
}

#[tokio::test]
async fn a_guest_that_violates_the_protocol_is_not_joined_again() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(near);
    let reopen: Reopen = Arc::new(|| panic!("it is not trusted any more"));
    let channel = Channel { reopen: Some(reopen), ..Channel::new(reader, writer) };
    let (sandbox, ()) = tokio::join!(Sandbox::connect(channel), guest::greet(&mut far));
    let sandbox = sandbox.expect("the guest answers");
    let mut frame = Vec::new();
    encode(7, &Message::Hello { magic: MAGIC, version: VERSION }, &mut frame).expect("it fits");
    far.write_all(&frame).await.expect("written");
    let error = sandbox.stat(Path::new(".")).await.expect_err("the connection has ended");
    assert!(error.to_string().contains("violates the protocol"), "{error}");
}

/// With the last handle everything ends: no stream is opened any more.
#[tokio::test]
async fn nothing_is_joined_again_for_nobody() {
    let cut = Cut::start().await;
    let (cable, sandbox) = (Arc::clone(&cut.cable), cut.sandbox.clone());
    sandbox.shutdown().await;
    cable.cut();
    assert!(sandbox.stat(Path::new(".")).await.is_err());
    assert_eq!(cable.opened.load(Ordering::Relaxed), 1);
}
