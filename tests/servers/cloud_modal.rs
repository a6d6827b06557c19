//! Sandboxes at Modal: what differs from other providers, on a made-up one that the vendor's own SDK is measured by, and on one
//! that nobody should trust.

use agent::envd::envelope::encode;
use agent::error::{Error, Kind};
use agent::sandbox::cloud::modal::messages::{
    AppGetOrCreateResponse, AuthTokenGetResponse, BLOCKED, Empty, GenericResult, ImageGetOrCreateResponse,
    OPEN, RouterAccess, SUCCESS, SandboxCreateV2Response, SandboxInfo, SandboxListResponse, SandboxTag,
    TaskInfo,
};
use agent::sandbox::{Backend, Network, Outcome, Sandbox, Spec, State};
use agent_testbed::agent::agent;
use agent_testbed::backends::{modal as backend_at, output_of, shell, spec};
use agent_testbed::modal::{self, TOKEN_ID, TOKEN_SECRET};
use agent_testbed::serve::sdk;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt;
use prost::Message;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

async fn start(backend: &(impl Backend + ?Sized), spec: &Spec) -> Sandbox {
    let (channel, _) = backend.start(spec, &|_, _, _| {}).await.expect("the sandbox starts");
    Sandbox::connect(channel).await.expect("the guest answers")
}

#[test]
fn modals_own_python_sdk_works_with_the_made_up_modal() {
    let Some(sdk) = sdk("modal") else { return };
    let provider = modal::start();
    let variables = [
        ("MODAL_SERVER_URL", &*provider.url),
        ("MODAL_TOKEN_ID", TOKEN_ID),
        ("MODAL_TOKEN_SECRET", TOKEN_SECRET),
        ("MODAL_CONFIG_PATH", "/nonexistent"),
    ];
    sdk.run_with("modal_sandboxes.py", variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(provider.sandboxes().len(), 0);
}

#[tokio::test]
async fn a_sandbox_of_modal_is_made_with_its_leash_and_without_a_network() {
    let provider = modal::start();
    let backend = backend_at(&provider.url, TOKEN_SECRET);
    let spec = Spec { idle_ttl: Duration::from_secs(3600), ..spec() };
    let (channel, info) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&sandbox, "echo here; pwd").await, "here\n/workspace");
    assert!(info.missing[0].contains("2 processors and 2048 MiB"), "{:?}", info.missing);
    let made = provider.sandboxes().remove(0);
    assert_eq!(info.id, made.id);
    let definition = &made.definition;
    assert_eq!(definition.name, Some(format!("agent-{}", spec.session)));
    // Ten minutes at most without a stream.
    assert_eq!((definition.idle_timeout_secs, definition.timeout_secs), (Some(600), 24 * 3600));
    assert_eq!(definition.network_access.as_ref().map(|access| access.network_access_type), Some(BLOCKED));
    assert_eq!(made.tags["agent.session"], spec.session);
    assert!(!format!("{definition:?} {:?}", made.tags).contains(TOKEN_SECRET));
    let requests = provider.take_requests();
    assert_eq!(requests.iter().filter(|method| *method == "SandboxCreateV2").count(), 1, "{requests:?}");
    backend.destroy(&spec.session).await.expect("removed");
    assert_eq!(provider.sandboxes().len(), 0);
    backend.destroy(&spec.session).await.expect("a missing one is not an error");
}

