//! The protocol's decoder on arbitrary bytes: an error, never a panic, a hang or memory beyond the frame limit.

use agent_wire::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,60}"
}

fn word() -> impl Strategy<Value = OsString> {
    bytes().prop_map(OsString::from_vec)
}

fn path() -> impl Strategy<Value = PathBuf> {
    word().prop_map(PathBuf::from)
}

fn command() -> impl Strategy<Value = Command> {
    let program = prop_oneof![text().prop_map(Program::Shell), vec(word(), 0..5).prop_map(Program::Argv)];
    let env = vec((word(), word()), 0..4);
    let timeout = option::of(any::<u64>().prop_map(Duration::from_micros));
    (program, option::of(path()), env, timeout, any::<u64>(), any::<bool>()).prop_map(
        |(program, cwd, env, timeout, live_bytes, stdin)| Command {
            program,
            cwd,
            env,
            timeout,
            live_bytes,
            stdin,
        },
    )
}

fn terminal() -> impl Strategy<Value = TerminalSize> {
    any::<(u16, u16)>().prop_map(|(rows, columns)| TerminalSize { rows, columns })
}

fn finished() -> impl Strategy<Value = Finished> {
    let outcome = prop_oneof![
        any::<i32>().prop_map(Outcome::Exited),
        any::<i32>().prop_map(Outcome::Signaled),
        Just(Outcome::TimedOut),
        Just(Outcome::OomKilled),
        any::<u64>().prop_map(|bytes| Outcome::OverQuota { bytes }),
        Just(Outcome::Lost),
    ];
    (outcome, any::<[u64; 3]>(), option::of(path()), any::<[u32; 2]>()).prop_map(
        |(outcome, [duration, output_bytes, spool_bytes], spool, [left_running, oom_kills])| Finished {
            outcome,
            duration: Duration::from_micros(duration),
            output_bytes,
            spool,
            spool_bytes,
            left_running,
            oom_kills,
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        Just(EntryKind::File),
        path().prop_map(EntryKind::Symlink),
        Just(EntryKind::Directory),
        Just(EntryKind::Other),
    ];
    let hash = any::<Option<[u8; 32]>>();
    (path(), kind, any::<u32>(), any::<u64>(), any::<[i64; 2]>(), hash, any::<bool>()).prop_map(
        |(path, kind, mode, size, [mtime_ns, ctime_ns], hash, readable)| Entry {
            path,
            kind,
            mode,
            size,
            mtime_ns,
            ctime_ns,
            hash,
            readable,
        },
    )
}

fn write() -> impl Strategy<Value = FileWrite> {
    let node =
        prop_oneof![bytes().prop_map(Node::Regular), path().prop_map(Node::Symlink), Just(Node::Directory),];
    (path(), node, any::<Option<u32>>(), any::<Option<i64>>(), any::<bool>())
        .prop_map(|(path, node, mode, mtime_ns, follow)| FileWrite { path, node, mode, mtime_ns, follow })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        write().prop_map(Change::Write),
        write().prop_map(Change::Begin),
        bytes().prop_map(Change::Append),
        Just(Change::Finish),
        path().prop_map(Change::Remove),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        any::<(u64, u32, i64)>().prop_map(|(size, mode, mtime_ns)| Part::File { size, mode, mtime_ns }),
        bytes().prop_map(Part::Bytes),
        Just(Part::End),
        (any::<i32>(), text()).prop_map(|(errno, message)| Part::Failed { errno, message }),
    ]
}

fn facts() -> impl Strategy<Value = Facts> {
    let numbers = any::<[Option<u64>; 6]>();
    (any::<[bool; 2]>(), vec(text(), 0..4), numbers, any::<u64>()).prop_map(|(is, tools, n, oom_kills)| {
        Facts {
            bash: is[0],
            tools,
            memory_bytes: n[0],
            memory_limit: n[1],
            pids: n[2],
            pids_limit: n[3],
            disk_bytes: n[4],
            disk_free: n[5],
            oom_kills,
            takes_no_automount: is[1],
        }
    })
}

fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
    vec((word(), bytes()).prop_map(|(name, value)| Attribute { name, value }), 0..3)
}

