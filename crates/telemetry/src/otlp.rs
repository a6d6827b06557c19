//! Spans and metrics in the JSON of OTLP 1.x: identifiers in hexadecimal, 64-bit numbers as strings.

use crate::metrics::{Histogram, Metrics};
use crate::spans::SpanContext;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A name and a value in OTLP's form.
pub type Attribute = Value;

pub fn text(name: &str, value: impl AsRef<str>) -> Attribute {
    json!({ "key": name, "value": { "stringValue": value.as_ref() } })
}

pub fn texts(name: &str, values: &[&str]) -> Attribute {
    let values: Vec<Value> = values.iter().map(|value| json!({ "stringValue": value })).collect();
    json!({ "key": name, "value": { "arrayValue": { "values": values } } })
}

pub fn number(name: &str, value: impl Into<i128>) -> Attribute {
    json!({ "key": name, "value": { "intValue": value.into().to_string() } })
}

/// The side of a call that a span is.
#[derive(Debug, Clone, Copy)]
pub enum SpanKind {
    Internal = 1,
    /// A request to a server.
    Client = 3,
}

/// A span that has begun, or ended.
#[derive(Debug, Clone)]
pub struct Span {
    pub place: SpanContext,
    parent: Option<u64>,
    name: String,
    kind: SpanKind,
    pub started: Timestamp,
    pub attributes: Vec<Attribute>,
    ended: Timestamp,
    error: bool,
}

impl Span {
    /// One that begins inside of another, or a trace of its own.
    pub fn new(name: &str, kind: SpanKind, parent: Option<SpanContext>, started: Timestamp) -> Self {
        let trace = parent.map_or_else(|| fastrand::u128(1..), |place| place.trace);
        let place = SpanContext { trace, span: fastrand::u64(1..) };
        Self {
            place,
            parent: parent.map(|place| place.span),
            name: name.to_owned(),
            kind,
            started,
            attributes: Vec::new(),
            ended: started,
            error: false,
        }
    }

    /// The same, ended with further attributes; `error` is a word for what went wrong.
    pub fn ended(mut self, ended: Timestamp, attributes: Vec<Attribute>, error: Option<&str>) -> Self {
        self.attributes.extend(attributes);
        self.attributes.extend(error.map(|error| text("error.type", error)));
        self.error = error.is_some();
        // A clock may have been set back meanwhile.
        self.ended = ended.max(self.started);
        self
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "traceId": format!("{:032x}", self.place.trace),
            "spanId": format!("{:016x}", self.place.span),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": nanoseconds(self.started),
            "endTimeUnixNano": nanoseconds(self.ended),
            "attributes": self.attributes,
        });
        if let Some(parent) = self.parent {
            json["parentSpanId"] = format!("{parent:016x}").into();
        }
        if self.error {
            json["status"] = json!({ "code": 2 });
        }
        json
    }
}

fn nanoseconds(time: Timestamp) -> String {
    time.as_nanosecond().max(0).to_string()
}

/// The body of a request to `/v1/traces`.
pub fn traces(resource: &[Attribute], spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(Span::json).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope(), "spans": spans }],
    }] })
}

/// The body of a request to `/v1/metrics`: what was added between two times.
pub fn metrics(resource: &[Attribute], metrics: &Metrics, from: Timestamp, to: Timestamp) -> Value {
    let times = (nanoseconds(from), nanoseconds(to));
    let mut all = Vec::new();
    for (name, unit, histograms) in metrics.histograms() {
        let points: Vec<Value> =
            histograms.iter().map(|(of, histogram)| point(of, histogram, &times)).collect();
        if !points.is_empty() {
            let data = json!({ "aggregationTemporality": DELTA, "dataPoints": points });
            all.push(json!({ "name": name, "unit": unit, "histogram": data }));
        }
    }
    let costs: Vec<Value> = metrics
        .costs()
        .iter()
        .map(|(of, cost)| {
            json!({ "attributes": of.attributes(), "startTimeUnixNano": times.0, "timeUnixNano": times.1, "asDouble": cost })
        })
        .collect();
    if !costs.is_empty() {
        let data = json!({ "aggregationTemporality": DELTA, "isMonotonic": true, "dataPoints": costs });
        all.push(json!({ "name": "agent.cost", "unit": "{currency}", "sum": data }));
    }
    json!({ "resourceMetrics": [{
        "resource": { "attributes": resource },
        "scopeMetrics": [{ "scope": scope(), "metrics": all }],
    }] })
}

/// Each request has what was added since the one before.
const DELTA: u8 = 1;

fn point(of: &crate::metrics::Of, histogram: &Histogram, times: &(String, String)) -> Value {
    let counts: Vec<String> = histogram.counts.iter().map(u64::to_string).collect();
    json!({
        "attributes": of.attributes(),
        "startTimeUnixNano": times.0,
        "timeUnixNano": times.1,
        "count": histogram.counts.iter().sum::<u64>().to_string(),
        "sum": histogram.sum,
        "explicitBounds": histogram.bounds,
        "bucketCounts": counts,
    })
}

fn scope() -> Value {
    json!({ "name": "agent", "version": env!("CARGO_PKG_VERSION") })
}
