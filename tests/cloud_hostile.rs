//! A provider that nobody should trust: whatever it answers, the key stays with it, and the failure has a name.

use crate::support::backends::{daytona as backend_at, spec};
use crate::support::daytona::KEY;
use agent::error::{Error, Kind};
use agent::sandbox::Backend;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// A server whose answers a test makes up.
struct Provider {
    url: String,
    /// Method, path and key of every request.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn start(answer: impl Fn(&str, &str) -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, own) = (Arc::clone(&requests), url.clone());
        let router = Router::new().fallback(move |request: Request| {
            let line = format!("{} {}", request.method(), request.uri().path());
            log.lock().expect("a lock").push(line.clone());
            let response = answer(&line, &own);
            async move { response }
        });
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, requests }
    }

    fn count(&self, line: &str) -> usize {
        self.requests.lock().expect("a lock").iter().filter(|request| *request == line).count()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("a lock").clone()
    }

    /// Starts a sandbox, which has to fail.
    async fn failure(&self) -> Error {
        let backend = backend_at(&self.url, KEY);
        let error = backend.start(&spec(), &|_, _, _| {}).await.err().expect("it fails");
        assert_eq!(error.kind(), Kind::Sandbox, "{error}");
        assert!(!format!("{error:?}").contains(KEY), "{error:?}");
        error
    }
}

fn answer(code: u16, body: &serde_json::Value) -> Response {
    Response::builder().status(code).body(Body::from(body.to_string())).expect("a response")
}

/// A sandbox that is started, with its toolbox at `toolbox`.
fn made(toolbox: &str) -> Response {
    answer(200, &json!({ "id": "one", "state": "started", "toolboxProxyUrl": toolbox }))
}

/// A provider that does all that is asked until the port is connected to, which `port` answers.
async fn with_port(port: impl Fn() -> Response + Clone + Send + Sync + 'static) -> Provider {
    Provider::start(move |line, own| match line {
        "POST /sandbox" => made(&format!("{own}/toolbox")),
        "POST /toolbox/one/process/execute" => {
            answer(200, &json!({ "exitCode": 0, "result": "agent-guest-is-ready\n" }))
        }
        line if line.contains("/proxy/") => port(),
        _ => answer(200, &json!({})),
    })
    .await
}

#[tokio::test]
async fn an_address_elsewhere_does_not_get_the_key_and_the_sandbox_is_removed() {
    let elsewhere = Provider::start(|_, _| answer(200, &json!({}))).await;
    // The same machine under another name is another host.
    let address = elsewhere.url.replace("127.0.0.1", "localhost");
    let provider = Provider::start(move |_, _| made(&address)).await;
    let error = provider.failure().await;
    assert!(error.to_string().contains("the key is not sent there"), "{error}");
    assert_eq!(elsewhere.requests(), [""; 0]);
    assert_eq!(provider.count("DELETE /sandbox/one"), 1, "{:?}", provider.requests());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Provider::start(|_, _| answer(200, &json!({}))).await;
    let address = elsewhere.url.clone();
    let redirect = move || {
        Response::builder().status(307).header("location", &address).body(Body::empty()).expect("a response")
    };
    let of_api = redirect.clone();
    let error = Provider::start(move |_, _| of_api()).await.failure().await;
    assert!(error.to_string().starts_with("daytona redirects (307)"), "{error}");
    let error = with_port(redirect).await.failure().await;
    assert!(error.to_string().contains("redirects the connection"), "{error}");
    assert_eq!(elsewhere.requests(), [""; 0]);
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let endless = || {
        let pieces =
            futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 64 << 10])));
        Response::new(Body::from_stream(pieces))
    };
    let error = Provider::start(move |_, _| endless()).await.failure().await;
    assert_eq!(error.to_string(), "the answer of daytona is larger than 8 MiB");
}

#[tokio::test]
async fn an_id_that_is_a_path_is_refused() {
    for id in ["../../other", "", "a/b", "a?b=c"] {
        let provider =
            Provider::start(move |_, _| answer(200, &json!({ "id": id, "state": "started" }))).await;
        let error = provider.failure().await;
        assert!(error.to_string().contains("which is not a valid id"), "{error}");
        assert_eq!(provider.requests(), ["POST /sandbox"]);
    }
}

#[tokio::test]
async fn a_creation_that_may_have_been_acted_upon_is_not_sent_again() {
    let provider = Provider::start(|line, _| match line {
        "POST /sandbox" => answer(500, &json!({ "message": format!("internal, with {KEY} in it") })),
        _ => answer(404, &json!({ "message": "not found" })),
    })
    .await;
    let error = provider.failure().await;
    assert_eq!(error.to_string(), "daytona failed (500): internal, with (the key) in it");
    assert_eq!(provider.count("POST /sandbox"), 1);
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_as_long_as_it_says() {
    let tries = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&tries);
    let provider = Provider::start(move |_, _| {
        let mut tries = counted.lock().expect("a lock");
        *tries += 1;
        match *tries {
            1 => Response::builder()
                .status(429)
                .header("retry-after", "1")
                .body(Body::empty())
                .expect("a response"),
            2 => Response::builder()
                .status(429)
                .header("retry-after", "3600")
                .body(Body::empty())
                .expect("a response"),
            _ => answer(200, &json!({ "items": [] })),
        }
    })
    .await;
    let backend = backend_at(&provider.url, KEY);
    let error = backend.list().await.expect_err("an hour is not waited for");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("in 3600 s")), "{error:?}");
    assert_eq!(*tries.lock().expect("a lock"), 2);
    assert!(backend.list().await.expect("the list").is_empty());
}

#[tokio::test]
async fn a_list_of_anything_is_a_list_of_what_is_ours() {
    let provider = Provider::start(|_, _| {
        let strange = json!([
            null, 7, { "id": 7 }, { "id": "../x", "labels": { "agent.session": "s" } },
            { "id": "theirs", "state": "started", "labels": {} },
            { "id": "old", "state": "started", "createdAt": "in 1234567", "labels": { "agent.session": "s", "agent.host": "another" } },
        ]);
        answer(200, &json!({ "items": strange, "nextCursor": "again" }))
    })
    .await;
    let backend = backend_at(&provider.url, KEY);
    assert!(backend.list().await.expect("the list").is_empty());
    backend.sweep().await.expect("swept");
    assert!(provider.requests().iter().all(|request| request == "GET /sandbox"), "{:?}", provider.requests());
    assert_eq!(provider.requests().len(), 100, "a list that never ends is cut off");
}

#[tokio::test]
async fn a_port_that_never_upgrades_is_given_up_and_the_sandbox_removed() {
    let provider = with_port(|| answer(200, &json!({}))).await;
    let error = provider.failure().await;
    assert!(error.to_string().contains("its port answers with status 200"), "{error}");
    assert_eq!(provider.count("DELETE /sandbox/one"), 1);
}

#[tokio::test]
async fn an_upgrade_by_something_else_than_a_websocket_is_refused() {
    let provider = with_port(|| {
        let response =
            Response::builder().status(101).header("upgrade", "websocket").header("connection", "Upgrade");
        response
            .header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
            .body(Body::empty())
            .expect("a response")
    })
    .await;
    let error = provider.failure().await;
    assert!(error.to_string().contains("is not a WebSocket"), "{error}");
}
