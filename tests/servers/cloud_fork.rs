//! Forks at providers: as the provider's own copy of the sandbox where it has such copies, else through the guest.

use agent::sandbox::ownership::this_host;
use agent::sandbox::{Backend, Sandbox, Spec};
use agent_testbed::agent::{Agent, Finished, agent};
use agent_testbed::backends::{e2b as e2b_at, modal as modal_at, output_of, spec};
use agent_testbed::terminal::terminal;
use agent_testbed::{e2b, modal};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A test's facts about a provider.
struct Place {
    backend: &'static str,
    variables: Vec<(&'static str, String)>,
}

impl Place {
    fn of_e2b(backend: &'static str, url: &str, sandboxes: &str) -> Self {
        let names = match backend {
            "e2b" => ["E2B_API_URL", "E2B_SANDBOX_URL", "E2B_API_KEY"],
            _ => ["NOVITA_API_URL", "NOVITA_SANDBOX_URL", "NOVITA_API_KEY"],
        };
        let values = [url, sandboxes, e2b::KEY].map(str::to_owned);
        Self { backend, variables: names.into_iter().zip(values).collect() }
    }

    fn of_modal(provider: &modal::Modal) -> Self {
        let variables = [
            ("MODAL_SERVER_URL", provider.url.clone()),
            ("MODAL_TOKEN_ID", modal::TOKEN_ID.to_owned()),
            ("MODAL_TOKEN_SECRET", modal::TOKEN_SECRET.to_owned()),
        ];
        Self { backend: "modal", variables: variables.into() }
    }

    fn at(&self, call: Agent) -> Agent {
        let call = call.env("AGENT_SANDBOX", self.backend);
        self.variables.iter().fold(call, |call, (name, value)| call.env(name, value))
    }

    /// A session whose sandbox is kept, after `command` has run in it.
    fn source(&self, command: &str) -> (Finished, String) {
        let model =
            endpoint().tool_call("run_commands", json!({ "command": command })).text("Written.").start();
        let call = self.at(agent().file("kept.txt", "kept\n").file(".gitignore", "ignored\n"));
        let ran = call.endpoint(&model).args(["run", "--keep", "--json", "write"]).run().expect_code(0);
        let session = ran.events()[0]["session"].as_str().expect("a session").to_owned();
        (ran, session)
    }

    /// A fork of the session, whose sandbox has not started yet.
    fn fork(&self, source: &Finished, session: &str) -> String {
        let forked = self.at(source.again()).args(["fork", session, "--json"]).run().expect_code(0);
        let forked: Value = serde_json::from_str(&forked.stdout).expect("JSON");
        assert_eq!(forked["home"], true);
        forked["session"].as_str().expect("a session").to_owned()
    }

    /// Returns what `command` prints in the sandbox of the session, which is kept.
    fn read(&self, source: &Finished, session: &str, command: &str) -> String {
        let model = endpoint().tool_call("run_commands", json!({ "command": command })).text("Read.").start();
        let call = self.at(source.again()).endpoint(&model);
        call.args(["run", "--session", session, "--keep", "read"]).run().expect_code(0);
        model.requests()[1].messages().pop().expect("a result")["content"].to_string()
    }

    fn remove(&self, source: &Finished, session: &str) {
        self.at(source.again()).args(["sessions", "rm", session]).run().expect_code(0);
    }
}

/// The changes of a sandbox, of which git ignores a part.
const WRITE: &str = "head -c 4000000 /dev/urandom >big; echo changed >new.txt; echo home >~/note; rm kept.txt; \
                     mkdir ignored; echo built >ignored/x";
const READ: &str = "cat new.txt ~/note ignored/x; wc -c <big; ls; ls -A ~";

fn assert_is_copy(result: &str) {
    for part in ["changed", "home", "4000000"] {
        assert!(result.contains(part), "{result}");
    }
    assert!(!result.contains("kept") && !result.contains("agent-fork"), "{result}");
}

/// An address that leads to `url`, and the bytes that were sent there.
fn counted(url: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (target, sent) = (url.trim_start_matches("http://").to_owned(), Arc::<AtomicUsize>::default());
    let counter = Arc::clone(&sent);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&target) else { continue };
            let ends = (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
            let counter = Arc::clone(&counter);
            std::thread::spawn(move || carry(client, server, &counter));
            std::thread::spawn(move || carry(ends.1, ends.0, &AtomicUsize::new(0)));
        }
    });
    (address, sent)
}

fn carry(mut from: TcpStream, mut to: TcpStream, counter: &AtomicUsize) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        counter.fetch_add(length, Ordering::SeqCst);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

