//! The pod of a sandbox: Pod Security's level `restricted`, and what that level leaves open.

use super::cluster::is_name;
use super::settings::Settings;
use super::template;
use agent_base::error::{Error, Result};
use agent_base::hash::Hash;
use agent_base::machine::Machine;
use agent_sandbox::ownership::{HOST, Ownership, SESSION, sandbox_name, this_host};
use agent_sandbox::{HOME, Network, Spec, WORKSPACE, bootstrap, environment, image, own_id, seccomp};
use agent_wire::launch_spec::LaunchSpec;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The container in which everything runs, and the one that brings the guest in.
pub(super) const CONTAINER: &str = "sandbox";
pub(super) const INIT_CONTAINER: &str = "guest";
/// The directory of the guest, and its file's name.
const GUEST_DIRECTORY: &str = "/agent";
pub(super) const GUEST: &str = "/agent/guest";
/// The name of the guest's abstract socket inside.
pub(super) const SOCKET: &str = "agent-guest";
/// The label that says that a pod is ours, and its value.
pub(super) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "agent");
/// The label that the NetworkPolicy selects, and its value where nothing may be reached.
pub(super) const NETWORK: (&str, &str) = ("agent/network", "none");
const SESSION_LABEL: &str = "agent/session";
/// [`this_host`] as a label, so that the API server selects our pods.
pub(super) const HOST_LABEL: &str = "agent/host";
/// Annotations that become files of the container.
const FILES: [(&str, &str); 3] =
    [("agent/passwd", "passwd"), ("agent/group", "group"), ("agent/gitconfig", "gitconfig")];
/// Bytes that the guest, `/run` and the kubelet's log may take beside the sandbox's disk.
const GUEST_BYTES: u64 = 16 << 20;
const RUN_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 64 << 20;
/// The bytes by which the guest's quota may be overrun until it refuses every command, so that the kubelet, which ends the pod, does not act
/// before the guest, which ends a command.
const OVERRUN_BYTES: u64 = 512 << 20;
/// Directories of the pod that are on the node's disk beside the workspace and `$HOME`.
const DISK_DIRECTORIES: [&str; 2] = ["/tmp", "/run"];
/// Has a segment of System V's shared memory end with the last process that has it: one that nobody has would fill the pod's
/// memory until the guest is killed for it. A safe sysctl, which the level `restricted` allows.
pub(super) const SHARED_MEMORY: (&str, &str) = ("kernel.shm_rmid_forced", "1");
/// Those together.
const BESIDE_DISK: u64 = OVERRUN_BYTES + GUEST_BYTES + RUN_BYTES + LOG_BYTES;
/// Open files of a process, the same as on other backends.
const OPEN_FILES: u64 = 16_384;
/// Silence after which the guest lets go of a client: the host pings every 15 s.
const KEEPALIVE: &str = "90";
/// The longest that a pod lives where nothing is set.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// The share of the limit of processors that is requested where nothing is set.
const CPU_REQUEST: f64 = 0.1;

/// The command of process 1 until the guest is there: a client brings it. Not for ever: that client may have been killed.
/// Process 1 gets only the signals that it takes: without the trap, the pod would be removed after its grace period.
const AWAIT_GUEST: &str = "trap 'exit 143' TERM; n=0; until [ -x /agent/guest ]; do n=$((n+1)); [ $n -lt 6000 ] || exit 97; \
                           sleep 0.02 2>/dev/null || sleep 1; done";

/// The parts of a sandbox's pod.
pub(super) struct Pod<'a> {
    pub spec: &'a Spec,
    pub settings: &'a Settings,
    pub machine: &'a Machine,
    /// Set if it has a user namespace of its own.
    pub has_user_namespace: bool,
}

