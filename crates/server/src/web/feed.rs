//! The stream of one session to any number of tabs.
//!
//! A tab first gets what the session file holds after the last event that it knows, then what is under way, then what
//! happens. Each frame is made once and shared. A tab that does not read in time is disconnected: it comes back and
//! continues from the file.

use super::frame::{self, frame};
use super::markdown;
use super::questions::first_number;
use agent_base::lock::Lock;
use agent_event::{Event, Events, Record, Usage};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Frames that wait for one tab.
const MAX_WAITING: usize = 512;
/// Tabs on one session.
const MAX_TABS: usize = 256;
/// Bytes of an answer, of its reasoning and of the output of one call that a new tab is shown while they go on.
const MAX_PARTIAL: usize = 64 << 10;
/// Bytes of an incomplete block of code that is formatted anew with each line.
const MAX_FORMATTED: usize = 16 << 10;
/// Calls under way whose output a new tab is shown.
const MAX_CALLS: usize = 16;
/// Commands of the user's, with their output, that are kept.
const MAX_COMMANDS: usize = 32;

/// The stream of one session.
#[derive(Default)]
pub struct Feed {
    state: Lock<FeedState>,
    /// Tokens used so far. Apart, because what a new tab is shown is read while `state` is held.
    used: Lock<Usage>,
}

#[derive(Default)]
struct FeedState {
    /// The last event that was handed on.
    seq: u64,
    tabs: Vec<mpsc::Sender<Bytes>>,
    answer: OpenAnswer,
    reasoning: String,
    calls: VecDeque<(String, String)>,
    commands: VecDeque<CommandRun>,
    next_command: u64,
    is_closed: bool,
}

/// The answer under way.
#[derive(Default)]
struct OpenAnswer {
    /// The HTML of the blocks that are complete.
    html: String,
    /// The block that is not.
    rest: String,
}

/// A command of the user's in the sandbox.
struct CommandRun {
    number: u64,
    command: String,
    output: String,
    end: Option<String>,
}

/// The stream that a tab reads.
pub struct Subscription {
    /// The last event that is not among `live`.
    pub through: u64,
    /// The text that is under way.
    pub partial: Bytes,
    /// The frames from now on.
    pub live: mpsc::Receiver<Bytes>,
}

impl Feed {
    /// A feed that listens to `events`.
    pub fn listen(events: &Events) -> Arc<Self> {
        let state = FeedState { next_command: first_number(), ..FeedState::default() };
        let feed = Arc::new(Self { state: Lock::new(state), ..Self::default() });
        let listener = Arc::downgrade(&feed);
        events.listen(Box::new(move |record: &Record, _: &[u8]| {
            if let Some(feed) = listener.upgrade() {
                if let Event::AssistantMessage { usage: Some(usage), .. }
                | Event::DelegateFinished { usage, .. } = &record.event
                {
                    feed.used.lock().add(*usage);
                }
                feed.state.lock().on_record(record);
            }
            Ok(())
        }));
        feed
    }

    /// A new tab, which is shown `status` too; `None` where there are too many.
    pub fn subscribe(&self, status: impl FnOnce() -> Value) -> Option<Subscription> {
        let mut state = self.state.lock();
        state.tabs.retain(|tab| !tab.is_closed());
        if state.tabs.len() >= MAX_TABS || state.is_closed {
            return None;
        }
        let (sender, live) = mpsc::channel(MAX_WAITING);
        state.tabs.push(sender);
        Some(Subscription { through: state.seq, partial: state.partial(status()), live })
    }

    /// The number of the last event, for a session whose earlier events are in its file.
    pub fn begin(&self, seq: u64, used: Usage) {
        let mut state = self.state.lock();
        state.seq = state.seq.max(seq);
        *self.used.lock() = used;
    }

    /// Sends something that is not an event of the session.
    pub fn send(&self, name: &str, data: &Value) {
        let mut state = self.state.lock();
        state.send(&frame(None, name, data));
    }

    /// Tabs that are connected.
    pub fn tabs(&self) -> usize {
        self.state.lock().tabs.iter().filter(|tab| !tab.is_closed()).count()
    }

