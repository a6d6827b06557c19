//! A provider that nobody should trust: whatever it answers, the key stays with it, and the failure has a name.

use agent::envd::envelope::encode;
use agent::error::{Error, Kind};
use agent::sandbox::Backend;
use agent_testbed::backends::{daytona as backend_at, e2b as e2b_at, novita as novita_at, spec};
use agent_testbed::daytona::KEY;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use base64::Engine as _;
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// A server whose answers a test makes up.
struct Provider {
    url: String,
    /// Method and path of every request.
    requests: Arc<Mutex<Vec<String>>>,
    /// The keys that make creations one.
    creations: Arc<Mutex<Vec<String>>>,
    /// Those that carried the user's key.
    with_key: Arc<Mutex<Vec<String>>>,
}

/// The header of an answer that never comes.
const NEVER: &str = "x-never";

impl Provider {
    async fn start(answer: impl Fn(&str, &str) -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (creations, with_key) =
            (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (log, own) = (Arc::clone(&requests), url.clone());
        let (of_creations, of_key) = (Arc::clone(&creations), Arc::clone(&with_key));
        let router = Router::new().fallback(move |request: Request| {
            let line = format!("{} {}", request.method(), request.uri().path());
            log.lock().expect("a lock").push(line.clone());
            let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
            of_creations.lock().expect("a lock").extend(header("idempotency-key").map(str::to_owned));
            if header("x-api-key").is_some_and(|key| key == KEY) {
                of_key.lock().expect("a lock").push(line.clone());
            }
            let response = answer(&line, &own);
            async move {
                match response.headers().contains_key(NEVER) {
                    true => std::future::pending().await,
                    false => response,
                }
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, requests, creations, with_key }
    }

    fn count(&self, line: &str) -> usize {
        self.requests.lock().expect("a lock").iter().filter(|request| *request == line).count()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("a lock").clone()
    }

    /// Starts a sandbox, which has to fail.
    async fn failure(&self) -> Error {
        self.failure_of(&backend_at(&self.url, KEY)).await
    }

    /// The same at E2B.
    async fn failure_of_e2b(&self) -> Error {
        self.failure_of(&e2b_at(&self.url, KEY)).await
    }

    async fn failure_of(&self, backend: &impl Backend) -> Error {
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

/// One that looks like a bug of the provider's, or of a proxy: nothing ever answers.
#[tokio::test]
async fn a_handshake_that_is_never_answered_is_given_up_and_the_sandbox_removed() {
    let never = || Response::builder().header(NEVER, "1").body(Body::empty()).expect("a response");
    let provider = with_port(never).await;
    let error = provider.failure().await;
    assert!(error.to_string().contains("handshake was not answered"), "{error}");
    assert_eq!(provider.count("DELETE /sandbox/one"), 1);
}

/// An E2B that does all that is asked, but what `strange` answers instead.
async fn e2b_with(strange: impl Fn(&str) -> Option<Response> + Clone + Send + Sync + 'static) -> Provider {
    Provider::start(move |line, _| match (strange(line), line) {
        (Some(response), _) => response,
        (None, "POST /v2/sandboxes" | "POST /sandboxes") => {
            answer(201, &json!({ "sandboxID": "one", "envdAccessToken": "t", "trafficAccessToken": "u" }))
        }
        (None, "POST /process.Process/Start") => {
            let printed = base64::engine::general_purpose::STANDARD.encode("agent-guest-is-ready\n");
            let message = json!({ "event": { "data": { "stdout": printed } } }).to_string();
            let end = json!({ "event": { "end": { "exited": true } } }).to_string();
            let frames = [(message.as_str(), false), (end.as_str(), false), ("{}", true)];
            let frames = frames.map(|(payload, is_end)| encode(payload.as_bytes(), is_end)).concat();
            Response::new(Body::from(frames))
        }
        (None, "GET /") => answer(502, &json!({ "message": "The sandbox is running but port is not open" })),
        (None, "GET /v2/sandboxes") => answer(200, &json!([])),
        _ => answer(200, &json!({})),
    })
    .await
}

#[tokio::test]
async fn the_key_goes_to_the_control_plane_alone() {
    let provider = e2b_with(|_| None).await;
    let error = provider.failure_of_e2b().await;
    assert!(error.to_string().contains("cannot be reached: its port"), "{error}");
    let requests = provider.requests();
    let with_key = provider.with_key.lock().expect("a lock").clone();
    for line in ["POST /files", "POST /process.Process/Start", "GET /"] {
        assert!(requests.iter().any(|request| request == line), "{requests:?}");
        assert!(!with_key.iter().any(|request| request == line), "{with_key:?}");
    }
    assert!(with_key.iter().all(|line| line.contains("/sandboxes")), "{with_key:?}");
    assert_eq!(provider.count("DELETE /sandboxes/one"), 1);
}

#[tokio::test]
async fn a_domain_elsewhere_gets_nothing_and_the_sandbox_is_removed() {
    for domain in ["evil.example", "e2b.app@evil.example", "127.0.0.1", "e2b.app/x"] {
        let made = move |line: &str| {
            let made = json!({ "sandboxID": "one", "envdAccessToken": "t", "domain": domain });
            (line == "POST /v2/sandboxes").then(|| answer(201, &made))
        };
        let provider = e2b_with(made).await;
        let error = provider.failure_of_e2b().await;
        assert!(error.to_string().contains("the key is not sent there"), "{domain}: {error}");
        assert_eq!(provider.requests(), ["POST /v2/sandboxes", "DELETE /sandboxes/one"]);
    }
}

#[tokio::test]
async fn an_id_that_would_be_another_host_is_refused() {
    for id in ["a.b", "", "a/../b", "one@evil"] {
        let made = move |line: &str| {
            let made = json!({ "sandboxID": id, "envdAccessToken": "t" });
            (line == "POST /v2/sandboxes").then(|| answer(201, &made))
        };
        let provider = e2b_with(made).await;
        let error = provider.failure_of_e2b().await;
        assert!(error.to_string().contains("which is not a valid id"), "{error}");
        assert_eq!(provider.requests(), ["POST /v2/sandboxes"]);
    }
}

#[tokio::test]
async fn another_sandbox_than_the_one_that_was_asked_for_is_not_used() {
    let strange = |line: &str| match line {
        "POST /v2/sandboxes" => Some(answer(201, &json!({ "sandboxID": "one" }))),
        "POST /sandboxes/one/connect" => {
            Some(answer(200, &json!({ "sandboxID": "other", "envdAccessToken": "t" })))
        }
        _ => None,
    };
    let provider = e2b_with(strange).await;
    let error = provider.failure_of_e2b().await;
    assert_eq!(error.to_string(), "e2b answers with another sandbox");
    assert_eq!((provider.count("DELETE /sandboxes/one"), provider.count("POST /files")), (1, 0));
}

#[tokio::test]
async fn an_endless_or_damaged_output_of_the_start_removes_the_sandbox() {
    let endless = || {
        let piece = encode(json!({ "event": { "keepalive": {} } }).to_string().as_bytes(), false);
        Body::from_stream(futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone())))
    };
    let not_found = encode(br#"{"error":{"code":"not_found","message":"no /bin/sh"}}"#, true);
    let cases = [
        (b"\x01\0\0\0\0".to_vec(), "is damaged: compressed messages are not accepted"),
        (not_found.to_vec(), "no /bin/sh"),
    ];
    let start = |body: Body, line: &str| (line == "POST /process.Process/Start").then(|| Response::new(body));
    for (body, said) in cases {
        let provider = e2b_with(move |line| start(Body::from(body.clone()), line)).await;
        let error = provider.failure_of_e2b().await;
        assert!(error.to_string().ends_with(said), "{error}");
        assert_eq!(provider.count("DELETE /sandboxes/one"), 1);
    }
    let provider = e2b_with(move |line| start(endless(), line)).await;
    let error = provider.failure_of_e2b().await;
    assert_eq!(error.to_string(), "the answer of e2b is larger than 8 MiB");
    assert_eq!(provider.count("DELETE /sandboxes/one"), 1);
}

#[tokio::test]
async fn a_creation_is_repeated_only_where_the_vendor_makes_it_one() {
    let failing = |line: &str| {
        (line.starts_with("POST") && line.ends_with("/sandboxes"))
            .then(|| answer(500, &json!({ "message": "no" })))
    };
    let provider = e2b_with(failing).await;
    let error = provider.failure_of_e2b().await;
    assert_eq!(error.to_string(), "e2b failed (500): no");
    let keys = provider.creations.lock().expect("a lock").clone();
    assert!(keys.len() > 1 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");

    let provider = e2b_with(failing).await;
    let error = provider.failure_of(&novita_at(&provider.url, KEY)).await;
    assert_eq!(error.to_string(), "novita failed (500): no");
    // It is looked for, and not there.
    assert_eq!((provider.count("POST /sandboxes"), provider.count("GET /v2/sandboxes")), (1, 1));
}

#[tokio::test]
async fn an_imitator_without_the_second_version_gets_the_first() {
    let old = |line: &str| {
        (line == "POST /v2/sandboxes").then(|| answer(404, &json!({ "message": "no such call" })))
    };
    let provider = e2b_with(old).await;
    provider.failure_of_e2b().await;
    assert_eq!((provider.count("POST /sandboxes"), provider.count("POST /files")), (1, 1));
}

#[tokio::test]
async fn a_sandbox_that_is_gone_before_its_guest_starts_says_so() {
    let gone = |line: &str| {
        let is_of_sandbox = ["POST /files", "POST /process.Process/Start", "GET /"].contains(&line);
        is_of_sandbox.then(|| answer(502, &json!({ "message": "The sandbox was not found", "code": 502 })))
    };
    let provider = e2b_with(gone).await;
    let error = provider.failure_of_e2b().await;
    let said = "the e2b sandbox is gone, or does not answer: e2b failed (502): The sandbox was not found";
    assert_eq!(error.to_string(), said);
}
