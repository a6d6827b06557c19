//! The client as a session's frontend: it is sent what happens, and asked.

use super::facts::ClientFacts;
use super::updates::Updates;
use super::updates::{fenced, text_content};
use crate::rpc::{Client, notification};
use agent_base::error::Result;
use agent_base::lock::{Lock, wait};
use agent_base::sanitise::one_line;
use agent_base::visible::visible;
use agent_core::Interrupt;
use agent_event::{Event, Events, Record};
use agent_log::SessionId;
use agent_policy::{Answer, Approver, Question};
use agent_session::Frontend;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, OnceLock};

/// Characters of a question's title.
const TITLE: usize = 300;

/// The frontend of one session.
pub struct Editor {
    /// The client.
    pub client: Arc<Client>,
    /// Its abilities.
    pub facts: ClientFacts,
    events: Arc<Events>,
    user: Arc<User>,
    gate: Arc<Gate>,
    last_limit: Arc<Lock<Option<String>>>,
}

/// Holds updates back until the client knows the session.
#[derive(Default)]
struct Gate {
    open: Lock<bool>,
    opened: Condvar,
}

impl Editor {
    /// For a session of which the client learns nothing before [`Editor::announce`].
    pub fn new(client: Arc<Client>, facts: ClientFacts, mut updates: Updates) -> Arc<Self> {
        let events = Arc::new(Events::new(1));
        let gate = Arc::new(Gate::default());
        let last_limit = Arc::new(Lock::default());
        let (held, to, limit) = (Arc::clone(&gate), Arc::clone(&client), Arc::clone(&last_limit));
        events.listen(Box::new(move |record: &Record, _: &[u8]| {
            held.pass();
            if let Event::LimitReached { limit: name } = &record.event {
                *limit.lock() = Some(name.clone());
            }
            for update in updates.of(&record.session, &record.event) {
                to.send_blocking(&notification("session/update", params(&record.session, update)));
            }
            Ok(())
        }));
        let user =
            User { client: Arc::clone(&client), facts, known: OnceLock::new(), asked: AtomicU64::new(0) };
        Arc::new(Self { client, facts, events, user: Arc::new(user), gate, last_limit })
    }

    /// Names the session, so that its user can be asked.
    pub fn known_as(&self, session: SessionId, interrupt: Interrupt) {
        // It is set once.
        let _ = self.user.known.set((session, interrupt));
    }

    /// Waits until the client was sent everything so far.
    pub async fn settle(&self) -> Result<()> {
        self.events.flush().await
    }

    /// The client knows the session now.
    pub fn announce(&self) {
        self.gate.open();
    }

    /// The limit that was reached last, once.
    pub fn take_limit(&self) -> Option<String> {
        self.last_limit.lock().take()
    }

    /// Sends an update that follows from no event, behind those of all events so far.
    pub async fn update(&self, session: &SessionId, update: Value) -> Result<()> {
        self.events.flush().await?;
        self.client.notify("session/update", params(session.as_str(), update)).await;
        Ok(())
    }

    /// Asks which of `options` (id, words, kind) the user wants for a call. `None`: none of them, or the turn was cancelled.
    pub async fn choose(
        &self,
        call: Value,
        options: &[(&'static str, &str, &str)],
    ) -> Result<Option<&'static str>> {
        self.events.flush().await?;
        self.user.choose(call, options).await
    }
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock();
        while !*open {
            open = wait(&self.opened, open);
        }
    }

    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}

impl Drop for Editor {
    /// A session that could not be opened has nobody to tell, and its listener is not to wait for ever.
    fn drop(&mut self) {
        self.gate.open();
    }
}

impl Frontend for Editor {
    fn events(&self) -> &Arc<Events> {
        &self.events
    }

    fn approver(&self) -> Option<Arc<dyn Approver>> {
        Some(Arc::clone(&self.user) as _)
    }

    fn network_command(&self) -> &'static str {
        "/network allow"
    }
}

fn params(session: &str, update: Value) -> Value {
    json!({ "sessionId": session, "update": update })
}

