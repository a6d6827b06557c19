//! The disk quota, with small ones: how far it is overrun depends on the disk, not on the quota.

use agent::sandbox::{FileWrite, Node, Outcome};
use agent_testbed::backends::{TestSandbox, on_every_backend_with};
use agent_testing::guest::{Guest, shell};
use agent_testing::skip::left_out;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const QUOTA: u64 = 64 << 20;
/// Fewer are never allowed.
const FILES: u64 = 1 << 14;
/// What a disk takes in between two looks at it, on a machine that does other things too.
const OVERRUN: u64 = 1 << 30;

/// Returns what the sandbox's files take, counted inside, where nothing is hidden now.
async fn taken(inside: &TestSandbox) -> (u64, u64) {
    let said = inside
        .output_of("du -sxk /workspace ~ | awk '{n+=$1} END {print n}'; find /workspace ~ | wc -l")
        .await;
    let mut numbers = said.lines().map(|line| line.trim().parse::<u64>().expect("a number"));
    (numbers.next().expect("kB") << 10, numbers.next().expect("files"))
}

async fn with_a_quota(test: impl AsyncFn(&TestSandbox)) {
    on_every_backend_with(|spec| spec.limits.disk = QUOTA, test).await;
}

fn over_quota() -> Outcome {
    Outcome::OverQuota { bytes: QUOTA }
}

/// Writes a file of one byte, through the guest.
async fn write_one(inside: &TestSandbox) -> Result<(), String> {
    let write = FileWrite {
        path: "more".into(),
        node: Node::Regular(vec![1]),
        mode: None,
        mtime_ns: None,
        follow: false,
    };
    inside
        .sandbox
        .write_files(vec![write])
        .await
        .expect("answers")
        .remove(0)
        .map_err(|error| error.to_string())
}