impl Pod<'_> {
    /// The image that the sandbox runs in.
    pub fn image(&self) -> Result<&str> {
        match self.spec.image.as_deref().or(self.settings.image.as_deref()) {
            Some("host") => {
                Err(Error::config("a pod cannot show this machine's programs: --image host is not possible")
                    .hint("name an image that the cluster can pull, or leave --image out"))
            }
            Some(image) => Ok(image),
            None => Ok(image::DEFAULT),
        }
    }

    /// Returns whether the guest has to be brought in.
    pub fn needs_guest(&self) -> bool {
        self.settings.guest.is_none()
    }

    /// The container into which it is brought.
    pub fn receiver(&self) -> &'static str {
        if self.settings.init_image.is_some() { INIT_CONTAINER } else { CONTAINER }
    }

    /// Returns the path of the guest in the container.
    pub fn guest(&self) -> &str {
        self.settings.guest.as_deref().unwrap_or(GUEST)
    }

    /// The object that the API server is asked to create.
    ///
    /// # Errors
    /// A setting has no meaning, or the template would weaken what confines the pod.
    pub fn manifest(&self) -> Result<Value> {
        let ours = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": sandbox_name(&self.spec.session)? },
            "spec": self.pod_spec()?,
        });
        let mut merged = template::merge(ours.clone(), &Value::Object(self.settings.pod_template.clone()));
        template::check(&ours, &mut merged)?;
        let user =
            merged.pointer("/spec/securityContext/runAsUser").and_then(Value::as_u64).unwrap_or_default();
        let group =
            merged.pointer("/spec/securityContext/runAsGroup").and_then(Value::as_u64).unwrap_or(user);
        let metadata = &mut merged["metadata"];
        add(&mut metadata["labels"], self.labels());
        add(&mut metadata["annotations"], self.annotations(user, group));
        metadata["name"] = sandbox_name(&self.spec.session)?.into();
        Ok(merged)
    }

    pub fn labels(&self) -> Map<String, Value> {
        let mut labels: Map<String, Value> =
            self.settings.labels.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let session = &self.spec.session;
        // A label's value is shorter than a session's id may be.
        let session = if session.len() <= 63 { session.clone() } else { Hash::of(session).short(16) };
        let network = if self.is_isolated() { NETWORK.1 } else { "full" };
        for (name, value) in [
            (MANAGED_BY.0, MANAGED_BY.1),
            (NETWORK.0, network),
            (SESSION_LABEL, &session),
            (HOST_LABEL, &this_host()),
        ] {
            labels.insert(name.to_owned(), value.into());
        }
        labels
    }

    /// Returns the owner and the end of its life, as annotations.
    pub fn ownership(&self) -> Map<String, Value> {
        let labels = Ownership::of(self.spec).labels();
        labels.into_iter().map(|(name, value)| (name, value.into())).collect()
    }

    /// Returns the time of its end at the latest, RFC 3339.
    pub fn end_of_life(&self) -> Result<String> {
        let end = jiff::Timestamp::now().checked_add(self.max_age()?);
        let end = end.map_err(|_| Error::config("max_age in [sandbox.kubernetes] is too long"))?;
        Ok(end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }

    fn annotations(&self, user: u64, group: u64) -> Map<String, Value> {
        let mut annotations: Map<String, Value> = self
            .settings
            .annotations
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into()))
            .collect();
        annotations.extend(self.ownership());
        let passwd = format!(
            "root:x:0:0:root:/root:/bin/sh\nagent:x:{user}:{group}:agent:{HOME}:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
        );
        let accounts = [
            passwd,
            format!("root:x:0:\nagent:x:{group}:\nnogroup:x:65534:\n"),
            // Volumes belong to root, and git refuses repositories in other users' directories.
            "[safe]\n\tdirectory = *\n".to_owned(),
        ];
        annotations
            .extend(FILES.into_iter().zip(accounts).map(|((name, _), text)| (name.to_owned(), text.into())));
        annotations
    }

    /// Returns whether nothing may be reached but through the guest's proxy.
    pub fn is_isolated(&self) -> bool {
        self.spec.network != Network::Full
    }

    fn pod_spec(&self) -> Result<Value> {
        let settings = self.settings;
        let user = own_id(&self.spec.session);
        let mut spec = json!({
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "activeDeadlineSeconds": self.max_age()?.as_secs().max(1),
            "terminationGracePeriodSeconds": 1,
            "hostname": "sandbox",
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": user,
                "runAsGroup": user,
                "supplementalGroups": [],
                "seccompProfile": { "type": "RuntimeDefault" },
                "sysctls": [{ "name": SHARED_MEMORY.0, "value": SHARED_MEMORY.1 }],
            },
            "containers": [self.container()?],
            "volumes": self.volumes()?,
            "nodeSelector": settings.node_selector,
            "tolerations": settings.tolerations,
            "imagePullSecrets": settings.pull_secrets.iter().map(|name| json!({ "name": name })).collect::<Value>(),
        });
        if self.is_isolated() {
            // Nothing answers there, at once: lookups would otherwise hang for seconds.
            spec["dnsPolicy"] = "None".into();
            spec["dnsConfig"] = json!({
                "nameservers": ["127.0.0.1"],
                "options": [{ "name": "timeout", "value": "1" }, { "name": "attempts", "value": "1" }],
            });
        }
        if let Some(class) = self.spec.runtime.as_deref().or(settings.runtime_class.as_deref()) {
            match is_name(class) {
                true => spec["runtimeClassName"] = class.into(),
                false => {
                    return Err(Error::config(format!("{class:?} is not a valid name of a RuntimeClass")));
                }
            }
        }
        if let Some(account) = &settings.service_account {
            spec["serviceAccountName"] = account.as_str().into();
        }
        if self.has_user_namespace {
            spec["hostUsers"] = false.into();
        }
        if let Some(image) = &settings.init_image {
            spec["initContainers"] = json!([self.init_container(image)?]);
        }
        Ok(spec)
    }

    /// Returns the greatest age of the pod.
    fn max_age(&self) -> Result<Duration> {
        let set = self.settings.max_age.as_deref();
        set.map_or(Ok(MAX_AGE), |text| duration("max_age", text))
    }

    fn container(&self) -> Result<Value> {
        let (guest, launch) = (self.guest(), hex::encode(self.launch()?.encode()));
        let command = match self.needs_guest() && self.settings.init_image.is_none() {
            true => {
                let script = format!("{AWAIT_GUEST}; exec {GUEST} enter \"$1\" </dev/null >/dev/null");
                json!(["sh", "-c", script, "sh", launch])
            }
            false => json!([guest, "enter", launch]),
        };
        let mut mounts = vec![
            json!({ "name": "workspace", "mountPath": WORKSPACE }),
            json!({ "name": "home", "mountPath": HOME }),
            json!({ "name": "tmp", "mountPath": "/tmp" }),
            json!({ "name": "run", "mountPath": "/run" }),
        ];
        for (_, file) in FILES {
            let path = format!("/etc/{file}");
            mounts.push(json!({ "name": "etc", "mountPath": path, "subPath": file, "readOnly": true }));
        }
        if self.needs_guest() {
            let is_brought = self.settings.init_image.is_some();
            mounts.push(json!({ "name": "guest", "mountPath": GUEST_DIRECTORY, "readOnly": is_brought }));
        }
        // The image knows where its programs are.
        let variables = environment::variables("", HOME).into_iter().filter(|(name, _)| name != "PATH");
        let variables =
            variables.map(|(name, value)| json!({ "name": name, "value": value })).chain([node_address()]);
        Ok(json!({
            "name": CONTAINER,
            "image": self.image()?,
            "imagePullPolicy": "IfNotPresent",
            "command": command,
            "workingDir": WORKSPACE,
            "env": variables.collect::<Value>(),
            "resources": { "requests": self.requests()?, "limits": self.limits() },
            "securityContext": confinement(),
            "volumeMounts": mounts,
        }))
    }

    fn init_container(&self, image: &str) -> Result<Value> {
        Ok(json!({
            "name": INIT_CONTAINER,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", AWAIT_GUEST],
            "env": [node_address()],
            "resources": { "requests": self.requests()?, "limits": self.limits() },
            "securityContext": confinement(),
            "volumeMounts": [{ "name": "guest", "mountPath": GUEST_DIRECTORY }],
        }))
    }

    /// The most that a sandbox may use.
    pub fn limits(&self) -> Value {
        let limits = &self.spec.limits;
        json!({
            "cpu": millicores(limits.cpus),
            "memory": limits.memory.to_string(),
            "ephemeral-storage": (limits.disk.saturating_add(BESIDE_DISK)).to_string(),
        })
    }

    /// Returns what its node has to have free: all of the memory and the disk, which cannot be taken back, but a share of the processors,
    /// which a sandbox uses for moments.
    fn requests(&self) -> Result<Value> {
        let share = self.settings.cpu_request.unwrap_or(CPU_REQUEST);
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::config(format!(
                "cpu_request in [sandbox.kubernetes]: {share} is not a valid share"
            ))
            .hint("write a part of the limit, from 0.01 to 1"));
        }
        let mut requests = self.limits();
        requests["cpu"] = millicores(self.spec.limits.cpus * share).into();
        Ok(requests)
    }

    fn volumes(&self) -> Result<Value> {
        let disk = self.spec.limits.disk.saturating_add(OVERRUN_BYTES);
        let size = |name, set: &Option<String>| set.as_deref().map_or(Ok(disk), |text| bytes(name, text));
        let empty =
            |name: &str, size: u64| json!({ "name": name, "emptyDir": { "sizeLimit": size.to_string() } });
        let files = FILES.map(|(annotation, file)| {
            json!({ "path": file, "fieldRef": { "fieldPath": format!("metadata.annotations['{annotation}']") } })
        });
        let mut volumes = vec![
            empty("workspace", disk),
            empty("home", size("home_size", &self.settings.home_size)?),
            empty("tmp", size("tmp_size", &self.settings.tmp_size)?),
            empty("run", RUN_BYTES),
            json!({ "name": "etc", "downwardAPI": { "items": files } }),
        ];
        if self.needs_guest() {
            volumes.push(empty("guest", GUEST_BYTES));
        }
        Ok(volumes.into())
    }

    /// Returns what the guest does to itself before it serves.
    pub fn launch(&self) -> Result<LaunchSpec> {
        let limits = &self.spec.limits;
        let idle = self.spec.idle_ttl.as_secs().clamp(1, u64::from(u32::MAX)).to_string();
        let disk = limits.disk.to_string();
        let argv = [
            "serve",
            "--idle-ttl",
            &idle,
            "--user-socket",
            SOCKET,
            "--disk",
            &disk,
            "--keepalive",
            KEEPALIVE,
        ];
        let directories = DISK_DIRECTORIES.iter().flat_map(|directory| ["--disk-directory", directory]);
        // Filters are made for one kind of processor.
        let is_same = bootstrap::is_for_this_processor(self.machine)?;
        Ok(LaunchSpec {
            argv: argv.into_iter().chain(directories).map(Into::into).collect(),
            rlimits: vec![
                (libc::RLIMIT_NOFILE as i32, OPEN_FILES),
                (libc::RLIMIT_CORE as i32, 0),
                (libc::RLIMIT_FSIZE as i32, limits.disk),
                // Counted by user, of which each session has one of its own.
                (libc::RLIMIT_NPROC as i32, limits.pids),
            ],
            seccomp: if is_same { seccomp::filters()? } else { Vec::new() },
            ..LaunchSpec::default()
        })
    }
}

