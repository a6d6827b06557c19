//! Sandboxes of providers: what differs from other backends, on made-up providers, whose own SDKs these are measured by.

use agent::sandbox::{Backend, Network, Sandbox, Spec, State};
use agent_testbed::agent::{agent, binary};
use agent_testbed::backends::{
    daytona as backend_at, e2b as e2b_at, novita as novita_at, output_of, runloop as runloop_at, spec,
};
use agent_testbed::daytona::{self, Daytona, KEY};
use agent_testbed::e2b;
use agent_testbed::runloop;
use agent_testbed::serve::sdk;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn start(backend: &(impl Backend + ?Sized), spec: &Spec) -> Sandbox {
    let (channel, _) = backend.start(spec, &|_, _, _| {}).await.expect("the sandbox starts");
    Sandbox::connect(channel).await.expect("the guest answers")
}

fn backend(daytona: &Arc<Daytona>) -> impl Backend {
    backend_at(&daytona.api_url(), KEY)
}

#[tokio::test]
async fn a_sandbox_of_daytona_is_made_with_its_leash_and_without_a_network() {
    let daytona = daytona::start();
    let backend = backend(&daytona);
    let spec = Spec { idle_ttl: Duration::from_secs(3600), ..spec() };
    let _sandbox = start(&backend, &spec).await;
    let made = daytona.sandboxes().remove(0);
    assert_eq!(made["name"], format!("agent-{}", spec.session));
    assert_eq!(made["networkBlockAll"], true);
    // Ten minutes at most, then it goes with the stop.
    assert_eq!((&made["autoStopInterval"], &made["autoDeleteInterval"]), (&json!(10), &json!(0)));
    assert_eq!(made["labels"]["agent.session"], spec.session);
    assert!(!made.to_string().contains(KEY));
    let calls = ["POST /api/sandbox", "files/upload", "process/execute", "proxy/"];
    let requests = daytona.take_requests();
    assert_eq!(requests.len(), calls.len(), "{requests:?}");
    for (request, call) in requests.iter().zip(calls) {
        assert!(request.contains(call), "{requests:?}");
    }
    backend.destroy(&spec.session).await.expect("removed");
    assert_eq!(daytona.sandboxes().len(), 0);
    backend.destroy(&spec.session).await.expect("a missing one is not an error");
}

#[tokio::test]
async fn another_machine_with_the_same_key_attaches_and_one_with_another_key_does_not() {
    let daytona = daytona::start();
    let first = backend(&daytona);
    let spec = spec();
    let sandbox = start(&first, &spec).await;
    assert_eq!(output_of(&sandbox, "echo one > file; cat file").await, "one");
    let second = backend(&daytona);
    let channel = second.attach(&spec.session).await.expect("attached");
    let attached = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&attached, "cat file").await, "one");
    // The sandbox has the hash of the secret alone: what it knows opens nothing.
    let seen = output_of(&attached, "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '").await;
    assert!(!seen.contains(KEY), "{seen}");
    first.destroy(&spec.session).await.expect("removed");
    let error = second.attach(&spec.session).await.err().expect("it is gone");
    assert_eq!(error.exit_code() as u8, 4, "{error}");
}

#[tokio::test]
async fn a_stopped_sandbox_keeps_its_files_and_gets_its_guest_again() {
    let daytona = daytona::start();
    let backend = backend(&daytona);
    let spec = Spec { ephemeral: false, ..spec() };
    let sandbox = start(&backend, &spec).await;
    assert_eq!(output_of(&sandbox, "echo kept > /workspace/file; cat file").await, "kept");
    backend.pause(&spec.session).await.expect("stopped");
    assert_eq!(backend.list().await.expect("the list")[0].state, State::Stopped);
    assert!(backend.attach(&spec.session).await.is_err());
    backend.resume(&spec.session).await.expect("started");
    let channel = backend.attach(&spec.session).await.expect("attached");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&sandbox, "cat file").await, "kept");
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_session_that_starts_again_replaces_its_sandbox_and_makes_no_second_one() {
    let daytona = daytona::start();
    let backend = backend(&daytona);
    let spec = spec();
    let _first = start(&backend, &spec).await;
    let before = daytona.sandboxes().remove(0);
    let _second = start(&backend, &spec).await;
    let after = daytona.sandboxes();
    assert_eq!(after.len(), 1);
    assert_ne!(before["id"], after[0]["id"]);
    backend.destroy(&spec.session).await.expect("removed");
}

