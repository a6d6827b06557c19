//! The frontend of a session of the page: its events, its questions and its progress go to the tabs.

use super::feed::Feed;
use super::frame;
use super::questions::Questions;
use agent_base::count_text::counted;
use agent_base::lock::Lock;
use agent_event::{Event, Events, Listener, Record, Usage};
use agent_policy::Approver;
use agent_session::{Frontend, Step};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two reports of how far a step is.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// The parts of its server that a session of the page needs.
pub struct PageFrontend {
    pub(super) events: Arc<Events>,
    pub(super) questions: Arc<Questions>,
    pub(super) feed: Arc<Feed>,
    shown: Lock<Instant>,
}

impl PageFrontend {
    /// A frontend with a feed and questions of its own; `may_widen_network` says whether its user may answer those about
    /// hosts.
    pub fn new(may_widen_network: bool) -> Arc<Self> {
        let events = Arc::new(Events::new(1));
        let feed = Feed::listen(&events);
        let questions = Arc::new(Questions::new(may_widen_network));
        Arc::new(Self { events, questions, feed, shown: Lock::new(Instant::now()) })
    }
}

impl Frontend for PageFrontend {
    fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn approver(&self) -> Option<Arc<dyn Approver>> {
        Some(Arc::clone(&self.questions) as _)
    }

    fn asks_about_network(&self) -> bool {
        self.questions.may_widen_network()
    }

    fn listeners_of_delegate(&self, number: u64) -> Vec<Box<dyn Listener>> {
        let feed = Arc::clone(&self.feed);
        let (mut turns, mut used) = (0_u64, Usage::default());
        let listener = move |record: &Record, _: &[u8]| {
            let does = match &record.event {
                Event::AssistantMessage { usage, .. } => {
                    turns += 1;
                    used.add(usage.unwrap_or_default());
                    "answers".to_owned()
                }
                Event::ToolStarted { name, arguments, .. } => {
                    format!("{} {}", frame::visible(name), frame::short(arguments))
                }
                Event::SessionFinished { status, .. } => status.clone(),
                _ => return Ok(()),
            };
            let tokens = used.input + used.output;
            let text = format!("Part {number}: {}, {tokens} tokens · {does}", counted(turns, "turn"));
            feed.send("part", &json!({"number": number, "text": text}));
            Ok(())
        };
        vec![Box::new(listener)]
    }

    fn progress(&self, step: Step<'_>) {
        let mut shown = self.shown.lock();
        if shown.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        *shown = Instant::now();
        let (text, done, total) = match step {
            Step::Pull(what, done, total) => (format!("pulling {}", frame::visible(what)), done, total),
            Step::Copy(done, total) => ("copying the workspace".to_owned(), done, total),
            Step::Setup(command) => (format!("setting up: {}", frame::visible(command)), 0, 0),
            Step::Check(command) => (format!("checking: {}", frame::visible(command)), 0, 0),
        };
        self.feed.send("progress", &json!({"text": text, "done": done, "total": total}));
    }
}