/// The variable with the node's address, for the proof that it cannot be reached. The guest removes it for what it starts.
fn node_address() -> Value {
    json!({ "name": "KUBERNETES_NODE_ADDRESS", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } })
}

/// Returns what every container has.
pub(super) fn confinement() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "privileged": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

fn add(object: &mut Value, entries: Map<String, Value>) {
    match object.as_object_mut() {
        Some(object) => object.extend(entries),
        None => *object = entries.into(),
    }
}

/// The session that a pod belongs to, as its annotations say.
pub(super) fn session(pod: &Value) -> Option<&str> {
    pod.get("metadata")?.get("annotations")?.get(SESSION)?.as_str()
}

/// The ownership that a pod's annotations state.
pub(super) fn ownership(pod: &Value) -> Option<Ownership> {
    let annotations = pod.get("metadata")?.get("annotations")?.as_object()?;
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    let labels = annotations.iter().filter_map(text).collect();
    Ownership::from_labels(&labels).filter(|_| annotations.contains_key(HOST))
}

fn millicores(cpus: f64) -> String {
    format!("{}m", ((cpus * 1000.0).ceil() as u64).max(1))
}

/// A duration of the settings: `90`, `90s`, `10m`, `24h`, `7d`.
pub(super) fn duration(name: &str, text: &str) -> Result<Duration> {
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = factor.and_then(|factor: u64| number.parse::<u64>().ok()?.checked_mul(factor));
    seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(|| {
        Error::config(format!("{name} in [sandbox.kubernetes]: {text:?} is not a valid time"))
            .hint("write it like 90s, 10m or 24h")
    })
}