#[tokio::test]
async fn another_machine_attaches_to_a_sandbox_of_modal_and_sees_only_what_is_ours() {
    let provider = modal::start();
    let (first, second) = (backend_at(&provider.url, TOKEN_SECRET), backend_at(&provider.url, TOKEN_SECRET));
    let spec = Spec { network: Network::Full, image: Some("python:slow".to_owned()), ..spec() };
    let sandbox = start(&first, &spec).await;
    let made = provider.sandboxes().remove(0);
    assert_eq!(made.definition.image_id, "im-slow");
    assert_eq!(made.definition.network_access.as_ref().map(|access| access.network_access_type), Some(OPEN));
    assert_eq!(output_of(&sandbox, "echo one > file; cat file").await, "one");
    let listed = second.list().await.expect("the list");
    assert_eq!((listed.len(), &listed[0].id, listed[0].state), (1, &made.id, State::Running));
    let channel = second.attach(&spec.session).await.expect("attached");
    let attached = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&attached, "cat file").await, "one");
    let seen = output_of(&attached, "cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' ' '").await;
    assert!(!seen.contains(TOKEN_SECRET) && !seen.contains("token-of-the-"), "{seen}");
    second.sweep().await.expect("swept");
    assert_eq!(provider.sandboxes().len(), 1);
    first.destroy(&spec.session).await.expect("removed");
    let error = second.attach(&spec.session).await.err().expect("it is gone");
    assert_eq!(error.exit_code() as u8, 4, "{error}");
}

#[tokio::test]
async fn a_cut_stream_of_a_modal_sandbox_is_joined_again() {
    let provider = modal::start();
    let backend = backend_at(&provider.url, TOKEN_SECRET);
    let spec = spec();
    let sandbox = start(&backend, &spec).await;
    let job = sandbox.start_job(shell("echo begun; sleep 600")).await.expect("it starts");
    for round in 0..3 {
        let running = sandbox.run(shell("echo there; sleep 600"), &mut |_| provider.cut()).await;
        assert_eq!(running.expect("an outcome").outcome, Outcome::Lost, "round {round}");
        assert_eq!(output_of(&sandbox, &format!("echo {round} > file; cat file")).await, round.to_string());
    }
    let output = sandbox.job_output(job, Duration::ZERO).await.expect("the job is there");
    assert!(output.state.is_none() && !output.output.is_empty(), "{output:?}");
    backend.destroy(&spec.session).await.expect("removed");
    // What is gone is not waited for.
    let gone = sandbox.run(shell("true"), &mut |_| {}).await;
    assert!(gone.map_or(true, |finished| finished.outcome == Outcome::Lost));
}

#[tokio::test]
async fn a_session_that_starts_again_replaces_its_sandbox_at_modal() {
    let provider = modal::start();
    let backend = backend_at(&provider.url, TOKEN_SECRET);
    // A tag had the colons of this date, which Modal's SDK refuses.
    let spec = Spec { ephemeral: false, delete_after: Some(Duration::from_secs(3600)), ..spec() };
    let _first = start(&backend, &spec).await;
    let before = provider.sandboxes().remove(0);
    let _second = start(&backend, &spec).await;
    let after = provider.sandboxes();
    assert_eq!(after.len(), 1);
    assert_ne!(before.id, after[0].id);
    let listed = backend.list().await.expect("the list");
    let expires = listed[0].expires.as_deref().and_then(|date| date.parse::<jiff::Timestamp>().ok());
    assert!(expires.is_some_and(|date| date > jiff::Timestamp::now()), "{listed:?}");
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_start_at_modal_that_is_cut_off_at_any_moment_leaves_one_sandbox_for_its_session() {
    let provider = modal::start();
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let backend = backend_at(&provider.url, TOKEN_SECRET);
    let spec = spec();
    for _ in 0..12 {
        let moment = Duration::from_millis(random.u64(0..800));
        let _ = tokio::time::timeout(moment, backend.start(&spec, &|_, _, _| {})).await;
    }
    let sandbox = start(&backend, &spec).await;
    assert_eq!(output_of(&sandbox, "echo here").await, "here");
    assert_eq!(backend.list().await.expect("the list").len(), 1);
    backend.destroy(&spec.session).await.expect("removed");
    assert_eq!(provider.sandboxes().len(), 0);
}

#[tokio::test]
async fn a_wrong_token_of_modal_is_a_sentence_that_does_not_hold_it() {
    let provider = modal::start();
    let backend = backend_at(&provider.url, "as-wrong");
    let error = backend.list().await.expect_err("it is refused");
    assert_eq!(error.to_string(), "modal does not accept the token (16): Token ID is malformed");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("MODAL_TOKEN_SECRET")));
    assert!(!format!("{error:?}").contains("as-wrong"), "{error:?}");
}