#[test]
fn a_fork_at_e2b_begins_as_the_providers_copy_of_its_source_and_is_its_own() {
    let provider = e2b::start();
    let (sandboxes, sent) = counted(&provider.url);
    let place = Place::of_e2b("e2b", &provider.url, &sandboxes);
    let (source, session) = place.source(WRITE);
    let fork = place.fork(&source, &session);
    let copies = wait(provider.snapshots());
    let name = copies[0]["names"][0].as_str().expect("a name").to_owned();
    assert!(copies.len() == 1 && name.ends_with(&fork) && name.contains(&this_host()), "{copies:?}");
    let before = sent.load(Ordering::SeqCst);
    let result = place.read(&source, &fork, READ);
    assert_is_copy(&result);
    assert!(result.contains("built"), "{result}");
    // The guest was sent, and no file of the workspace.
    let sent = sent.load(Ordering::SeqCst) - before;
    assert!((500_000..3_000_000).contains(&sent), "{sent}");
    let listed = wait(provider.sandboxes());
    let of = |session: &str| {
        let is_its = |sandbox: &&Value| sandbox["metadata"]["agent.session"] == session;
        listed.iter().find(is_its).expect("its sandbox").clone()
    };
    let (own, other) = (of(&fork), of(&session));
    assert_eq!((listed.len(), &own["templateID"]), (2, &copies[0]["snapshotID"]));
    assert_eq!(own["metadata"]["agent.host"], other["metadata"]["agent.host"]);
    assert_ne!(own["metadata"]["agent.creation"], other["metadata"]["agent.creation"]);
    assert_eq!(
        (&own["allowInternetAccess"], &own["lifecycle"]["onTimeout"]),
        (&json!(false), &json!("pause"))
    );
    assert!(!own.to_string().contains(e2b::KEY));
    // What one changes the other does not have, and the fork goes on in the same sandbox.
    place.read(&source, &fork, "echo later >new.txt");
    assert!(place.read(&source, &session, "cat new.txt").contains("changed"));
    assert!(place.read(&source, &fork, "cat new.txt ignored/x").contains("later"));
    let diff = place.at(source.again()).args(["diff", &fork]).run().expect_code(0).stdout;
    assert!(diff.contains("+later") && diff.contains("-kept"), "{diff}");
    // A fork that never started.
    let unstarted = place.fork(&source, &fork);
    assert_eq!(wait(provider.snapshots()).len(), 2);
    for session in [&unstarted, &fork, &session] {
        place.remove(&source, session);
    }
    assert_eq!((wait(provider.snapshots()), wait(provider.sandboxes())), (vec![], vec![]));
}

#[test]
fn a_fork_at_e2b_is_copied_through_the_guest_where_the_provider_makes_no_copy() {
    let provider = e2b::start();
    let place = Place::of_e2b("e2b", &provider.url, &provider.url);
    let (source, session) = place.source(WRITE);
    // As many as there may be.
    let sandbox = wait(provider.sandboxes())[0]["sandboxID"].as_str().expect("an id").to_owned();
    let made: Vec<u16> = wait(async {
        let mut made = Vec::new();
        for number in 0..20 {
            made.push(provider.snapshot(&sandbox, &format!("other-{number}")).await);
        }
        made
    });
    assert_eq!(made, [201; 20]);
    let fork = place.fork(&source, &session);
    let result = place.read(&source, &fork, READ.replace("ignored/x", "").as_str());
    assert_is_copy(&result);
    for session in [&fork, &session] {
        place.remove(&source, session);
    }
    // What is not ours is left alone.
    assert_eq!((wait(provider.snapshots()).len(), wait(provider.sandboxes())), (20, vec![]));
}

