//! Pods that are claimed from a warm pool, with the API of kubernetes-sigs/agent-sandbox in a real API server.

use crate::support::agent_sandbox::Pool;
use agent::sandbox::kubernetes::{Kubernetes, Settings};
use agent::sandbox::{Backend, Sandbox, Spec, State};
use agent_testbed::agent::agent;
use agent_testbed::backends::{output_of, shell, spec};
use agent_testbed::cluster::{self, Api, Node, settings};
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

async fn claiming(api: &Api, pool: &str) -> Kubernetes {
    let warm_pool = Some(pool.to_owned());
    let settings = Settings { warm_pool, pod_template: Default::default(), image: None, ..settings() };
    cluster::with(&api.kubeconfig, settings).await
}

/// The backend for a user with the least rights that the guide names, and those for volumes that stay where they are wanted.
async fn claiming_with_least_rights(
    api: &Api,
    pool: &str,
    directory: &std::path::Path,
    for_volumes: bool,
) -> Kubernetes {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    let mut rules = vec![
        rule("", "pods", &["get", "list", "watch"]),
        rule("", "pods/exec", &["get", "create"]),
        rule("networking.k8s.io", "networkpolicies", &["get", "create", "list"]),
        rule("extensions.agents.x-k8s.io", "sandboxclaims", &["create", "get", "list", "watch", "delete"]),
        rule("agents.x-k8s.io", "sandboxes", &["get", "watch"]),
    ];
    if for_volumes {
        rules.push(rule("agents.x-k8s.io", "sandboxes", &["patch"]));
        rules.push(rule("", "persistentvolumeclaims", &["get"]));
    }
    let token = api.token(&api.account(rules.into()).await).await;
    let kubeconfig = cluster::write_kubeconfig(directory, &api.server(), json!({ "token": token }));
    let warm_pool = Some(pool.to_owned());
    let settings = Settings { warm_pool, pod_template: Default::default(), image: None, ..settings() };
    cluster::with(&kubeconfig, settings).await
}

fn path_of(pod: &Value) -> String {
    format!("/api/v1/namespaces/default/pods/{}", pod["metadata"]["name"].as_str().expect("a name"))
}

#[tokio::test]
async fn a_session_claims_a_pod_of_a_warm_pool_and_gives_it_back() {
    let Some(api) = Api::connect().await.map(Arc::new) else { return };
    let pool = Pool::start(&api, |_| {}).await;
    let backend = claiming(&api, &pool.name).await;
    let spec = Spec { idle_ttl: Duration::from_secs(120), ..spec() };
    let (channel, info) = backend.start(&spec, &|_, _, _| {}).await.expect("a pod is claimed");
    assert!(info.missing.iter().any(|text| text.contains("share a user")), "{info:?}");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    let seen = output_of(&sandbox, "whoami; pwd; echo $HOME; tr '\\0' ' ' </proc/1/cmdline; ls /agent").await;
    assert!(seen.starts_with("agent\n/workspace\n/home/agent\n/"), "{seen}");
    assert!(seen.contains("serve") && !seen.contains("start"), "{seen}");
    let seen = output_of(&sandbox, "env; cat /proc/self/status; (touch /etc/x /agent/x) 2>&1 || true").await;
    assert!(!seen.contains("KUBERNETES") && seen.contains("Seccomp:\t2"), "{seen}");
    assert_eq!(seen.matches("denied").count() + seen.matches("Read-only").count(), 2, "{seen}");
    let job = sandbox
        .start_job(agent::sandbox::Command { timeout: None, ..shell("echo up; sleep 600") })
        .await
        .expect("a job");
    drop(sandbox);
    // Another client finds it by the session.
    let again =
        Sandbox::connect(backend.attach(&spec.session).await.expect("attached")).await.expect("it answers");
    assert!(again.job_output(job, Duration::from_secs(20)).await.expect("its output").state.is_none());
    let listed = backend.list().await.expect("the list").into_iter().find(|it| it.session == spec.session);
    assert_eq!(listed.map(|it| it.state), Some(State::Running));
    let error = backend.pause(&spec.session).await.expect_err("nothing of it stays");
    assert!(error.to_string().contains("no volume that stays for the workspace"), "{error}");
    let pod = pool.pod(&api).await.expect("its pod");
    backend.destroy(&spec.session).await.expect("removed");
    let left = api.send("GET", &path_of(&pod), None).await;
    assert!(left.is_err(), "it is awaited: it would count for the quota");
    let error = backend.attach(&spec.session).await.err().expect("it is gone");
    assert!(error.to_string().contains("has no running sandbox"), "{error}");
}

