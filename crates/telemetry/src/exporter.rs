//! Sends what was collected, from a thread of its own: a session never waits for a collector.

use crate::metrics::{Metrics, Of};
use crate::otlp::{self, Attribute, Span, text};
use crate::spans::{Made, Measure};
use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::tls;
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, redirect};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// Spans that wait; further ones are dropped.
const MAX_WAITING: usize = 2048;
/// Spans that are sent without waiting for [`PERIOD`].
const BATCH: usize = 512;
/// The interval in which what has been collected is sent.
const PERIOD: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The queue to the collector.
pub struct Exporter {
    target: Target,
    queue: Arc<Queue>,
}

/// The target of requests.
#[derive(Clone)]
struct Target {
    client: Client,
    traces: Url,
    metrics: Url,
    resource: Arc<[Attribute]>,
}

#[derive(Default)]
struct Queue {
    waiting: Lock<Waiting>,
    /// Something was added, is to be sent at once, or was sent.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    spans: Vec<Span>,
    metrics: Metrics,
    /// Since when the metrics have been added up.
    since: Option<Timestamp>,
    is_started: bool,
    is_sending: bool,
    is_urgent: bool,
    /// The reason why the last request failed.
    failure: Option<String>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.metrics.is_empty()
    }
}

impl Exporter {
    pub fn new(address: &Url, headers: &BTreeMap<String, String>) -> Result<Self> {
        tls::install_provider();
        let mut all = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for (name, value) in headers {
            let header = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, mut value) =
                header.ok_or_else(|| Error::config("[telemetry] headers has one that is not a header"))?;
            value.set_sensitive(true);
            all.insert(name, value);
        }
        let client = Client::builder()
            .user_agent(concat!("agent/", env!("CARGO_PKG_VERSION")))
            .default_headers(all)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| {
                Error::config("the client of the collector cannot be set up").caused_by(error)
            })?;
        let below = |path: &str| {
            let mut url = address.clone();
            url.set_path(&format!("{}/{path}", address.path().trim_end_matches('/')));
            url
        };
        let resource = [
            text("service.name", "agent"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", format!("{:032x}", fastrand::u128(..))),
        ];
        let target = Target {
            client,
            traces: below("v1/traces"),
            metrics: below("v1/metrics"),
            resource: resource.into(),
        };
        Ok(Self { target, queue: Arc::default() })
    }

    /// Adds spans and measures, and drops what there is no room for.
    pub fn add(&self, made: Made) {
        let Made { spans, measures } = made;
        if spans.is_empty() && measures.is_empty() {
            return;
        }
        let mut waiting = self.queue.waiting.lock();
        let room = MAX_WAITING.saturating_sub(waiting.spans.len());
        waiting.spans.extend(spans.into_iter().take(room));
        waiting.since.get_or_insert_with(Timestamp::now);
        for Measure { of, what } in measures {
            record(&mut waiting.metrics, of, what);
        }
        if !std::mem::replace(&mut waiting.is_started, true) {
            let (queue, target) = (Arc::clone(&self.queue), self.target.clone());
            // Without a thread nothing is sent, and nothing else depends on it.
            let _ =
                std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || queue.run(&target));
        }
        drop(waiting);
        self.queue.changed.notify_all();
    }

    /// Has everything sent that waits, and waits for that at most `limit`. Why it could not be sent.
    pub fn flush(&self, limit: Duration) -> Option<String> {
        let deadline = Instant::now() + limit;
        let mut waiting = self.queue.waiting.lock();
        waiting.is_urgent = true;
        self.queue.changed.notify_all();
        while waiting.is_started && (waiting.is_sending || !waiting.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(format!("the collector did not answer for {} s", limit.as_secs()));
            }
            waiting = self.queue.wait(waiting, left);
        }
        waiting.failure.take()
    }
}

fn record(metrics: &mut Metrics, of: Of, what: Amount) {
    match what {
        Amount::Tokens(tokens) => metrics.add_tokens(of, tokens),
        Amount::Seconds(seconds) => metrics.add_seconds(of, seconds),
        Amount::Cost(cost) => metrics.add_cost(of, cost),
    }
}

/// An amount of something.
#[derive(Debug, Clone, Copy)]
pub enum Amount {
    Tokens(u64),
    Seconds(f64),
    Cost(f64),
}

impl Queue {
    fn wait<'a>(&self, waiting: MutexGuard<'a, Waiting>, limit: Duration) -> MutexGuard<'a, Waiting> {
        self.changed.wait_timeout(waiting, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends what waits, until the process ends.
    fn run(&self, target: &Target) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        loop {
            let (spans, metrics, since) = self.next();
            let sent = runtime.block_on(target.send(&spans, &metrics, since));
            let mut waiting = self.waiting.lock();
            waiting.failure = sent.err();
            waiting.is_sending = false;
            drop(waiting);
            self.changed.notify_all();
        }
    }

    /// The next batch.
    fn next(&self) -> (Vec<Span>, Metrics, Timestamp) {
        let mut due: Option<Instant> = None;
        let mut waiting = self.waiting.lock();
        loop {
            let is_due = due.is_some_and(|due| due <= Instant::now());
            if !waiting.is_empty() && (waiting.is_urgent || is_due || waiting.spans.len() >= BATCH) {
                waiting.is_sending = true;
                let since = waiting.since.take().unwrap_or_else(Timestamp::now);
                return (std::mem::take(&mut waiting.spans), std::mem::take(&mut waiting.metrics), since);
            }
            if !waiting.is_empty() {
                due.get_or_insert_with(|| Instant::now() + PERIOD);
            }
            let left = due.map_or(PERIOD, |due| due.saturating_duration_since(Instant::now()));
            waiting = self.wait(waiting, left.max(Duration::from_millis(1)));
        }
    }
}

impl Target {
    async fn send(
        &self,
        spans: &[Span],
        metrics: &Metrics,
        since: Timestamp,
    ) -> std::result::Result<(), String> {
        if !spans.is_empty() {
            self.post(&self.traces, otlp::traces(&self.resource, spans)).await?;
        }
        if !metrics.is_empty() {
            self.post(&self.metrics, otlp::metrics(&self.resource, metrics, since, Timestamp::now())).await?;
        }
        Ok(())
    }

    async fn post(&self, url: &Url, body: Value) -> std::result::Result<(), String> {
        let sent = self.client.post(url.clone()).body(body.to_string()).send().await;
        match sent {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(format!("the collector answered {}", answer.status())),
            Err(error) => Err(reason(&error)),
        }
    }
}

/// The innermost cause: the outer ones say no more than that a request failed.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
