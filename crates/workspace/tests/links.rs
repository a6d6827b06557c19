//! Slow links: round trips are counted, not timed.

use agent_sandbox::{FileWrite, Listing, Node, Outcome, Sandbox, WalkOptions};
use agent_testing::guest::{Guest, shell};
use agent_testing::link::{Link, Traffic};
use agent_testing::machine;
use agent_workspace::{Options, Workspace};
use std::path::Path;
use std::time::Duration;

/// 80 ms there and back.
const FAR: Link = Link { delay: Duration::from_millis(40), bytes_per_second: None };

async fn far() -> (Guest, Traffic) {
    Guest::start_behind(FAR).await
}

fn files(count: usize, content: &str) -> Vec<FileWrite> {
    let file = |n| FileWrite {
        path: format!("directory-{}/file-{n}", n % 7).into(),
        node: Node::Regular(format!("{content} {n}\n").repeat(60).into_bytes()),
        mode: Some(0o640),
        mtime_ns: None,
        follow: false,
    };
    (0..count).map(file).collect()
}

fn all_ok(results: &[agent_base::error::Result<()>]) {
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test]
async fn five_hundred_files_are_written_in_at_most_four_round_trips() {
    let (guest, traffic) = far().await;
    traffic.take_round_trips();
    let put = guest.sandbox.put_tree(files(500, "first")).await.unwrap();
    assert!(traffic.take_round_trips() <= 4);
    all_ok(&put.results);
    assert_eq!((put.results.len(), put.sent), (500, 500));
    assert!(std::fs::read_to_string(guest.path("directory-2/file-499")).unwrap().starts_with("first 499\n"));
}

#[tokio::test]
async fn files_that_the_sandbox_has_are_not_sent_again() {
    let (guest, traffic) = far().await;
    guest.sandbox.put_tree(files(500, "same")).await.unwrap();
    let mut changed = files(500, "same");
    changed[250].node = Node::Regular(b"changed".to_vec());
    changed[251].mode = Some(0o755);
    traffic.take_round_trips();
    let put = guest.sandbox.put_tree(changed).await.unwrap();
    assert!(traffic.take_round_trips() <= 2);
    assert_eq!(put.sent, 2);
    all_ok(&put.results);
    assert_eq!(std::fs::read(guest.path("directory-5/file-250")).unwrap(), b"changed");
}

#[tokio::test]
async fn five_hundred_files_are_read_in_at_most_four_round_trips() {
    let (guest, traffic) = far().await;
    guest.sandbox.put_tree(files(500, "content")).await.unwrap();
    traffic.take_round_trips();
    let paths = (0..500).map(|n| format!("directory-{}/file-{n}", n % 7).into()).collect();
    let contents = guest.sandbox.read_files(paths, 10 << 20).await.unwrap();
    assert!(traffic.take_round_trips() <= 4);
    assert_eq!(contents.len(), 500);
    assert!(contents.iter().all(|content| content.as_ref().unwrap().bytes.starts_with(b"content ")));
}

#[tokio::test]
async fn files_are_compressed_on_a_slow_link() {
    let (guest, traffic) = far().await;
    // 60 lines of 10 bytes and more.
    let size = 500 * 600;
    all_ok(&guest.sandbox.write_files(files(500, "content")).await.unwrap());
    let (written, paths) =
        (traffic.take_bytes(), (0..500).map(|n| format!("directory-{}/file-{n}", n % 7).into()));
    let contents = guest.sandbox.read_files(paths.collect(), 10 << 20).await.unwrap();
    let read = traffic.take_bytes();
    assert!(contents.iter().all(|content| content.as_ref().unwrap().bytes.starts_with(b"content ")));
    assert!(written < size / 4 && read < size / 4, "{written} and {read} of {size}");
}