#[tokio::test]
async fn a_paused_sandbox_has_no_pod_and_continues_in_another_with_its_volumes() {
    let (Some(api), Some(node)) = (Api::connect().await.map(Arc::new), Node::of_this_machine()) else {
        return;
    };
    let pool = Pool::with_volume(&api, node.directory()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let backend = claiming_with_least_rights(&api, &pool.name, directory.path(), true).await;
    let spec = Spec { idle_ttl: Duration::from_secs(120), ..spec() };
    let (channel, info) = backend.start(&spec, &|_, _, _| {}).await.expect("a pod is claimed");
    let notice = info.missing.iter().find(|text| text.starts_with("Volumes that stay")).expect("a notice");
    assert!(notice.contains("/workspace (1Gi), /home/agent (1Gi)"), "{notice}");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    let written =
        "echo one >/workspace/a; echo two >~/b; echo three >/tmp/c; (sleep 600 >/dev/null 2>&1 &); echo done";
    assert_eq!(output_of(&sandbox, written).await, "done");
    drop(sandbox);
    let first = pool.pod(&api).await.expect("a pod");
    let state = async || {
        let listed = backend.list().await.expect("the list");
        listed.into_iter().find(|it| it.session == spec.session).map(|it| it.state)
    };
    let identity = backend.identity(&spec.session);

    backend.pause(&spec.session).await.expect("paused");
    assert_eq!((pool.pod(&api).await, state().await), (None, Some(State::Paused)));
    backend.pause(&spec.session).await.expect("it is paused already");
    let error = backend.attach(&spec.session).await.err().expect("nothing runs");
    assert!(error.to_string().contains("has no running sandbox"), "{error}");

    backend.resume(&spec.session).await.expect("resumed");
    assert_eq!(state().await, Some(State::Running));
    let second = pool.pod(&api).await.expect("a pod");
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let channel = backend.attach(&spec.session).await.expect("attached");
    let sandbox = Sandbox::connect(channel).await.expect("the guest answers");
    let look = "cat /workspace/a ~/b; ls /tmp; ps ax -o args | grep -c '[s]leep 600' || true; whoami";
    assert_eq!(output_of(&sandbox, look).await, "one\ntwo\n0\nagent");
    drop(sandbox);
    assert_eq!(backend.identity(&spec.session), identity);
    backend.resume(&spec.session).await.expect("it runs already");

    // It is awaited also where pods are not this user's to delete.
    backend.destroy(&spec.session).await.expect("removed");
    assert!(api.send("GET", &path_of(&second), None).await.is_err(), "its pod is gone");
    assert_eq!(state().await, None);
    backend.destroy(&spec.session).await.expect("a missing one is not an error");
}

/// The pool's template may have changed: a pod is looked at before anything is inside, the second one as the first.
#[tokio::test]
async fn a_pod_that_lacks_a_lock_is_refused_when_a_sandbox_is_resumed_and_its_volumes_stay() {
    let (Some(api), Some(node)) = (Api::connect().await.map(Arc::new), Node::of_this_machine()) else {
        return;
    };
    let pool = Pool::with_volume(&api, node.directory()).await;
    let backend = claiming(&api, &pool.name).await;
    let spec = spec();
    let (channel, _) = backend.start(&spec, &|_, _, _| {}).await.expect("a pod is claimed");
    drop(channel);
    backend.pause(&spec.session).await.expect("paused");
    pool.change(&api, |pod| {
        pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = false.into();
    })
    .await;
    let error = backend.resume(&spec.session).await.expect_err("it is refused");
    assert!(error.to_string().contains("readOnlyRootFilesystem"), "{error}");
    pool.change(&api, |pod| {
        pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = true.into();
    })
    .await;
    backend.pause(&spec.session).await.expect("it is suspended again");
    backend.resume(&spec.session).await.expect("resumed");
    backend.pause(&spec.session).await.expect("paused");
    backend.destroy(&spec.session).await.expect("removed while it is paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_paused_is_resumed_with_what_is_in_its_volumes() {
    let (Some(api), Some(node)) = (Api::connect().await.map(Arc::new), Node::of_this_machine()) else {
        return;
    };
    let pool = Pool::with_volume(&api, node.directory()).await;
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "echo kept >file.txt; echo home >~/file.txt" }))
        .text("done")
        .tool_call("run_commands", json!({ "command": "cat file.txt ~/file.txt a.txt" }))
        .text("there")
        .start();
    let claiming = format!("warm_pool = \"{}\"", pool.name);
    tokio::task::block_in_place(|| {
        let configured = |call| cluster::with_table(call, &api.kubeconfig, &claiming).endpoint(&model);
        let call = configured(agent().file("a.txt", "mine\n"));
        let ran = call.args(["run", "-q", "--keep", "--session-key", "one", "go"]).run().expect_code(0);
        let run = |words: &[&str]| configured(ran.again()).args(words).run().expect_code(0).stdout;
        let sessions: Vec<Value> = serde_json::from_str(&run(&["sessions", "--json"])).expect("JSON");
        let id = sessions[0]["id"].as_str().expect("an id");
        assert_eq!(run(&["sandbox", "pause", id]), format!("paused {id}\n"));
        run(&["run", "-q", "--session", id, "look"]);
        let seen = model.requests().last().expect("a request").messages();
        let is_seen = |message: &Value| message["content"].to_string().contains("kept\\nhome\\nmine\\n");
        assert!(seen.iter().any(|message| message["role"] == "tool" && is_seen(message)), "{seen:?}");
        run(&["sandbox", "pause", id]);
        run(&["sessions", "rm", id]);
        let listed = run(&["sandbox", "list", "--sandbox", "kubernetes", "--json"]);
        assert!(!listed.contains(id), "the claim goes with its session: {listed}");
    });
}

