//! A hostile guest: whatever it sends, the connection ends with a named error, and what was waiting is `Lost`.

use agent_base::error::Kind;
use agent_sandbox::wire::{self, Decoder, MAGIC, Message, VERSION, encode};
use agent_sandbox::{
    Channel, Command, Entry, EntryKind, FileWrite, Finished, Node, Outcome, ProcessEvent, Program, Sandbox,
};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// The guest's end, played by the test.
struct HostileGuest {
    stream: DuplexStream,
    decoder: Decoder,
}

impl HostileGuest {
    /// Greets honestly.
    async fn connect() -> (Sandbox, HostileGuest) {
        let (host, guest) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(host);
        let mut hostile = HostileGuest { stream: guest, decoder: Decoder::new() };
        let channel = Channel::new(reader, writer);
        let (sandbox, ()) = tokio::join!(Sandbox::connect(channel), async {
            agent_testing::guest::greet(&mut hostile.stream).await;
        });
        (sandbox.unwrap(), hostile)
    }

    async fn send(&mut self, id: u32, message: Message) {
        let mut frame = Vec::new();
        encode(id, &message, &mut frame).unwrap();
        // The host may have hung up already: that is what is tested.
        let _ = self.stream.write_all(&frame).await;
    }

    async fn receive(&mut self) -> (u32, Message) {
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return frame;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).await.unwrap();
            assert!(length > 0, "the host hung up");
            self.decoder.feed(&buffer[..length]);
        }
    }
}

fn command() -> Command {
    Command {
        program: Program::Shell("true".into()),
        cwd: None,
        env: Vec::new(),
        timeout: None,
        live_bytes: u64::MAX,
        stdin: false,
    }
}

const LAST: Option<wire::WalkEnd> = Some(wire::WalkEnd { generation: 0, complete: true });

fn output(length: usize) -> Message {
    Message::Output { stderr: false, bytes: vec![b'x'; length] }
}

fn exited() -> Message {
    Message::Finished {
        finished: Finished {
            outcome: Outcome::Exited(0),
            duration: Duration::from_micros(1),
            output_bytes: 0,
            spool: None,
            spool_bytes: 0,
            left_running: 0,
            oom_kills: 0,
        },
    }
}

/// Starts a command, has the guest send `messages` about it, and expects it to be lost and the connection to be broken for
/// the reason given.
async fn loses(messages: Vec<(u32, Message)>, reason: &str) {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let mut process = sandbox.spawn(command()).await.unwrap();
    assert!(matches!(hostile.receive().await, (1, Message::Run { .. })));
    for (id, message) in messages {
        hostile.send(id, message).await;
    }
    let outcome = loop {
        match tokio::time::timeout(Duration::from_secs(20), process.next()).await.unwrap().unwrap() {
            ProcessEvent::Finished(finished) => break finished.outcome,
            // Taken in time or not, what is within the bounds is true.
            ProcessEvent::Output(..) | ProcessEvent::Gap(_) => {}
        }
    };
    assert_eq!(outcome, Outcome::Lost);
    let error = sandbox.stat(Path::new("x")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Sandbox);
    assert!(error.to_string().contains(reason), "{error}");
    assert!(error.hint_text().is_some());
}

#[tokio::test]
async fn a_frame_for_a_stream_that_was_never_opened() {
    loses(vec![(3, exited())], "a frame for stream 3, which is not open").await;
    loses(vec![(0, exited())], "which is not open").await;
    loses(vec![(2, exited())], "which is not open").await;
    loses(vec![(3, Message::Credit { bytes: 1 })], "which is not open").await;
}

#[tokio::test]
async fn an_answer_to_another_request() {
    loses(vec![(1, Message::Done {})], "a frame out of place on stream 1").await;
    loses(vec![(1, Message::Data { bytes: "x".into() })], "a frame out of place").await;
    loses(vec![(1, Message::Hello { magic: MAGIC, version: VERSION })], "a frame out of place").await;
    loses(
        vec![(1, Message::Run { command: command(), terminal: None, read_only: false })],
        "a frame out of place",
    )
    .await;
}

#[tokio::test]
async fn more_data_than_the_credit() {
    // In one go, so that the host cannot have returned credit in between.
    let flood = || (0..2000).map(|_| (1, output(wire::CHUNK))).collect();
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let _process = sandbox.spawn(command()).await.unwrap();
    for (id, message) in Vec::from_iter::<Vec<_>>(flood()) {
        hostile.send(id, message).await;
    }
    let error = sandbox.stat(Path::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("more than allowed on stream 1"), "{error}");
}