#[test]
fn the_program_runs_commands_at_modal_and_leaves_nothing_there() {
    let provider = modal::start();
    let call = || {
        let token = [("MODAL_TOKEN_ID", TOKEN_ID), ("MODAL_TOKEN_SECRET", TOKEN_SECRET)];
        let call = agent().env("MODAL_SERVER_URL", &provider.url);
        token.into_iter().fold(call, |call, (name, value)| call.env(name, value))
    };
    let ran = call().args(["exec", "--sandbox", "modal", "sh", "-c", "pwd; exit 7"]).run().expect_code(7);
    assert_eq!(ran.stdout.trim(), "/workspace");
    let listed = call().args(["sandbox", "list", "--sandbox", "modal"]).run().expect_code(0);
    assert_eq!(listed.stdout, "there are no sandboxes\n");
    let looked = call().args(["doctor", "--sandbox", "modal", "--live"]).run();
    assert!(
        looked.stdout.contains("takes the key; 0 sandboxes") && looked.stdout.contains("is removed"),
        "{}",
        looked.stdout
    );
    let without = agent().args(["exec", "--sandbox", "modal", "true"]).run();
    assert!(without.stderr.contains("MODAL_TOKEN_ID is not set"), "{}", without.stderr);
    assert_eq!(provider.sandboxes().len(), 0);
}

#[test]
fn a_token_of_modal_in_the_configuration_is_used_with_its_place() {
    let provider = modal::start();
    let home = tempfile::tempdir().expect("a home");
    std::fs::create_dir_all(home.path().join("config")).expect("a directory");
    let file = format!(
        "[sandbox.modal]\ntoken_id = \"{TOKEN_ID}\"\ntoken_secret = \"{TOKEN_SECRET}\"\nserver_url = \"{}\"\n",
        provider.url
    );
    std::fs::write(home.path().join("config/config.toml"), file).expect("written");
    // A part of another token belongs to another place.
    let call = agent().env("AGENT_HOME", home.path()).env("MODAL_TOKEN_SECRET", "as-another");
    let listed = call.args(["sandbox", "list", "--sandbox", "modal"]).run().expect_code(0);
    assert_eq!(listed.stdout, "there are no sandboxes\n");
}

