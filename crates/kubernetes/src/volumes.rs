//! The volumes of a warm pool's pod that stay while it is paused: claims for storage that the sandbox's controller made from its
//! `volumeClaimTemplates`, and no others.

use super::cluster::{Cluster, is_name};
use super::pod::CONTAINER;
use super::wait::text;
use super::{failure, warm_check};
use agent_base::error::Result;
use agent_sandbox::{HOME, WORKSPACE};
use serde_json::Value;

/// The directories that may be such a volume.
const DIRECTORIES: [&str; 2] = [WORKSPACE, HOME];
/// The access that one pod alone has, or the pods of one node.
const ACCESS: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// A volume that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Volume {
    /// The directory that it is.
    pub directory: &'static str,
    /// Its size, as the cluster states it.
    pub size: String,
    /// The reason why it cannot be used.
    pub lack: Option<String>,
}

/// The volume of the pod `spec` at a directory of its container.
pub(super) fn at<'a>(spec: &'a Value, container: &Value, directory: &str) -> Option<&'a Value> {
    let name = name_at(container, directory)?;
    spec.get("volumes")?.as_array()?.iter().find(|volume| text(volume, "/name") == name)
}

fn name_at<'a>(container: &'a Value, directory: &str) -> Option<&'a str> {
    let mut mounts = container.get("volumeMounts")?.as_array()?.iter();
    let mount = mounts.find(|mount| text(mount, "/mountPath").trim_end_matches('/') == directory)?;
    mount.get("name")?.as_str()
}

/// Returns whether the pods of a sandbox find the workspace as the former one left it.
pub(super) fn keeps_workspace(sandbox: &Value) -> bool {
    let containers = sandbox.pointer("/spec/podTemplate/spec/containers").and_then(Value::as_array);
    let mut containers = containers.into_iter().flatten();
    let container = containers.find(|container| text(container, "/name") == CONTAINER);
    let name = container.and_then(|container| name_at(container, WORKSPACE));
    name.is_some_and(|name| templates(sandbox).any(|template| template == name))
}

/// The names of a sandbox's templates, which are those of its pod's volumes as well.
fn templates(sandbox: &Value) -> impl Iterator<Item = &str> {
    let templates = sandbox.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array);
    templates.into_iter().flatten().map(|template| text(template, "/metadata/name"))
}

/// The volumes of a sandbox's pod that stay.
pub(super) async fn of(cluster: &Cluster, sandbox: &Value, pod: &Value) -> Result<Vec<Volume>> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut volumes = Vec::new();
    for directory in DIRECTORIES {
        let volume = warm_check::container(pod).and_then(|container| at(spec, container, directory));
        let Some(volume) = volume.filter(|volume| volume.get("persistentVolumeClaim").is_some()) else {
            continue;
        };
        let found = match own_claim(volume, sandbox) {
            Some(claim) => cluster.get(&cluster.path(&format!("persistentvolumeclaims/{claim}"))).await,
            None => Ok(None),
        };
        let failed =
            |error| failure::error(&format!("the volume of {directory} could not be looked at"), error);
        let found = found.map_err(failed)?.unwrap_or_default();
        let lack = lack(&found, sandbox).map(|why| format!("the volume of {directory} {why}"));
        volumes.push(Volume { directory, size: size(&found), lack });
    }
    Ok(volumes)
}

/// The claim for storage that is a volume of a pod, where its name is one that the sandbox's controller gives.
fn own_claim<'a>(volume: &'a Value, sandbox: &Value) -> Option<&'a str> {
    let claim = text(volume, "/persistentVolumeClaim/claimName");
    let template = templates(sandbox).find(|template| *template == text(volume, "/name"))?;
    (is_name(claim) && claim == format!("{template}-{}", text(sandbox, "/metadata/name"))).then_some(claim)
}

