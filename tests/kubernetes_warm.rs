//! Pods that are claimed from a warm pool, with the API of kubernetes-sigs/agent-sandbox in a real API server.

use crate::support::agent_sandbox::Pool;
use crate::support::backends::{output_of, shell, spec};
use crate::support::cluster::{self, Api, settings};
use agent::sandbox::kubernetes::{Kubernetes, Settings};
use agent::sandbox::{Backend, Sandbox, Spec, State};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn claiming(api: &Api, pool: &str) -> Kubernetes {
    let warm_pool = Some(pool.to_owned());
    let settings = Settings { warm_pool, pod_template: Default::default(), image: None, ..settings() };
    cluster::with(&api.kubeconfig, settings).await
}

async fn pod_of(api: &Api, pool: &Pool) -> Option<Value> {
    api.send("GET", &format!("/api/v1/namespaces/default/pods/{}-pod", pool.name), None).await.ok()
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
    backend.destroy(&spec.session).await.expect("removed");
    let deadline = Instant::now() + Duration::from_secs(60);
    while pod_of(&api, &pool).await.is_some() {
        assert!(Instant::now() < deadline, "the pod goes with its claim");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let error = backend.attach(&spec.session).await.err().expect("it is gone");
    assert!(error.to_string().contains("has no running sandbox"), "{error}");
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
    let error = backend.start(&spec(), &|_, _, _| {}).await.err().expect("it is refused");
    assert_eq!(error.to_string(), "pod_template in [sandbox.kubernetes] has no effect with warm_pool");
}
