//! A stand-in for the controllers of kubernetes-sigs/agent-sandbox: hands out the pods of a pool that a test has made.

use agent_testbed::cluster::Api;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

pub const CLAIMS: &str = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/sandboxclaims";
const SANDBOXES: &str = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
const PODS: &str = "/api/v1/namespaces/default/pods";

const VOLUMES: &str = "/api/v1/persistentvolumes";
const VOLUME_CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const POD_NAME: &str = "agents.x-k8s.io/pod-name";

/// A pool of one pod, and its controller, which ends with it.
pub struct Pool {
    pub name: String,
    controller: JoinHandle<()>,
}

impl Pool {
    /// A pool whose pod is that of examples/kubernetes/warm-pool.yaml, as `change` makes it.
    pub async fn start(api: &Arc<Api>, change: impl FnOnce(&mut Value)) -> Self {
        Self::with_templates(api, json!([]), None, change).await
    }

    /// A pool whose pod has the workspace and `$HOME` on a volume that stays, below `directory` of this machine, which is the node.
    pub async fn with_volume(api: &Arc<Api>, directory: &Path) -> Self {
        let requests = json!({ "requests": { "storage": "1Gi" } });
        let templates = json!([{
            "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": requests },
        }]);
        let mount = |pod: &mut Value| {
            let mounts = &mut pod["spec"]["containers"][0]["volumeMounts"];
            mounts[0] = json!({ "name": "data", "mountPath": "/workspace", "subPath": "workspace" });
            mounts[1] = json!({ "name": "data", "mountPath": "/home/agent", "subPath": "home" });
        };
        Self::with_templates(api, templates, Some(directory.to_owned()), mount).await
    }

    async fn with_templates(
        api: &Arc<Api>,
        templates: Value,
        directory: Option<PathBuf>,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        install(api).await;
        let name = format!("pool-{}", fastrand::u32(..));
        let mut template = template(api);
        change(&mut template);
        let sandbox = json!({
            "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox",
            "metadata": { "name": name, "annotations": { POD_NAME: format!("{name}-pod") } },
            "spec": { "podTemplate": template, "volumeClaimTemplates": templates },
        });
        let made = api.send("POST", SANDBOXES, Some(&sandbox)).await.expect("the sandbox is made");
        assert_eq!(made["spec"]["operatingMode"], "Running", "{made}");
        if let Some(directory) = &directory {
            make_volume(api, &made, directory).await;
        }
        let controller = Controller { api: Arc::clone(api), pool: name.clone(), claim: None, directory };
        Self { name, controller: tokio::spawn(controller.run()) }
    }

    /// Changes the template of its sandbox's pods to come.
    pub async fn change(&self, api: &Api, change: impl Fn(&mut Value)) {
        let path = format!("{SANDBOXES}/{}", self.name);
        let mut tries = 0;
        loop {
            let mut sandbox = api.send("GET", &path, None).await.expect("the sandbox");
            change(&mut sandbox["spec"]["podTemplate"]);
            match api.send("PUT", &path, Some(&sandbox)).await {
                Ok(_) => return,
                // Its controller was faster.
                Err(error) => assert!(tries < 20, "{error}"),
            }
            tries += 1;
        }
    }

    /// The pod that its sandbox has now.
    pub async fn pod(&self, api: &Api) -> Option<Value> {
        let sandbox = api.send("GET", &format!("{SANDBOXES}/{}", self.name), None).await.ok()?;
        api.send("GET", &format!("{PODS}/{}", pod_name(&sandbox)), None).await.ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

/// Gives the sandbox to the first claim of the pool, has it run or not as its mode says, and removes it with the claim.
struct Controller {
    api: Arc<Api>,
    pool: String,
    claim: Option<String>,
    directory: Option<PathBuf>,
}

impl Controller {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if let Some(claim) = &self.claim
                && self.api.send("GET", &format!("{CLAIMS}/{claim}"), None).await.is_err()
            {
                return self.remove().await;
            }
            // Where something else was faster, it is done the next time.
            let _ = self.reconcile().await;
        }
    }

    async fn reconcile(&mut self) -> kube::Result<()> {
        let mut sandbox = self.api.send("GET", &format!("{SANDBOXES}/{}", self.pool), None).await?;
        let pod = self.api.send("GET", &format!("{PODS}/{}", pod_name(&sandbox)), None).await.ok();
        let ready = match (sandbox["spec"]["operatingMode"] == "Suspended", pod) {
            (true, pod) => {
                match pod {
                    Some(pod) => self.end_pod(&pod).await,
                    None => self.name_pod(&mut sandbox, None).await?,
                }
                ("False", "SandboxSuspended")
            }
            (false, None) => {
                let name = pod_name(&sandbox);
                self.api.send("POST", PODS, Some(&pod_of(&sandbox, &name))).await?;
                self.name_pod(&mut sandbox, Some(name)).await?;
                ("False", "DependenciesNotReady")
            }
            (false, Some(pod)) => readiness(&pod),
        };
        let conditions = json!([condition("Ready", ready, "")]);
        let path = format!("{SANDBOXES}/{}", self.pool);
        self.state(&path, sandbox, json!({ "conditions": conditions })).await?;
        let listed = self.api.send("GET", CLAIMS, None).await?;
        let claims = listed["items"].as_array().into_iter().flatten();
        let mut claims = claims.filter(|claim| claim["spec"]["warmPoolRef"]["name"] == self.pool.as_str());
        let Some(claim) = claims.next() else { return Ok(()) };
        let name = claim["metadata"]["name"].as_str().expect("a name").to_owned();
        let status = json!({ "sandbox": { "name": self.pool }, "conditions": conditions });
        self.state(&format!("{CLAIMS}/{name}"), claim.clone(), status).await?;
        self.claim = Some(name);
        Ok(())
    }

    async fn state(&self, path: &str, mut object: Value, status: Value) -> kube::Result<()> {
        if object["status"] != status {
            object["status"] = status;
            self.api.send("PUT", &format!("{path}/status"), Some(&object)).await?;
        }
        Ok(())
    }

    /// Notes the pod's name, or that there is none.
    async fn name_pod(&self, sandbox: &mut Value, name: Option<String>) -> kube::Result<()> {
        let annotations = name.map(|name| json!({ POD_NAME: name })).unwrap_or(json!({}));
        if sandbox["metadata"]["annotations"].as_object() != annotations.as_object() {
            sandbox["metadata"]["annotations"] = annotations;
            *sandbox = self.api.send("PUT", &format!("{SANDBOXES}/{}", self.pool), Some(sandbox)).await?;
        }
        Ok(())
    }

    async fn end_pod(&self, pod: &Value) {
        if pod["metadata"]["deletionTimestamp"].is_null() {
            let name = pod["metadata"]["name"].as_str().expect("a name");
            let _ = self.api.send("DELETE", &format!("{PODS}/{name}"), None).await;
        }
    }

    async fn remove(&self) {
        let path = format!("{SANDBOXES}/{}", self.pool);
        let Ok(sandbox) = self.api.send("GET", &path, None).await else { return };
        if let Ok(pod) = self.api.send("GET", &format!("{PODS}/{}", pod_name(&sandbox)), None).await {
            self.end_pod(&pod).await;
        }
        let _ = self.api.send("DELETE", &path, None).await;
        if let Some(directory) = &self.directory {
            let name = format!("data-{}", self.pool);
            for path in [format!("{VOLUME_CLAIMS}/{name}"), format!("{VOLUMES}/{name}")] {
                let _ = self.api.send("DELETE", &path, None).await;
                // Nobody else takes the protection away.
                if let Ok(mut kept) = self.api.send("GET", &path, None).await {
                    kept["metadata"]["finalizers"] = json!([]);
                    let _ = self.api.send("PUT", &path, Some(&kept)).await;
                }
            }
            let _ = std::fs::remove_dir_all(directory.join(name));
        }
    }
}

