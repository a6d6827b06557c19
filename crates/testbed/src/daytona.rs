//! A made-up Daytona, after what its own SDK sends and expects: the control plane and the toolbox at one address.

use crate::machines::{Machine, parts, status};
use crate::provider;
use agent_sandbox::Network;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// The key that it takes.
pub const KEY: &str = "dtn_a-key-for-tests";
const LARGEST: usize = 64 << 20;

/// The provider.
pub struct Daytona {
    pub url: String,
    sandboxes: Mutex<BTreeMap<String, Arc<Mutex<DaytonaSandbox>>>>,
    /// Method and path of every request.
    requests: Mutex<Vec<String>>,
}

struct DaytonaSandbox {
    description: Value,
    machine: Option<Arc<Machine>>,
    disk: Vec<u8>,
    last_activity: Instant,
}

/// The one of this process, in threads of its own: sandboxes outlive a test's runtime.
pub fn shared() -> Arc<Daytona> {
    static SHARED: OnceLock<Arc<Daytona>> = OnceLock::new();
    Arc::clone(SHARED.get_or_init(start))
}

/// A provider without sandboxes.
pub fn start() -> Arc<Daytona> {
    provider::start(
        |url| Daytona { url, sandboxes: Mutex::default(), requests: Mutex::default() },
        |daytona| Router::new().fallback(answer).with_state(daytona),
    )
}

async fn answer(State(daytona): State<Arc<Daytona>>, request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri().path());
    daytona.requests.lock().expect("a lock").push(line);
    let key = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    if key != Some(&format!("Bearer {KEY}")) {
        return failure(401, "Invalid credentials");
    }
    let path = request.uri().path().to_owned();
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match *segments {
        ["api", "sandbox"] if request.method() == Method::POST => daytona.create(request).await,
        ["api", "sandbox"] => daytona.list(&request),
        ["api", "sandbox", id] => daytona.one(id, request.method()).await,
        ["api", "sandbox", id, "toolbox-proxy-url"] if daytona.find(id).is_some() => {
            answer_json(200, &json!({ "url": format!("{}/toolbox", daytona.url) }))
        }
        ["api", "sandbox", id, "labels"] if daytona.find(id).is_some() => {
            answer_json(200, &json!({ "labels": {} }))
        }
        ["api", "sandbox", id, action, ..] => daytona.act(id, action).await,
        ["toolbox", id, ref path @ ..] => daytona.toolbox(id, path, request).await,
        _ => failure(404, "Cannot be found"),
    }
}

fn answer_json(code: u16, value: &Value) -> Response {
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(value.to_string())).expect("a response")
}

fn failure(code: u16, message: &str) -> Response {
    answer_json(code, &json!({ "statusCode": code, "message": message, "error": "Error", "path": "/" }))
}

/// A parameter of a query.
fn parameter(request: &Request, name: &str) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

async fn json_of(request: Request) -> Value {
    let body = to_bytes(request.into_body(), LARGEST).await.expect("a body");
    serde_json::from_slice(&body).unwrap_or(Value::Null)
}

impl Daytona {
    /// The address of its API.
    pub fn api_url(&self) -> String {
        format!("{}/api", self.url)
    }