#[tokio::test]
async fn empty_frames_use_credit_as_well() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let _process = sandbox.spawn(command()).await.unwrap();
    for _ in 0..=wire::WINDOW / wire::FRAME_COST {
        hostile.send(1, output(0)).await;
    }
    let error = sandbox.stat(Path::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("more than allowed on stream 1"), "{error}");
}

#[tokio::test]
async fn a_chunk_beyond_the_limit() {
    loses(vec![(1, output(wire::CHUNK + 1))], "a message too long on stream 1").await;
}

#[tokio::test]
async fn credit_beyond_the_largest_window() {
    let beyond = Message::Credit { bytes: wire::MAX_WINDOW - wire::WINDOW + 1 };
    loses(vec![(1, beyond)], "more credit on stream 1 than allowed").await;
    loses(vec![(1, Message::Credit { bytes: u32::MAX })], "more credit").await;
}

#[tokio::test]
async fn bytes_that_are_not_a_frame() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let mut process = sandbox.spawn(command()).await.unwrap();
    hostile.stream.write_all(&[0xff; 64]).await.unwrap();
    let ProcessEvent::Finished(finished) = process.next().await.unwrap() else { panic!() };
    assert_eq!(finished.outcome, Outcome::Lost);
    let error = sandbox.stat(Path::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("a frame of 4294967295 bytes is not allowed"), "{error}");
}

#[tokio::test]
async fn a_terminal_message_sent_twice() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let mut process = sandbox.spawn(command()).await.unwrap();
    hostile.send(1, exited()).await;
    hostile.send(1, exited()).await;
    let ProcessEvent::Finished(finished) = process.next().await.unwrap() else { panic!() };
    assert_eq!(finished.outcome, Outcome::Exited(0));
    let error = sandbox.stat(Path::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("a frame for stream 1, which is not open"), "{error}");
}

#[tokio::test]
async fn more_of_a_file_than_was_asked_for() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let (read, ()) = tokio::join!(sandbox.read_file(Path::new("f"), 0, 5), async {
        hostile.receive().await;
        hostile.send(1, Message::FileIs { size: 5, mode: 0, mtime_ns: 0 }).await;
        hostile.send(1, Message::Data { bytes: "123456".into() }).await;
    });
    assert!(read.unwrap_err().to_string().contains("more of a file than asked for"));
}

#[tokio::test]
async fn file_bytes_before_the_file() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let (read, ()) = tokio::join!(sandbox.read_file(Path::new("f"), 0, 5), async {
        hostile.receive().await;
        hostile.send(1, Message::Data { bytes: "1".into() }).await;
    });
    assert!(read.unwrap_err().to_string().contains("a frame out of place"));
}

#[tokio::test]
async fn a_listing_that_leads_out_of_its_root() {
    for path in ["../x", "/etc/passwd", "a/../../b", "", "a\0b", ".."] {
        let (sandbox, mut hostile) = HostileGuest::connect().await;
        let (walk, ()) = tokio::join!(sandbox.walk(Path::new(""), Default::default()), async {
            hostile.receive().await;
            let entry = Entry {
                path: path.into(),
                kind: EntryKind::File,
                mode: 0,
                size: 0,
                mtime_ns: 0,
                ctime_ns: 0,
                hash: None,
                readable: true,
            };
            hostile.send(1, Message::Entries { entries: vec![entry], removed: Vec::new(), last: LAST }).await;
        });
        assert!(walk.unwrap_err().to_string().contains("a listing that cannot be"), "{path:?}");
    }
}

#[tokio::test]
async fn connections_without_a_listener_are_refused() {
    let (_sandbox, mut hostile) = HostileGuest::connect().await;
    hostile.send(2, Message::Open {}).await;
    let (id, message) = hostile.receive().await;
    assert_eq!(id, 2);
    assert!(matches!(message, Message::Failed { .. }), "{message:?}");
}

#[tokio::test]
async fn connections_are_joined_in_both_directions() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let mut tunnels = sandbox.tunnels().unwrap();
    assert!(sandbox.tunnels().is_none());
    hostile.send(2, Message::Open {}).await;
    hostile.send(4, Message::Open {}).await;
    let tunnel = tunnels.next().await.unwrap();
    let mut stream = tunnel.accept();
    assert_eq!(hostile.receive().await, (2, Message::Opened {}));
    tunnels.next().await.unwrap().refuse("it is not on the list");
    assert_eq!(
        hostile.receive().await,
        (4, Message::Failed { errno: 0, message: "it is not on the list".into() })
    );

    hostile.send(2, Message::Data { bytes: "ping".into() }).await;
    let mut ping = [0; 4];
    stream.read_exact(&mut ping).await.unwrap();
    stream.write_all(b"pong").await.unwrap();
    assert_eq!(hostile.receive().await, (2, Message::Data { bytes: "pong".into() }));
    stream.shutdown().await.unwrap();
    assert_eq!(hostile.receive().await, (2, Message::Eof {}));
    hostile.send(2, Message::Eof {}).await;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    // Both have ended: the stream is gone, and the connection continues.
    hostile.send(6, Message::Open {}).await;
    let tunnel = tunnels.next().await.unwrap();
    drop(tunnel);
    assert_eq!(hostile.receive().await, (6, Message::Reset {}));
}

