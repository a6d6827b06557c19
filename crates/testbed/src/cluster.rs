//! A Kubernetes cluster for the tests: the one that `AGENT_TEST_KUBECONFIG` names. `.ci/cluster` starts one.

use crate::agent::Agent;
use crate::backends::machine_with;
use agent_kubernetes::{Isolation, Kubernetes, Settings};
use agent_sandbox::Backend;
use base64::Engine;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that names the cluster's kubeconfig.
const KUBECONFIG: &str = "AGENT_TEST_KUBECONFIG";
/// The variable that names the image of the pods.
const IMAGE: &str = "AGENT_TEST_KUBERNETES_IMAGE";

/// Set where the cluster's network plugin enforces network policies.
const ENFORCES: &str = "AGENT_TEST_KUBERNETES_ENFORCES";

/// Returns whether the cluster enforces network policies. That of `.ci/cluster` does with kube-router.
pub fn enforces_policies() -> bool {
    std::env::var_os(ENFORCES).is_some()
}

/// The kubeconfig of the cluster, or `None` (with one line) where there is none.
pub fn kubeconfig() -> Option<String> {
    let named = std::env::var(KUBECONFIG).ok();
    if named.is_none() {
        agent_testing::skip::left_out(format!("not tested on kubernetes: {KUBECONFIG} names no cluster"));
    }
    named
}

/// The settings for a small cluster: the network of its pods is proved to be closed where it can be. Pods ask for little, so that many fit on one node.
pub fn settings() -> Settings {
    let requests = json!({ "cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi" });
    let template =
        json!({ "spec": { "containers": [{ "name": "sandbox", "resources": { "requests": requests } }] } });
    Settings {
        image: std::env::var(IMAGE).ok(),
        isolation: if enforces_policies() { Isolation::Proved } else { Isolation::Trusted },
        pod_template: template.as_object().expect("an object").clone(),
        ..Settings::default()
    }
}

/// The program, with the same settings and pods of this namespace.
pub fn configured(call: Agent, kubeconfig: &str, namespace: &str) -> Agent {
    let image = settings().image.unwrap_or_default();
    let template = "pod_template = { spec = { containers = [{ name = \"sandbox\", resources = { requests = \
                    { cpu = \"10m\", memory = \"32Mi\", ephemeral-storage = \"16Mi\" } } }] } }";
    with_table(call, kubeconfig, &format!("namespace = \"{namespace}\", image = \"{image}\", {template}"))
}

/// The program, with these settings of `[sandbox.kubernetes]` in one line.
pub fn with_table(call: Agent, kubeconfig: &str, settings: &str) -> Agent {
    let isolation = if enforces_policies() { "proved" } else { "trusted" };
    let config = format!("sandbox = {{ kubernetes = {{ isolation = \"{isolation}\", {settings} }} }}\n");
    call.config(&config).env("AGENT_SANDBOX", "kubernetes").env("KUBECONFIG", kubeconfig)
}

/// A backend with these settings.
pub async fn with(kubeconfig: &str, settings: Settings) -> Kubernetes {
    let machine = machine_with(vec![("KUBECONFIG", kubeconfig.to_owned())]);
    Kubernetes::with_settings(machine, settings).await.expect("the cluster's configuration")
}

/// The backend of the suites that run on every backend.
pub async fn backend() -> Option<Box<dyn Backend>> {
    Some(Box::new(with(&kubeconfig()?, settings()).await))
}

/// Writes a kubeconfig of this server and user into a directory; its path.
pub fn write_kubeconfig(directory: &std::path::Path, server: &str, user: Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{ "name": "c", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u", "namespace": "default" } }],
    });
    let file = directory.join("kubeconfig");
    std::fs::write(&file, config.to_string()).expect("written");
    file.display().to_string()
}

/// An image of the cluster without a shell.
pub const EMPTY_IMAGE: &str = "local.test/agent-empty:1";