/// Waits until the guest has counted what was removed.
async fn room_again(inside: &TestSandbox) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = write_one(inside).await {
        assert!(Instant::now() < deadline, "on {}: {error}", inside.backend);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn attack_11_many_large_files_are_ended_at_the_quota() {
    with_a_quota(async |inside| {
        let ran = inside.sh("i=0; while head -c 10000000 /dev/zero > $i; do i=$((i+1)); done").await;
        assert_eq!(ran.outcome(), over_quota(), "on {}: {}", inside.backend, ran.text());
        let (bytes, _) = taken(inside).await;
        assert!(bytes > QUOTA / 2 && bytes < QUOTA + OVERRUN, "{bytes}");
        // No room for more, until some is made.
        let error = write_one(inside).await.expect_err("no room");
        assert!(error.contains("the disk quota of 64 MB (or 16384 files) is used up"), "{error}");
        inside.output_of("rm -f ? ??*").await;
        room_again(inside).await;
    })
    .await;
}

#[tokio::test]
async fn attack_11_a_sparse_terabyte_is_refused() {
    with_a_quota(async |inside| {
        inside.expect_failure("truncate -s 1T big").await;
        let ran = inside.sh("exec dd if=/dev/zero of=big bs=1M seek=1000000 count=1").await;
        assert_eq!(ran.outcome(), Outcome::Signaled(libc::SIGXFSZ), "{}", ran.text());
        assert!(taken(inside).await.0 < 1 << 20);
    })
    .await;
}

#[tokio::test]
async fn attack_11_room_cannot_be_taken_without_writing() {
    with_a_quota(async |inside| {
        inside.expect_failure("fallocate -l 1M taken").await;
        // Giving back is allowed, and writing works.
        inside.output_of("head -c 1000000 /dev/zero > f && fallocate -p -l 500000 f").await;
        assert_eq!(
            inside.python("import os; f = open(\"g\", \"w\"); os.posix_fallocate(f.fileno(), 0, 100000); print(os.stat(\"g\").st_size)").await,
            "100000"
        );
    })
    .await;
}

#[tokio::test]
async fn attack_11_a_million_empty_files_are_ended_at_the_quota() {
    with_a_quota(async |inside| {
        let ran = inside
            .sh("exec /usr/bin/python3 -c 'import os
for d in range(1000):
    os.mkdir(str(d))
    for f in range(1000): os.close(os.open(f\"{d}/{f}\", os.O_CREAT))'")
            .await;
        assert_eq!(ran.outcome(), over_quota(), "on {}: {}", inside.backend, ran.text());
        let (_, files) = taken(inside).await;
        assert!(files > FILES / 2 && files < FILES + 40_000, "{files}");
    })
    .await;
}

#[tokio::test]
async fn attack_11_files_without_a_name_count() {
    with_a_quota(async |inside| {
        for hide in [
            "f = open(\"f\", \"wb\"); os.unlink(\"f\")",
            "f = os.fdopen(os.open(\".\", os.O_TMPFILE | os.O_RDWR), \"wb\")",
            "os.mkdir(\"d\"); f = open(\"d/f\", \"wb\"); os.chmod(\"d\", 0)",
        ] {
            let ran = inside
                .sh(&format!(
                    "exec /usr/bin/python3 -c 'import os, time\nkept = []\nfor n in range(100):\n    {hide}\n    \
                     f.write(bytes(10 << 20)); f.flush(); kept.append(f)\n    \
                     if os.path.exists(\"d\"): os.chmod(\"d\", 0o700); os.rename(\"d\", str(n)); os.chmod(str(n), 0)\ntime.sleep(60)'"
                ))
                .await;
            assert_eq!(ran.outcome(), over_quota(), "on {}: {hide}: {}", inside.backend, ran.text());
            // A pod's workspace itself belongs to root.
            inside.output_of("chmod -R 700 ./* 2>/dev/null; rm -rf ./*").await;
            room_again(inside).await;
        }
    })
    .await;
}

/// No directory and no descriptor leads to them: only a mapping, or a socket that they wait in to be received.
#[tokio::test]
async fn attack_11_files_that_nothing_has_open_count() {
    with_a_quota(async |inside| {
        for keep in [
            "c.mmap(None, 4096, 1, 1, f.fileno(), 0)",
            "a.sendmsg([b\"x\"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array(\"i\", [f.fileno()]))])",
        ] {
            let hide = format!(
                "import array, ctypes, os, socket, time\nc = ctypes.CDLL(None)\na, b = socket.socketpair()\n\
                 for n in range(100):\n    f = open(\"f\", \"wb+\"); os.unlink(\"f\")\n    \
                 f.write(bytes(10 << 20)); f.flush(); {keep}; f.close()\ntime.sleep(60)"
            );
            let ran = inside.sh(&format!("exec /usr/bin/python3 -c '{hide}'")).await;
            assert_eq!(ran.outcome(), over_quota(), "on {}: {keep}: {}", inside.backend, ran.text());
            assert!(taken(inside).await.0 < QUOTA);
        }
    })
    .await;
}

#[tokio::test]
async fn attack_11_again_and_again_ends_in_refusal() {
    with_a_quota(async |inside| {
        let fill = |n: u32| format!("i=0; while head -c 10000000 /dev/zero > {n}-$i; do i=$((i+1)); done");
        for n in 0..4 {
            assert_eq!(inside.sh(&fill(n)).await.outcome(), over_quota());
        }
        let error = inside.sandbox.run(shell("true"), &mut |_| {}).await.expect_err("no more");
        assert!(error.to_string().contains("no more are run in this sandbox"), "{error}");
    })
    .await;
}

/// On other backends the others are in memory, and bounded as such.
#[tokio::test]
async fn attack_11_every_directory_of_a_pod_counts() {
    with_a_quota(async |inside| {
        if inside.backend != "kubernetes" {
            left_out(format!("not tried on {}: only the workspace and $HOME are on a disk", inside.backend));
            return;
        }
        for place in ["/tmp", "/run", "$HOME"] {
            let fill = format!("i=0; while head -c 10000000 /dev/zero > {place}/$i; do i=$((i+1)); done");
            let ran = inside.sh(&fill).await;
            assert_eq!(ran.outcome(), over_quota(), "{place}: {}", ran.text());
            inside.output_of(&format!("rm -f {place}/[0-9]*")).await;
            room_again(inside).await;
        }
    })
    .await;
}

/// The disk belongs to others too: what they write is not the sandbox's.
#[tokio::test]
async fn what_others_write_ends_nothing() {
    let guest = Guest::start_with(&["--disk", &QUOTA.to_string()]).await;
    let elsewhere = tempfile::tempdir_in(guest.path("").parent().expect("a directory")).expect("a directory");
    let (ran, ()) = tokio::join!(guest.sh("head -c 1000000 /dev/zero > mine; sleep 2; echo over"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::write(elsewhere.path().join("theirs"), vec![1; 3 * QUOTA as usize]).expect("written");
    });
    assert_eq!((ran.outcome(), ran.text().as_str()), (Outcome::Exited(0), "over\n"));
    assert!(blocks(&guest.path("mine")) >= 1_000_000 / 512);
}

fn blocks(path: &Path) -> u64 {
    std::fs::metadata(path).expect("a file").blocks()
}