fn both_ways() -> impl Strategy<Value = Message> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(|(magic, version)| Message::Hello { magic, version }),
        any::<[u8; 32]>().prop_map(|nonce| Message::Prove { nonce }),
        any::<[u8; 32]>().prop_map(|hash| Message::Proof { hash }),
        bytes().prop_map(|bytes| Message::Data { bytes }),
        Just(Message::Eof {}),
        any::<u32>().prop_map(|bytes| Message::Credit { bytes }),
        Just(Message::Reset {}),
        Just(Message::Opened {}),
        (any::<i32>(), text()).prop_map(|(errno, message)| Message::Failed { errno, message }),
        (vec(change(), 0..5), any::<bool>())
            .prop_map(|(changes, compress)| Message::Block { block: pack(&changes, compress) }),
        Just(Message::Ping {}),
        Just(Message::Pong {}),
    ]
}

fn requests() -> impl Strategy<Value = Message> {
    let walk = (path(), any::<bool>(), vec(path(), 0..3), any::<u64>(), any::<Option<u64>>(), any::<u32>());
    let state = (path(), any::<u32>(), any::<u64>(), any::<[u8; 32]>())
        .prop_map(|(path, mode, size, hash)| FileState { path, mode, size, hash });
    let run = (command(), option::of(terminal()), any::<bool>());
    let job = (command(), option::of(terminal()), any::<bool>());
    prop_oneof![
        run.prop_map(|(command, terminal, read_only)| Message::Run { command, terminal, read_only }),
        job.prop_map(|(command, terminal, read_only)| Message::StartJob { command, terminal, read_only }),
        Just(Message::Kill {}),
        any::<(u64, u32)>().prop_map(|(job, wait_ms)| Message::JobOutput { job, wait_ms }),
        any::<u64>().prop_map(|job| Message::JobKill { job }),
        any::<(u64, u64)>().prop_map(|(job, from)| Message::AttachJob { job, from }),
        terminal().prop_map(|size| Message::Resize { size }),
        any::<i32>().prop_map(|signal| Message::Signal { signal }),
        path().prop_map(|path| Message::Stat { path }),
        (path(), any::<[u64; 2]>()).prop_map(|(path, [offset, limit])| Message::ReadFile {
            path,
            offset,
            limit
        }),
        Just(Message::Update {}),
        (vec(path(), 0..4), any::<bool>())
            .prop_map(|(paths, compress)| Message::ReadFiles { paths, compress }),
        vec(state, 0..4).prop_map(|files| Message::Missing { files }),
        walk.prop_map(|(root, hash, exclude, max_entries, since, depth)| Message::Walk {
            root,
            hash,
            exclude,
            max_entries,
            since,
            depth
        }),
        vec(text(), 0..5).prop_map(|tools| Message::GetFacts { tools }),
        (vec(path(), 0..4), word()).prop_map(|(paths, prefix)| Message::Attributes { paths, prefix }),
        (path(), word(), attributes()).prop_map(|(path, prefix, attributes)| Message::SetAttributes {
            path,
            prefix,
            attributes
        }),
        any::<u16>().prop_map(|port| Message::Connect { port }),
        (any::<u16>(), vec((word(), word()), 0..4)).prop_map(|(port, env)| Message::Listen { port, env }),
        Just(Message::Shutdown {}),
    ]
}

