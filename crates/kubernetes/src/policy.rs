//! The NetworkPolicy that denies everything, and the addresses by which it is found out whether a cluster enforces it.

use super::cluster::Cluster;
use super::failure;
use super::pod::{MANAGED_BY, NETWORK};
use agent_base::error::{Error, Result};
use agent_sandbox::PUBLIC_ADDRESSES;
use serde_json::{Value, json};

/// The policy's name.
const NAME: &str = "agent-deny-all";
/// The group of policies.
const GROUP: &str = "networking.k8s.io/v1";

/// Makes sure that the policy is there before a pod is.
pub(super) async fn ensure(cluster: &Cluster) -> Result<()> {
    let failed = |error| {
        failure::error("the network policy that a sandbox without a network needs cannot be had", error)
    };
    let path = cluster.group_path(GROUP, "networkpolicies");
    match cluster.get(&format!("{path}/{NAME}")).await.map_err(failed)? {
        Some(found) if denies_all(&found) => Ok(()),
        Some(_) => Err(Error::sandbox(format!(
            "the network policy {NAME} in namespace {} does not deny everything",
            cluster.namespace
        ))
        .hint(format!("`kubectl delete networkpolicy {NAME}` removes it; it is made again as it should be"))),
        None => match cluster.create(&path, &policy()).await {
            Ok(_) => Ok(()),
            // Another client was faster.
            Err(error) if failure::code(&error) == Some(409) => Ok(()),
            Err(error) => Err(failed(error)),
        },
    }
}

/// Looks for other policies that allow a pod something: they add to what denies everything. A template of a warm pool brings one.
pub(super) async fn check_others(cluster: &Cluster, pod: &Value) -> Result<()> {
    let listed = cluster.get(&cluster.group_path(GROUP, "networkpolicies")).await;
    let listed = listed.map_err(|error| {
        failure::error("the network policies, which may allow the pod something, could not be listed", error)
    })?;
    let items = listed.as_ref().and_then(|listed| listed.get("items")).and_then(Value::as_array);
    match items.into_iter().flatten().find(|policy| allows(policy, pod)) {
        Some(policy) => Err(Error::sandbox(format!(
            "the network policy {} allows the pod connections that --network none must not have",
            failure::quote(super::wait::text(policy, "/metadata/name"))
        ))
        .hint("the pool's template needs `networkPolicy: {ingress: [], egress: []}`: see examples/kubernetes/warm-pool.yaml")),
        None => Ok(()),
    }
}

/// Returns whether a policy may select the pod and allows something.
fn allows(policy: &Value, pod: &Value) -> bool {
    let label = |name: &str| pod.pointer("/metadata/labels").and_then(|labels| labels.get(name));
    let selector = policy.pointer("/spec/podSelector");
    let wanted = selector.and_then(|selector| selector.get("matchLabels")).and_then(Value::as_object);
    // What expressions select is not worked out: it may be this pod.
    let selects = wanted.is_none_or(|wanted| wanted.iter().all(|(name, value)| label(name) == Some(value)));
    let has_rules =
        |path: &str| policy.pointer(path).and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    selects && (has_rules("/spec/ingress") || has_rules("/spec/egress"))
}

/// Selects every pod of ours that may reach nothing, and allows nothing.
fn policy() -> Value {
    json!({
        "apiVersion": GROUP,
        "kind": "NetworkPolicy",
        "metadata": { "name": NAME, "labels": { (MANAGED_BY.0): MANAGED_BY.1 } },
        "spec": { "podSelector": { "matchLabels": { (NETWORK.0): NETWORK.1 } }, "policyTypes": ["Ingress", "Egress"] },
    })
}

fn denies_all(found: &Value) -> bool {
    let at = |path: &str| found.pointer(path);
    let is_empty = |path: &str| at(path).is_none_or(|rules| rules.as_array().is_some_and(Vec::is_empty));
    let types = at("/spec/policyTypes").and_then(Value::as_array);
    let covers = |kind: &str| types.is_some_and(|types| types.iter().any(|found| found == kind));
    let selects = at("/spec/podSelector") == policy().pointer("/spec/podSelector")
        || at("/spec/podSelector") == Some(&json!({}));
    selects && covers("Ingress") && covers("Egress") && is_empty("/spec/ingress") && is_empty("/spec/egress")
}

/// The addresses that must not answer inside. The guest adds the kubelet of its node and the API server as pods know
/// it (`guest/launch/probe.rs`), one of which is there in every cluster, wherever that is.
pub(super) fn probes(cluster: &Cluster) -> String {
    let server = cluster.address.map(|address| format!(",{address}")).unwrap_or_default();
    format!("{PUBLIC_ADDRESSES}{server}")
}

/// The guest's words for it (`guest/launch/probe.rs`), around the addresses.
pub(super) const OPEN: &str = "the network is open: ";
const REACHED: &str = " can be reached";

/// The error where the guest has reached one of them. `said` names which, perhaps amid the command that was run.
pub(super) fn not_enforced(said: &str) -> Error {
    let reached = said.split(OPEN).nth(1).and_then(|rest| rest.split(REACHED).next());
    let reached = reached.map(failure::quote).filter(|reached| !reached.is_empty());
    let reached = reached.unwrap_or_else(|| "an address outside".to_owned());
    Error::sandbox(format!(
        "the cluster does not enforce network policies, so --network none is not possible: the pod can reach {reached}"
    ))
    .hint(
        "install a CNI that enforces NetworkPolicy (Calico, Cilium, …); or the cluster's administrator takes the responsibility with \
         isolation = \"trusted\" in [sandbox.kubernetes]; or use --network full",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_enforces_nothing_is_one_sentence() {
        // The script that brings the guest in was the message.
        let said = "n=/agent/guest.$$ && head -c 99 >\"$n\"\nguest: the network is open: 1.1.1.1:443, 10.0.0.1:6443 can be reached\n";
        assert_eq!(
            not_enforced(said).to_string(),
            "the cluster does not enforce network policies, so --network none is not possible: \
             the pod can reach 1.1.1.1:443, 10.0.0.1:6443"
        );
        assert!(not_enforced("").to_string().ends_with("the pod can reach an address outside"));
    }

    #[test]
    fn a_policy_that_adds_something_to_a_pod_is_found() {
        let pod = json!({ "metadata": { "labels": { "pool": "a", (NETWORK.0): NETWORK.1 } } });
        let allowing = |selector: Value| json!({ "spec": { "podSelector": selector, "egress": [{}] } });
        assert!(allows(&allowing(json!({})), &pod));
        assert!(allows(&allowing(json!({ "matchLabels": { "pool": "a" } })), &pod));
        assert!(allows(
            &allowing(json!({ "matchExpressions": [{ "key": "x", "operator": "Exists" }] })),
            &pod
        ));
        assert!(!allows(&allowing(json!({ "matchLabels": { "pool": "b" } })), &pod));
        assert!(!allows(&policy(), &pod));
    }

    #[test]
    fn a_policy_that_allows_something_is_not_ours() {
        assert!(denies_all(&policy()));
        for (path, value) in [
            ("/spec/policyTypes", json!(["Ingress"])),
            ("/spec/podSelector", json!({ "matchLabels": { "app": "x" } })),
        ] {
            let mut changed = policy();
            *changed.pointer_mut(path).unwrap() = value;
            assert!(!denies_all(&changed), "{changed}");
        }
        let mut opened = policy();
        opened["spec"]["egress"] = json!([{}]);
        assert!(!denies_all(&opened));
    }
}