#[tokio::test]
async fn a_tree_behind_a_slow_link_is_listed_again_by_its_changes() {
    let (guest, traffic) = far().await;
    guest.sandbox.write_files(files(500, "content")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut listing = Listing::default();
    let mut list = async |sandbox: &Sandbox| {
        traffic.take_bytes();
        let entries = listing.refresh(sandbox, Path::new(""), WalkOptions::default()).await.unwrap();
        let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path).collect();
        paths.sort();
        (paths, traffic.take_bytes())
    };
    let (first, all) = list(&guest.sandbox).await;
    let (second, nothing) = list(&guest.sandbox).await;
    assert_eq!((first.len(), &first), (507, &second));
    assert!(nothing * 20 < all, "{nothing} of {all}");

    guest.sh("rm directory-1/file-1; echo new > added").await;
    let (third, _) = list(&guest.sandbox).await;
    assert!(third.contains(&"added".into()) && !third.contains(&"directory-1/file-1".into()));
    assert_eq!(third.len(), 507);

    let another = Guest::start_behind(FAR).await.0;
    assert_eq!(list(&another.sandbox).await.0, Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn a_checkpoint_of_five_hundred_new_files_takes_at_most_four_round_trips() {
    let (host, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (guest, traffic) = far().await;
    let session = home.path().join("sessions/s1");
    let workspace = Workspace::open(host.path(), &session, Options::new(machine())).await.unwrap();
    workspace.copy_in(&guest.sandbox, &mut |_, _| {}).await.unwrap();
    guest.sandbox.write_files(files(500, "new")).await.unwrap();
    traffic.take_round_trips();
    workspace.checkpoint(&guest.sandbox, 1).await.unwrap();
    assert!(traffic.take_round_trips() <= 4);
    // With the seven directories.
    assert_eq!(workspace.changes(&guest.sandbox).await.unwrap().changes.len(), 507);
}

#[tokio::test]
async fn a_command_takes_one_round_trip() {
    let (guest, traffic) = far().await;
    traffic.take_round_trips();
    assert_eq!(guest.sh("echo one").await.outcome(), Outcome::Exited(0));
    assert_eq!(traffic.take_round_trips(), 1);
}

#[tokio::test]
async fn a_small_answer_does_not_wait_for_a_bulk_transfer() {
    let slow = Link { delay: Duration::ZERO, bytes_per_second: Some(4 << 20) };
    let (guest, _) = Guest::start_behind(slow).await;
    let bulk = guest.sh("head -c 16000000 /dev/zero");
    let small = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        guest.sandbox.stat(Path::new(".")).await.unwrap();
    };
    // Sixteen megabytes take four seconds; what waits in front of the answer is a small part of them.
    tokio::select! {
        biased;
        () = small => {}
        _ = bulk => panic!("the small answer came after the bulk transfer"),
    }
}

#[tokio::test]
async fn a_walk_lists_what_has_changed_since_the_last_one() {
    let guest = Guest::start().await;
    guest.sandbox.write_files(files(20, "before")).await.unwrap();
    // Files that have just changed may change again within the same timestamp, and are listed again.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let walk = async |generation| {
        let changes =
            guest.sandbox.walk_since(Path::new(""), WalkOptions::default(), generation).await.unwrap();
        let mut changed: Vec<String> =
            changes.entries.iter().map(|entry| entry.path.to_string_lossy().into_owned()).collect();
        changed.sort();
        (changed, changes)
    };
    let (_, first) = walk(0).await;
    assert!(first.complete && first.entries.len() == 27 && first.removed.is_empty());
    let (nothing, second) = walk(first.generation).await;
    assert!(!second.complete && nothing.is_empty() && second.removed.is_empty(), "{nothing:?}");

    guest
        .sh("echo new > added; echo more >> directory-1/file-1; rm directory-2/file-2; mv directory-3 moved")
        .await;
    let (changed, third) = walk(second.generation).await;
    let moved = ["moved/file-10", "moved/file-17", "moved/file-3"];
    assert_eq!(changed[..2], ["added", "directory-1/file-1"]);
    assert!(moved.iter().all(|path| changed.iter().any(|changed| changed == path)), "{changed:?}");
    assert!(third.removed.contains(&"directory-2/file-2".into()));
    assert!(third.removed.contains(&"directory-3/file-10".into()));
    assert!(!third.complete);

    let (_, unknown) = walk(first.generation).await;
    assert!(unknown.complete, "only the last generation is remembered");
}

#[tokio::test]
async fn a_single_change_that_fails_is_its_own_result() {
    let guest = Guest::start().await;
    guest.sh("mkdir taken").await;
    let mut writes = files(3, "x");
    writes[1].path = "taken".into();
    writes[2].node = Node::Regular(vec![7; 1_000_000]);
    let results = guest.sandbox.write_files(writes).await.unwrap();
    assert!(results[0].is_ok() && results[2].is_ok());
    assert!(results[1].as_ref().unwrap_err().to_string().contains("not a regular file"));
    assert_eq!(std::fs::metadata(guest.path("directory-2/file-2")).unwrap().len(), 1_000_000);

    let read = |names: &[&str]| guest.sandbox.read_files(names.iter().map(Into::into).collect(), 2_000_000);
    let contents = read(&["directory-2/file-2", "nothing", "taken", "directory-0/file-0"]).await.unwrap();
    assert_eq!(contents[0].as_ref().unwrap().bytes, vec![7; 1_000_000]);
    assert!(contents[1].is_err() && contents[2].is_err() && contents[3].is_ok());
    let too_much = guest.sandbox.read_files(vec!["directory-2/file-2".into()], 1000).await.unwrap_err();
    assert!(too_much.to_string().contains("more than the limit"), "{too_much}");
    assert_eq!(guest.sh("true").await.outcome(), Outcome::Exited(0));
}

#[tokio::test]
async fn a_guest_drops_a_client_that_is_silent_for_longer_than_the_keepalive() {
    let guest = Guest::start_with(&["--keepalive", "1"]).await;
    let error = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            if let Err(error) = guest.sandbox.stat(Path::new(".")).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(agent_testing::guest::DEADLINE, error).await.unwrap();
    assert!(error.to_string().contains("the connection to the sandbox broke"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_dead_while_idle_is_noticed() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let greeting = async {
        let mut far = far;
        agent_testing::guest::greet(&mut far).await;
        far
    };
    let (reader, writer) = tokio::io::split(near);
    let channel = agent_sandbox::Channel::new(reader, writer);
    let (sandbox, _far) = tokio::join!(Sandbox::connect(channel), greeting);
    let sandbox = sandbox.unwrap();
    tokio::time::sleep(Duration::from_secs(65)).await;
    let error = sandbox.stat(Path::new(".")).await.unwrap_err();
    assert!(error.to_string().contains("nothing arrived for 60 s"), "{error}");
}

#[tokio::test]
async fn a_command_that_writes_much_is_not_held_up_by_the_delay() {
    let (guest, traffic) = far().await;
    let command = shell("head -c 30000000 /dev/zero");
    traffic.take_round_trips();
    let started = std::time::Instant::now();
    let ran = guest.run(command).await;
    assert_eq!(ran.stdout.len(), 30_000_000);
    // With a fixed window of 512 KiB, 30 MB would take 58 round trips of 80 ms.
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}