#[tokio::test]
async fn connections_out_of_order() {
    let open = || Message::Open {};
    loses(vec![(3, open())], "out of order").await;
    loses(vec![(4, open()), (2, open())], "out of order").await;
    loses(vec![(2, open()), (2, open())], "out of order").await;
}

#[tokio::test]
async fn more_connections_than_allowed_are_refused() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let _tunnels = sandbox.tunnels().unwrap();
    for n in 1..=257 {
        hostile.send(2 * n, Message::Open {}).await;
    }
    assert!(matches!(hostile.receive().await, (514, Message::Failed { .. })));
}

#[tokio::test]
async fn a_peer_that_is_not_a_guest() {
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 64], b"\x05\0\0\0\0\0\0\0\x38"] {
        let (host, mut guest) = tokio::io::duplex(1000);
        let (reader, writer) = tokio::io::split(host);
        guest.write_all(bytes).await.unwrap();
        let channel = Channel::new(reader, writer);
        let Err(error) = Sandbox::connect(channel).await else { panic!() };
        assert_eq!(error.kind(), Kind::Sandbox);
        assert!(error.to_string().contains("is not the guest"), "{error}");
    }
}

#[tokio::test]
async fn another_version_of_the_protocol() {
    let (host, mut guest) = tokio::io::duplex(1000);
    let (reader, writer) = tokio::io::split(host);
    let mut hello = Vec::new();
    encode(0, &Message::Hello { magic: MAGIC, version: VERSION + 1 }, &mut hello).unwrap();
    guest.write_all(&hello).await.unwrap();
    let channel = Channel::new(reader, writer);
    let Err(error) = Sandbox::connect(channel).await else { panic!() };
    assert!(error.to_string().contains("speaks version 4 of the protocol, this agent speaks 3"), "{error}");
}