/// A Modal whose answers a test makes up.
struct Provider {
    url: String,
    /// The methods that were called.
    requests: Arc<Mutex<Vec<String>>>,
    /// Those whose request held the token, and the keys that make creations one.
    with_token: Arc<Mutex<Vec<String>>>,
    creations: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    /// One that answers as a Modal does, but what `strange` answers instead.
    async fn start(strange: impl Fn(&str, &str) -> Option<Response> + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (requests, with_token, creations) = (
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let (own, log, tokens, keys) =
            (url.clone(), Arc::clone(&requests), Arc::clone(&with_token), Arc::clone(&creations));
        let router = Router::new().fallback(move |request: Request| {
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            log.lock().expect("a lock").push(method.clone());
            let holds = |value: &axum::http::HeaderValue| value.as_bytes() == TOKEN_SECRET.as_bytes();
            if request.headers().values().any(holds) {
                tokens.lock().expect("a lock").push(method.clone());
            }
            if method == "SandboxCreateV2" {
                let key = request.headers()["x-idempotency-key"].to_str().expect("text").to_owned();
                keys.lock().expect("a lock").push(key);
            }
            let response = strange(&method, &own).unwrap_or_else(|| usual(&method, &own));
            async move { response }
        });
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { url, requests, with_token, creations }
    }

    fn count(&self, method: &str) -> usize {
        self.requests.lock().expect("a lock").iter().filter(|called| *called == method).count()
    }

    /// Starts a sandbox, which has to fail.
    async fn failure(&self) -> Error {
        let backend = backend_at(&self.url, TOKEN_SECRET);
        let error = backend.start(&spec(), &|_, _, _| {}).await.err().expect("it fails");
        assert_eq!(error.kind(), Kind::Sandbox, "{error}");
        assert!(!format!("{error:?}").contains(TOKEN_SECRET), "{error:?}");
        error
    }
}

fn message(message: &impl Message) -> Response {
    bytes(Body::from(encode(&message.encode_to_vec(), false)), "0", "")
}

/// An answer whose status comes with its headers.
fn bytes(body: Body, code: &str, why: &str) -> Response {
    let response = Response::builder().header("content-type", "application/grpc");
    response.header("grpc-status", code).header("grpc-message", why).body(body).expect("a response")
}

fn refusal(code: &str, why: &str) -> Response {
    bytes(Body::empty(), code, why)
}

fn made(id: &str, task: &str, router: &str) -> Response {
    message(&SandboxCreateV2Response {
        sandbox_id: id.to_owned(),
        task_id: task.to_owned(),
        command_router_access: Some(RouterAccess { jwt: "of-the-router".to_owned(), url: router.to_owned() }),
        sandbox_token: String::new(),
    })
}

fn usual(method: &str, own: &str) -> Response {
    match method {
        "AppGetOrCreate" => message(&AppGetOrCreateResponse { app_id: "ap-1".to_owned() }),
        "AuthTokenGet" => message(&AuthTokenGetResponse { token: "of-the-plane".to_owned() }),
        "ImageGetOrCreate" => {
            let result = Some(GenericResult { status: SUCCESS, ..GenericResult::default() });
            message(&ImageGetOrCreateResponse { image_id: "im-1".to_owned(), result })
        }
        "SandboxCreateV2" => made("sb-1", "ta-1", own),
        _ => message(&Empty {}),
    }
}

#[tokio::test]
async fn a_router_elsewhere_gets_nothing_that_is_modals_and_one_in_clear_text_nothing_at_all() {
    let elsewhere = Provider::start(|_, _| Some(refusal("16", "who"))).await;
    let clear = "http://192.0.2.1:1".to_owned();
    for (router, said) in
        [(clear, "which is not protected on the way"), (elsewhere.url.clone(), "refuses its own token")]
    {
        let provider = Provider::start(move |method, _| {
            (method == "SandboxCreateV2").then(|| made("sb-1", "ta-1", &router))
        })
        .await;
        let error = provider.failure().await;
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(provider.count("SandboxTerminateV2"), 1);
    }
    assert!(elsewhere.count("TaskExecStart") > 0);
    assert!(elsewhere.with_token.lock().expect("a lock").is_empty());
}

#[tokio::test]
async fn ids_of_modal_that_are_not_ids_are_refused() {
    for (id, task, removed) in [("../x", "ta-1", 0), ("", "ta-1", 0), ("sb-1", "a/b", 1), ("sb-1", "a\nb", 1)]
    {
        let provider =
            Provider::start(move |method, own| (method == "SandboxCreateV2").then(|| made(id, task, own)))
                .await;
        let error = provider.failure().await;
        assert!(error.to_string().contains("which is not a valid id"), "{error}");
        assert_eq!(provider.count("SandboxTerminateV2"), removed, "{id} {task}");
    }
}

#[tokio::test]
async fn endless_damaged_and_foreign_answers_of_modal_are_refused() {
    let endless = || {
        // A frame that says it is 4 GiB long, and never ends.
        let head = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]);
        let pieces = futures_util::stream::repeat_with(|| Bytes::from(vec![b' '; 64 << 10]));
        let all = futures_util::stream::iter([head]).chain(pieces).map(Ok::<_, std::io::Error>);
        bytes(Body::from_stream(all), "0", "")
    };
    let page = || {
        Response::builder()
            .header("content-type", "text/html")
            .body(Body::from("<html>"))
            .expect("a response")
    };
    let many = || {
        let app = encode(&AppGetOrCreateResponse { app_id: "ap-1".to_owned() }.encode_to_vec(), false);
        bytes(Body::from([app.clone(), app].concat()), "0", "")
    };
    type Answer = Box<dyn Fn() -> Response + Send + Sync>;
    let cases: [(&str, Answer); 6] = [
        ("is longer than 8 MiB", Box::new(endless)),
        ("is not gRPC", Box::new(page)),
        ("holds more than one message", Box::new(many)),
        (
            "compressed messages are not accepted",
            Box::new(|| bytes(Body::from(vec![1, 0, 0, 0, 1, 0]), "0", "")),
        ),
        (
            "holds a message of another kind",
            Box::new(|| bytes(Body::from(encode(b"\xff\xff", false)), "0", "")),
        ),
        ("names a status that is not a number", Box::new(|| refusal("many", ""))),
    ];
    for (said, answer) in cases {
        let answer = Arc::new(answer);
        let provider = Provider::start(move |method, _| (method == "AppGetOrCreate").then(|| answer())).await;
        let error = provider.failure().await;
        assert!(error.to_string().contains(said), "{said}: {error}");
        assert_eq!(provider.count("AppGetOrCreate"), 1, "{said}");
    }
}

