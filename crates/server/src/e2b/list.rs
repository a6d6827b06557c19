//! Listing sandboxes, and what is known about one.

use super::ENVD_VERSION;
use super::fleet::Fleet;
use super::hosted::Hosted;
use super::reply::{error, json_response};
use axum::response::Response;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::sync::Arc;
use url::form_urlencoded;

/// Sandboxes on a page, at most and where the client does not say.
const PAGE: usize = 100;

/// The conditions that limit a list.
#[derive(Default)]
struct Filter {
    metadata: Vec<(String, String)>,
    states: Vec<String>,
    template: Option<String>,
    started_after: Option<Timestamp>,
    limit: Option<usize>,
    /// The last sandbox of the page before.
    after: Option<String>,
    is_ascending: bool,
}

impl Filter {
    fn parse(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match name.as_ref() {
                "metadata" => {
                    // The SDKs escape names and values twice.
                    let pairs = form_urlencoded::parse(value.as_bytes());
                    let again = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
                    filter.metadata = pairs.map(|(name, value)| (again(&name), again(&value))).collect();
                }
                "state" => filter.states.extend(value.split(',').map(str::to_owned)),
                "template" => filter.template = Some(value),
                "startedAfter" => {
                    let time = value.parse().map_err(|_| format!("{value:?} is not a valid time"))?;
                    filter.started_after = Some(time);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
                    filter.limit = Some(limit.ok_or_else(|| format!("limit is from 1 to {PAGE}"))?);
                }
                "nextToken" => filter.after = Some(value).filter(|token| !token.is_empty()),
                "order" => filter.is_ascending = value == "asc",
                _ => {}
            }
        }
        Ok(filter)
    }

    fn accepts(&self, hosted: &Hosted) -> bool {
        let has = |(name, value): &(String, String)| hosted.wanted.metadata.get(name) == Some(value);
        (self.states.is_empty() || self.states.iter().any(|name| name == state(hosted)))
            && self.template.as_ref().is_none_or(|template| *template == hosted.wanted.template)
            && self.started_after.is_none_or(|time| hosted.started > time)
            && self.metadata.iter().all(has)
    }
}

/// The place of a sandbox in the order of a list.
fn place(hosted: &Hosted) -> String {
    // Nanoseconds since 1970 have 19 digits until the year 2286.
    format!("{:019}-{}", hosted.started.as_nanosecond(), hosted.id)
}

/// `GET /sandboxes`
pub fn list(fleet: &Fleet, query: &str) -> Response {
    let filter = match Filter::parse(query) {
        Ok(filter) => filter,
        Err(text) => return error(StatusCode::BAD_REQUEST, &text),
    };
    let mut found: Vec<Arc<Hosted>> =
        fleet.all().into_iter().filter(|hosted| filter.accepts(hosted)).collect();
    if !filter.is_ascending {
        found.reverse();
    }
    if let Some(after) = &filter.after {
        let is_behind = |hosted: &Arc<Hosted>| match filter.is_ascending {
            true => place(hosted) > *after,
            false => place(hosted) < *after,
        };
        found.retain(is_behind);
    }
    let limit = filter.limit.unwrap_or(PAGE);
    let next = (found.len() > limit).then(|| place(&found[limit - 1]));
    let page: Vec<Value> = found.iter().take(limit).map(|hosted| detail(hosted)).collect();
    let mut response = json_response(StatusCode::OK, &page);
    if let Some(token) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert("x-next-token", token);
    }
    response
}

fn state(hosted: &Hosted) -> &'static str {
    if hosted.life().is_paused { "paused" } else { "running" }
}

/// Returns what is known about a sandbox.
pub fn detail(hosted: &Hosted) -> Value {
    json!({
        "templateID": hosted.wanted.template,
        "sandboxID": hosted.id,
        "clientID": "agent",
        "startedAt": hosted.started.to_string(),
        "endAt": hosted.life().ends.to_string(),
        "cpuCount": hosted.limits.cpus.ceil() as u64,
        "memoryMB": hosted.limits.memory >> 20,
        "diskSizeMB": hosted.limits.disk >> 20,
        "state": state(hosted),
        "envdVersion": ENVD_VERSION,
        "domain": hosted.domain,
        "metadata": hosted.wanted.metadata,
        "allowInternetAccess": hosted.has_network(),
        "lifecycle": {
            "autoResume": hosted.wanted.auto_resume,
            "onTimeout": if hosted.wanted.auto_pause.is_some() { "pause" } else { "kill" },
        },
    })
}