/// The API server, for what tests look at and do beside the backend.
pub struct Api {
    pub kubeconfig: String,
    client: kube::Client,
}

impl Api {
    /// The cluster's, or `None` where there is none.
    pub async fn connect() -> Option<Self> {
        Some(Self::of(&kubeconfig()?).await)
    }

    /// The one of a kubeconfig.
    pub async fn of(kubeconfig: &str) -> Self {
        let kubeconfig = kubeconfig.to_owned();
        let read = kube::config::Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(read, &Default::default()).await.expect("a configuration");
        Self { kubeconfig, client: kube::Client::try_from(config).expect("a client") }
    }

    /// A request and its answer.
    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> kube::Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(body);
        self.client.request(request.expect("a request")).await
    }

    /// The API server, as the kubeconfig names it.
    pub fn server(&self) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let server = text.split("https://").nth(1).expect("a server");
        format!(
            "https://{}",
            server
                .split(|c: char| !(c.is_ascii_alphanumeric() || ".:-".contains(c)))
                .next()
                .unwrap_or_default()
        )
    }

    /// Its address.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server().trim_start_matches("https://").parse().expect("an address with its port")
    }

    /// The pod of a session in the namespace `default`.
    pub async fn pod(&self, session: &str) -> Option<Value> {
        self.send("GET", &format!("/api/v1/namespaces/default/pods/agent-{session}"), None).await.ok()
    }

    /// Makes a service account with the rights of `rules` in the namespace `default`.
    pub async fn account(&self, rules: Value) -> Value {
        let name = format!("suite-{}", fastrand::u32(..));
        let metadata = json!({ "name": name });
        let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        let role = json!({ "metadata": metadata, "rules": rules });
        self.send("POST", &format!("{rbac}/roles"), Some(&role)).await.expect("a role");
        let binding = json!({
            "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "default" }],
        });
        self.send("POST", &format!("{rbac}/rolebindings"), Some(&binding)).await.expect("a binding");
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.send("POST", accounts, Some(&json!({ "metadata": metadata }))).await.expect("an account")
    }

    /// A token for a service account, from the API server.
    pub async fn token(&self, account: &Value) -> String {
        let name = account["metadata"]["name"].as_str().expect("a name");
        let path = format!("/api/v1/namespaces/default/serviceaccounts/{name}/token");
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 600 } });
        let made = self.send("POST", &path, Some(&request)).await.expect("a token");
        made["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Makes an object of the core group, with the status that a controller would give it.
    pub async fn create_with_status(&self, namespace: &str, resource: &str, object: Value, status: Value) {
        let path = format!("/api/v1/namespaces/{namespace}/{resource}");
        let mut made = self.send("POST", &path, Some(&object)).await.expect("it is made");
        made["status"] = status;
        let name = made["metadata"]["name"].as_str().expect("a name").to_owned();
        self.send("PUT", &format!("{path}/{name}/status"), Some(&made)).await.expect("it is counted");
    }

    /// Makes a namespace of the test's own.
    pub async fn namespace(&self, what: &str) -> String {
        let name = format!("agent-suite-{what}-{}", fastrand::u32(..));
        let object = json!({ "metadata": { "name": name } });
        self.send("POST", "/api/v1/namespaces", Some(&object)).await.expect("it is made");
        name
    }

    /// Removes it. Its end is not waited for: this cluster has nobody who finishes it.
    pub async fn remove_namespace(&self, name: &str) {
        self.send("DELETE", &format!("/api/v1/namespaces/{name}"), None).await.expect("it is removed");
    }
}

/// The programs of a cluster that `.ci/cluster` has started on this machine.
pub struct Node(std::path::PathBuf);