#[tokio::test]
async fn a_creation_at_modal_whose_answer_is_lost_is_one_request_however_often_it_is_sent() {
    let provider = Provider::start(|method, _| {
        (method == "SandboxCreateV2").then(|| refusal("14", &format!("with {TOKEN_SECRET} in it")))
    })
    .await;
    let error = provider.failure().await;
    assert_eq!(error.to_string(), "modal failed (14): with (a secret) in it");
    let keys = provider.creations.lock().expect("a lock").clone();
    assert!(keys.len() > 1 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn a_protocol_of_modal_that_has_changed_is_named() {
    let provider =
        Provider::start(|method, _| (method == "SandboxCreateV2").then(|| refusal("12", "no such method")))
            .await;
    let error = provider.failure().await;
    assert!(error.to_string().contains("does not speak the protocol"), "{error}");
    let full =
        Provider::start(|method, _| (method == "SandboxCreateV2").then(|| refusal("8", "too%20many"))).await;
    let error = full.failure().await;
    assert_eq!(error.to_string(), "modal refuses for the account's limits (8): too many");
    assert_eq!(full.count("SandboxCreateV2"), 1);
}

#[tokio::test]
async fn a_list_of_anything_at_modal_is_a_list_of_what_is_ours() {
    let provider = Provider::start(|method, _| {
        let tag =
            |name: &str, value: &str| SandboxTag { tag_name: name.to_owned(), tag_value: value.to_owned() };
        let described = |id: &str, tags: Vec<SandboxTag>| SandboxInfo {
            id: id.to_owned(),
            created_at: 1e9,
            tags,
            task_info: Some(TaskInfo { id: "ta-1".to_owned(), ..TaskInfo::default() }),
            ..SandboxInfo::default()
        };
        let strange = SandboxListResponse {
            sandboxes: vec![
                described("theirs", Vec::new()),
                described("../x", vec![tag("agent.session", "s")]),
                described("old", vec![tag("agent.session", "s"), tag("agent.host", "another")]),
                SandboxInfo { created_at: f64::NAN, ..described("odd", vec![tag("agent.session", "s")]) },
            ],
        };
        (method == "SandboxListV2").then(|| message(&strange))
    })
    .await;
    let backend = backend_at(&provider.url, TOKEN_SECRET);
    assert!(backend.list().await.expect("the list").is_empty());
    backend.sweep().await.expect("swept");
    assert_eq!(provider.count("SandboxTerminateV2"), 0);
    assert!(provider.count("SandboxListV2") <= 4, "a list that never ends is cut off");
}
