//! A provider that repeats, reorders or withholds what a guest sends, or whose clock is wrong: a named loss at worst, and no wait without end.

use agent::error::Kind;
use agent::sandbox::{Backend, Outcome, Output, Sandbox, State};
use agent_testbed::backends::{e2b as backend_at, output_of, shell, spec};
use agent_testbed::e2b;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than a handle waits for a stream to answer, and then for another one.
const DEADLINE: Duration = Duration::from_secs(180);

const FAITHFUL: u8 = 0;
const REPEATS: u8 = 1;
const REORDERS: u8 = 2;
const WITHHOLDS: u8 = 3;

/// Between a backend and its provider. Changes what the provider sends over streams that are open; later ones pass unchanged.
struct Proxy {
    url: String,
    streams: Arc<Mutex<Vec<Arc<AtomicU8>>>>,
}

impl Proxy {
    async fn to(provider: &str) -> Self {
        let target: SocketAddr = provider.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let streams = Arc::<Mutex<Vec<Arc<AtomicU8>>>>::default();
        let opened = Arc::clone(&streams);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(target).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                let how = Arc::new(AtomicU8::new(FAITHFUL));
                tokio::spawn(to_provider(from_client, to_server, Arc::clone(&how), Arc::clone(&opened)));
                tokio::spawn(to_backend(from_server, to_client, how));
            }
        });
        Self { url, streams }
    }

    fn set(&self, how: u8) {
        let streams = self.streams.lock().expect("a lock");
        assert!(!streams.is_empty(), "no stream is open");
        streams.iter().for_each(|stream| stream.store(how, Ordering::SeqCst));
    }
}

/// Notes connections that become streams.
async fn to_provider(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    how: Arc<AtomicU8>,
    streams: Arc<Mutex<Vec<Arc<AtomicU8>>>>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..length]).to_lowercase();
        if text.contains("upgrade: websocket") {
            streams.lock().expect("a lock").push(Arc::clone(&how));
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn to_backend(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, how: Arc<AtomicU8>) {
    let mut buffer = vec![0; 4 << 10];
    let mut held = None::<Vec<u8>>;
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer[..length].to_vec();
        let pieces = match (how.load(Ordering::SeqCst), held.take()) {
            (REPEATS, _) => vec![bytes.clone(), bytes],
            (REORDERS, Some(earlier)) => vec![bytes, earlier],
            (REORDERS, None) => {
                held = Some(bytes);
                vec![]
            }
            (WITHHOLDS, _) => vec![],
            _ => vec![bytes],
        };
        if to.write_all(&pieces.concat()).await.is_err() {
            return;
        }
    }
}

/// How a command ends that prints the numbers up to `last`. What a successful one has printed is complete and in order.
async fn outcome(sandbox: &Sandbox, last: u32) -> Outcome {
    let mut printed = Vec::new();
    let command = shell(&format!("seq 1 {last}"));
    let mut on_output = |output: Output<'_>| {
        if let Output::Data(_, piece) = output {
            printed.extend_from_slice(piece);
        }
    };
    let ended = timeout(DEADLINE, sandbox.run(command, &mut on_output)).await.expect("the command ends");
    let outcome = ended.map_or_else(
        |error| {
            assert_eq!(error.kind(), Kind::Sandbox, "{error}");
            Outcome::Lost
        },
        |finished| finished.outcome,
    );
    if outcome == Outcome::Exited(0) {
        let expected: String = (1..=last).map(|number| format!("{number}\n")).collect();
        assert!(printed == expected.as_bytes(), "{} bytes of {}", printed.len(), expected.len());
    }
    outcome
}

/// Runs a command whose output the provider changes, then another one.
async fn tampered_with(how: u8) {
    let provider = e2b::start();
    let proxy = Proxy::to(&provider.url).await;
    let backend = backend_at(&proxy.url, e2b::KEY);
    let spec = spec();
    let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&sandbox, "echo before").await, "before");
    proxy.set(how);
    let during = outcome(&sandbox, 100_000).await;
    assert!(matches!(during, Outcome::Lost | Outcome::Exited(0)), "{during:?}");
    // Either the stream was joined again, or the sandbox is lost by name, and a session starts another.
    let after = outcome(&sandbox, 1).await;
    assert!(matches!(after, Outcome::Lost | Outcome::Exited(0)), "{after:?}");
    if how == REPEATS {
        assert_eq!(during, Outcome::Lost);
    }
    if how == WITHHOLDS {
        assert_eq!((during, after), (Outcome::Lost, Outcome::Exited(0)));
    }
    backend.destroy(&spec.session).await.expect("removed");
    assert!(provider.sandboxes().await.is_empty());
}

#[tokio::test]
async fn a_stream_that_repeats_what_it_carries_is_given_up_by_name() {
    tampered_with(REPEATS).await;
}

#[tokio::test]
async fn a_stream_that_reorders_what_it_carries_is_given_up_or_joined_again() {
    tampered_with(REORDERS).await;
}

#[tokio::test]
async fn a_stream_that_withholds_what_it_carries_is_joined_again() {
    tampered_with(WITHHOLDS).await;
}

/// The provider's clock does not say whether a sandbox has expired; its dates are only shown.
#[tokio::test]
async fn a_provider_whose_clock_is_wrong_loses_no_sandbox() {
    let provider = e2b::start();
    let (spec, backend) = (spec(), backend_at(&provider.url, e2b::KEY));
    let _started = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
    let real = provider.sandboxes().await.remove(0);
    let removed = Arc::new(Mutex::new(Vec::new()));
    for date in ["9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "1970-01-01T00:00:00Z", "yesterday", ""] {
        let mut listed = real.clone();
        // One that runs would stay in any case.
        listed["state"] = json!("paused");
        for field in ["startedAt", "endAt"] {
            listed[field] = json!(date);
        }
        let liar = serve(json!([listed]), Arc::clone(&removed)).await;
        let backend = backend_at(&liar, e2b::KEY);
        let list = backend.list().await.expect("the list");
        assert_eq!((list.len(), list[0].state), (1, State::Paused), "{date}");
        backend.sweep().await.expect("swept");
    }
    assert!(removed.lock().expect("a lock").is_empty(), "{removed:?}");
    backend.destroy(&spec.session).await.expect("removed");
}

/// A provider that answers every request with this list, and notes what it is to remove.
async fn serve(list: Value, removed: Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let router = Router::new().fallback(move |request: Request| {
        if request.method() == "DELETE" {
            removed.lock().expect("a lock").push(request.uri().to_string());
        }
        let response = Response::new(list.to_string());
        async move { response }
    });
    tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    url
}