    /// The requests since the last time.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().expect("a lock"))
    }

    /// The descriptions of the sandboxes that exist.
    pub fn sandboxes(&self) -> Vec<Value> {
        let all = self.sandboxes.lock().expect("a lock");
        all.values().map(|sandbox| sandbox.lock().expect("a lock").description.clone()).collect()
    }

    /// By id or by name.
    fn find(&self, id: &str) -> Option<Arc<Mutex<DaytonaSandbox>>> {
        let all = self.sandboxes.lock().expect("a lock");
        let is_it = |sandbox: &&Arc<Mutex<DaytonaSandbox>>| {
            let description = &sandbox.lock().expect("a lock").description;
            description["id"] == id || description["name"] == id
        };
        all.values().find(is_it).cloned()
    }

    async fn create(self: &Arc<Self>, request: Request) -> Response {
        let asked = json_of(request).await;
        let id = format!("sandbox-{:08x}", fastrand::u32(..));
        let name = asked["name"].as_str().unwrap_or(&id).to_owned();
        if self.find(&name).is_some() {
            return failure(409, &format!("Sandbox with name {name} already exists"));
        }
        let network = match asked["networkBlockAll"].as_bool() {
            Some(true) => Network::None,
            _ => Network::Full,
        };
        let description = json!({
            "id": id, "name": name, "organizationId": "org", "user": "daytona", "env": {},
            "labels": asked.get("labels").cloned().unwrap_or(json!({})), "public": false,
            "networkBlockAll": asked["networkBlockAll"].as_bool().unwrap_or(false), "target": "us",
            "cpu": 1, "gpu": 0, "memory": 1, "disk": 3, "state": "creating", "desiredState": "started",
            "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z", "snapshot": "default",
            "autoStopInterval": asked.get("autoStopInterval").cloned().unwrap_or(json!(15)),
            "autoDeleteInterval": asked.get("autoDeleteInterval").cloned().unwrap_or(json!(-1)),
            "kvm": false, "sandboxClass": "container", "recoverable": false, "volumes": [],
            "toolboxProxyUrl": format!("{}/toolbox", self.url),
        });
        let sandbox =
            DaytonaSandbox { description, machine: None, disk: Vec::new(), last_activity: Instant::now() };
        self.sandboxes.lock().expect("a lock").insert(id.clone(), Arc::new(Mutex::new(sandbox)));
        // What was begun is finished, whether the client waits for it or not.
        let daytona = Arc::clone(self);
        let begun = tokio::spawn(async move {
            let machine = Arc::new(Machine::start(network).await);
            let Some(sandbox) = daytona.find(&id) else {
                machine.remove().await;
                return failure(404, "Sandbox was removed");
            };
            let mut sandbox = sandbox.lock().expect("a lock");
            sandbox.machine = Some(machine);
            sandbox.description["state"] = "started".into();
            answer_json(200, &sandbox.description)
        });
        begun.await.expect("it is made")
    }

    fn list(&self, request: &Request) -> Response {
        let wanted =
            parameter(request, "labels").and_then(|labels| serde_json::from_str::<Value>(&labels).ok());
        let wanted = wanted.as_ref().and_then(Value::as_object);
        let fits = |sandbox: &Value| {
            wanted.is_none_or(|labels| labels.iter().all(|(name, value)| sandbox["labels"][name] == *value))
        };
        let items: Vec<Value> = self.sandboxes().into_iter().filter(fits).collect();
        answer_json(200, &json!({ "items": items, "nextCursor": null }))
    }

    async fn one(&self, id: &str, method: &Method) -> Response {
        let Some(sandbox) = self.find(id) else { return failure(404, "Sandbox not found") };
        let description = sandbox.lock().expect("a lock").description.clone();
        if method == Method::DELETE {
            let machine = sandbox.lock().expect("a lock").machine.take();
            self.sandboxes.lock().expect("a lock").remove(description["id"].as_str().expect("an id"));
            if let Some(machine) = machine {
                machine.remove().await;
            }
        }
        answer_json(200, &description)
    }

    async fn act(&self, id: &str, action: &str) -> Response {
        let Some(sandbox) = self.find(id) else { return failure(404, "Sandbox not found") };
        let machine = sandbox.lock().expect("a lock").machine.clone();
        let state = match (action, machine) {
            ("stop", Some(machine)) => {
                let disk = machine.disk().await;
                machine.remove().await;
                let mut sandbox = sandbox.lock().expect("a lock");
                (sandbox.machine, sandbox.disk) = (None, disk);
                "stopped"
            }
            ("start", None) => {
                let machine = Machine::start(Network::None).await;
                let disk = std::mem::take(&mut sandbox.lock().expect("a lock").disk);
                machine.restore(disk).await;
                sandbox.lock().expect("a lock").machine = Some(Arc::new(machine));
                "started"
            }
            ("last-activity" | "autostop" | "autodelete" | "autoarchive", _) => {
                sandbox.lock().expect("a lock").last_activity = Instant::now();
                return status(StatusCode::CREATED);
            }
            _ => return failure(400, "The sandbox is not in a state for this"),
        };
        let mut sandbox = sandbox.lock().expect("a lock");
        sandbox.description["state"] = state.into();
        answer_json(200, &sandbox.description)
    }

    async fn toolbox(&self, id: &str, path: &[&str], request: Request) -> Response {
        let machine = self.find(id).and_then(|sandbox| sandbox.lock().expect("a lock").machine.clone());
        let Some(machine) = machine else { return failure(400, "The sandbox is not running") };
        match *path {
            ["process", "execute"] => {
                let asked = json_of(request).await;
                let command = asked["command"].as_str().expect("a command");
                let (code, stdout, stderr) = machine.execute(command).await;
                let result = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
                answer_json(200, &json!({ "exitCode": code, "result": result }))
            }
            ["files", kind @ ("upload" | "bulk-upload")] => {
                let path = parameter(&request, "path");
                let content_type = request.headers()["content-type"].to_str().expect("text").to_owned();
                let body = to_bytes(request.into_body(), LARGEST).await.expect("a body");
                let parts = parts(&content_type, &body);
                let named = parts.iter().find(|(name, _)| name.ends_with("path"));
                let named = named.map(|(_, path)| String::from_utf8_lossy(path).into_owned());
                let Some(path) = path.filter(|_| kind == "upload").or(named) else {
                    return failure(400, "path is required");
                };
                let file = parts.into_iter().find(|(name, _)| name.ends_with("file"));
                machine.write(&path, file.expect("a file").1).await;
                answer_json(200, &Value::Null)
            }
            ["files", "download"] => {
                match machine.read(&parameter(&request, "path").expect("a path")).await {
                    Some(bytes) => Response::new(Body::from(bytes)),
                    None => failure(404, "file not found"),
                }
            }
            ["files", "bulk-download"] => {
                let asked = json_of(request).await;
                let mut body = Vec::new();
                for path in asked["paths"].as_array().expect("paths").iter().filter_map(Value::as_str) {
                    let (name, content) = match machine.read(path).await {
                        Some(content) => ("file", content),
                        None => ("error", b"file not found".to_vec()),
                    };
                    let disposition = format!("form-data; name=\"{name}\"; filename=\"{path}\"");
                    body.extend_from_slice(
                        format!("--part\r\nContent-Disposition: {disposition}\r\n\r\n").as_bytes(),
                    );
                    body.extend_from_slice(&content);
                    body.extend_from_slice(b"\r\n");
                }
                body.extend_from_slice(b"--part--\r\n");
                let response =
                    Response::builder().header("content-type", "multipart/form-data; boundary=part");
                response.body(Body::from(body)).expect("a response")
            }
            ["proxy", port, ..] => machine.forward(request, port.parse().expect("a port")).await,
            _ => failure(404, "Cannot be found"),
        }
    }
}
