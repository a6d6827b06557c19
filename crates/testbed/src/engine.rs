//! The Docker engine of this machine, and one that refuses.

use agent_docker::Docker;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a test waits for an event that must happen.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The engine; without one the test is left out, or fails if `AGENT_TEST_REQUIRE_DOCKER` is set.
pub async fn engine() -> Option<Docker> {
    match Docker::connect(agent_testing::machine()).await {
        Ok(docker) => Some(docker),
        Err(error) if std::env::var_os("AGENT_TEST_REQUIRE_DOCKER").is_some() => {
            panic!("AGENT_TEST_REQUIRE_DOCKER is set, but {error}")
        }
        Err(error) => {
            agent_testing::skip::left_out(format!("no Docker engine: {error}"));
            None
        }
    }
}

/// Listens at `socket` and passes everything on to the engine at `docker`, but for the first `refusals` requests for a container, which it
/// answers with `message`.
pub fn refusing_engine(socket: &Path, docker: PathBuf, refusals: usize, message: &'static str) {
    let listener = UnixListener::bind(socket).unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (docker, refused) = (docker.clone(), Arc::clone(&refused));
            std::thread::spawn(move || pass_on(client, &docker, (&refused, refusals), message));
        }
    });
}

fn pass_on(mut client: UnixStream, docker: &Path, (refused, refusals): (&AtomicUsize, usize), message: &str) {
    let answer = serde_json::json!({ "message": message }).to_string();
    let Ok(mut engine) = UnixStream::connect(docker) else { return };
    let (mut from, mut to) = (engine.try_clone().unwrap(), client.try_clone().unwrap());
    let answers = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = client.read(&mut piece) {
        let head = String::from_utf8_lossy(&piece[..length.min(200)]);
        let is_creation = head.starts_with("POST ") && head.contains("/containers/create");
        if is_creation && refused.fetch_add(1, Ordering::SeqCst) < refusals {
            let head =
                "HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\nconnection: close";
            let _ = write!(client, "{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
            let _ = client.shutdown(Shutdown::Both);
            break;
        }
        if engine.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = engine.shutdown(Shutdown::Write);
    let _ = answers.join();
}
