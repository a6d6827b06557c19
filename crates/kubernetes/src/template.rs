//! The user's pod template: merged over our pod, and refused where it would weaken what confines it.

use super::pod::{CONTAINER, confinement};
use agent_base::error::{Error, Result};
use serde_json::{Value, json};

/// Volume types that Pod Security's level `restricted` allows and that bring no credentials of the cluster in.
pub(super) const VOLUMES: [&str; 7] =
    ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"];
/// Fields of a pod that have to stay as they are.
const LOCKED: [&str; 11] = [
    "/spec/restartPolicy",
    "/spec/automountServiceAccountToken",
    "/spec/enableServiceLinks",
    "/spec/hostNetwork",
    "/spec/hostPID",
    "/spec/hostIPC",
    "/spec/hostUsers",
    "/spec/shareProcessNamespace",
    "/spec/securityContext/runAsNonRoot",
    "/spec/securityContext/sysctls",
    "/spec/ephemeralContainers",
];
/// Fields of the sandbox's container that have to stay as they are.
const LOCKED_IN_CONTAINER: [&str; 8] =
    ["command", "args", "workingDir", "stdin", "stdinOnce", "tty", "lifecycle", "volumeDevices"];

/// `ours` with what `over` says: objects by their fields, lists of named objects by their names, everything else replaced.
pub(super) fn merge(ours: Value, over: &Value) -> Value {
    match (ours, over) {
        (Value::Object(mut fields), Value::Object(over)) => {
            for (name, value) in over {
                let before = fields.remove(name).unwrap_or(Value::Null);
                fields.insert(name.clone(), merge(before, value));
            }
            Value::Object(fields)
        }
        (Value::Array(mut items), Value::Array(over)) if over.iter().all(|item| name(item).is_some()) => {
            for item in over {
                match items.iter_mut().find(|known| name(known) == name(item)) {
                    Some(known) => *known = merge(known.take(), item),
                    None => items.push(item.clone()),
                }
            }
            Value::Array(items)
        }
        (_, over) => over.clone(),
    }
}

fn name(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

/// Refuses what weakens the pod, and completes containers that only the template has.
pub(super) fn check(ours: &Value, merged: &mut Value) -> Result<()> {
    for list in ["containers", "initContainers"] {
        let containers = merged.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let given = container.get("securityContext").cloned().unwrap_or_else(|| json!({}));
            container["securityContext"] = merge(confinement(), &given);
        }
    }
    match weakened(ours, merged) {
        Some(field) => Err(Error::config(format!("pod_template in [sandbox.kubernetes] may not change {field}"))
            .hint("a template adds to the pod (nodes, volumes, requests, containers); what confines the sandbox stays")),
        None => Ok(()),
    }
}

/// The first field that is weaker than ours.
fn weakened(ours: &Value, merged: &Value) -> Option<String> {
    let changed = LOCKED.into_iter().find(|field| ours.pointer(field) != merged.pointer(field));
    if let Some(field) = changed {
        return Some(field[1..].replace('/', "."));
    }
    let deadline = |pod: &Value| pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_u64);
    if deadline(merged).is_none_or(|deadline_set| Some(deadline_set) > deadline(ours)) {
        return Some("spec.activeDeadlineSeconds".to_owned());
    }
    let context = merged.pointer("/spec/securityContext");
    if let Some(field) = weak_context("spec.securityContext", context) {
        return Some(field);
    }
    let spec = merged.get("spec")?;
    for volume in spec.get("volumes").and_then(Value::as_array).into_iter().flatten() {
        let kinds = volume.as_object().into_iter().flatten().map(|(kind, _)| kind.as_str());
        if let Some(kind) = kinds.into_iter().find(|kind| *kind != "name" && !VOLUMES.contains(kind)) {
            return Some(format!("spec.volumes: {kind} is not allowed"));
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).and_then(Value::as_array).into_iter().flatten() {
            let what = format!("spec.{list}[{}]", name(container).unwrap_or_default());
            if let Some(field) = weak_container(&what, container) {
                return Some(field);
            }
        }
    }
    let sandbox = |pod: &Value| {
        let containers = pod.pointer("/spec/containers")?.as_array()?;
        containers.iter().find(|container| name(container) == Some(CONTAINER)).cloned()
    };
    let (before, after) = (sandbox(ours)?, sandbox(merged)?);
    let changed = LOCKED_IN_CONTAINER.into_iter().find(|field| before.get(field) != after.get(field));
    if let Some(field) = changed {
        return Some(format!("spec.containers[{CONTAINER}].{field}"));
    }
    (before.pointer("/resources/limits") != after.pointer("/resources/limits"))
        .then(|| format!("spec.containers[{CONTAINER}].resources.limits (use --memory, --cpus and --disk)"))
}

pub(super) fn weak_container(what: &str, container: &Value) -> Option<String> {
    let context = container.get("securityContext");
    let is = |field: &str, wanted: Value| context.and_then(|context| context.get(field)) == Some(&wanted);
    for (field, wanted) in
        [("allowPrivilegeEscalation", false), ("privileged", false), ("readOnlyRootFilesystem", true)]
    {
        if !is(field, wanted.into()) {
            return Some(format!("{what}.securityContext.{field}"));
        }
    }
    if !is("capabilities", json!({ "drop": ["ALL"] })) {
        return Some(format!("{what}.securityContext.capabilities"));
    }
    let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
    if ports.into_iter().any(|port| port.get("hostPort").is_some()) {
        return Some(format!("{what}.ports: hostPort is not allowed"));
    }
    weak_context(&format!("{what}.securityContext"), context)
}