    /// Tokens used so far.
    pub fn used(&self) -> Usage {
        *self.used.lock()
    }

    /// Ends every tab's stream.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.tabs.clear();
    }

    /// A command of the user's starts; its number.
    pub fn command_started(&self, command: &str) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_command;
        state.next_command += 1;
        let command = frame::visible(command);
        state.send(&frame(None, "command", &json!({"number": number, "command": command})));
        if state.commands.len() == MAX_COMMANDS {
            state.commands.pop_front();
        }
        state.commands.push_back(CommandRun { number, command, output: String::new(), end: None });
        number
    }

    /// A piece of its output; `text` has to be safe to show.
    pub fn command_output(&self, number: u64, text: &str) {
        let mut state = self.state.lock();
        if let Some(run) = state.commands.iter_mut().find(|run| run.number == number) {
            append(&mut run.output, text);
        }
        state.send(&frame(None, "command_output", &json!({"number": number, "text": text})));
    }

    /// It ended, as `end` says.
    pub fn command_ended(&self, number: u64, end: &str) {
        let mut state = self.state.lock();
        if let Some(run) = state.commands.iter_mut().find(|run| run.number == number) {
            run.end = Some(end.to_owned());
        }
        state.send(&frame(None, "command_ended", &json!({"number": number, "end": end})));
    }
}

impl FeedState {
    fn on_record(&mut self, record: &Record) {
        self.seq = self.seq.max(record.seq);
        match &record.event {
            Event::TextDelta { text } => {
                if let Some(data) = self.answer.push(text) {
                    self.send(&frame(None, "answer", &data));
                }
            }
            Event::ReasoningDelta { text } => append(&mut self.reasoning, &frame::output(text)),
            Event::AssistantMessage { .. }
            | Event::AnswerStopped { .. }
            | Event::TurnStarted { .. }
            | Event::Retry { .. } => self.end_answer(),
            Event::ToolStarted { id, .. } => {
                if self.calls.len() == MAX_CALLS {
                    self.calls.pop_front();
                }
                self.calls.push_back((id.clone(), String::new()));
            }
            Event::ToolOutput { id, data, .. } => {
                if let Some((_, output)) = self.calls.iter_mut().find(|(call, _)| call == id) {
                    append(output, &frame::output(data));
                }
            }
            Event::ToolFinished { id, .. } => self.calls.retain(|(call, _)| call != id),
            _ => {}
        }
        if let Some(frame) = frame::of_record(record) {
            self.send(&frame);
        }
    }

    fn end_answer(&mut self) {
        (self.answer, self.reasoning) = (OpenAnswer::default(), String::new());
    }

    /// Hands `frame` to every tab; one that has not read for too long is disconnected.
    fn send(&mut self, frame: &Bytes) {
        self.tabs.retain(|tab| tab.try_send(frame.clone()).is_ok());
    }

    fn partial(&self, status: Value) -> Bytes {
        let run = |run: &CommandRun| json!({"number": run.number, "command": run.command, "output": run.output, "end": run.end});
        let data = json!({
            "status": status,
            "answer": {"html": self.answer.html, "rest": frame::output(&self.answer.rest)},
            "reasoning": self.reasoning,
            "calls": self.calls.iter().map(|(id, output)| json!({"id": id, "output": output})).collect::<Vec<_>>(),
            "commands": self.commands.iter().map(run).collect::<Vec<_>>(),
        });
        frame(None, "now", &data)
    }
}

impl OpenAnswer {
    /// Adds a piece; what the page adds to the complete blocks, and what it shows behind them.
    fn push(&mut self, piece: &str) -> Option<Value> {
        if self.html.len() + self.rest.len() > 8 * MAX_PARTIAL {
            // The whole answer arrives at its end.
            return None;
        }
        self.rest.push_str(piece);
        let complete = if piece.contains('\n') { markdown::last_block(&self.rest) } else { 0 };
        if complete == 0 {
            return Some(match self.code(piece) {
                Some(code) => json!({"html": "", "rest": frame::output(&self.rest), "code": code}),
                None => json!({"text": frame::output(piece)}),
            });
        }
        let rest = self.rest.split_off(complete);
        let html = markdown::to_html(&std::mem::replace(&mut self.rest, rest));
        self.html.push_str(&html);
        Some(json!({"html": html, "rest": frame::output(&self.rest), "code": self.code("\n")}))
    }