#[test]
fn a_fork_whose_copy_is_gone_has_the_workspace_as_it_was_recorded() {
    let provider = e2b::start();
    let place = Place::of_e2b("e2b", &provider.url, &provider.url);
    let (source, session) = place.source(WRITE);
    let fork = place.fork(&source, &session);
    wait(e2b_at(&provider.url, e2b::KEY).destroy(&fork)).expect("removed");
    assert_eq!(wait(provider.snapshots()), Vec::<Value>::new());
    // One that is made as something else: a provider that knows no copies may ignore what was asked for.
    let other = place.fork(&source, &session);
    let note = source.again().home("").join(format!("data/sessions/{other}/snapshot.json"));
    std::fs::write(note, r#"{"backend":"e2b","id":"base"}"#).expect("written");
    for fork in [&fork, &other] {
        let result = place.read(&source, fork, "cat new.txt; wc -c <big; ls -A ~");
        assert!(result.contains("changed") && result.contains("4000000"), "{result}");
        let shown = place.at(source.again()).args(["sessions", "show", fork]).run().expect_code(0).stdout;
        assert!(shown.contains("This sandbox has the workspace as it was recorded last"), "{shown}");
    }
    assert!(!place.read(&source, &session, "ls -A ~").contains("agent-fork"));
    for session in [&fork, &other, &session] {
        place.remove(&source, session);
    }
    // The note was of another copy.
    wait(e2b_at(&provider.url, e2b::KEY).destroy(&other)).expect("removed");
    assert_eq!((wait(provider.snapshots()), wait(provider.sandboxes())), (vec![], vec![]));
}

#[test]
fn a_fork_at_novita_has_the_workspace_and_the_home_directory_of_its_source() {
    let provider = e2b::start();
    let place = Place::of_e2b("novita", &provider.url, &provider.url);
    let (source, session) = place.source(WRITE);
    let fork = place.fork(&source, &session);
    assert_eq!(wait(provider.snapshots()), Vec::<Value>::new());
    assert_is_copy(&place.read(&source, &fork, READ.replace("ignored/x", "").as_str()));
    for session in [session, fork] {
        place.remove(&source, &session);
    }
    assert_eq!(wait(provider.sandboxes()), Vec::<Value>::new());
}

#[test]
fn a_fork_at_modal_begins_as_an_image_of_its_source() {
    let provider = modal::start();
    let place = Place::of_modal(&provider);
    let (source, session) = place.source(WRITE);
    let fork = place.fork(&source, &session);
    provider.take_requests();
    let result = place.read(&source, &fork, READ);
    assert_is_copy(&result);
    assert!(result.contains("built"), "{result}");
    assert!(!provider.take_requests().iter().any(|method| method == "ImageGetOrCreate"));
    let made = provider.sandboxes();
    let own = made.iter().find(|sandbox| sandbox.tags["agent.session"] == fork).expect("its sandbox");
    assert!(own.definition.image_id.starts_with("im-of-a-sandbox-"), "{:?}", own.definition);
    assert_eq!(own.definition.name, Some(format!("agent-{fork}")));
    provider.refuse_images();
    let other = place.fork(&source, &session);
    assert_is_copy(&place.read(&source, &other, READ.replace("ignored/x", "").as_str()));
    for session in [session, fork, other] {
        place.remove(&source, &session);
    }
    assert_eq!(provider.sandboxes().len(), 0);
}

#[tokio::test]
async fn a_copy_never_answers_to_the_secret_of_its_source() {
    let (e2b, modal) = (e2b::start(), modal::start());
    let backends: [Box<dyn Backend>; 2] =
        [Box::new(e2b_at(&e2b.url, e2b::KEY)), Box::new(modal_at(&modal.url, modal::TOKEN_SECRET))];
    for backend in backends {
        let (source, fork) = (spec(), spec());
        let sandbox = connected(&*backend, &source).await;
        output_of(&sandbox, "echo here >file").await;
        let copy = backend.snapshot(&source.session, &fork.session).await.expect("a copy").expect("a copy");
        let fork = Spec { snapshot: Some(copy), ..fork };
        let forked = connected(&*backend, &fork).await;
        assert_eq!(output_of(&forked, "cat file; echo there >file").await, "here");
        assert_eq!(output_of(&sandbox, "cat file").await, "here");
        // Each is found by its own session alone.
        let attached = backend.attach(&source.session).await.expect("attached");
        let attached = Sandbox::connect(attached).await.expect("the guest answers");
        assert_eq!(output_of(&attached, "cat file").await, "here");
        assert_eq!(backend.list().await.expect("the list").len(), 2);
        backend.destroy(&source.session).await.expect("removed");
        assert!(backend.attach(&source.session).await.is_err());
        assert_eq!(output_of(&forked, "cat file").await, "there");
        backend.destroy(&fork.session).await.expect("removed");
    }
    assert_eq!((e2b.snapshots().await, e2b.sandboxes().await), (vec![], vec![]));
}

async fn connected(backend: &dyn Backend, spec: &Spec) -> Sandbox {
    let (channel, _) = backend.start(spec, &|_, _, _| {}).await.expect("the sandbox starts");
    Sandbox::connect(channel).await.expect("the guest answers")
}

#[tokio::test]
async fn a_sweep_removes_copies_of_this_machine_whose_time_is_over() {
    let provider = e2b::start();
    let backend = e2b_at(&provider.url, e2b::KEY);
    let spec = spec();
    let _sandbox = connected(&backend, &spec).await;
    let id = provider.sandboxes().await[0]["sandboxID"].as_str().expect("an id").to_owned();
    let here = this_host();
    let later = jiff::Timestamp::now().as_second() + 1000;
    let kept = [
        format!("agent-fork-{here}-{later}-not-started"),
        // The sandbox that began as it is there.
        format!("agent-fork-{here}-1-{}", spec.session),
        "agent-fork-elsewhere-1-gone".to_owned(),
        "agent-fork".to_owned(),
        "somebodys".to_owned(),
    ];
    for name in kept.iter().chain([&format!("agent-fork-{here}-1-gone")]) {
        assert_eq!(provider.snapshot(&id, name).await, 201, "{name}");
    }
    backend.sweep().await.expect("swept");
    let left: Vec<String> = provider
        .snapshots()
        .await
        .iter()
        .map(|left| left["names"][0].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(left, kept.map(|name| format!("agent/{name}")));
    backend.destroy(&spec.session).await.expect("removed");
}

#[test]
fn forks_at_e2b_that_are_killed_leave_nothing_behind_their_sessions() {
    let provider = e2b::start();
    let place = Place::of_e2b("e2b", &provider.url, &provider.url);
    let (source, session) = place.source("echo here >file");
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..6 {
        let forking = place.at(source.again()).args(["fork", &session]).start();
        std::thread::sleep(Duration::from_millis(random.u64(0..800)));
        forking.signal(libc::SIGKILL);
        forking.wait();
    }
    let listed = source.again().args(["sessions", "list", "--all", "--json"]).run().expect_code(0).stdout;
    let listed: Vec<Value> = serde_json::from_str(&listed).expect("a list");
    let ids: Vec<&str> = listed.iter().map(|summary| summary["id"].as_str().expect("an id")).collect();
    ids.iter().for_each(|id| place.remove(&source, id));
    let deadline = Instant::now() + Duration::from_secs(60);
    while !wait(provider.snapshots()).is_empty() {
        assert!(Instant::now() < deadline, "{:?} of {ids:?}", wait(provider.snapshots()));
        for id in &ids {
            wait(e2b_at(&provider.url, e2b::KEY).destroy(id)).expect("removed");
        }
    }
    assert_eq!(wait(provider.sandboxes()), Vec::<Value>::new());
}

#[test]
fn a_race_at_e2b_begins_with_copies_of_the_sandbox_as_it_is() {
    let provider = e2b::start();
    let place = Place::of_e2b("e2b", &provider.url, &provider.url);
    let model = endpoint()
        .by_rule(|body| {
            let messages = body["messages"].as_array().expect("messages");
            let last = messages.iter().rposition(|message| message["role"] == "user").expect("a prompt");
            let text = messages[last]["content"].as_str().unwrap_or_default();
            let has_worked = messages[last..].iter().any(|message| message["role"] == "tool");
            match (has_worked, text.contains("install")) {
                (true, _) => endpoint().text("done with it"),
                (false, true) => endpoint()
                    .tool_call("run_commands", json!({ "command": "echo tool >~/tool; echo 1 >w.txt" })),
                (false, false) => {
                    endpoint().tool_call("run_commands", json!({ "command": "cat ~/tool w.txt" }))
                }
            }
        })
        .start();
    let builder = terminal().endpoint(&model).env("AGENT_SANDBOX", place.backend);
    let set = place.variables.iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let mut terminal = set.start();
    terminal.wait_for_prompt();
    terminal.type_line("install it");
    terminal.wait_for("done with it");
    terminal.wait_for_prompt();
    terminal.type_line("!echo 2 >w.txt && echo written");
    terminal.wait_for("\nwritten");
    terminal.wait_for_prompt();
    terminal.type_line("/race 2 look at it");
    terminal.wait_for("Continue with which one?");
    terminal.type_line("2");
    terminal.wait_for("this is session");
    terminal.wait_for_prompt();
    let seen = |body: &&Value| {
        let last = body["messages"].as_array().expect("messages").last().expect("a message");
        last["role"] == "tool" && last["content"].as_str().expect("text").contains("tool\n2")
    };
    let requests = model.chat_requests();
    assert_eq!(requests.iter().filter(seen).count(), 2, "{requests:#?}");
    terminal.ctrl_d();
    assert_eq!(terminal.wait(), 0);
    assert_eq!((wait(provider.snapshots()), wait(provider.sandboxes())), (vec![], vec![]));
}