#[tokio::test]
async fn a_wrong_key_is_a_sentence_that_does_not_hold_it() {
    let daytona = daytona::start();
    let backend = backend_at(&daytona.api_url(), "dtn_wrong");
    let error = backend.list().await.expect_err("it is refused");
    assert_eq!(error.to_string(), "daytona does not accept the key (401): Invalid credentials");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("DAYTONA_API_KEY")));
    let error = backend.start(&spec(), &|_, _, _| {}).await.err().expect("it is refused");
    assert!(!format!("{error:?}").contains("dtn_wrong"), "{error:?}");
}

#[tokio::test]
async fn a_named_image_is_built_and_a_snapshot_is_named() {
    let daytona = daytona::start();
    let backend = backend(&daytona);
    let spec = Spec { network: Network::Full, image: Some("python:3.12".to_owned()), ..spec() };
    let (_channel, info) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
    assert_eq!(info.image.as_deref(), Some("python:3.12"));
    assert!(
        info.missing[0].contains("2 processors, 2 GiB of memory and 10 GiB of disk"),
        "{:?}",
        info.missing
    );
    assert_eq!(daytona.sandboxes()[0]["networkBlockAll"], false);
    backend.destroy(&spec.session).await.expect("removed");
}

/// The vendors' own SDKs are what the made-up providers are measured by.
#[test]
fn daytonas_own_python_sdk_works_with_the_made_up_daytona() {
    let Some(sdk) = sdk("daytona") else { return };
    let daytona = daytona::start();
    let variables = [("DAYTONA_API_KEY", KEY), ("DAYTONA_API_URL", &daytona.api_url())];
    sdk.run_with("daytona_sandboxes.py", variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(daytona.sandboxes().len(), 0);
}

#[test]
fn the_vendors_own_python_sdks_work_with_the_made_up_e2b() {
    let provider = e2b::start_for(4);
    for (name, vendor, script) in
        [("e2b", "E2B", "pause.py"), ("e2b", "E2B", "snapshots.py"), ("novita", "NOVITA", "novita.py")]
    {
        let Some(sdk) = sdk(name) else { continue };
        let variables = [("API_KEY", e2b::KEY), ("API_URL", &provider.url), ("SANDBOX_URL", &provider.url)];
        sdk.run_with(script, variables.map(|(name, value)| (format!("{vendor}_{name}"), value.to_owned())));
    }
}

#[tokio::test]
async fn the_made_up_e2b_refuses_what_the_vendors_description_does_not_have() {
    let provider = e2b::start();
    for (path, body) in [
        ("/v2/sandboxes", json!({ "timeout": 60 })),
        ("/v2/sandboxes", json!({ "templateID": "base", "timeout": 1.5 })),
        ("/v2/sandboxes", json!({ "templateID": "base", "secure": true })),
        ("/v2/sandboxes", json!({ "templateID": "base", "metadata": { "number": 1 } })),
        ("/sandboxes", json!({ "templateID": "base", "network": { "denyAll": true } })),
        ("/sandboxes/one/connect", json!({})),
        ("/sandboxes/one/timeout", json!({ "duration": 60 })),
        ("/sandboxes/one/snapshots?memory=false", json!({})),
    ] {
        assert_eq!(provider.post(path, &body).await, 400, "{path} {body}");
    }
    assert_eq!(provider.sandboxes().await.len(), 0);
}

#[test]
fn runloops_own_python_sdk_works_with_the_made_up_runloop() {
    let Some(sdk) = sdk("runloop") else { return };
    let provider = runloop::start();
    let variables = [("RUNLOOP_API_KEY", runloop::KEY), ("RUNLOOP_BASE_URL", &provider.url)];
    sdk.run_with("runloop_devboxes.py", variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(provider.devboxes().len(), 0);
}

#[tokio::test]
async fn a_devbox_of_runloop_is_made_with_its_leash_a_closed_tunnel_and_without_a_network() {
    let provider = runloop::start();
    let backend = runloop_at(&provider.url, runloop::KEY);
    let spec = Spec { idle_ttl: Duration::from_secs(3600), ..spec() };
    let sandbox = start(&backend, &spec).await;
    assert_eq!(output_of(&sandbox, "echo here").await, "here");
    let made = provider.devboxes().remove(0);
    assert_eq!(made["metadata"]["agent.session"], spec.session);
    assert_eq!(made["tunnel"]["auth_mode"], "authenticated");
    let launch = &made["launch_parameters"];
    assert_eq!(launch["keep_alive_time_seconds"], 600);
    assert_eq!([&launch["custom_cpu_cores"], &launch["custom_gb_memory"]], [&json!(2), &json!(4)]);
    assert!(launch["network_policy_id"].as_str().is_some_and(|id| id.starts_with("np_")));
    assert!(!made.to_string().contains(runloop::KEY));
    // The policy is made once.
    let second = Spec { session: agent_testbed::backends::spec().session, ..spec.clone() };
    let _second = start(&backend, &second).await;
    let made =
        provider.take_requests().into_iter().filter(|line| line == "POST /v1/network-policies").count();
    assert_eq!(made, 1);
    for spec in [&spec, &second] {
        backend.destroy(&spec.session).await.expect("removed");
    }
    assert_eq!(provider.devboxes().len(), 0);
}

/// One list that was refused failed each start.
#[tokio::test]
async fn a_devbox_starts_where_earlier_ones_of_its_session_cannot_be_looked_for() {
    let provider = runloop::start();
    let backend = runloop_at(&provider.url, runloop::KEY);
    let spec = spec();
    provider.refuse_lists(true);
    let (channel, info) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&sandbox, "echo here").await, "here");
    let said = info.missing.last().expect("a notice");
    assert!(
        said.contains("an earlier sandbox of this session may be left at runloop: runloop does not allow"),
        "{said}"
    );
    provider.refuse_lists(false);
    let (_channel, info) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
    assert_eq!((info.missing.len(), provider.devboxes().len()), (1, 1), "{:?}", info.missing);
    // What this process has made is removed without a list, which cost each end half a second.
    provider.refuse_lists(true);
    let id = backend.identity(&spec.session).expect("it is known");
    backend.destroy_only(&spec.session, &id).await.expect("removed");
    assert_eq!(provider.devboxes().len(), 0);
}

