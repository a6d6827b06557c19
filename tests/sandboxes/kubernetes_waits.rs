//! What a session says and leaves while it waits for a pod or a claim, and how fast a pod that was removed is gone.

use crate::support::agent_sandbox::{self, CLAIMS};
use agent::sandbox::{Backend, Sandbox};
use agent_testbed::agent::{Agent, agent};
use agent_testbed::backends::{output_of, spec};
use agent_testbed::cluster::{self, Api, settings};
use agent_testing::endpoint::endpoint;
use serde_json::json;
use std::time::{Duration, Instant};

/// Names of the objects of a list in which `text` stands.
async fn named(api: &Api, list: &str, text: &str) -> Vec<String> {
    let listed = api.send("GET", list, None).await.expect("the list");
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let ours = items.iter().filter(|item| item.to_string().contains(text));
    ours.filter_map(|item| item.pointer("/metadata/name")?.as_str().map(str::to_owned)).collect()
}

/// Starts `call`, and signals it once the list has an object with `text` that is being waited for. What it printed.
async fn ended_while_it_waits(api: &Api, call: Agent, list: &str, text: &str) -> String {
    let running = call.start();
    let deadline = Instant::now() + Duration::from_secs(60);
    while named(api, list, text).await.is_empty() {
        assert!(Instant::now() < deadline, "nothing is made");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Longer than it takes until the reason is shown.
    tokio::time::sleep(Duration::from_millis(3500)).await;
    running.signal(libc::SIGTERM);
    let finished = tokio::task::block_in_place(|| running.wait()).expect_code(143);
    let deadline = Instant::now() + Duration::from_secs(5);
    while let left @ [_, ..] = &named(api, list, text).await[..] {
        assert!(Instant::now() < deadline, "{left:?} are left; {}", finished.stderr);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    finished.stderr
}

/// SIGTERM left a pod that waits for a node for as long as its clock ran, and a claim for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_ended_while_its_pod_or_claim_waits_leaves_nothing() {
    let Some(api) = Api::connect().await else { return };
    let image = settings().image.unwrap_or_default();
    let label = format!("waits-{}", fastrand::u32(..));
    let nowhere = format!(
        "image = \"{image}\", labels = {{ test = \"{label}\" }}, node_selector = {{ test = \"{label}\" }}"
    );
    let pods = "/api/v1/namespaces/default/pods";
    let model = endpoint().tool_call("run_commands", json!({ "command": "true" })).repeat_last().start();
    for words in [vec!["exec", "true"], vec!["run", "go"], vec!["run", "--keep", "go"]] {
        let call = cluster::with_table(agent(), &api.kubeconfig, &nowhere).endpoint(&model).args(words);
        let said = ended_while_it_waits(&api, call, pods, &label).await;
        assert!(said.contains("waiting for a node: 0/1 nodes"), "{said}");
    }
    agent_sandbox::install(&api).await;
    let claiming = format!("warm_pool = \"{label}\"");
    let claim = cluster::with_table(agent(), &api.kubeconfig, &claiming).args(["exec", "true"]);
    let said = ended_while_it_waits(&api, claim, CLAIMS, &label).await;
    assert!(said.contains("waiting for the warm pool"), "{said}");
}

/// The claim's controller says that there is no such pool; the session waited for five minutes.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_does_not_exist_ends_the_start_at_once() {
    let Some(api) = Api::connect().await else { return };
    agent_sandbox::install(&api).await;
    for reason in ["WarmPoolNotFound", "TemplateNotFound"] {
        let pool = format!("none-{}", fastrand::u32(..));
        let claiming = format!("warm_pool = \"{pool}\"");
        let running = cluster::with_table(agent(), &api.kubeconfig, &claiming).args(["exec", "true"]).start();
        let deadline = Instant::now() + Duration::from_secs(60);
        let claim = loop {
            assert!(Instant::now() < deadline, "no claim is made");
            match named(&api, CLAIMS, &pool).await.pop() {
                Some(claim) => break format!("{CLAIMS}/{claim}"),
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let mut found = api.send("GET", &claim, None).await.expect("the claim");
        let ready = agent_sandbox::condition("Ready", ("False", reason), "there is none");
        found["status"] = json!({ "conditions": [ready] });
        api.send("PUT", &format!("{claim}/status"), Some(&found)).await.expect("its status");
        let said = Instant::now();
        let finished = tokio::task::block_in_place(|| running.wait()).expect_code(125);
        assert!(said.elapsed() < Duration::from_secs(5), "{:?}", said.elapsed());
        let expected = format!("the warm pool {pool} gives no pod ({reason}): there is none");
        assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
        assert_eq!(named(&api, CLAIMS, &pool).await, Vec::<String>::new());
    }
}

/// It was `Terminating` until a grace period of 30 s had run out, and after that until the kubelet had looked at it again, every ten
/// seconds; its processors stayed reserved. A pod that nobody helps is removed beside it.
#[tokio::test]
#[ignore = "is measured: .ci/cluster runs it alone"]
async fn a_pod_that_is_removed_waits_for_no_grace_period() {
    let Some(api) = Api::connect().await else { return };
    let pods = "/api/v1/namespaces/default/pods";
    let bare = format!("bare-{}", fastrand::u32(..));
    let container = json!({ "name": "bare", "image": settings().image, "command": ["sleep", "1000"] });
    let pod = json!({ "metadata": { "name": bare }, "spec": { "containers": [container], "restartPolicy": "Never" } });
    api.send("POST", pods, Some(&pod)).await.expect("it is made");
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    let spec = spec();
    let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("it starts");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    // A shell does not end at SIGTERM.
    assert_eq!(output_of(&sandbox, "trap '' TERM; (sleep 1000 &) >/dev/null 2>&1; echo runs").await, "runs");
    let gone = async |name: String| {
        let removed = Instant::now();
        while api.send("GET", &format!("{pods}/{name}"), None).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        removed.elapsed()
    };
    let now = json!({ "gracePeriodSeconds": 1 });
    api.send("DELETE", &format!("{pods}/{bare}"), Some(&now)).await.expect("it is removed");
    let removal = async { backend.destroy(&spec.session).await.expect("removed") };
    let (own, bare, ()) = tokio::join!(gone(format!("agent-{}", spec.session)), gone(bare), removal);
    println!("gone after {own:?}, the bare pod after {bare:?}");
    // Alone it takes one to five seconds, on a machine that is busy some more.
    assert!(own < Duration::from_secs(20).max(bare), "{own:?}, the bare pod {bare:?}");
}
