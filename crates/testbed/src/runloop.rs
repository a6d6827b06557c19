//! A made-up Runloop: the API, and tunnels as virtual hosts of the same address. It takes what the vendor's OpenAPI description has, the
//! releases of which differ: what any of them refuses is refused.

use crate::machines::{Machine, parts};
use crate::provider;
use agent_sandbox::Network;
use agent_testing::fields::{Field, Kind, check, optional, required};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The key that it takes.
pub const KEY: &str = "rl_a-key-for-tests";
const LARGEST: usize = 64 << 20;

const STATUSES: &[&str] = &[
    "provisioning",
    "initializing",
    "running",
    "suspending",
    "suspended",
    "resuming",
    "failure",
    "shutdown",
];

const CREATION: &[Field] = &[
    optional("name", Kind::Text),
    optional("metadata", Kind::Texts),
    optional("environment_variables", Kind::Texts),
    optional("secrets", Kind::Texts),
    optional("file_mounts", Kind::Texts),
    optional("entrypoint", Kind::Text),
    optional("blueprint_id", Kind::Text),
    optional("blueprint_name", Kind::Text),
    optional("snapshot_id", Kind::Text),
    optional("repo_connection_id", Kind::Text),
    optional("code_mounts", Kind::Any),
    optional("mounts", Kind::Any),
    optional("gateways", Kind::Any),
    optional("mcp", Kind::Any),
    optional("launch_parameters", Kind::Object(LAUNCH)),
    optional("tunnel", Kind::Object(TUNNEL)),
];

const LAUNCH: &[Field] = &[
    optional("launch_commands", Kind::List(&Kind::Text)),
    optional("resource_size_request", Kind::Word(SIZES)),
    optional("available_ports", Kind::List(&Kind::Integer)),
    optional("keep_alive_time_seconds", Kind::Integer),
    optional("after_idle", Kind::Object(AFTER_IDLE)),
    optional("custom_cpu_cores", Kind::Integer),
    optional("custom_gb_memory", Kind::Integer),
    optional("custom_disk_size", Kind::Integer),
    optional("architecture", Kind::Word(&["x86_64", "arm64"])),
    optional("user_parameters", Kind::Object(USER)),
    optional("required_services", Kind::List(&Kind::Text)),
    optional("network_policy_id", Kind::Text),
    optional("lifecycle", Kind::Object(LIFECYCLE)),
];
const SIZES: &[&str] = &["X_SMALL", "SMALL", "MEDIUM", "LARGE", "X_LARGE", "XX_LARGE", CUSTOM_SIZE];
const CUSTOM_SIZE: &str = "CUSTOM_SIZE";
const AFTER_IDLE: &[Field] = &[
    required("idle_time_seconds", Kind::Integer),
    required("on_idle", Kind::Word(&["shutdown", "suspend"])),
];
const LIFECYCLE: &[Field] =
    &[optional("after_idle", Kind::Object(AFTER_IDLE)), optional("resume_triggers", Kind::Any)];
const USER: &[Field] = &[required("username", Kind::Text), required("uid", Kind::Integer)];
const TUNNEL: &[Field] = &[
    optional("auth_mode", Kind::Word(&["open", "authenticated"])),
    optional("http_keep_alive", Kind::Flag),
    optional("wake_on_http", Kind::Flag),
];

const POLICY: &[Field] = &[
    required("name", Kind::Text),
    optional("description", Kind::Text),
    optional("allow_all", Kind::Flag),
    optional("allow_devbox_to_devbox", Kind::Flag),
    optional("allowed_hostnames", Kind::List(&Kind::Text)),
    optional("allow_agent_gateway", Kind::Flag),
    optional("allow_mcp_gateway", Kind::Flag),
];

// The vendor's own client has a fraction of a second in its timeouts.
const WAIT: &[Field] =
    &[required("statuses", Kind::List(&Kind::Word(STATUSES))), optional("timeout_seconds", Kind::Number)];