fn answers() -> impl Strategy<Value = Message> {
    let end = any::<(u64, bool)>().prop_map(|(generation, complete)| WalkEnd { generation, complete });
    let entries = (vec(entry(), 0..5), vec(path(), 0..3), option::of(end))
        .prop_map(|(entries, removed, last)| Message::Entries { entries, removed, last });
    let failure = (any::<u32>(), any::<i32>(), text()).prop_map(|(index, errno, message)| ChangeFailure {
        index,
        errno,
        message,
    });
    prop_oneof![
        (any::<bool>(), bytes()).prop_map(|(stderr, bytes)| Message::Output { stderr, bytes }),
        any::<u64>().prop_map(|bytes| Message::Gap { bytes }),
        finished().prop_map(|finished| Message::Finished { finished }),
        any::<u64>().prop_map(|job| Message::JobStarted { job }),
        option::of(finished()).prop_map(|finished| Message::JobState { finished }),
        entry().prop_map(|entry| Message::Stated { entry }),
        any::<(u64, u32, i64)>().prop_map(|(size, mode, mtime_ns)| Message::FileIs { size, mode, mtime_ns }),
        entries,
        (vec(failure, 0..4), any::<bool>())
            .prop_map(|(failures, aborted)| Message::Updated { failures, aborted }),
        vec(any::<u32>(), 0..9).prop_map(|indexes| Message::MissingAre { indexes }),
        vec(attributes(), 0..4).prop_map(|files| Message::AttributesAre { files }),
        Just(Message::Done {}),
        facts().prop_map(|facts| Message::FactsAre { facts }),
        Just(Message::Open {}),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![both_ways(), requests(), answers()]
}

/// Feeds in pieces of the given sizes and collects the frames.
fn decode(bytes: &[u8], pieces: &[usize]) -> (Vec<(u32, Message)>, Option<WireError>) {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    let mut rest = bytes;
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(sizes.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
        decoder.feed(piece);
        rest = later;
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

proptest! {
    #[test]
    fn every_frame_decodes_to_what_was_encoded(
        frames in vec((any::<u32>(), message()), 0..8),
        pieces in vec(1_usize..300, 0..20),
    ) {
        let mut bytes = Vec::new();
        for (id, message) in &frames {
            encode(*id, message, &mut bytes).unwrap();
        }
        prop_assert_eq!(decode(&bytes, &pieces), (frames, None));
    }

    #[test]
    fn arbitrary_bytes_are_an_error_or_frames(
        bytes in vec(any::<u8>(), 0..2000),
        pieces in vec(1_usize..300, 0..20),
    ) {
        decode(&bytes, &pieces);
    }

    #[test]
    fn a_block_decodes_to_what_was_packed(
        changes in vec(change(), 0..MAX_CHANGES),
        parts in vec(part(), 0..MAX_CHANGES),
    ) {
        for compress in [false, true] {
            prop_assert_eq!(unpack::<Change>(&pack(&changes, compress)), Ok(changes.clone()));
            prop_assert_eq!(unpack::<Part>(&pack(&parts, compress)), Ok(parts.clone()));
        }
    }

    /// Of few different pieces, as text and code are.
    #[test]
    fn what_is_compressed_is_lz4_and_decompresses_to_the_same(
        pieces in vec(vec(any::<u8>(), 0..40), 1..8),
        order in vec(any::<prop::sample::Index>(), 0..2000),
    ) {
        let mut input: Vec<u8> = order.iter().flat_map(|index| index.get(&pieces).clone()).collect();
        input.truncate(lz4::MAX_INPUT);
        let by_the_library = lz4_flex::block::compress(&input);
        prop_assert_eq!(lz4::decompress(&by_the_library, input.len()), Some(input.clone()));
        if let Some(compressed) = lz4::compress(&input) {
            prop_assert!(compressed.len() < input.len());
            prop_assert_eq!(lz4::decompress(&compressed, input.len()), Some(input.clone()));
            prop_assert_eq!(lz4_flex::block::decompress(&compressed, input.len()).ok(), Some(input));
        }
    }

    #[test]
    fn arbitrary_bytes_decompress_to_the_stated_size_or_not_at_all(
        bytes in vec(any::<u8>(), 0..300),
        size in 0_usize..2000,
    ) {
        prop_assert!(lz4::decompress(&bytes, size).is_none_or(|output| output.len() == size));
    }

    #[test]
    fn arbitrary_blocks_are_an_error_or_items(bytes in vec(any::<u8>(), 0..2000), size in any::<u32>()) {
        for block in [Block::Plain(bytes.clone()), Block::Lz4 { size, bytes }] {
            let _ = unpack::<Change>(&block);
            let _ = unpack::<Part>(&block);
        }
    }

    /// All that is queued is popped once, in order within its stream.
    #[test]
    fn an_outbox_keeps_the_order_of_each_stream(frames in vec((0_u32..5, bytes()), 0..40)) {
        let mut outbox = Outbox::default();
        frames.iter().for_each(|(stream, frame)| outbox.push(*stream, [&[*stream as u8], &frame[..]].concat()));
        let mut popped = Vec::new();
        while let Some(frame) = outbox.pop() {
            popped.push((u32::from(frame[0]), frame[1..].to_vec()));
        }
        prop_assert!(outbox.is_empty() && outbox.bytes() == 0);
        for stream in 0..5 {
            let of = |frames: &[(u32, Vec<u8>)]| -> Vec<_> {
                frames.iter().filter(|(id, _)| *id == stream).cloned().collect()
            };
            prop_assert_eq!(of(&popped), of(&frames));
        }
    }

    /// A valid header reaches more of the decoder than noise.
    #[test]
    fn an_arbitrary_body_decodes_to_what_encodes_to_it(kind in 0_u8..0x40, body in vec(any::<u8>(), 0..300)) {
        let mut bytes = (5 + body.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 0, 0, kind]);
        bytes.extend_from_slice(&body);
        let (frames, _) = decode(&bytes, &[]);
        if let [(id, message)] = &frames[..] {
            let mut again = Vec::new();
            encode(*id, message, &mut again).unwrap();
            prop_assert_eq!(again, bytes);
        }
    }

    /// One changed byte in a valid frame.
    #[test]
    fn a_damaged_frame_is_an_error_or_another_frame(
        message in message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        encode(7, &message, &mut bytes).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        decode(&bytes, &[]);
    }
}

#[test]
fn a_frame_longer_than_the_limit_is_refused_by_its_length_alone() {
    let mut decoder = Decoder::new();
    decoder.feed(&(MAX_FRAME as u32 + 1).to_le_bytes());
    assert_eq!(decoder.next(), Err(WireError::Length(MAX_FRAME + 1)));

    let mut out = vec![1, 2, 3];
    let message = Message::Data { bytes: vec![0; MAX_FRAME] };
    assert!(matches!(encode(1, &message, &mut out), Err(WireError::Length(_))));
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn a_claimed_count_allocates_no_memory() {
    // Walk's answer with four thousand million entries in a frame of a few bytes.
    let mut bytes = 10_u32.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0x37, 0xff, 0xff, 0xff, 0xff, 0]);
    assert_eq!(decode(&bytes, &[]), (Vec::new(), Some(WireError::Truncated)));
}

#[test]
fn bytes_after_the_last_field_are_an_error() {
    let bytes = [6, 0, 0, 0, 1, 0, 0, 0, 0x02, 9];
    assert_eq!(decode(&bytes, &[]), (Vec::new(), Some(WireError::Trailing)));
}

#[test]
fn streams_take_turns() {
    let mut outbox = Outbox::default();
    (0..100).for_each(|_| outbox.push(1, b"bulk".to_vec()));
    outbox.push(3, b"small".to_vec());
    assert_eq!([outbox.pop(), outbox.pop()], [Some(b"bulk".to_vec()), Some(b"small".to_vec())]);
}

#[test]
fn a_block_with_more_items_than_allowed_is_an_error() {
    let changes = vec![Change::Finish; MAX_CHANGES + 1];
    assert!(unpack::<Change>(&pack(&changes, false)).is_err());
}

#[test]
fn a_block_that_does_not_shrink_is_sent_as_it_is() {
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(1000).collect();
    assert!(matches!(pack(&[Change::Append(noise)], true), Block::Plain(_)));
    assert!(matches!(pack(&[Change::Append(vec![7; 1000])], true), Block::Lz4 { size: 1005, .. }));
    assert!(matches!(pack(&[Change::Append(vec![7; 1000])], false), Block::Plain(_)));
}

#[test]
fn a_decompression_bomb_is_refused_by_the_size_that_it_states() {
    let bomb = Block::Lz4 { size: CHUNK as u32 + 1, bytes: vec![0xff; 1000] };
    assert_eq!(unpack::<Part>(&bomb), Err(WireError::Block(CHUNK as u32 + 1)));
}

#[test]
fn a_block_that_decompresses_to_another_size_than_stated_is_refused() {
    let Block::Lz4 { size, bytes } = pack(&[Change::Append(vec![7; 1000])], true) else { panic!() };
    for size in [0, size - 1, size + 1, CHUNK as u32] {
        let lie = Block::Lz4 { size, bytes: bytes.clone() };
        assert_eq!(unpack::<Change>(&lie), Err(WireError::Compressed));
    }
}

#[test]
fn the_window_of_a_reader_that_keeps_up_grows_to_its_limit_within_the_budget() {
    let growth = |mut budget: WindowBudget| {
        let mut window = ReceiveWindow::default();
        let mut credit = WINDOW;
        for _ in 0..1000 {
            assert!(window.receive(cost(CHUNK)));
            credit -= cost(CHUNK);
            credit += window.consume(cost(CHUNK), true, &mut budget).unwrap_or(0);
        }
        assert!(!window.receive(credit + 1));
        credit
    };
    assert!((MAX_WINDOW * 3 / 4..=MAX_WINDOW).contains(&growth(WindowBudget::new(1 << 30))));
    assert!(growth(WindowBudget::new(1000)) <= WINDOW + 1000);
}

#[test]
fn the_window_of_a_slow_reader_stays() {
    let mut window = ReceiveWindow::default();
    let mut budget = WindowBudget::new(1 << 30);
    assert!(window.receive(WINDOW));
    assert!(!window.receive(1));
    let returned: u32 = (0..8).filter_map(|_| window.consume(WINDOW / 8, false, &mut budget)).sum();
    assert_eq!(returned, WINDOW);
}