/// A size of the settings: `512m`, `2g`.
fn bytes(name: &str, text: &str) -> Result<u64> {
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        _ => None,
    };
    let size = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
    size.filter(|size| *size > 0).ok_or_else(|| {
        Error::config(format!("{name} in [sandbox.kubernetes]: {text:?} is not a valid size"))
            .hint("write it like 512m or 2g")
    })
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_event::Limits;

    use std::io::Read;

    fn manifest(settings: &Settings) -> Result<Value> {
        let spec = Spec {
            limits: Limits { cpus: 2.0, memory: 1 << 30, ..Limits::default() },
            ..Spec::new("20260101-000000-abcd")
        };
        let machine = Machine::of_this_process();
        Pod { spec: &spec, settings, machine: &machine, has_user_namespace: false }.manifest()
    }

    #[test]
    fn a_pod_requests_a_share_of_its_processors_and_all_of_its_memory() {
        // Requests were equal to limits: a second pod waited for a node of its own.
        for (cpu_request, expected) in [(None, "200m"), (Some(1.0), "2000m"), (Some(0.0001), "1m")] {
            let found = manifest(&Settings { cpu_request, ..Settings::default() }).unwrap();
            let resources = &found["spec"]["containers"][0]["resources"];
            assert_eq!(resources["requests"]["cpu"], expected);
            assert_eq!(resources["limits"]["cpu"], "2000m");
            for whole in ["memory", "ephemeral-storage"] {
                assert_eq!(resources["requests"][whole], resources["limits"][whole]);
            }
        }
        for cpu_request in [0.0, -1.0, 1.5, f64::NAN] {
            let error =
                manifest(&Settings { cpu_request: Some(cpu_request), ..Settings::default() }).unwrap_err();
            assert!(error.to_string().contains("cpu_request"), "{error}");
        }
    }

    #[test]
    fn a_pod_that_waits_for_its_guest_ends_when_it_is_removed() {
        // Process 1 of a pod ignored the signal, and the pod stayed for its grace period.
        let text = AWAIT_GUEST.replacen("n=0;", "n=0; echo waiting;", 1);
        let mut shell = std::process::Command::new("sh");
        let mut waiting = shell.args(["-c", &text]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = [0; 8];
        waiting.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        // SAFETY: takes no pointer; the process is a child that was not waited for.
        unsafe { libc::kill(waiting.id().cast_signed(), libc::SIGTERM) };
        // Its own decision: a default action would be that of the kernel, which process 1 does not get.
        assert_eq!(waiting.wait().unwrap().code(), Some(143));
    }
}