/// Returns what both kinds of security contexts have.
pub(super) fn weak_context(what: &str, context: Option<&Value>) -> Option<String> {
    let field = |name: &str| context.and_then(|context| context.get(name));
    if field("runAsUser").is_some_and(|user| user.as_u64().is_none_or(|user| user == 0)) {
        return Some(format!("{what}.runAsUser"));
    }
    if field("runAsNonRoot").is_some_and(|value| value != &Value::Bool(true)) {
        return Some(format!("{what}.runAsNonRoot"));
    }
    let profile = field("seccompProfile").and_then(|profile| profile.get("type")).and_then(Value::as_str);
    let is_confined = |profile: &str| matches!(profile, "RuntimeDefault" | "Localhost");
    if field("seccompProfile").is_some() && !profile.is_some_and(is_confined) {
        return Some(format!("{what}.seccompProfile"));
    }
    let odd = ["procMount", "windowsOptions"].into_iter().find(|name| field(name).is_some());
    odd.map(|name| format!("{what}.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({ "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "activeDeadlineSeconds": 100,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 7, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": CONTAINER,
                "command": ["guest"],
                "resources": { "limits": { "cpu": "1" }, "requests": { "cpu": "1" } },
                "securityContext": confinement(),
            }],
            "volumes": [{ "name": "tmp", "emptyDir": {} }],
        }})
    }

    fn checked(over: Value) -> Result<Value> {
        let ours = pod();
        let mut merged = merge(ours.clone(), &json!({ "spec": over }));
        check(&ours, &mut merged).map(|()| merged)
    }

    #[test]
    fn a_template_adds_by_name() {
        let merged = checked(json!({
            "nodeSelector": { "pool": "agents" },
            "activeDeadlineSeconds": 50,
            "containers": [
                { "name": CONTAINER, "resources": { "requests": { "cpu": "10m" } } },
                { "name": "beside", "image": "x" },
            ],
            "volumes": [{ "name": "cache", "persistentVolumeClaim": { "claimName": "c" } }],
        }))
        .unwrap();
        let at = |path: &str| merged.pointer(path).cloned().unwrap_or_default();
        assert_eq!(
            at("/spec/containers/0/resources"),
            json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "10m" } })
        );
        assert_eq!(at("/spec/containers/0/command"), json!(["guest"]));
        assert_eq!(at("/spec/containers/1/securityContext"), confinement());
        assert_eq!(at("/spec/volumes/1/name"), "cache");
        assert_eq!(at("/spec/activeDeadlineSeconds"), 50);
    }

    #[test]
    fn a_template_removes_no_lock() {
        let context =
            |context: Value| json!({ "containers": [{ "name": CONTAINER, "securityContext": context }] });
        for (over, field) in [
            (json!({ "hostNetwork": true }), "spec.hostNetwork"),
            (json!({ "hostPID": true }), "spec.hostPID"),
            (json!({ "automountServiceAccountToken": true }), "spec.automountServiceAccountToken"),
            (json!({ "activeDeadlineSeconds": 101 }), "spec.activeDeadlineSeconds"),
            (json!({ "activeDeadlineSeconds": null }), "spec.activeDeadlineSeconds"),
            (json!({ "securityContext": null }), "spec.securityContext.runAsNonRoot"),
            (json!({ "securityContext": { "runAsUser": 0 } }), "spec.securityContext.runAsUser"),
            (
                json!({ "securityContext": { "seccompProfile": { "type": "Unconfined" } } }),
                "spec.securityContext.seccompProfile",
            ),
            (json!({ "volumes": [{ "name": "h", "hostPath": { "path": "/" } }] }), "spec.volumes: hostPath"),
            (json!({ "volumes": [{ "name": "t", "projected": {} }] }), "spec.volumes: projected"),
            (
                json!({ "initContainers": [{ "name": "i", "securityContext": { "privileged": true } }] }),
                "privileged",
            ),
            (json!({ "containers": [{ "name": CONTAINER, "command": ["sh"] }] }), ".command"),
            (
                json!({ "containers": [{ "name": CONTAINER, "resources": { "limits": { "cpu": "2" } } }] }),
                "limits",
            ),
            (json!({ "containers": [{ "name": "b", "ports": [{ "hostPort": 1 }] }] }), "hostPort"),
            (context(json!({ "readOnlyRootFilesystem": false })), "readOnlyRootFilesystem"),
            (context(json!({ "capabilities": { "add": ["SYS_ADMIN"] } })), "capabilities"),
            (context(json!({ "runAsUser": 0 })), "runAsUser"),
            (context(json!({ "runAsNonRoot": false })), "runAsNonRoot"),
            (context(json!({ "procMount": "Unmasked" })), "procMount"),
        ] {
            let error = checked(over.clone()).expect_err(field).to_string();
            assert!(error.contains(field), "{over}: {error}");
        }
    }
}
