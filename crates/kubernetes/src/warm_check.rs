//! The conditions for a pod of a warm pool: everything that confines a pod of ours, looked at one by one, because its template is
//! somebody else's.

use super::pod::{CONTAINER, NETWORK, Pod, SHARED_MEMORY};
use super::settings::Isolation;
use super::template::{VOLUMES, weak_container, weak_context};
use super::volumes::{self, Volume};
use super::wait::text;
use super::warm::AWAIT_CLAIM;
use agent_base::error::Result;
use agent_sandbox::{HOME, WORKSPACE};
use serde_json::{Value, json};

/// Fields that have to be `false`.
const FALSE: [&str; 2] = ["automountServiceAccountToken", "enableServiceLinks"];
/// Fields that must not be `true`.
const NOT_TRUE: [&str; 4] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"];
/// Directories that are volumes.
const DIRECTORIES: [&str; 5] = [WORKSPACE, HOME, "/tmp", "/run", "/agent"];

/// The container that the session is in.
pub(super) fn container(pod: &Value) -> Option<&Value> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    containers.iter().find(|container| text(container, "/name") == CONTAINER)
}

/// Returns what `found` lacks of what the pod that `wanted` describes would have, in words.
pub(super) fn lacks(found: &Value, wanted: &Pod<'_>, volumes: &[Volume]) -> Result<Vec<String>> {
    let mut lacks = Vec::new();
    let spec = found.get("spec").unwrap_or(&Value::Null);
    lacks.extend(of_the_pod(spec, wanted));
    let label =
        found.pointer("/metadata/labels").and_then(|labels| labels.get(NETWORK.0)).and_then(Value::as_str);
    match (wanted.is_isolated(), label == Some(NETWORK.1)) {
        (true, false) => lacks.push(format!("its label {} is not {}", NETWORK.0, NETWORK.1)),
        (false, true) => lacks.push("its label denies the network that --network full asks for".to_owned()),
        _ => {}
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).and_then(Value::as_array).into_iter().flatten() {
            let what = format!("spec.{list}[{}]", text(container, "/name"));
            lacks.extend(weak_container(&what, container));
        }
    }
    match container(found) {
        Some(container) => lacks.extend(of_the_container(container, spec, wanted, volumes)?),
        None => lacks.push(format!("it has no container {CONTAINER}")),
    }
    Ok(lacks)
}

fn of_the_pod(spec: &Value, wanted: &Pod<'_>) -> Vec<String> {
    let mut lacks = Vec::new();
    let is = |name: &str, value: bool| spec.get(name).and_then(Value::as_bool) == Some(value);
    lacks.extend(
        FALSE.into_iter().filter(|name| !is(name, false)).map(|name| format!("spec.{name} is not false")),
    );
    lacks.extend(
        NOT_TRUE.into_iter().filter(|name| is(name, true)).map(|name| format!("spec.{name} is true")),
    );
    if wanted.settings.user_namespaces == Some(true) && !is("hostUsers", false) {
        lacks.push("spec.hostUsers is not false".to_owned());
    }
    if text(spec, "/restartPolicy") != "Never" {
        lacks.push("spec.restartPolicy is not Never".to_owned());
    }
    if spec.get("ephemeralContainers").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
        lacks.push("it has ephemeral containers".to_owned());
    }
    let context = spec.get("securityContext");
    let has = |path: &str| context.and_then(|context| context.pointer(path)).is_some();
    if context.and_then(|context| context.get("runAsNonRoot")) != Some(&Value::Bool(true)) {
        lacks.push("spec.securityContext.runAsNonRoot is not true".to_owned());
    }
    for field in ["runAsUser", "seccompProfile"] {
        if !has(&format!("/{field}")) {
            lacks.push(format!("spec.securityContext.{field} is not set"));
        }
    }
    let sysctls = context.and_then(|context| context.get("sysctls")).and_then(Value::as_array);
    let is_set = |it: &Value| text(it, "/name") == SHARED_MEMORY.0 && text(it, "/value") == SHARED_MEMORY.1;
    if !sysctls.into_iter().flatten().any(is_set) {
        lacks.push(format!("spec.securityContext.sysctls has no {}", SHARED_MEMORY.0));
    }
    lacks.extend(weak_context("spec.securityContext", context));
    let wanted_class = wanted.spec.runtime.as_deref().or(wanted.settings.runtime_class.as_deref());
    if let Some(class) = wanted_class.filter(|class| text(spec, "/runtimeClassName") != *class) {
        lacks.push(format!("its runtime is not {class}"));
    }
    for volume in spec.get("volumes").and_then(Value::as_array).into_iter().flatten() {
        let name = text(volume, "/name");
        let kinds = volume.as_object().into_iter().flatten().map(|(kind, _)| kind.as_str());
        if let Some(kind) = kinds.into_iter().find(|kind| *kind != "name" && !VOLUMES.contains(kind)) {
            lacks.push(format!("spec.volumes[{name}]: {kind} is not allowed"));
        }
        if volume.get("emptyDir").is_some() && volume.pointer("/emptyDir/sizeLimit").is_none() {
            lacks.push(format!("spec.volumes[{name}] has no size"));
        }
    }
    lacks
}