const WAIT_FOR_EXECUTION: &[Field] = &[
    required("statuses", Kind::List(&Kind::Word(&["queued", "running", "completed"]))),
    optional("timeout_seconds", Kind::Number),
];
const EXECUTION: &[Field] = &[
    required("command", Kind::Text),
    required("command_id", Kind::Uuid7),
    optional("shell_name", Kind::Text),
    optional("optimistic_timeout", Kind::Integer),
];
const UNNAMED_EXECUTION: &[Field] = &[
    required("command", Kind::Text),
    optional("shell_name", Kind::Text),
    optional("attach_stdin", Kind::Flag),
];
const DOWNLOAD: &[Field] = &[required("path", Kind::Text)];

/// The provider.
pub struct Runloop {
    pub url: String,
    devboxes: Mutex<BTreeMap<String, Devbox>>,
    policies: Mutex<Vec<Value>>,
    /// Of commands, by the ids that clients gave them.
    executions: Mutex<BTreeMap<String, Value>>,
    requests: Mutex<Vec<String>>,
    refuses_lists: AtomicBool,
}

struct Devbox {
    description: Value,
    machine: Option<Arc<Machine>>,
    network: Network,
    disk: Vec<u8>,
}

/// The one of this process, in threads of its own: sandboxes outlive a test's runtime.
pub fn shared() -> Arc<Runloop> {
    static SHARED: OnceLock<Arc<Runloop>> = OnceLock::new();
    Arc::clone(SHARED.get_or_init(start))
}

/// A provider without devboxes.
pub fn start() -> Arc<Runloop> {
    provider::start(
        |url| Runloop {
            url,
            devboxes: Mutex::default(),
            policies: Mutex::default(),
            executions: Mutex::default(),
            requests: Mutex::default(),
            refuses_lists: AtomicBool::new(false),
        },
        |runloop| Router::new().fallback(answer).with_state(runloop),
    )
}

fn header<'a>(request: &'a Request, name: &str) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn answer(State(runloop): State<Arc<Runloop>>, request: Request) -> Response {
    let host = header(&request, "host").to_owned();
    if let Some((port_and_key, _)) = host.split_once(".tunnel.") {
        return runloop.forward(port_and_key, request).await;
    }
    let path = request.uri().path().to_owned();
    let line = format!("{} {path}", request.method());
    runloop.requests.lock().expect("a lock").push(line);
    if header(&request, "authorization") != format!("Bearer {KEY}") {
        return failure(401, "invalid api key");
    }
    let is_post = request.method() == hyper::Method::POST;
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match *segments {
        ["v1", "devboxes"] if is_post => runloop.create(request).await,
        ["v1", "devboxes"] => runloop.list(&request),
        ["v1", "network-policies"] if is_post => runloop.make_policy(request).await,
        ["v1", "network-policies"] => runloop.list_policies(&request),
        ["v1", "devboxes", "create_and_await_running"] => runloop.create(request).await,
        ["v1", "devboxes", id] => match runloop.describe(id) {
            Some(description) => answer_json(200, &description),
            None => failure(404, "no such devbox"),
        },
        ["v1", "devboxes", id, ref action @ ..] => runloop.act(id, action, request).await,
        _ => failure(404, "no such route"),
    }
}

fn answer_json(code: u16, value: &Value) -> Response {
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(value.to_string())).expect("a response")
}

fn failure(code: u16, message: &str) -> Response {
    answer_json(code, &json!({ "message": message }))
}

/// Returns what a request asks for, or the answer that refuses it.
async fn asked(request: Request, fields: &[Field]) -> Result<Value, Response> {
    let body = to_bytes(request.into_body(), LARGEST).await.expect("a body");
    let body = if body.is_empty() { json!({}) } else { serde_json::from_slice(&body).unwrap_or(Value::Null) };
    check(&body, fields).map_err(|why| failure(400, &why))?;
    Ok(body)
}

/// The parameters of a query, each of which has to be one of these, or the answer that refuses it.
fn parameters(request: &Request, known: &[&str]) -> Result<BTreeMap<String, String>, Box<Response>> {
    let query = request.uri().query().unwrap_or_default();
    let given: BTreeMap<String, String> =
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let is_wrong = |name: &str, value: &str| match name {
        "limit" => !value.parse::<u32>().is_ok_and(|limit| (1..=5000).contains(&limit)),
        "include_total_count" | "force" => !["true", "false"].contains(&value),
        "status" => !STATUSES.contains(&value),
        _ => !known.contains(&name),
    };
    match given.iter().find(|(name, value)| is_wrong(name, value)) {
        Some((name, value)) => {
            Err(Box::new(failure(400, &format!("{name}: {value:?} is not a valid value"))))
        }
        None => Ok(given),
    }
}