/// Returns what a claim for storage lacks of one that is this sandbox's alone and began empty.
fn lack(claim: &Value, sandbox: &Value) -> Option<&'static str> {
    let list = |path| claim.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let uid = text(sandbox, "/metadata/uid");
    let is_owner = |owner: &Value| {
        text(owner, "/uid") == uid && owner.get("controller").and_then(Value::as_bool) == Some(true)
    };
    let modes: Vec<&str> = list("/spec/accessModes").filter_map(Value::as_str).collect();
    if uid.is_empty() || !list("/metadata/ownerReferences").any(is_owner) {
        Some("is not one of its sandbox's own volumeClaimTemplates")
    } else if modes.is_empty() || !modes.iter().all(|mode| ACCESS.contains(mode)) {
        Some("is not ReadWriteOnce")
    } else if ["dataSource", "dataSourceRef"].iter().any(|field| claim["spec"].get(field).is_some()) {
        Some("begins as a copy of another")
    } else {
        None
    }
}

fn size(claim: &Value) -> String {
    let stated = [text(claim, "/status/capacity/storage"), text(claim, "/spec/resources/requests/storage")];
    failure::quote(stated.into_iter().find(|size| !size.is_empty()).unwrap_or("unknown size"))
}

/// Returns what limits their size, for the user.
pub(super) fn notice(volumes: &[Volume]) -> Option<String> {
    let named: Vec<String> = volumes.iter().map(|it| format!("{} ({})", it.directory, it.size)).collect();
    (!named.is_empty()).then(|| {
        format!(
            "Volumes that stay: {}. The guest counts what is in them for --disk; what gets past that is limited by their \
             size alone, where their storage enforces it.",
            named.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sandbox() -> Value {
        let mounts = json!([{ "name": "data", "mountPath": "/workspace/", "subPath": "workspace" }]);
        json!({
            "metadata": { "name": "s", "uid": "u" },
            "spec": {
                "podTemplate": { "spec": { "containers": [{ "name": CONTAINER, "volumeMounts": mounts }] } },
                "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
            },
        })
    }

    #[test]
    fn only_a_volume_of_the_sandboxs_own_templates_keeps_the_workspace() {
        assert!(keeps_workspace(&sandbox()));
        let mut other = sandbox();
        other["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] = "cache".into();
        assert!(!keeps_workspace(&other));
        assert!(!keeps_workspace(&json!({})));
    }

    #[test]
    fn a_claim_for_storage_has_the_name_of_its_template_and_its_sandbox() {
        let own = |name: &str, claim: &str| {
            let volume = json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } });
            own_claim(&volume, &sandbox()).is_some()
        };
        assert!(own("data", "data-s"));
        for (name, claim) in
            [("data", "data-t"), ("data", "shared"), ("cache", "cache-s"), ("cache", "data-s")]
        {
            assert!(!own(name, claim), "{name} {claim}");
        }
    }

    #[test]
    fn a_claim_for_storage_that_others_have_a_part_in_is_refused() {
        let claim = json!({
            "metadata": { "ownerReferences": [{ "uid": "u", "controller": true }] },
            "spec": { "accessModes": ["ReadWriteOnce"] },
        });
        assert_eq!(lack(&claim, &sandbox()), None);
        let changed = |path: &str, value: Value| {
            let mut claim = claim.clone();
            *claim.pointer_mut(path).unwrap() = value;
            lack(&claim, &sandbox()).unwrap_or_default()
        };
        assert!(changed("/metadata/ownerReferences", json!([])).contains("own volumeClaimTemplates"));
        assert!(changed("/metadata/ownerReferences/0/uid", "v".into()).contains("own volumeClaimTemplates"));
        assert!(changed("/metadata/ownerReferences/0/controller", false.into()).contains("own"));
        assert!(changed("/spec/accessModes", json!(["ReadWriteOnce", "ReadWriteMany"])).contains("Once"));
        assert!(changed("/spec/accessModes", json!([])).contains("ReadWriteOnce"));
        let copy = json!({ "accessModes": ["ReadWriteOnce"], "dataSource": { "kind": "VolumeSnapshot" } });
        assert!(changed("/spec", copy).contains("copy"));
        assert!(lack(&Value::Null, &Value::Null).is_some());
    }
}
