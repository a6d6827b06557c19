//! Spans and metrics of sessions, for a collector that speaks OTLP.

mod exporter;
mod metrics;
mod otlp;
mod spans;

use agent_base::error::{Error, Result};
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use agent_event::{Changes, Listener, Record};
use exporter::Exporter;
use jiff::Timestamp;
use otlp::{Attribute, Span, SpanKind, text};
use spans::{SessionSpans, SpanContext};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Sessions whose last prompt is remembered, for what happens after it.
const MAX_SESSIONS: usize = 256;

/// The target of spans and metrics, and what is sent there.
#[derive(Clone)]
pub struct Settings {
    /// The address of the collector, to which `/v1/traces` and `/v1/metrics` are added.
    pub otlp: String,
    /// Headers of each request.
    pub headers: BTreeMap<String, String>,
    /// Set if prompts, answers, arguments and results are sent too.
    pub content: bool,
}

/// The collector of the spans and metrics of all sessions of this process.
pub struct Telemetry {
    exporter: Exporter,
    content: bool,
    /// The last prompt of each session that is open.
    places: Lock<BTreeMap<String, SpanContext>>,
}

impl Telemetry {
    /// Collects for the collector of the settings.
    ///
    /// # Errors
    /// The address or a header is not one.
    pub fn new(settings: Settings) -> Result<Self> {
        let Settings { otlp, headers, content } = settings;
        let address =
            Url::parse(&otlp).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let address = address.ok_or_else(|| {
            Error::config("[telemetry] otlp is not an http or https address")
                .hint("for example http://127.0.0.1:4318")
        })?;
        Ok(Self { exporter: Exporter::new(&address, &headers)?, content, places: Lock::default() })
    }

    /// The one that was kept with `machine`.
    pub fn of(machine: &Machine) -> Option<Arc<Self>> {
        machine.kept::<Arc<Self>>().map(|kept| Arc::clone(&*kept))
    }

    /// A listener for the events of one session.
    pub fn listener(self: &Arc<Self>) -> Box<dyn Listener> {
        let (telemetry, mut spans) = (Arc::clone(self), SessionSpans::new(self.content));
        Box::new(move |record: &Record, _: &[u8]| {
            let made = spans.take(record);
            telemetry.remember(&record.session, spans.place());
            telemetry.exporter.add(made);
            Ok(())
        })
    }

    fn remember(&self, session: &str, place: Option<SpanContext>) {
        let mut places = self.places.lock();
        match place {
            Some(place) if places.len() < MAX_SESSIONS || places.contains_key(session) => {
                places.insert(session.to_owned(), place);
            }
            Some(_) => {}
            None => drop(places.remove(session)),
        }
    }

    /// Records that a session's change was written into the user's files between two times, or `None`: it could not be.
    pub fn applied(&self, session: &str, started: Timestamp, changes: Option<Changes>) {
        let place = self.places.lock().get(session).copied();
        let mut attributes: Vec<Attribute> = vec![text("gen_ai.conversation.id", session)];
        if let Some(Changes { added, modified, deleted }) = changes {
            let counts = [("added", added), ("modified", modified), ("deleted", deleted)];
            attributes.extend(
                counts.map(|(name, count)| otlp::number(&format!("agent.files.{name}"), i128::from(count))),
            );
        }
        let error = changes.is_none().then_some("conflict");
        let span =
            Span::new("apply", SpanKind::Internal, place, started).ended(Timestamp::now(), attributes, error);
        self.exporter.add(spans::Made { spans: vec![span], ..Default::default() });
    }

    /// Sends what is waiting, for at most this long. The reason why nothing could be sent, if that is so.
    pub fn flush(&self, limit: Duration) -> Option<String> {
        self.exporter.flush(limit)
    }
}