#[tokio::test]
async fn a_suspended_devbox_keeps_its_files_and_gets_its_guest_again() {
    let provider = runloop::start();
    let backend = runloop_at(&provider.url, runloop::KEY);
    let spec = Spec { ephemeral: false, ..spec() };
    let sandbox = start(&backend, &spec).await;
    assert_eq!(output_of(&sandbox, "echo kept > /workspace/file; cat file").await, "kept");
    assert_eq!(provider.devboxes()[0]["launch_parameters"]["lifecycle"]["after_idle"]["on_idle"], "suspend");
    backend.pause(&spec.session).await.expect("suspended");
    assert_eq!(backend.list().await.expect("the list")[0].state, State::Stopped);
    backend.resume(&spec.session).await.expect("running");
    let channel = backend.attach(&spec.session).await.expect("attached");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&sandbox, "cat file").await, "kept");
    backend.destroy(&spec.session).await.expect("removed");
}

/// The client of a provider is killed while it makes a sandbox, again and again, and tries it again.
#[tokio::test]
async fn a_start_that_is_cut_off_at_any_moment_leaves_one_sandbox_for_its_session() {
    let (daytona, runloop) = (daytona::start(), runloop::start());
    let backends: [Box<dyn Backend>; 2] =
        [Box::new(backend(&daytona)), Box::new(runloop_at(&runloop.url, runloop::KEY))];
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for backend in backends {
        let spec = spec();
        for _ in 0..12 {
            let moment = Duration::from_millis(random.u64(0..800));
            let _ = tokio::time::timeout(moment, backend.start(&spec, &|_, _, _| {})).await;
        }
        let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
        let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
        assert_eq!(output_of(&sandbox, "echo here").await, "here");
        assert_eq!(backend.list().await.expect("the list").len(), 1, "on {}", backend.name());
        backend.destroy(&spec.session).await.expect("removed");
    }
    assert_eq!((daytona.sandboxes().len(), runloop.devboxes().len()), (0, 0));
}

#[test]
fn the_program_runs_commands_at_a_provider_and_leaves_nothing_there() {
    let daytona = daytona::start();
    let call = || agent().env("DAYTONA_API_URL", daytona.api_url()).env("DAYTONA_API_KEY", KEY);
    let ran = call().args(["exec", "--sandbox", "daytona", "sh", "-c", "pwd; exit 7"]).run().expect_code(7);
    assert_eq!(ran.stdout.trim(), "/workspace");
    assert_eq!(daytona.sandboxes().len(), 0);
    let listed = call().args(["sandbox", "list", "--sandbox", "daytona"]).run().expect_code(0);
    assert_eq!(listed.stdout, "there are no sandboxes\n");
    let without = agent().args(["exec", "--sandbox", "daytona", "true"]).run();
    assert!(without.stderr.contains("DAYTONA_API_KEY is not set"), "{}", without.stderr);
}