impl Node {
    /// The one whose files are in `AGENT_TEST_CLUSTER_DIRECTORY`.
    pub fn of_this_machine() -> Option<Self> {
        let directory = std::env::var_os("AGENT_TEST_CLUSTER_DIRECTORY");
        if directory.is_none() {
            agent_testing::skip::left_out("AGENT_TEST_CLUSTER_DIRECTORY names no cluster of this machine");
        }
        directory.map(|directory| Self(directory.into()))
    }

    /// The directory of its files.
    pub fn directory(&self) -> &std::path::Path {
        &self.0
    }

    /// A token of a service account, signed as the API server does it, that the server accepts for so many seconds, more or less:
    /// those that it hands out live for ten minutes at least.
    pub fn token(&self, account: &Value, seconds: i64) -> String {
        // What the server adds: its clock may be behind.
        const LEEWAY: i64 = 60;
        let now = jiff::Timestamp::now().as_second();
        let name = account["metadata"]["name"].as_str().expect("a name");
        let claims = json!({
            "iss": "https://x", "aud": ["https://x"], "sub": format!("system:serviceaccount:default:{name}"),
            "iat": now - 600, "nbf": now - 600, "exp": now - LEEWAY + seconds,
            "kubernetes.io": { "namespace": "default", "serviceaccount": { "name": name, "uid": account["metadata"]["uid"] } },
        });
        let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let text = format!("{}.{}", encode(br#"{"alg":"RS256"}"#), encode(claims.to_string().as_bytes()));
        let signing = std::process::Command::new("openssl")
            .args(["dgst", "-sha256", "-sign"])
            .arg(self.0.join("sa.key"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut signing = signing.expect("openssl");
        signing.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
        let signature = signing.wait_with_output().expect("a signature").stdout;
        format!("{text}.{}", encode(&signature))
    }

    /// Kills a program without a warning and starts it again as it was.
    pub fn restart(&self, program: &str) {
        let own = RESTARTS.fetch_add(1, Ordering::SeqCst) + 1;
        let file = self.0.join(format!("{program}.pid"));
        let pid: i32 = std::fs::read_to_string(&file).expect("a pid").trim().parse().expect("a number");
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).expect("its command");
        let words: Vec<&OsStr> = line
            .split(|&byte| byte == 0)
            .filter(|word| !word.is_empty())
            .map(std::os::unix::ffi::OsStrExt::from_bytes)
            .collect();
        // SAFETY: takes no pointer.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0, "{program} is killed");
        while is_alive(&pid.to_string()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let words: Vec<OsString> = words.into_iter().map(OsStr::to_owned).collect();
        let (directory, program) = (self.0.clone(), program.to_owned());
        start(&directory, &program, &words);
        // An API server that cannot do all that it does at its start in time ends, as it may on a busy machine.
        std::thread::spawn(move || {
            let end = std::time::Instant::now() + SUPERVISED;
            while std::time::Instant::now() < end && RESTARTS.load(Ordering::SeqCst) == own {
                std::thread::sleep(std::time::Duration::from_millis(500));
                let pid =
                    std::fs::read_to_string(directory.join(format!("{program}.pid"))).unwrap_or_default();
                if !is_alive(pid.trim()) {
                    start(&directory, &program, &words);
                }
            }
        });
    }
}

/// The number of programs that were started again: the last of them is looked after.
static RESTARTS: AtomicU32 = AtomicU32::new(0);
/// The time for which a program that was started again is started once more where it ends.
const SUPERVISED: std::time::Duration = std::time::Duration::from_secs(120);

/// Starts a program of the cluster in the background of a shell that ends: it outlives the test.
fn start(directory: &Path, program: &str, words: &[OsString]) {
    let started = std::process::Command::new("sh")
        .args(["-c", "setsid \"$@\" >>\"$0.log\" 2>&1 </dev/null & echo $! >\"$0.pid\"", program])
        .args(words)
        .current_dir(directory)
        .status();
    assert!(started.expect("a shell").success(), "{program} starts again");
}

/// Returns whether a process runs: one that nobody has waited for does not.
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