fn of_the_container(
    container: &Value,
    spec: &Value,
    wanted: &Pod<'_>,
    own: &[Volume],
) -> Result<Vec<String>> {
    let mut lacks = Vec::new();
    let what = format!("spec.containers[{CONTAINER}]");
    if container.get("command") != Some(&json!(["sh", "-c", AWAIT_CLAIM])) || container.get("args").is_some()
    {
        lacks.push(format!("{what}.command is not the one that waits for a claim"));
    }
    for field in ["lifecycle", "volumeDevices", "envFrom"] {
        if container.get(field).is_some() {
            lacks.push(format!("{what}.{field} is not allowed"));
        }
    }
    if wanted.spec.image.as_deref().is_some_and(|image| text(container, "/image") != image) {
        lacks.push(format!("its image is {}, not the one of --image", text(container, "/image")));
    }
    let allowed = wanted.limits();
    for (limit, option) in [("cpu", "--cpus"), ("memory", "--memory"), ("ephemeral-storage", "--disk")] {
        let (found, most) = (container.pointer(&format!("/resources/limits/{limit}")), allowed.get(limit));
        let number = |value: Option<&Value>| value.and_then(Value::as_str).and_then(quantity);
        match (number(found), number(most)) {
            (None, _) => lacks.push(format!("{what}.resources.limits.{limit} is not set")),
            (Some(found), Some(most)) if found > most => {
                lacks.push(format!("{what}.resources.limits.{limit} is more than {option} allows"));
            }
            _ => {}
        }
    }
    for directory in DIRECTORIES {
        let is_empty = volumes::at(spec, container, directory).is_some_and(|it| it.get("emptyDir").is_some());
        match own.iter().find(|volume| volume.directory == directory) {
            Some(volume) => lacks.extend(volume.lack.clone()),
            None if is_empty => {}
            None => lacks.push(format!("{directory} is not an empty directory of its own")),
        }
    }
    let env = || container.get("env").and_then(Value::as_array).into_iter().flatten();
    let node = env().find(|it| text(it, "/name") == "KUBERNETES_NODE_ADDRESS");
    let names_node = node.is_some_and(|it| text(it, "/valueFrom/fieldRef/fieldPath") == "status.hostIP");
    let is_proved = wanted.is_isolated() && wanted.settings.isolation == Isolation::Proved;
    if is_proved && !names_node {
        lacks.push(
            "KUBERNETES_NODE_ADDRESS is not its node's address, which the proof of isolation needs"
                .to_owned(),
        );
    }
    let secret = env().find(|it| it.pointer("/valueFrom/secretKeyRef").is_some());
    lacks.extend(secret.map(|it| format!("{what}.env[{}] is a secret", text(it, "/name"))));
    Ok(lacks)
}

/// A quantity of the API in thousandths: `500m`, `2`, `1Gi`. `None` where it is none that is understood.
fn quantity(text: &str) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u128 = match unit {
        "m" => 1,
        "" => 1000,
        "k" => 1000 * 1000,
        "M" => 1000 * 1000_u128.pow(2),
        "G" => 1000 * 1000_u128.pow(3),
        "T" => 1000 * 1000_u128.pow(4),
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok().map(|number| u128::from(number) * factor)
}

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn quantities_are_compared_as_numbers() {
        let in_order = ["1m", "500m", "1", "1k", "1Ki", "1M", "1Mi", "1G", "1Gi", "1T", "1Ti"];
        let numbers: Vec<u128> = in_order.iter().filter_map(|text| quantity(text)).collect();
        assert!(numbers.len() == in_order.len() && numbers.is_sorted(), "{numbers:?}");
        assert_eq!(quantity("1024Mi"), quantity("1Gi"));
        for unknown in ["", "1.5", "-1", "1e3", "1 Gi", "Gi", "1gi"] {
            assert_eq!(quantity(unknown), None, "{unknown}");
        }
    }
}