/// The user behind the client.
struct User {
    client: Arc<Client>,
    facts: ClientFacts,
    known: OnceLock<(SessionId, Interrupt)>,
    asked: AtomicU64,
}

impl User {
    async fn choose(
        &self,
        call: Value,
        options: &[(&'static str, &str, &str)],
    ) -> Result<Option<&'static str>> {
        let Some((session, _)) = self.known.get() else { return Ok(None) };
        let listed: Vec<Value> = options
            .iter()
            .map(|(id, name, kind)| json!({ "optionId": id, "name": name, "kind": kind }))
            .collect();
        let params = json!({ "sessionId": session, "toolCall": call, "options": listed });
        let outcome = self.request("session/request_permission", params).await?;
        let chosen = outcome.pointer("/outcome/optionId").and_then(Value::as_str);
        Ok(options.iter().map(|(id, ..)| *id).find(|id| Some(*id) == chosen))
    }

    /// The result of a request to the client, and nothing where it fails: a client that cannot ask is one that says no.
    async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let Some((_, interrupt)) = self.known.get() else { return Ok(Value::Null) };
        tokio::select! {
            biased;
            stop = interrupt.triggered() => Err(stop.error()),
            answer = self.client.request(method, params) => Ok(answer.unwrap_or_default()),
        }
    }

    /// A refusal in the user's words, which a form asks for.
    async fn words(&self) -> Result<Answer> {
        let Some((session, _)) = self.known.get() else { return Ok(Answer::No) };
        let words = json!({ "type": "string", "title": "What to do instead", "maxLength": 2000 });
        let params = json!({
            "sessionId": session, "mode": "form", "message": "It is refused. What should be done instead?",
            "requestedSchema": { "type": "object", "properties": { "words": words }, "required": ["words"] },
        });
        let answer = self.request("elicitation/create", params).await?;
        let said = answer.pointer("/content/words").and_then(Value::as_str);
        Ok(Answer::said(said.unwrap_or_default()))
    }

    async fn answer(&self, question: &Question<'_>) -> Result<Answer> {
        let (kind, options): (_, &[_]) = match question {
            Question::ToolCall(_) => ("execute", &[ONCE, ALWAYS, NO]),
            Question::Connect { .. } | Question::Credential { .. } | Question::Push { .. } => {
                ("fetch", &[ONCE, ALWAYS, NEVER])
            }
            Question::Reach { .. } => ("fetch", &[ONCE, NO]),
        };
        let options: Vec<_> = options.iter().copied().chain(self.facts.has_forms.then_some(SAID)).collect();
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let title = one_line(&question.to_string(), TITLE);
        let call = json!({
            "toolCallId": format!("question-{number}"), "title": title, "kind": kind, "status": "pending",
            "content": [text_content(&fenced(&whole(question)))],
        });
        Ok(match self.choose(call, &options).await? {
            Some("once") => Answer::Once,
            Some("always") => Answer::Always,
            Some("never") => Answer::Never,
            Some("said") => self.words().await?,
            _ => Answer::No,
        })
    }
}

/// All that a question is about: the title has only its beginning.
fn whole(question: &Question<'_>) -> String {
    match question {
        Question::ToolCall(question) if question.is_cut() => format!("{}\n\n{question}", question.what),
        other => visible(&other.to_string()),
    }
}

const ONCE: (&str, &str, &str) = ("once", "Allow", "allow_once");
const ALWAYS: (&str, &str, &str) = ("always", "Allow in this session", "allow_always");
const NO: (&str, &str, &str) = ("no", "Reject", "reject_once");
const SAID: (&str, &str, &str) = ("said", "Reject, and say what to do instead", "reject_once");
const NEVER: (&str, &str, &str) = ("never", "Reject in this session", "reject_always");

impl Approver for User {
    fn ask<'a>(&'a self, question: &'a Question<'a>) -> BoxFuture<'a, Result<Answer>> {
        self.answer(question).boxed()
    }
}
