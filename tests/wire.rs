//! The protocol's decoder on arbitrary bytes: an error, never a panic, a hang or memory beyond the frame limit.

use agent::sandbox::wire::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..200).prop_map(Bytes)
}

fn command() -> impl Strategy<Value = Command> {
    let program = prop_oneof![
        bytes().prop_map(|text| Program::Shell { text }),
        vec(bytes(), 0..5).prop_map(|words| Program::Argv { words }),
    ];
    let env = vec((bytes(), bytes()), 0..4);
    (program, option::of(bytes()), env, any::<Option<u64>>(), any::<u64>(), any::<bool>()).prop_map(
        |(program, cwd, env, timeout_ms, live_bytes, stdin)| Command {
            program,
            cwd,
            env,
            timeout_ms,
            live_bytes,
            stdin,
        },
    )
}

fn finished() -> impl Strategy<Value = Finished> {
    let outcome = prop_oneof![
        any::<i32>().prop_map(|code| Outcome::Exited { code }),
        any::<i32>().prop_map(|signal| Outcome::Signaled { signal }),
        Just(Outcome::TimedOut {}),
        Just(Outcome::OomKilled {}),
        any::<u64>().prop_map(|bytes| Outcome::OverQuota { bytes }),
        Just(Outcome::Lost {}),
    ];
    (outcome, any::<[u64; 3]>(), option::of(bytes()), any::<[u32; 2]>()).prop_map(
        |(outcome, [duration_us, output_bytes, spool_bytes], spool, [left_running, oom_kills])| Finished {
            outcome,
            duration_us,
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
        Just(EntryKind::File {}),
        bytes().prop_map(|target| EntryKind::Symlink { target }),
        Just(EntryKind::Directory {}),
        Just(EntryKind::Other {}),
    ];
    let hash = any::<Option<[u8; 32]>>();
    (bytes(), kind, any::<u32>(), any::<u64>(), any::<[i64; 2]>(), hash, any::<bool>()).prop_map(
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
    let node = prop_oneof![
        (bytes(), any::<bool>()).prop_map(|(bytes, more)| Node::Regular { bytes, more }),
        bytes().prop_map(|target| Node::Symlink { target }),
        Just(Node::Directory {}),
    ];
    (bytes(), node, any::<Option<u32>>(), any::<Option<i64>>(), any::<bool>())
        .prop_map(|(path, node, mode, mtime_ns, follow)| FileWrite { path, node, mode, mtime_ns, follow })
}

fn facts() -> impl Strategy<Value = Facts> {
    let numbers = any::<[Option<u64>; 6]>();
    (any::<bool>(), vec(bytes(), 0..4), numbers, any::<u64>()).prop_map(|(bash, tools, n, oom_kills)| Facts {
        bash,
        tools,
        memory_bytes: n[0],
        memory_limit: n[1],
        pids: n[2],
        pids_limit: n[3],
        disk_bytes: n[4],
        disk_free: n[5],
        oom_kills,
    })
}

fn both_ways() -> impl Strategy<Value = Message> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(|(magic, version)| Message::Hello { magic, version }),
        bytes().prop_map(|bytes| Message::Data { bytes }),
        Just(Message::Eof {}),
        any::<u32>().prop_map(|bytes| Message::Credit { bytes }),
        Just(Message::Reset {}),
        Just(Message::Opened {}),
        (any::<i32>(), bytes()).prop_map(|(errno, message)| Message::Failed { errno, message }),
    ]
}

fn requests() -> impl Strategy<Value = Message> {
    let walk = (bytes(), any::<bool>(), vec(bytes(), 0..3), any::<u64>());
    prop_oneof![
        command().prop_map(|command| Message::Run { command }),
        command().prop_map(|command| Message::StartJob { command }),
        Just(Message::Kill {}),
        any::<(u64, u32)>().prop_map(|(job, wait_ms)| Message::JobOutput { job, wait_ms }),
        any::<u64>().prop_map(|job| Message::JobKill { job }),
        bytes().prop_map(|path| Message::Stat { path }),
        (bytes(), any::<[u64; 2]>()).prop_map(|(path, [offset, limit])| Message::ReadFile {
            path,
            offset,
            limit
        }),
        write().prop_map(|write| Message::WriteFile { write }),
        bytes().prop_map(|path| Message::Remove { path }),
        walk.prop_map(|(root, hash, exclude, max_entries)| Message::Walk {
            root,
            hash,
            exclude,
            max_entries
        }),
        vec(bytes(), 0..5).prop_map(|tools| Message::GetFacts { tools }),
        any::<u16>().prop_map(|port| Message::Connect { port }),
        (any::<u16>(), vec((bytes(), bytes()), 0..4)).prop_map(|(port, env)| Message::Listen { port, env }),
        Just(Message::Shutdown {}),
    ]
}

fn answers() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<bool>(), bytes()).prop_map(|(stderr, bytes)| Message::Output { stderr, bytes }),
        any::<u64>().prop_map(|bytes| Message::Gap { bytes }),
        finished().prop_map(|finished| Message::Finished { finished }),
        any::<u64>().prop_map(|job| Message::JobStarted { job }),
        option::of(finished()).prop_map(|finished| Message::JobState { finished }),
        entry().prop_map(|entry| Message::Stated { entry }),
        any::<(u64, u32, i64)>().prop_map(|(size, mode, mtime_ns)| Message::FileIs { size, mode, mtime_ns }),
        (vec(entry(), 0..5), any::<bool>()).prop_map(|(entries, last)| Message::Entries { entries, last }),
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
    fn every_frame_comes_back_as_it_went(
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

    /// Bytes that look like a frame get further into the decoder than pure noise.
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

    /// A change of one byte of a good frame must not do harm either.
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
    let message = Message::Data { bytes: vec![0; MAX_FRAME].into() };
    assert!(matches!(encode(1, &message, &mut out), Err(WireError::Length(_))));
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn a_claimed_count_sets_no_memory_aside() {
    // Walk's answer with four thousand million entries in a frame of a few bytes.
    let mut bytes = 10_u32.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[1, 0, 0, 0, 0x37, 0xff, 0xff, 0xff, 0xff, 0]);
    assert_eq!(decode(&bytes, &[]), (Vec::new(), Some(WireError::Truncated)));
}

#[test]
fn a_frame_goes_on_after_its_last_field() {
    let bytes = [6, 0, 0, 0, 1, 0, 0, 0, 0x02, 9];
    assert_eq!(decode(&bytes, &[]), (Vec::new(), Some(WireError::Trailing)));
}