fn pod_name(sandbox: &Value) -> String {
    let metadata = &sandbox["metadata"];
    let name = metadata["annotations"][POD_NAME].as_str().or(metadata["name"].as_str());
    name.expect("a name").to_owned()
}

/// The pod `name` of a sandbox, as its controller makes it.
fn pod_of(sandbox: &Value, name: &str) -> Value {
    let template = &sandbox["spec"]["podTemplate"];
    let owner = &sandbox["metadata"]["name"];
    let mut spec = template["spec"].clone();
    let claims = sandbox["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten().map(|claim| {
        let claim = claim["metadata"]["name"].as_str().expect("a name");
        let named = format!("{claim}-{}", owner.as_str().expect("a name"));
        json!({ "name": claim, "persistentVolumeClaim": { "claimName": named } })
    });
    spec["volumes"].as_array_mut().expect("volumes").extend(claims);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": owners(sandbox),
        },
        "spec": spec,
    })
}

fn owners(sandbox: &Value) -> Value {
    let metadata = &sandbox["metadata"];
    json!([{
        "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "controller": true, "blockOwnerDeletion": true,
        "name": metadata["name"], "uid": metadata["uid"],
    }])
}

fn readiness(pod: &Value) -> (&'static str, &'static str) {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    match pod["status"]["phase"].as_str() {
        Some("Succeeded") => ("False", "PodSucceeded"),
        Some("Failed") => ("False", "PodFailed"),
        _ if conditions.any(|it| it["type"] == "Ready" && it["status"] == "True") => {
            ("True", "DependenciesReady")
        }
        _ => ("False", "DependenciesNotReady"),
    }
}

