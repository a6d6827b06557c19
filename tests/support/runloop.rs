//! A made-up Runloop, after what its own SDK sends and expects: the API, and tunnels as virtual hosts of the same address.

use super::machines::{Machine, parts};
use agent::sandbox::Network;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// The key that it takes.
pub const KEY: &str = "rl_a-key-for-tests";
const LARGEST: usize = 64 << 20;

/// The provider.
pub struct Runloop {
    pub url: String,
    devboxes: Mutex<BTreeMap<String, Devbox>>,
    policies: Mutex<Vec<Value>>,
    requests: Mutex<Vec<String>>,
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
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            let runloop = Arc::new(Runloop {
                url,
                devboxes: Mutex::default(),
                policies: Mutex::default(),
                requests: Mutex::default(),
            });
            sender.send(Arc::clone(&runloop)).expect("somebody waits");
            let router = Router::new().fallback(answer).with_state(runloop);
            axum::serve(listener, router).await.expect("it serves");
        });
    });
    receiver.recv().expect("it starts")
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
        ["v1", "network-policies"] => {
            let policies = runloop.policies.lock().expect("a lock").clone();
            answer_json(200, &json!({ "network_policies": policies, "has_more": false }))
        }
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

async fn json_of(request: Request) -> Value {
    let body = to_bytes(request.into_body(), LARGEST).await.expect("a body");
    serde_json::from_slice(&body).unwrap_or(Value::Null)
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
        let asked = json_of(request).await;
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

    async fn create(self: &Arc<Self>, request: Request) -> Response {
        let asked = json_of(request).await;
        let launch = asked.get("launch_parameters").cloned().unwrap_or(json!({}));
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
        let query = request.uri().query().unwrap_or_default();
        let status = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "status");
        let fits =
            |devbox: &Value| status.as_ref().is_none_or(|(_, status)| devbox["status"] == status.as_ref());
        let devboxes: Vec<Value> = self.devboxes().into_iter().filter(fits).collect();
        answer_json(200, &json!({ "devboxes": devboxes, "has_more": false }))
    }

    async fn act(&self, id: &str, action: &[&str], request: Request) -> Response {
        let Some(description) = self.describe(id) else { return failure(404, "no such devbox") };
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
            ["enable_tunnel"] => answer_json(200, &description["tunnel"]),
            ["shutdown"] => {
                let machine = self
                    .devboxes
                    .lock()
                    .expect("a lock")
                    .get_mut(id)
                    .and_then(|devbox| devbox.machine.take());
                if let Some(machine) = machine {
                    machine.remove().await;
                }
                answer_json(200, &self.set_status(id, "shutdown"))
            }
            ["resume"] => {
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
            _ => match self.machine(id) {
                Some(machine) => self.use_machine(id, &machine, action, request).await,
                None => failure(400, "the devbox is not running"),
            },
        }
    }

    async fn use_machine(&self, id: &str, machine: &Machine, action: &[&str], request: Request) -> Response {
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
            ["upload_file"] => {
                let content_type = header(&request, "content-type").to_owned();
                let body = to_bytes(request.into_body(), LARGEST).await.expect("a body");
                let parts = parts(&content_type, &body);
                let part = |wanted: &str| {
                    parts.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| bytes.clone())
                };
                let path = String::from_utf8(part("path").expect("a path")).expect("text");
                machine.write(&path, part("file").expect("a file")).await;
                answer_json(200, &json!({}))
            }
            ["download_file"] => {
                match machine.read(json_of(request).await["path"].as_str().expect("a path")).await {
                    Some(bytes) => Response::new(Body::from(bytes)),
                    None => failure(404, "no such file"),
                }
            }
            ["execute" | "execute_sync" | "execute_async"] => {
                let asked = json_of(request).await;
                let (code, stdout, stderr) =
                    machine.execute(asked["command"].as_str().expect("a command")).await;
                answer_json(
                    200,
                    &json!({
                        "devbox_id": id, "execution_id": "exec_1", "status": "completed", "exit_status": code,
                        "stdout": String::from_utf8_lossy(&stdout), "stderr": String::from_utf8_lossy(&stderr),
                    }),
                )
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
