//! The NetworkPolicy that denies everything, and the addresses by which it is found out whether a cluster enforces it.

use super::cluster::Cluster;
use super::failure;
use super::pod::{MANAGED_BY, NETWORK};
use crate::error::{Error, Result};
use serde_json::{Value, json};

/// The policy's name.
const NAME: &str = "agent-deny-all";
/// The group of policies.
const GROUP: &str = "networking.k8s.io/v1";
/// Addresses that a pod with a way out reaches: public resolvers, PyPI, and the machine data of clouds.
const PUBLIC: [&str; 5] =
    ["1.1.1.1:443", "8.8.8.8:53", "9.9.9.9:443", "151.101.0.223:443", "169.254.169.254:80"];

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

/// The addresses that must not be reachable from inside. The guest adds the kubelet of its node and the API server as pods know
/// it (`guest/launch/detached.rs`), one of which is there in every cluster, wherever that is.
pub(super) fn probes(cluster: &Cluster) -> String {
    let server = cluster.address.map(|address| format!(",{address}")).unwrap_or_default();
    format!("{}{server}", PUBLIC.join(","))
}

/// The error where the guest has reached one of them. `said` names which.
pub(super) fn not_enforced(said: &str) -> Error {
    Error::sandbox(format!("the cluster does not enforce network policies, so --network none is not to be had: {said}")).hint(
        "install a CNI that enforces NetworkPolicy (Calico, Cilium, …); or the cluster's administrator takes the responsibility with \
         isolation = \"trusted\" in [sandbox.kubernetes]; or use --network full",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