#[tokio::test]
async fn a_sandbox_of_e2b_or_novita_is_one_of_its_session_with_its_leash_and_closed_ports() {
    let provider = e2b::start();
    let backends: [Box<dyn Backend>; 2] =
        [Box::new(e2b_at(&provider.url, e2b::KEY)), Box::new(novita_at(&provider.url, e2b::KEY))];
    for backend in backends {
        let spec = Spec { idle_ttl: Duration::from_secs(3600), ..spec() };
        let _replaced = start(&*backend, &spec).await;
        let before = backend.list().await.expect("the list").remove(0);
        let sandbox = start(&*backend, &spec).await;
        assert_eq!(output_of(&sandbox, "echo here").await, "here");
        let listed = provider.sandboxes().await;
        assert_eq!(listed.len(), 1, "{listed:?}");
        let made = &listed[0];
        assert_ne!(made["sandboxID"], before.id);
        assert_eq!(
            (&made["metadata"]["agent.session"], &made["metadata"]["agent.leash"]),
            (&json!(spec.session), &json!("600"))
        );
        assert_eq!(
            (&made["allowInternetAccess"], &made["lifecycle"]["onTimeout"]),
            (&json!(false), &json!("kill"))
        );
        assert!(!made.to_string().contains(e2b::KEY));
        let time =
            |name: &str| made[name].as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time");
        let life = Duration::try_from(time("endAt").duration_since(time("startedAt"))).expect("a duration");
        assert!(life <= Duration::from_secs(601), "{life:?}");
        // Its guest's port is nobody's who has not both tokens.
        let id = made["sandboxID"].as_str().expect("an id");
        assert_eq!(provider.status_of_port(id, 21_000).await, 403);
        backend.destroy(&spec.session).await.expect("removed");
        backend.destroy(&spec.session).await.expect("a missing one is not an error");
    }
    assert_eq!(provider.sandboxes().await.len(), 0);
}

#[tokio::test]
async fn a_paused_sandbox_of_e2b_keeps_its_processes_and_another_machine_resumes_it() {
    let provider = e2b::start();
    let (first, second) = (e2b_at(&provider.url, e2b::KEY), e2b_at(&provider.url, e2b::KEY));
    let spec = Spec { ephemeral: false, ..spec() };
    let sandbox = start(&first, &spec).await;
    output_of(&sandbox, "echo kept > file; sleep 1234 & echo $! > pid").await;
    assert_eq!(provider.sandboxes().await[0]["lifecycle"]["onTimeout"], "pause");
    first.pause(&spec.session).await.expect("paused");
    assert_eq!(second.list().await.expect("the list")[0].state, State::Paused);
    assert!(second.attach(&spec.session).await.is_err());
    second.resume(&spec.session).await.expect("resumed");
    let channel = second.attach(&spec.session).await.expect("attached");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    assert_eq!(output_of(&sandbox, "cat file; kill -0 $(cat pid) && echo alive").await, "kept\nalive");
    second.destroy(&spec.session).await.expect("removed");
    let error = first.attach(&spec.session).await.err().expect("it is gone");
    assert_eq!(error.exit_code() as u8, 4, "{error}");
}

#[tokio::test]
async fn a_template_is_named_and_what_it_decides_is_said() {
    let provider = e2b::start();
    let backend = e2b_at(&provider.url, e2b::KEY);
    let spec = Spec { image: Some("my-template".to_owned()), ..spec() };
    let (_channel, info) = backend.start(&spec, &|_, _, _| {}).await.expect("the sandbox starts");
    assert_eq!(provider.sandboxes().await[0]["templateID"], "my-template");
    assert!(info.missing[0].starts_with("The template decides"), "{:?}", info.missing);
    backend.destroy(&spec.session).await.expect("removed");
    let wrong = novita_at(&provider.url, "nvta_wrong").list().await.expect_err("it is refused");
    assert!(wrong.to_string().starts_with("novita does not accept the key (401)"), "{wrong}");
    assert!(wrong.hint_text().is_some_and(|hint| hint.contains("NOVITA_API_KEY")));
}

#[test]
fn the_program_runs_commands_at_e2b_and_leaves_nothing_there() {
    let provider = e2b::start();
    let call = || {
        let set = [("E2B_API_URL", &provider.url), ("E2B_SANDBOX_URL", &provider.url)];
        set.into_iter().fold(agent(), |call, (name, url)| call.env(name, url)).env("E2B_API_KEY", e2b::KEY)
    };
    let ran = call().args(["exec", "--sandbox", "e2b", "sh", "-c", "pwd; exit 7"]).run().expect_code(7);
    assert_eq!(ran.stdout.trim(), "/workspace");
    let listed = call().args(["sandbox", "list", "--sandbox", "e2b"]).run().expect_code(0);
    assert_eq!(listed.stdout, "there are no sandboxes\n");
    let looked = call().args(["doctor", "--sandbox", "e2b", "--live"]).run();
    assert!(
        looked.stdout.contains("takes the key; 0 sandboxes") && looked.stdout.contains("is removed"),
        "{}",
        looked.stdout
    );
}