#[tokio::test]
async fn a_pod_that_lacks_a_lock_is_refused_by_name_and_given_back() {
    let Some(api) = Api::connect().await.map(Arc::new) else { return };
    let refused = async |change: fn(&mut Value), expected: &'static str| {
        let pool = Pool::start(&api, change).await;
        let backend = claiming(&api, &pool.name).await;
        let spec = spec();
        let error = backend.start(&spec, &|_, _, _| {}).await.err().expect(expected);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("warm-pool.yaml")), "{error:?}");
        let listed = backend.list().await.expect("the list");
        assert!(listed.iter().all(|it| it.session != spec.session), "{listed:?}");
    };
    futures_util::future::join_all([
        refused(
            |pod| pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = false.into(),
            "readOnlyRootFilesystem",
        ),
        refused(
            |pod| pod["spec"]["automountServiceAccountToken"] = true.into(),
            "automountServiceAccountToken is not false",
        ),
        refused(
            |pod| pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "3Gi".into(),
            "more than --memory",
        ),
        refused(|pod| pod["metadata"]["labels"] = json!({}), "agent/network"),
        refused(
            |pod| pod["spec"]["containers"][0]["command"] = json!(["sleep", "1000"]),
            "waits for a claim",
        ),
        refused(|pod| pod["spec"]["volumes"][2]["emptyDir"] = json!({}), "spec.volumes[tmp] has no size"),
    ])
    .await;
}

/// Policies add up: one that allows something takes the other's denial away.
#[tokio::test]
async fn a_policy_that_opens_a_claimed_pod_is_refused_by_name() {
    let Some(api) = Api::connect().await.map(Arc::new) else { return };
    let label = format!("opened-{}", fastrand::u32(..));
    let labelled = label.clone();
    let pool = Pool::start(&api, move |pod| pod["metadata"]["labels"]["pool"] = labelled.into()).await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = json!({
        "metadata": { "name": label },
        "spec": { "podSelector": { "matchLabels": { "pool": label } }, "policyTypes": ["Egress"], "egress": [{}] },
    });
    api.send("POST", policies, Some(&policy)).await.expect("it is made");
    let backend = claiming(&api, &pool.name).await;
    let error = backend.start(&spec(), &|_, _, _| {}).await.err().expect("it is refused");
    assert!(error.to_string().contains(&label), "{error}");
    api.send("DELETE", &format!("{policies}/{label}"), None).await.expect("it is removed");
}

#[tokio::test]
async fn what_a_pool_decides_cannot_be_set_beside_it() {
    let Some(api) = Api::connect().await else { return };
    let settings = Settings { warm_pool: Some("agents".to_owned()), ..settings() };
    let backend = cluster::with(&api.kubeconfig, settings).await;
    assert!(backend.capabilities().pause);
    let error = backend.start(&spec(), &|_, _, _| {}).await.err().expect("it is refused");
    assert_eq!(error.to_string(), "pod_template in [sandbox.kubernetes] has no effect with warm_pool");
}

#[tokio::test]
async fn a_pod_of_its_own_cannot_be_paused() {
    let Some(api) = Api::connect().await else { return };
    let backend = cluster::with(&api.kubeconfig, settings()).await;
    assert!(!backend.capabilities().pause);
    let error = backend.pause("some-session").await.expect_err("it is refused");
    assert_eq!(
        error.to_string(),
        "the sandbox cannot be paused: only one of a warm pool has volumes that stay"
    );
    assert!(error.hint_text().is_some_and(|hint| hint.contains("`agent resume` restores")), "{error:?}");
}

#[tokio::test]
async fn the_doctor_names_the_rights_for_volumes_that_stay_beside_those_of_a_session() {
    let Some(api) = Api::connect().await else { return };
    let rights = async |for_volumes: bool| {
        let directory = tempfile::tempdir().expect("a directory");
        let backend = claiming_with_least_rights(&api, "agents", directory.path(), for_volumes).await;
        let findings = backend.findings(&spec()).await.expect("the findings");
        findings.into_iter().find(|finding| finding.name == "rights").expect("the rights").found
    };
    assert_eq!(rights(true).await, "all 15 that a session needs");
    assert_eq!(
        rights(false).await,
        "all 15 that a session needs; where the pool's template has volumes that stay, also: get persistentvolumeclaims, patch sandboxes"
    );
}
