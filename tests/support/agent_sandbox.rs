//! A stand-in for the controllers of kubernetes-sigs/agent-sandbox: hands out the pods of a pool that a test has made.

use super::cluster::Api;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

pub const CLAIMS: &str = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims";
const SANDBOXES: &str = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pool of one pod, and its controller, which ends with it.
pub struct Pool {
    pub name: String,
    controller: JoinHandle<()>,
}

impl Pool {
    /// A pool whose pod is that of examples/kubernetes/warm-pool.yaml, as `change` makes it.
    pub async fn start(api: &Arc<Api>, change: impl FnOnce(&mut Value)) -> Self {
        install(api).await;
        let name = format!("pool-{}", fastrand::u32(..));
        let pod = format!("{name}-pod");
        let mut template = template(api);
        change(&mut template);
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": pod, "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"] },
            "spec": template["spec"],
        });
        api.send("POST", PODS, Some(&object)).await.expect("the pod is made");
        let sandbox = json!({
            "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox",
            "metadata": { "name": name, "annotations": { "agents.x-k8s.io/pod-name": pod } },
            "spec": { "operatingMode": "Running" },
        });
        let mut made = api.send("POST", SANDBOXES, Some(&sandbox)).await.expect("the sandbox is made");
        made["status"] = json!({ "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "" }] });
        api.send("PUT", &format!("{SANDBOXES}/{name}/status"), Some(&made)).await.expect("its status");
        let controller = tokio::spawn(control(Arc::clone(api), name.clone(), pod));
        Self { name, controller }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// Gives the sandbox to the first claim of the pool, and removes it with the claim.
async fn control(api: Arc<Api>, pool: String, pod: String) {
    let mut bound: Option<String> = None;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if let Some(claim) = &bound {
            if api.send("GET", &format!("{CLAIMS}/{claim}"), None).await.is_err() {
                let now = json!({ "gracePeriodSeconds": 1 });
                let _ = api.send("DELETE", &format!("{PODS}/{pod}"), Some(&now)).await;
                let _ = api.send("DELETE", &format!("{SANDBOXES}/{pool}"), None).await;
                return;
            }
            continue;
        }
        let Ok(listed) = api.send("GET", CLAIMS, None).await else { continue };
        let claims = listed["items"].as_array().into_iter().flatten();
        let Some(claim) =
            claims.into_iter().find(|claim| claim["spec"]["warmPoolRef"]["name"] == pool.as_str())
        else {
            continue;
        };
        let name = claim["metadata"]["name"].as_str().expect("a name").to_owned();
        let mut claim = claim.clone();
        claim["status"] = json!({
            "sandbox": { "name": pool },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "" }],
        });
        if api.send("PUT", &format!("{CLAIMS}/{name}/status"), Some(&claim)).await.is_ok() {
            bound = Some(name);
        }
    }
}

/// The pod template of the example, with the image of the tests.
fn template(api: &Api) -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/kubernetes/warm-pool.yaml");
    let ran = std::process::Command::new("kubectl")
        .args([
            "--kubeconfig",
            &api.kubeconfig,
            "create",
            "--dry-run=client",
            "--validate=false",
            "-o",
            "json",
            "-f",
            file,
        ])
        .output()
        .expect("kubectl");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let objects = serde_json::Deserializer::from_slice(&ran.stdout).into_iter::<Value>();
    let objects: Vec<Value> = objects.map(|object| object.expect("JSON")).collect();
    let all = objects.iter().flat_map(|object| match object["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![object.clone()],
    });
    let mut templates = all.filter(|object| object["kind"] == "SandboxTemplate");
    let mut template = templates.next().expect("a template")["spec"]["podTemplate"].clone();
    let container = &mut template["spec"]["containers"][0];
    container["image"] = std::env::var("AGENT_TEST_KUBERNETES_IMAGE").expect("an image").into();
    container["resources"]["requests"] =
        json!({ "cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi" });
    template
}

/// The kinds that are used, with the fields that are used of them: a field by another name would be dropped.
pub async fn install(api: &Api) {
    let text = json!({ "type": "string" });
    let condition = json!({ "type": "object", "properties": { "type": text, "status": text, "reason": text, "message": text } });
    let conditions = json!({ "type": "array", "items": condition });
    let object = |fields: Value| json!({ "type": "object", "properties": fields });
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let lifecycle = object(json!({
        "shutdownTime": { "type": "string", "format": "date-time" },
        "shutdownPolicy": { "type": "string", "enum": ["Delete", "DeleteForeground", "Retain"] },
    }));
    let mut reference = object(json!({ "name": text }));
    reference["required"] = json!(["name"]);
    let mut claim = object(json!({ "warmPoolRef": reference, "lifecycle": lifecycle }));
    claim["required"] = json!(["warmPoolRef"]);
    let of_claim = object(json!({ "conditions": conditions, "sandbox": object(json!({ "name": text })) }));
    let of_sandbox = object(json!({ "conditions": conditions }));
    for (group, kind, plural, spec, status) in [
        ("extensions.agents.x-k8s.io", "SandboxClaim", "sandboxclaims", claim, of_claim),
        ("agents.x-k8s.io", "Sandbox", "sandboxes", any.clone(), of_sandbox),
        ("extensions.agents.x-k8s.io", "SandboxTemplate", "sandboxtemplates", any.clone(), any.clone()),
        ("extensions.agents.x-k8s.io", "SandboxWarmPool", "sandboxwarmpools", any.clone(), any.clone()),
    ] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                // Names below k8s.io are the project's to approve.
                "annotations": { "api-approved.kubernetes.io": "unapproved, for tests" },
            },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
                "versions": [{
                    "name": "v1beta1", "served": true, "storage": true, "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": object(json!({ "spec": spec, "status": status })) },
                }],
            },
        });
        // Another test may have made it.
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let _ = api.send("POST", path, Some(&definition)).await;
        let list = format!("/apis/{group}/v1beta1/namespaces/default/{plural}");
        let mut tries = 0;
        while api.send("GET", &list, None).await.is_err() {
            tries += 1;
            assert!(tries < 300, "{plural} are not served");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