/// Why there is no such size.
fn check_size(launch: &Value) -> Result<(), &'static str> {
    let number = |name: &str| launch[name].as_i64();
    let is_even_or_one = |number: i64| number == 1 || number % 2 == 0;
    match (number("custom_cpu_cores"), number("custom_gb_memory"), number("custom_disk_size")) {
        (None, None, None) => Ok(()),
        _ if launch["resource_size_request"] != CUSTOM_SIZE => Err("a custom size has to be CUSTOM_SIZE"),
        (Some(cpus @ 1..=16), Some(memory @ 1..=64), disk)
            if is_even_or_one(cpus)
                && is_even_or_one(memory)
                && (2 * cpus..=8 * cpus).contains(&memory)
                && disk.is_none_or(|disk| (2..=64).contains(&disk) && disk % 2 == 0) =>
        {
            Ok(())
        }
        _ => Err("there is no such size"),
    }
}

impl Runloop {
    /// The requests since the last time.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().expect("a lock"))
    }

    /// The descriptions of the devboxes that have not ended.
    pub fn devboxes(&self) -> Vec<Value> {
        let all = self.devboxes.lock().expect("a lock");
        let all = all.values().map(|devbox| devbox.description.clone());
        all.filter(|devbox| devbox["status"] != "shutdown").collect()
    }

    /// Refuses to list devboxes from now on, or no longer.
    pub fn refuse_lists(&self, refuses: bool) {
        self.refuses_lists.store(refuses, Ordering::SeqCst);
    }

    fn describe(&self, id: &str) -> Option<Value> {
        self.devboxes.lock().expect("a lock").get(id).map(|devbox| devbox.description.clone())
    }

    fn set_status(&self, id: &str, status: &str) -> Value {
        let mut all = self.devboxes.lock().expect("a lock");
        let description = &mut all.get_mut(id).expect("a devbox").description;
        description["status"] = status.into();
        description.clone()
    }

    fn machine(&self, id: &str) -> Option<Arc<Machine>> {
        self.devboxes.lock().expect("a lock").get(id)?.machine.clone()
    }

    async fn make_policy(&self, request: Request) -> Response {
        let asked = match asked(request, POLICY).await {
            Ok(asked) => asked,
            Err(refused) => return refused,
        };
        if self.policies.lock().expect("a lock").iter().any(|policy| policy["name"] == asked["name"]) {
            return failure(400, "Name already exists or is invalid.");
        }
        let policy = json!({
            "id": format!("np_{:08x}", fastrand::u32(..)), "name": asked["name"], "create_time_ms": 0, "update_time_ms": 0,
            "egress": {
                "allow_all": false, "allow_devbox_to_devbox": false, "allow_agent_gateway": false, "allow_mcp_gateway": false,
                "allow_runloop_mirrors": false, "allowed_hostnames": [], "allowed_cidrs": [],
            },
        });
        self.policies.lock().expect("a lock").push(policy.clone());
        answer_json(200, &policy)
    }

    fn list_policies(&self, request: &Request) -> Response {
        let known = ["name", "id", "limit", "starting_after", "include_total_count"];
        let given = match parameters(request, &known) {
            Ok(given) => given,
            Err(refused) => return *refused,
        };
        let mut policies = self.policies.lock().expect("a lock").clone();
        let name = given.get("name").map_or("", String::as_str);
        policies.retain(|policy| policy["name"].as_str().is_some_and(|policy| policy.contains(name)));
        answer_json(200, &json!({ "network_policies": policies, "has_more": false }))
    }

    async fn create(self: &Arc<Self>, request: Request) -> Response {
        let asked = match asked(request, CREATION).await {
            Ok(asked) => asked,
            Err(refused) => return refused,
        };
        let launch = asked.get("launch_parameters").cloned().unwrap_or(json!({}));
        if let Err(why) = check_size(&launch) {
            return failure(400, why);
        }
        let network = match launch["network_policy_id"].as_str() {
            Some(id) if self.policies.lock().expect("a lock").iter().any(|policy| policy["id"] == id) => {
                Network::None
            }
            Some(_) => return failure(400, "no such network policy"),
            None => Network::Full,
        };
        let id = format!("dbx_{:08x}", fastrand::u32(..));
        let tunnel = asked.get("tunnel").filter(|tunnel| tunnel.is_object()).map(|tunnel| {
            let mode = tunnel["auth_mode"].as_str().unwrap_or("open");
            json!({
                "auth_mode": mode, "create_time_ms": 0, "http_keep_alive": true, "wake_on_http": false,
                "tunnel_key": format!("key{:08x}", fastrand::u32(..)), "auth_token": format!("token-{:08x}", fastrand::u32(..)),
            })
        });
        let description = json!({
            "id": id, "name": asked["name"], "status": "provisioning", "capabilities": [], "create_time_ms": 1_767_225_600_000i64,
            "end_time_ms": null, "launch_parameters": launch, "metadata": asked.get("metadata").cloned().unwrap_or(json!({})),
            "state_transitions": [], "tunnel": tunnel,
        });
        let devbox = Devbox {
            description: description.clone(),
            machine: None,
            network: network.clone(),
            disk: Vec::new(),
        };
        self.devboxes.lock().expect("a lock").insert(id.clone(), devbox);
        // What was begun is finished, whether the client waits for it or not.
        let runloop = Arc::clone(self);
        let begun = tokio::spawn(async move {
            let machine = Arc::new(Machine::start(network).await);
            let unwanted = match runloop.devboxes.lock().expect("a lock").get_mut(&id) {
                Some(devbox) if devbox.description["status"] != "shutdown" => devbox.machine.replace(machine),
                _ => Some(machine),
            };
            if let Some(machine) = unwanted {
                machine.remove().await;
            }
        });
        begun.await.expect("it is made");
        answer_json(200, &description)
    }

    fn list(&self, request: &Request) -> Response {
        if self.refuses_lists.load(Ordering::SeqCst) {
            return failure(403, "this key may not list devboxes");
        }
        let known = ["status", "limit", "starting_after", "include_total_count"];
        let given = match parameters(request, &known) {
            Ok(given) => given,
            Err(refused) => return *refused,
        };
        let fits = |devbox: &Value| given.get("status").is_none_or(|status| devbox["status"] == *status);
        let devboxes: Vec<Value> = self.devboxes().into_iter().filter(fits).collect();
        answer_json(200, &json!({ "devboxes": devboxes, "has_more": false }))
    }

    async fn act(&self, id: &str, action: &[&str], request: Request) -> Response {
        let Some(description) = self.describe(id) else { return failure(404, "no such devbox") };
        let fields = match *action {
            ["wait_for_status"] => WAIT,
            ["executions", _, "wait_for_status"] => WAIT_FOR_EXECUTION,
            ["execute"] => EXECUTION,
            ["execute_async" | "execute_sync"] => UNNAMED_EXECUTION,
            ["enable_tunnel"] => TUNNEL,
            ["download_file"] => DOWNLOAD,
            // A form.
            ["upload_file"] => return self.upload(id, request).await,
            _ => &[],
        };
        let known: &[&str] = match *action {
            ["shutdown"] => &["force"],
            ["execute"] | ["executions", ..] => &["last_n"],
            _ => &[],
        };
        if let Err(refused) = parameters(&request, known) {
            return *refused;
        }
        let asked = match asked(request, fields).await {
            Ok(asked) => asked,
            Err(refused) => return refused,
        };
        match *action {
            ["wait_for_status"] => answer_json(
                200,
                &match description["status"].as_str() {
                    Some("provisioning" | "resuming") => self.set_status(id, "running"),
                    Some("suspending") => self.set_status(id, "suspended"),
                    _ => description,
                },
            ),
            ["keep_alive"] => answer_json(200, &json!({})),
            ["enable_tunnel"] if description["tunnel"].is_object() => {
                failure(400, "the devbox has a tunnel already")
            }
            ["executions", execution, "wait_for_status"] => {
                match self.executions.lock().expect("a lock").get(execution) {
                    Some(ended) => answer_json(200, ended),
                    None => failure(404, "no such execution"),
                }
            }
            ["shutdown"] => self.shut_down(id).await,
            ["resume"] => self.resume(id).await,
            _ => match self.machine(id) {
                Some(machine) => self.use_machine(id, &machine, action, &asked).await,
                None => failure(400, "the devbox is not running"),
            },
        }
    }

    async fn shut_down(&self, id: &str) -> Response {
        let machine =
            self.devboxes.lock().expect("a lock").get_mut(id).and_then(|devbox| devbox.machine.take());
        if let Some(machine) = machine {
            machine.remove().await;
        }
        answer_json(200, &self.set_status(id, "shutdown"))
    }

    async fn resume(&self, id: &str) -> Response {
        let (network, disk) = {
            let mut all = self.devboxes.lock().expect("a lock");
            let devbox = all.get_mut(id).expect("a devbox");
            (devbox.network.clone(), std::mem::take(&mut devbox.disk))
        };
        let machine = Machine::start(network).await;
        machine.restore(disk).await;
        self.devboxes.lock().expect("a lock").get_mut(id).expect("a devbox").machine =
            Some(Arc::new(machine));
        answer_json(200, &self.set_status(id, "resuming"))
    }

    async fn upload(&self, id: &str, request: Request) -> Response {
        let Some(machine) = self.machine(id) else { return failure(400, "the devbox is not running") };
        let content_type = header(&request, "content-type").to_owned();
        let body = to_bytes(request.into_body(), LARGEST).await.expect("a body");
        let parts = parts(&content_type, &body);
        if let Some((name, _)) = parts.iter().find(|(name, _)| !["path", "file"].contains(&name.as_str())) {
            return failure(400, &format!("unrecognized field {name:?}"));
        }
        let part =
            |wanted: &str| parts.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| bytes.clone());
        let Some(path) = part("path").and_then(|path| String::from_utf8(path).ok()) else {
            return failure(400, "path is required");
        };
        machine.write(&path, part("file").unwrap_or_default()).await;
        answer_json(200, &json!({}))
    }

    async fn use_machine(&self, id: &str, machine: &Machine, action: &[&str], asked: &Value) -> Response {
        match *action {
            ["suspend"] => {
                let disk = machine.disk().await;
                machine.remove().await;
                {
                    let mut all = self.devboxes.lock().expect("a lock");
                    let devbox = all.get_mut(id).expect("a devbox");
                    (devbox.machine, devbox.disk) = (None, disk);
                }
                answer_json(200, &self.set_status(id, "suspending"))
            }
            ["download_file"] => match machine.read(asked["path"].as_str().expect("a path")).await {
                Some(bytes) => Response::new(Body::from(bytes)),
                None => failure(404, "no such file"),
            },
            ["execute" | "execute_sync" | "execute_async"] => {
                // The same id is the same command.
                let execution = asked["command_id"]
                    .as_str()
                    .map_or_else(|| format!("exec_{:08x}", fastrand::u32(..)), str::to_owned);
                let ended = self.executions.lock().expect("a lock").get(&execution).cloned();
                if let Some(ended) = ended {
                    return answer_json(200, &ended);
                }
                let (code, stdout, stderr) =
                    machine.execute(asked["command"].as_str().expect("a command")).await;
                let ended = json!({
                    "devbox_id": id, "execution_id": execution, "status": "completed", "exit_status": code,
                    "stdout": String::from_utf8_lossy(&stdout), "stderr": String::from_utf8_lossy(&stderr),
                });
                self.executions.lock().expect("a lock").insert(execution, ended.clone());
                answer_json(200, &ended)
            }
            _ => failure(404, "no such route"),
        }
    }

    async fn forward(&self, port_and_key: &str, request: Request) -> Response {
        let token = header(&request, "x-runloop-tunnel-authorization").to_owned();
        let (port, key) = port_and_key.split_once('-').expect("a port and a key");
        let devbox = self.devboxes().into_iter().find(|devbox| devbox["tunnel"]["tunnel_key"] == key);
        let Some(devbox) = devbox else { return failure(404, "no such tunnel") };
        if token != format!("Bearer {}", devbox["tunnel"]["auth_token"].as_str().expect("a token")) {
            return failure(401, "the tunnel asks for its token");
        }
        // The key of the account is not for tunnels.
        assert_eq!(header(&request, "authorization"), "");
        match self.machine(devbox["id"].as_str().expect("an id")) {
            Some(machine) => machine.forward(request, port.parse().expect("a port")).await,
            None => failure(502, "the devbox is not running"),
        }
    }
}
