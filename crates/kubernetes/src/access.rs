//! The permissions and features of a cluster, as far as it can be asked without a pod.

use super::NAME;
use super::backend::Kubernetes;
use super::failure;
use super::wait::text;
use agent_base::error::Error;
use agent_sandbox::Spec;
use futures_util::future::join_all;
use serde_json::{Value, json};

/// A finding about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The thing that was looked at.
    pub name: &'static str,
    /// The severity.
    pub severity: Severity,
    /// Its state.
    pub found: String,
    /// The advice, where there is any.
    pub hint: Option<String>,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Warning,
    /// It stands in the way.
    Failed,
}

/// A right: API group, resource, verb.
type Right = (&'static str, &'static str, &'static str);

/// The rights that every session needs. An upgrade to a WebSocket is a GET, and servers from 1.35 on ask for `create` as well.
const NEEDED: [Right; 5] = [
    ("", "pods", "get"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("", "pods/exec", "get"),
    ("", "pods/exec", "create"),
];
/// Those for pods of its own.
const FOR_PODS: [Right; 2] = [("", "pods", "create"), ("", "pods", "delete")];
/// Those for `--network none`, where the policy is not there yet.
const FOR_POLICIES: [Right; 2] =
    [("networking.k8s.io", "networkpolicies", "get"), ("networking.k8s.io", "networkpolicies", "create")];

/// Those for a warm pool.
const FOR_POOLS: [Right; 8] = [
    ("networking.k8s.io", "networkpolicies", "list"),
    ("extensions.agents.x-k8s.io", "sandboxclaims", "create"),
    ("extensions.agents.x-k8s.io", "sandboxclaims", "get"),
    ("extensions.agents.x-k8s.io", "sandboxclaims", "list"),
    ("extensions.agents.x-k8s.io", "sandboxclaims", "watch"),
    ("extensions.agents.x-k8s.io", "sandboxclaims", "delete"),
    ("agents.x-k8s.io", "sandboxes", "get"),
    ("agents.x-k8s.io", "sandboxes", "watch"),
];

/// Those for a warm pool whose template has volumes that stay, and for a pause.
const FOR_VOLUMES: [Right; 2] =
    [("", "persistentvolumeclaims", "get"), ("agents.x-k8s.io", "sandboxes", "patch")];

impl Kubernetes {
    /// Asks the cluster about itself, and what it would do with the pod of `spec`.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn findings(&self, spec: &Spec) -> Result<Vec<Finding>, Error> {
        let version = self.cluster.get("/version").await;
        let version = version.map_err(|error| failure::error("the cluster does not answer", error))?;
        let version = version.as_ref().map_or("an unknown version", |version| text(version, "/gitVersion"));
        let answers = format!(
            "{} answers, {}; namespace {}",
            self.cluster.location,
            failure::quote(version),
            self.cluster.namespace
        );
        let (rights, classes, quota, admission, users) = tokio::join!(
            self.rights(spec),
            self.runtime_classes(spec),
            self.quota(),
            self.admission(spec),
            self.user_namespaces(spec)
        );
        let users = match (&self.settings.warm_pool, users) {
            (Some(pool), _) => fine("user namespaces", format!("as the warm pool {pool} has it")),
            (None, Ok(())) => {
                fine("user namespaces", "pods have one of their own (hostUsers: false)".to_owned())
            }
            (None, Err(why)) => fine("user namespaces", format!("pods have none of their own: {why}")),
        };
        Ok([fine(NAME, answers), rights, admission, classes, users].into_iter().chain(quota).collect())
    }

    /// Returns what RBAC allows.
    async fn rights(&self, spec: &Spec) -> Finding {
        let for_policies = if *spec.network.to_string() == *"full" { &[][..] } else { &FOR_POLICIES };
        let (for_pods, for_volumes) = match self.settings.warm_pool.is_some() {
            true => (&FOR_POOLS[..], &FOR_VOLUMES[..]),
            false => (&FOR_PODS[..], &[][..]),
        };
        let rights: Vec<Right> = NEEDED.iter().chain(for_policies).chain(for_pods).copied().collect();
        let (missing, for_volumes) = tokio::join!(self.missing(&rights), self.missing(for_volumes));
        let (Some(missing), Some(for_volumes)) = (missing, for_volumes) else {
            return warning(
                "rights",
                "the cluster does not say what is allowed".to_owned(),
                "`kubectl auth can-i --list` may",
            );
        };
        let beside = match for_volumes.is_empty() {
            true => String::new(),
            false => {
                format!("; where the pool's template has volumes that stay, also: {}", for_volumes.join(", "))
            }
        };
        match missing.is_empty() {
            true => fine("rights", format!("all {} that a session needs{beside}", rights.len())),
            false => Finding {
                severity: Severity::Failed,
                ..warning(
                    "rights",
                    format!("missing: {}", missing.join(", ")),
                    "examples/kubernetes/rbac.yaml grants them",
                )
            },
        }
    }

    /// Those of `rights` that are not there; `None` where the cluster does not say.
    async fn missing(&self, rights: &[Right]) -> Option<Vec<String>> {
        let asked = join_all(rights.iter().map(|right| self.is_allowed(*right))).await;
        let asked: Option<Vec<bool>> = asked.into_iter().collect();
        let missing = rights.iter().zip(asked?).filter(|(_, is_allowed)| !is_allowed);
        Some(missing.map(|((_, resource, verb), _)| format!("{verb} {resource}")).collect())
    }

    async fn is_allowed(&self, (group, resource, verb): Right) -> Option<bool> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({
            "namespace": self.cluster.namespace, "group": group, "resource": resource, "subresource": subresource, "verb": verb,
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": { "resourceAttributes": attributes },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        self.cluster.create(path, &review).await.ok()?.pointer("/status/allowed")?.as_bool()
    }

    /// Returns what admission says to the pod, which is not made.
    async fn admission(&self, spec: &Spec) -> Finding {
        if let Some(pool) = &self.settings.warm_pool {
            return fine("admission", format!("the pods are those of the warm pool {pool}"));
        }
        let pod = self.pod(spec, self.user_namespaces(spec).await.is_ok());
        let failed = |error: Error| Finding {
            name: "admission",
            severity: Severity::Failed,
            found: error.to_string(),
            hint: error.hint_text().map(str::to_owned),
        };
        let manifest = match pod.manifest() {
            Ok(manifest) => manifest,
            Err(error) => return failed(error),
        };
        match self.cluster.create(&self.cluster.path("pods?dryRun=All"), &manifest).await {
            Ok(_) => fine("admission", "the pod would be taken as it is".to_owned()),
            Err(error) => failed(failure::error("the pod would be refused", error)),
        }
    }

    async fn runtime_classes(&self, spec: &Spec) -> Finding {
        let listed = self.cluster.get("/apis/node.k8s.io/v1/runtimeclasses").await;
        let names: Vec<String> = match &listed {
            Ok(Some(listed)) => {
                items(listed).map(|class| failure::quote(text(class, "/metadata/name"))).collect()
            }
            Ok(None) => Vec::new(),
            Err(_) => {
                return warning(
                    "runtime",
                    "the runtime classes may not be listed".to_owned(),
                    "--runtime may work all the same",
                );
            }
        };
        let wanted = spec.runtime.as_deref().or(self.settings.runtime_class.as_deref());
        let found = match names.is_empty() {
            true => "no runtime classes: pods run as the nodes' default does".to_owned(),
            false => format!("runtime classes: {}", names.join(", ")),
        };
        match wanted {
            Some(wanted) if !names.iter().any(|name| name == wanted) => Finding {
                severity: Severity::Failed,
                ..warning(
                    "runtime",
                    format!("there is no runtime class {wanted}; {found}"),
                    "examples/kubernetes/runtime-class.yaml makes one",
                )
            },
            _ => fine("runtime", found),
        }
    }

    /// Returns what is left of the namespace's quotas.
    async fn quota(&self) -> Option<Finding> {
        let listed = self.cluster.get(&self.cluster.path("resourcequotas")).await.ok()??;
        let said: Vec<String> = items(&listed).flat_map(used).collect();
        (!said.is_empty()).then(|| fine("quota", said.join(", ")))
    }
}

/// The lines of one quota: `pods 3 of 10`.
fn used(quota: &Value) -> Vec<String> {
    let hard = quota.pointer("/status/hard").and_then(Value::as_object).into_iter().flatten();
    hard.map(|(what, most)| {
        let used = quota.pointer("/status/used").and_then(|used| used.get(what)).and_then(Value::as_str);
        let (what, most) = (failure::quote(what), failure::quote(most.as_str().unwrap_or("?")));
        format!("{what} {} of {most}", failure::quote(used.unwrap_or("?")))
    })
    .collect()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.get("items").and_then(Value::as_array).into_iter().flatten()
}

fn fine(name: &'static str, found: String) -> Finding {
    Finding { name, severity: Severity::Fine, found, hint: None }
}

fn warning(name: &'static str, found: String, hint: &str) -> Finding {
    Finding { name, severity: Severity::Warning, found, hint: Some(hint.to_owned()) }
}