/// A condition as the kinds have it.
pub fn condition(kind: &str, (status, reason): (&str, &str), message: &str) -> Value {
    let since = "2026-01-01T00:00:00Z";
    json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since })
}

/// The claim for storage of a sandbox's template `data`, bound to a directory of this machine.
async fn make_volume(api: &Api, sandbox: &Value, directory: &Path) {
    let name = format!("data-{}", sandbox["metadata"]["name"].as_str().expect("a name"));
    let place = directory.join(&name);
    std::fs::create_dir_all(&place).expect("a directory");
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o777)).expect("its mode");
    let mut spec = sandbox["spec"]["volumeClaimTemplates"][0]["spec"].clone();
    spec["volumeName"] = name.as_str().into();
    let claim = json!({
        "metadata": {
            "name": name,
            "ownerReferences": owners(sandbox),
            "annotations": { "pv.kubernetes.io/bind-completed": "yes" },
        },
        "spec": spec,
    });
    let mut claim = api.send("POST", VOLUME_CLAIMS, Some(&claim)).await.expect("the claim for storage");
    let reference = json!({ "namespace": "default", "name": name, "uid": claim["metadata"]["uid"] });
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "claimRef": reference,
            "hostPath": { "path": place, "type": "Directory" }, "persistentVolumeReclaimPolicy": "Retain",
        },
    });
    api.send("POST", VOLUMES, Some(&volume)).await.expect("the volume");
    claim["status"] =
        json!({ "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" } });
    api.send("PUT", &format!("{VOLUME_CLAIMS}/{name}/status"), Some(&claim)).await.expect("it is bound");
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

/// A kind of the API: its group, name and plural, and the schemas of its specification and its status.
type Kind = (&'static str, &'static str, &'static str, Value, Value);

fn object(fields: Value) -> Value {
    json!({ "type": "object", "properties": fields })
}

/// The kinds that are used, with the fields that are used of them: a field by another name would be dropped.
fn kinds() -> [Kind; 4] {
    let text = json!({ "type": "string" });
    let flag = json!({ "type": "boolean" });
    let time = json!({ "type": "string", "format": "date-time" });
    let one_of = |values: &[&str]| json!({ "type": "string", "enum": values });
    let condition = json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "type": text, "status": one_of(&["True", "False", "Unknown"]), "message": text, "lastTransitionTime": time,
            "reason": { "type": "string", "minLength": 1 },
        },
    });
    let conditions = json!({ "type": "array", "items": condition });
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let lifecycle = object(json!({
        "shutdownTime": time,
        "shutdownPolicy": one_of(&["Delete", "DeleteForeground", "Retain"]),
    }));
    let mut reference = object(json!({ "name": text }));
    reference["required"] = json!(["name"]);
    let mut claim = object(json!({ "warmPoolRef": reference, "lifecycle": lifecycle }));
    claim["required"] = json!(["warmPoolRef"]);
    let of_claim = object(json!({ "conditions": conditions, "sandbox": object(json!({ "name": text })) }));
    let of_sandbox = object(json!({ "conditions": conditions }));
    let mut pod_template = object(json!({ "metadata": any, "spec": any }));
    pod_template["required"] = json!(["spec"]);
    let mut operating_mode = one_of(&["Running", "Suspended"]);
    operating_mode["default"] = "Running".into();
    let mut claim_template = object(json!({ "metadata": any, "spec": any }));
    claim_template["required"] = json!(["spec"]);
    let mut sandbox = object(json!({
        "podTemplate": pod_template,
        "volumeClaimTemplates": { "type": "array", "items": claim_template },
        "service": flag, "shutdownTime": time, "shutdownPolicy": one_of(&["Delete", "Retain"]),
        "operatingMode": operating_mode,
    }));
    sandbox["required"] = json!(["podTemplate"]);
    [
        ("extensions.agents.x-k8s.io", "SandboxClaim", "sandboxclaims", claim, of_claim),
        ("agents.x-k8s.io", "Sandbox", "sandboxes", sandbox, of_sandbox),
        ("extensions.agents.x-k8s.io", "SandboxTemplate", "sandboxtemplates", any.clone(), any.clone()),
        ("extensions.agents.x-k8s.io", "SandboxWarmPool", "sandboxwarmpools", any.clone(), any),
    ]
}

/// Makes them known to the API server.
pub async fn install(api: &Api) {
    for (group, kind, plural, spec, status) in kinds() {
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
