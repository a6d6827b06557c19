//! Templates: every sandbox is made of the server's own settings, so those that exist are the vendors' usual names, which all
//! mean the same, and the snapshots. None can be built.

use super::control::not_offered_because;
use super::reply::{error, json_response};
use super::{E2bServer, ENVD_VERSION};
use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// The templates that programs of others begin with.
const NAMES: [&str; 2] = ["base", "code-interpreter-v1"];

/// `/templates/…`
pub async fn call(server: &E2bServer, method: &Method, path: &[&str]) -> Response {
    let get = method == Method::GET;
    match path {
        [] if get => {
            let all: Vec<Value> = NAMES.iter().map(|name| describe(server, name)).collect();
            json_response(StatusCode::OK, &all)
        }
        ["aliases", name] if get => match exists(server, name) {
            true => json_response(StatusCode::OK, &json!({ "templateID": name, "public": true })),
            false => missing(name),
        },
        [name] if get && exists(server, name) => {
            let mut template = describe(server, name);
            template["builds"] = json!([]);
            json_response(StatusCode::OK, &template)
        }
        [name] if get => missing(name),
        [name] if method == Method::DELETE && !NAMES.contains(name) => {
            super::reply::answer(server.snapshots.remove(name).await)
        }
        _ => not_offered_because(
            "agent serve builds no templates: --image names the image of all its sandboxes",
        ),
    }
}

fn exists(server: &E2bServer, name: &str) -> bool {
    // A namespace and a tag are parts of a name that say nothing here.
    let plain = name.rsplit('/').next().unwrap_or_default().split(':').next().unwrap_or_default();
    NAMES.contains(&plain) || server.snapshots.has(name)
}

fn missing(name: &str) -> Response {
    error(StatusCode::NOT_FOUND, &format!("template {name:?} was not found"))
}

fn describe(server: &E2bServer, name: &str) -> Value {
    let limits = server.fleet.limits();
    let started = server.started.to_string();
    json!({
        "templateID": name,
        "buildID": name,
        "buildStatus": "ready",
        "buildCount": 1,
        "cpuCount": limits.cpus.ceil() as u64,
        "memoryMB": limits.memory >> 20,
        "diskSizeMB": limits.disk >> 20,
        "public": true,
        "aliases": [name],
        "names": [name],
        "createdAt": started,
        "updatedAt": started,
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": 0,
        "envdVersion": ENVD_VERSION,
    })
}