    /// The HTML of a block of code that is not complete yet, where `piece` ended a line of it.
    fn code(&self, piece: &str) -> Option<String> {
        let is_code = self.rest.starts_with("```") || self.rest.starts_with("~~~");
        let has_line = self.rest.contains('\n') && piece.contains('\n');
        // Without colours: it is read again with each line.
        (is_code && has_line && self.rest.len() < MAX_FORMATTED).then(|| markdown::to_plain_html(&self.rest))
    }
}

/// Adds `piece` to `text`, of which the end is kept.
fn append(text: &mut String, piece: &str) {
    text.push_str(piece);
    if text.len() > 2 * MAX_PARTIAL {
        let from = frame::boundary(text, text.len() - MAX_PARTIAL);
        text.drain(..from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_blocks_of_an_answer_are_formatted_as_it_arrives() {
        let mut answer = OpenAnswer::default();
        assert_eq!(answer.push("**one**"), Some(json!({"text": "**one**"})));
        assert_eq!(
            answer.push("\n\n- t"),
            Some(json!({"html": "<p><strong>one</strong></p>", "rest": "- t", "code": null}))
        );
        assert_eq!((answer.html.as_str(), answer.rest.as_str()), ("<p><strong>one</strong></p>", "- t"));
        let code = answer.push("\n\n```sh\nls <x>\n").expect("more");
        assert!(code["code"].as_str().is_some_and(|code| code.contains("ls &lt;x&gt;")), "{code}");
        assert_eq!(answer.push("echo").expect("more")["text"], "echo");
    }

    /// A bug: a tab that came in the middle of an answer was shown its last block as it stood.
    #[test]
    fn what_a_new_tab_is_shown_of_an_answer_is_safe() {
        let feed = Feed::default();
        let event = Event::TextDelta { text: "a\u{202e}b\u{1b}[31mc".to_owned() };
        let record = Record { seq: 1, time: String::new(), session: String::new(), event };
        feed.state.lock().on_record(&record);
        let shown = feed.subscribe(|| json!(null)).expect("a tab").partial;
        let shown = String::from_utf8(shown.to_vec()).expect("text");
        assert!(shown.contains("\"rest\":\"a"), "{shown}");
        assert!(!shown.contains(['\u{202e}', '\u{1b}']) && !shown.contains("u001b"), "{shown}");
    }

    #[tokio::test]
    async fn a_tab_that_does_not_read_is_disconnected_and_the_others_are_not() {
        let feed = Feed::default();
        let mut slow = feed.subscribe(|| json!(null)).expect("a tab").live;
        let mut quick = feed.subscribe(|| json!(null)).expect("a tab").live;
        for number in 0..2 * MAX_WAITING {
            feed.send("x", &json!(number));
            assert!(quick.recv().await.is_some());
        }
        assert_eq!(feed.tabs(), 1);
        for _ in 0..MAX_WAITING {
            assert!(slow.recv().await.is_some());
        }
        assert!(slow.recv().await.is_none());
    }

    #[test]
    fn what_is_kept_for_new_tabs_is_bounded() {
        let feed = Feed::default();
        for _ in 0..2 * MAX_COMMANDS {
            let number = feed.command_started("yes");
            for _ in 0..10 {
                feed.command_output(number, &"y\n".repeat(MAX_PARTIAL / 4));
            }
        }
        let state = feed.state.lock();
        assert_eq!(state.commands.len(), MAX_COMMANDS);
        assert!(state.commands.iter().all(|run| run.output.len() <= 2 * MAX_PARTIAL));
        drop(state);
        let feed = Feed::default();
        let tabs: Vec<_> = std::iter::from_fn(|| feed.subscribe(|| json!(null))).collect();
        assert_eq!(tabs.len(), MAX_TABS);
    }
}