#[tokio::test]
async fn a_greeting_that_was_recorded_earlier_is_refused() {
    let mut recorded = None;
    for is_replay in [false, true] {
        let (host, mut guest) = tokio::io::duplex(1000);
        let (reader, writer) = tokio::io::split(host);
        let (connected, ()) = tokio::join!(Sandbox::connect(Channel::new(reader, writer)), async {
            let answer = agent_testing::guest::answer_to_greeting(&mut guest).await;
            let bytes = recorded.get_or_insert(answer);
            guest.write_all(bytes).await.unwrap();
        });
        match connected {
            Ok(_) => assert!(!is_replay, "a replayed greeting was taken for the guest"),
            Err(error) => {
                assert!(is_replay && error.to_string().contains("is not the guest of this build"), "{error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_falls_silent() {
    let (sandbox, hostile) = HostileGuest::connect().await;
    let error = sandbox.stat(Path::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("the guest did not answer for 30 s"), "{error}");
    drop(hostile);

    let (sandbox, _liar) = HostileGuest::connect().await;
    let mut limited = command();
    limited.timeout = Some(Duration::from_secs(5));
    let finished = sandbox.run(limited, &mut |_| ()).await.unwrap();
    assert_eq!(finished.outcome, Outcome::Lost);
}

/// Sends a request and returns the error that its answer causes.
async fn answer_to<T: std::fmt::Debug>(
    ask: impl AsyncFnOnce(Sandbox) -> agent_base::error::Result<T>,
    messages: Vec<Message>,
) -> String {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let (answer, ()) = tokio::join!(ask(sandbox), async {
        hostile.receive().await;
        for message in messages {
            hostile.send(1, message).await;
        }
    });
    answer.unwrap_err().to_string()
}

fn write(count: usize) -> Vec<FileWrite> {
    let node = Node::Regular(b"x".to_vec());
    vec![FileWrite { path: "f".into(), node, mode: Some(0o644), mtime_ns: None, follow: false }; count]
}

fn parts(parts: &[wire::Part]) -> Message {
    Message::Block { block: wire::pack(parts, false) }
}

const FILE: wire::Part = wire::Part::File { size: 1, mode: 0o644, mtime_ns: 0 };

#[tokio::test]
async fn failures_of_changes_that_were_not_made() {
    let failure = |index| wire::ChangeFailure { index, errno: 0, message: "no".into() };
    for failures in [vec![failure(2)], vec![failure(1), failure(0)], vec![failure(0), failure(0)]] {
        let lie = Message::Updated { failures, aborted: false };
        let error = answer_to(async |sandbox| sandbox.write_files(write(2)).await, vec![lie]).await;
        assert!(error.contains("failures of changes that were not made"), "{error}");
    }
}

#[tokio::test]
async fn contents_out_of_order_or_too_many() {
    use wire::Part::{Bytes, End};
    let read = async |sandbox: Sandbox| sandbox.read_files(vec!["a".into()], 10).await;
    for lie in [
        vec![Bytes(b"x".to_vec())],
        vec![End],
        vec![FILE, FILE],
        vec![FILE, End, FILE],
        vec![FILE, End, Bytes(b"x".to_vec())],
    ] {
        let error = answer_to(read, vec![parts(&lie)]).await;
        assert!(error.contains("contents that were not asked for"), "{lie:?}: {error}");
    }
    for lie in [vec![], vec![parts(&[FILE])], vec![parts(&[FILE, Bytes(b"x".to_vec())])]] {
        let error = answer_to(read, [lie, vec![Message::Done {}]].concat()).await;
        assert!(error.contains("contents are missing"), "{error}");
    }
}

#[tokio::test]
async fn blocks_that_cannot_be_decoded() {
    let wire::Block::Lz4 { bytes, .. } = wire::pack(&[wire::Part::Bytes(vec![0; 1000])], true) else {
        panic!()
    };
    let bomb = wire::Block::Lz4 { size: u32::MAX, bytes: bytes.clone() };
    let longer_than_stated = wire::Block::Lz4 { size: 20, bytes };
    for (block, reason) in [
        (wire::Block::Plain(vec![0xff; 100]), "255 is not a valid tag of Part"),
        (bomb, "a block of 4294967295 bytes is not allowed"),
        (longer_than_stated, "a compressed block is damaged"),
    ] {
        let read = async |sandbox: Sandbox| sandbox.read_files(vec!["a".into()], 10).await;
        let error = answer_to(read, vec![Message::Block { block }]).await;
        assert!(error.contains(&format!("the guest violates the protocol ({reason})")), "{error}");
    }
}

#[tokio::test]
async fn contents_without_end_stop_at_the_limit() {
    let endless = || parts(&[wire::Part::Bytes(vec![0; 50_000])]);
    let messages = [vec![parts(&[FILE])], (0..40).map(|_| endless()).collect()].concat();
    let error =
        answer_to(async |sandbox| sandbox.read_files(vec!["a".into()], 200_000).await, messages).await;
    assert!(error.contains("more than the limit"), "{error}");
}

#[tokio::test]
async fn missing_files_that_were_not_asked_about_name_nothing() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let (put, ()) = tokio::join!(sandbox.put_tree(write(2)), async {
        hostile.receive().await;
        hostile.send(1, Message::MissingAre { indexes: vec![7, 7, u32::MAX] }).await;
    });
    assert_eq!(put.unwrap().sent, 0);
}

#[tokio::test]
async fn a_walk_that_removes_what_was_never_listed() {
    let removal = || Message::Entries { entries: Vec::new(), removed: vec!["x".into()], last: LAST };
    let walk = async |sandbox: Sandbox| sandbox.walk(Path::new(""), Default::default()).await;
    assert!(answer_to(walk, vec![removal()]).await.contains("a listing that cannot be"));
    let lie = Message::Entries { entries: Vec::new(), removed: vec!["../x".into()], last: LAST };
    let since = async |sandbox: Sandbox| sandbox.walk_since(Path::new(""), Default::default(), 3).await;
    assert!(answer_to(since, vec![lie]).await.contains("a listing that cannot be"));
}

#[tokio::test]
async fn a_pong_without_a_ping() {
    loses(vec![(0, Message::Pong {})], "a frame for stream 0, which is not open").await;
}

#[tokio::test]
async fn more_than_an_attached_stream_may_hold() {
    let (sandbox, mut hostile) = HostileGuest::connect().await;
    let process = sandbox.attach_job(1, 0).await.unwrap();
    // Nobody reads: the window does not grow.
    for _ in 0..=wire::WINDOW / wire::cost(wire::CHUNK) {
        hostile.send(1, output(wire::CHUNK)).await;
    }
    let error = sandbox.stat(Path::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("more than allowed on stream 1"), "{error}");
    drop(process);
}