/// A client that is cut off while it makes a sandbox leaves something: it is removed with the session, however late it appears.
#[tokio::test]
async fn a_start_at_e2b_that_is_cut_off_at_any_moment_leaves_nothing_behind_the_session() {
    let provider = e2b::start();
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let backends: [Box<dyn Backend>; 2] =
        [Box::new(e2b_at(&provider.url, e2b::KEY)), Box::new(novita_at(&provider.url, e2b::KEY))];
    for backend in backends {
        let spec = spec();
        for _ in 0..10 {
            let moment = Duration::from_millis(random.u64(0..600));
            let _ = tokio::time::timeout(moment, backend.start(&spec, &|_, _, _| {})).await;
        }
        let sandbox = start(&*backend, &spec).await;
        assert_eq!(output_of(&sandbox, "echo here").await, "here");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !provider.sandboxes().await.is_empty() {
            assert!(Instant::now() < deadline, "{:?}", provider.sandboxes().await);
            backend.destroy(&spec.session).await.expect("removed");
        }
    }
}

#[test]
fn fifty_clients_that_are_killed_leave_no_sandbox_beyond_its_leash_and_make_none_twice() {
    let provider = e2b::start();
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let home = tempfile::tempdir().expect("a home");
    let kill_after = |milliseconds: u64| {
        let mut client = Command::new(binary())
            .args(["exec", "--sandbox", "e2b", "--", "true"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home.path())
            .env("AGENT_HOME", home.path().join("agent"))
            .envs([
                ("E2B_API_URL", &*provider.url),
                ("E2B_SANDBOX_URL", &*provider.url),
                ("E2B_API_KEY", e2b::KEY),
            ])
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the client starts");
        std::thread::sleep(Duration::from_millis(milliseconds));
        // One that has ended already has removed its sandbox.
        let _ = client.kill();
        client.wait().expect("its end").success()
    };
    let ended = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..5)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed ^ thread);
                    (0..10).filter(|_| kill_after(random.u64(0..1500))).count()
                })
            })
            .collect();
        clients.into_iter().map(|thread| thread.join().expect("it ends")).sum::<usize>()
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let left = runtime.block_on(provider.sandboxes());
    eprintln!("{ended} ended in time, {} sandboxes are left", left.len());
    let text = |sandbox: &Value, name: &str| sandbox["metadata"][name].as_str().expect("text").to_owned();
    let creations: BTreeSet<String> = left.iter().map(|sandbox| text(sandbox, "agent.creation")).collect();
    let sessions: BTreeSet<String> = left.iter().map(|sandbox| text(sandbox, "agent.session")).collect();
    assert_eq!((creations.len(), sessions.len()), (left.len(), left.len()), "{left:?}");
    assert!(left.len() + ended <= 50);
    for sandbox in &left {
        let ends: jiff::Timestamp = sandbox["endAt"].as_str().expect("a time").parse().expect("a time");
        let left = Duration::try_from(ends.duration_since(jiff::Timestamp::now())).unwrap_or_default();
        assert!(left <= Duration::from_secs(600), "{sandbox}");
    }
}

#[test]
fn a_key_in_the_configuration_is_used_with_its_place() {
    let provider = e2b::start();
    let home = tempfile::tempdir().expect("a home");
    std::fs::create_dir_all(home.path().join("config")).expect("a directory");
    let file = format!(
        "[sandbox.e2b]\napi_key = \"{}\"\napi_url = \"{}\"\nsandbox_url = \"{}\"\n",
        e2b::KEY,
        provider.url,
        provider.url
    );
    std::fs::write(home.path().join("config/config.toml"), file).expect("written");
    let call = || agent().env("AGENT_HOME", home.path());
    let ran = call().args(["exec", "--sandbox", "e2b", "echo", "here"]).run().expect_code(0);
    assert_eq!(ran.stdout, "here\n");
    // Another key of the environment belongs to another place.
    let looked = call().env("E2B_API_KEY", "another").args(["sandbox", "list", "--sandbox", "e2b"]).run();
    assert_eq!(looked.expect_code(0).stdout, "there are no sandboxes\n");
    std::fs::write(home.path().join("config/config.toml"), "[sandbox.e3b]\n").expect("written");
    let wrong = call().args(["exec", "true"]).run();
    assert!(wrong.stderr.contains("[sandbox.e3b] in config.toml: unknown provider"), "{}", wrong.stderr);
}
