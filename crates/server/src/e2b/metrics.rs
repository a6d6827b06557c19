//! The resources that a sandbox uses, and has used for the last hour.

use super::fleet::Fleet;
use super::hosted::Hosted;
use super::reply::{error, json_response};
use agent_base::lock::Lock;
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use url::form_urlencoded;

/// The interval of a sandbox's measurements, and the number of those that are kept: an hour of them.
const INTERVAL: Duration = Duration::from_secs(10);
const KEPT: usize = 360;

/// The measurements of one sandbox, the oldest first.
#[derive(Default)]
pub struct Measurements(Lock<VecDeque<Metric>>);

/// One measurement.
#[derive(Clone, Copy)]
struct Metric {
    at: Timestamp,
    cpus: u64,
    memory: u64,
    memory_limit: u64,
    disk: u64,
    disk_limit: u64,
}

impl Metric {
    async fn of(hosted: &Hosted) -> Option<Self> {
        let facts = hosted.sandbox.facts(&[]).await.ok()?;
        let disk = facts.disk_bytes.unwrap_or(0);
        Some(Self {
            at: Timestamp::now(),
            cpus: hosted.limits.cpus.ceil() as u64,
            memory: facts.memory_bytes.unwrap_or(0),
            memory_limit: facts.memory_limit.unwrap_or(hosted.limits.memory),
            disk,
            disk_limit: disk.saturating_add(facts.disk_free.unwrap_or(hosted.limits.disk)),
        })
    }

    fn document(&self) -> Value {
        json!({
            "timestamp": self.at.to_string(),
            "timestampUnix": self.at.as_second(),
            "cpuCount": self.cpus,
            "cpuUsedPct": 0.0,
            "memUsed": self.memory,
            "memTotal": self.memory_limit,
            "memCache": 0,
            "diskUsed": self.disk,
            "diskTotal": self.disk_limit,
        })
    }

    fn document_of_envd(&self) -> Value {
        json!({
            "ts": self.at.as_second(),
            "cpu_count": self.cpus,
            "cpu_used_pct": 0.0,
            "mem_total": self.memory_limit,
            "mem_used": self.memory,
            "mem_cache": 0,
            "disk_used": self.disk,
            "disk_total": self.disk_limit,
        })
    }
}

/// Measures a sandbox until it is removed.
pub async fn record(fleet: Arc<Fleet>, id: String) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(hosted) = fleet.get(&id) else { return };
        // A paused one does not answer.
        if hosted.life().is_paused {
            continue;
        }
        if let Some(metric) = Metric::of(&hosted).await {
            let mut kept = hosted.measurements.0.lock();
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(metric);
        }
    }
}

/// `GET /sandboxes/{id}/metrics`: those from `start` to `end`, in seconds since 1970, and how it is now if that is asked for.
pub async fn metrics(hosted: &Hosted, query: &str) -> Response {
    let (mut start, mut end) = (i64::MIN, i64::MAX);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let bound = match name.as_ref() {
            "start" => &mut start,
            "end" => &mut end,
            _ => continue,
        };
        match value.parse() {
            Ok(seconds) => *bound = seconds,
            Err(_) => return error(StatusCode::BAD_REQUEST, &format!("{name} is not in seconds")),
        }
    }
    if start > end {
        return error(StatusCode::BAD_REQUEST, "start is later than end");
    }
    let is_asked_for = |at: Timestamp| (start..=end).contains(&at.as_second());
    let mut found: Vec<Value> = Vec::new();
    found.extend(hosted.measurements.0.lock().iter().filter(|it| is_asked_for(it.at)).map(Metric::document));
    if is_asked_for(Timestamp::now()) && !hosted.life().is_paused {
        match Metric::of(hosted).await {
            Some(metric) => found.push(metric.document()),
            None => return error(StatusCode::BAD_GATEWAY, "the sandbox does not answer"),
        }
    }
    json_response(StatusCode::OK, &found)
}

/// `GET /metrics` of envd: how it is now.
pub async fn now(hosted: &Hosted) -> Response {
    match Metric::of(hosted).await {
        Some(metric) => json_response(StatusCode::OK, &metric.document_of_envd()),
        None => error(StatusCode::BAD_GATEWAY, "the sandbox does not answer"),
    }
}
