//! Questions of a session as cards of the page. The first tab that answers decides.

use super::frame::visible;
use super::review::lines::{self, Beginning};
use agent_base::error::Result;
use agent_base::lock::Lock;
use agent_base::visible::visible_name;
use agent_core::Stop;
use agent_policy::policy::FileChange;
use agent_policy::{Answer, Approver, Question};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Questions that wait at the same time; further ones are answered with no.
const MAX_WAITING: usize = 16;
/// Lines of the changes of files that one question shows.
const MAX_LINES: usize = 1_000;

/// The questions of one session.
pub struct Questions {
    state: Lock<QuestionsState>,
    may_widen_network: bool,
}

#[derive(Default)]
struct QuestionsState {
    waiting: Vec<Waiting>,
    next: u64,
    on_change: Option<Arc<dyn Fn() + Send + Sync>>,
}

struct Waiting {
    number: u64,
    shown: Value,
    answers: &'static [Answer],
    about_host: bool,
    reply: oneshot::Sender<Answer>,
}

/// A number that no earlier process began to count at: pages show what they were sent before a restart.
pub fn first_number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(0)
}

impl Questions {
    /// None yet. Unless `may_widen_network`, those about hosts are answered with no: who answers does not own the network
    /// that the sandbox would reach.
    pub fn new(may_widen_network: bool) -> Self {
        let state = QuestionsState { next: first_number(), ..QuestionsState::default() };
        Self { state: Lock::new(state), may_widen_network }
    }

    /// Calls `on_change` when a question is asked or answered.
    pub fn watch(&self, on_change: Arc<dyn Fn() + Send + Sync>) {
        self.state.lock().on_change = Some(on_change);
    }

    /// Returns whether its user may answer those about hosts.
    pub fn may_widen_network(&self) -> bool {
        self.may_widen_network
    }

    /// Returns what the page shows.
    pub fn to_json(&self) -> Value {
        let state = self.state.lock();
        let card = |waiting: &Waiting| {
            let answers = waiting.answers.iter().map(|answer| {
                json!({
                    "value": name(answer),
                    "label": label(answer, waiting.about_host),
                })
            });
            let mut card = waiting.shown.clone();
            card["number"] = json!(waiting.number);
            card["answers"] = answers.collect();
            card
        };
        state.waiting.iter().map(card).collect()
    }

    /// Answers question `number` with the name of an answer, or in words. Whether it was still waiting, and has that answer.
    pub fn answer(&self, number: u64, answer: &str, said: &str) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.waiting.iter().position(|waiting| waiting.number == number) else {
            return false;
        };
        let chosen = match answer {
            "said" => Some(Answer::said(said)),
            name_of_it => state.waiting[at].answers.iter().find(|known| name(known) == name_of_it).cloned(),
        };
        let Some(answer) = chosen else { return false };
        let replied = state.waiting.remove(at).reply.send(answer).is_ok();
        drop(state);
        self.changed();
        replied
    }

    /// Ends every question without an answer: the turn is stopped.
    pub fn stop(&self) {
        self.state.lock().waiting.clear();
        self.changed();
    }

    fn changed(&self) {
        let on_change = self.state.lock().on_change.clone();
        if let Some(on_change) = on_change {
            on_change();
        }
    }

    async fn put(&self, question: &Question<'_>) -> Result<Answer> {
        let about_host = question.is_of_connection();
        if !self.may_widen_network && (about_host || matches!(question, Question::Reach { .. })) {
            return Ok(Answer::No);
        }
        let (reply, answer) = oneshot::channel();
        let shown = shown(question).await;
        let number = {
            let mut state = self.state.lock();
            if state.waiting.len() >= MAX_WAITING {
                return Ok(Answer::No);
            }
            let number = state.next;
            state.next += 1;
            state.waiting.push(Waiting { number, shown, answers: question.answers(), about_host, reply });
            number
        };
        self.changed();
        let _withdrawn = Withdraw(self, number);
        answer.await.map_err(|_| Stop::Interrupted.error())
    }
}

/// Removes a question that nobody waits for any more.
struct Withdraw<'a>(&'a Questions, u64);

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        let count = state.waiting.len();
        state.waiting.retain(|waiting| waiting.number != self.1);
        let is_changed = state.waiting.len() != count;
        drop(state);
        if is_changed {
            self.0.changed();
        }
    }
}

impl Approver for Questions {
    fn ask<'a>(&'a self, question: &'a Question<'a>) -> BoxFuture<'a, Result<Answer>> {
        self.put(question).boxed()
    }
}

/// Returns the content of a card: the question; of a call all that it would do, which is as long as a user may be asked
/// about at most, and the changes of files in the lines of the review.
async fn shown(question: &Question<'_>) -> Value {
    let Question::ToolCall(call) = question else { return json!({"text": visible(&question.to_string())}) };
    let changes = call.changes.clone();
    // Two large files take a while to compare.
    let diffs = tokio::task::spawn_blocking(move || {
        let mut room = MAX_LINES;
        changes.iter().map(|change| diff(change, &mut room)).collect::<Vec<_>>()
    });
    // Without them the card shows the whole call.
    let diffs = diffs.await.unwrap_or_default();
    json!({"text": visible(&call.terms()), "what": call.what, "diffs": diffs})
}

fn diff(change: &FileChange, room: &mut usize) -> Value {
    let before = change.before.as_deref().unwrap_or_default();
    let is_text = ![before, &change.after].iter().any(|side| side.contains(&0));
    let difference = is_text.then(|| lines::of_texts(&change.path, before, &change.after, *room));
    let Beginning { lines, left_out, added, removed } = difference.unwrap_or_default();
    *room -= lines.len();
    json!({
        "name": visible_name(change.path.as_bytes()),
        "is_new": change.before.is_none(),
        "is_text": is_text,
        "added": added,
        "removed": removed,
        "lines": lines.into_iter().map(Value::from).collect::<Vec<_>>(),
        "left_out": left_out,
    })
}

fn name(answer: &Answer) -> &'static str {
    match answer {
        Answer::Once => "once",
        Answer::Always => "always",
        Answer::Project => "project",
        Answer::No => "no",
        Answer::Never => "never",
        Answer::Said(_) => "said",
    }
}

fn label(answer: &Answer, about_host: bool) -> &'static str {
    match answer {
        Answer::Once => "Allow once",
        Answer::Always if about_host => "Allow for this session",
        Answer::Always => "Always allow",
        Answer::Project => "Allow for this project",
        Answer::No | Answer::Said(_) => "Refuse",
        Answer::Never => "Refuse for this session",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_answer_decides_and_a_stop_ends_the_question() {
        let questions = Arc::new(Questions::new(true));
        let ask = || {
            let questions = Arc::clone(&questions);
            tokio::spawn(async move {
                let reach = Question::Reach { purpose: "install\u{202e}", hosts: &["pypi.org"] };
                questions.ask(&reach).await
            })
        };
        let asked = ask();
        while questions.to_json() == json!([]) {
            tokio::task::yield_now().await;
        }
        assert!(questions.to_json()[0]["text"].as_str().is_some_and(|text| text.contains("\\u{202e}")));
        let number = questions.to_json()[0]["number"].as_u64().expect("a number");
        assert!(!questions.answer(number, "always", ""), "the question does not have this answer");
        assert!(questions.answer(number, "once", "") && !questions.answer(number, "no", ""));
        assert_eq!(asked.await.expect("no panic").expect("an answer"), Answer::Once);
        let asked = ask();
        while questions.to_json() == json!([]) {
            tokio::task::yield_now().await;
        }
        questions.stop();
        assert!(asked.await.expect("no panic").is_err());
    }

    /// A write was shown as the text of the file, an edit without what it replaces.
    #[test]
    fn the_change_of_a_file_is_shown_by_its_lines() {
        let mut room = 3;
        let change = FileChange {
            path: "a\u{202e}.py".to_owned(),
            before: Some(b"import os\nx = 1\n".to_vec()),
            after: b"import os\nx = 2\x1b[31m\n".to_vec(),
        };
        let shown = diff(&change, &mut room);
        assert_eq!(
            (shown["added"].as_u64(), shown["removed"].as_u64(), shown["left_out"].as_u64()),
            (Some(1), Some(1), Some(1))
        );
        let marks: Vec<_> =
            shown["lines"].as_array().expect("lines").iter().map(|line| line[0].clone()).collect();
        assert_eq!(marks, ["@", " ", "-"]);
        assert!(
            !shown.to_string().contains('\u{202e}') && shown["name"].to_string().contains("u{202e}"),
            "{shown}"
        );
        let binary = FileChange { after: vec![0, 1], ..change };
        assert_eq!((diff(&binary, &mut room)["is_text"].as_bool(), room), (Some(false), 0));
    }

    #[tokio::test]
    async fn who_does_not_own_the_network_is_not_asked_about_hosts() {
        let questions = Questions::new(false);
        let reach = Question::Reach { purpose: "install", hosts: &["pypi.org"] };
        assert_eq!(questions.ask(&reach).await.expect("an answer"), Answer::No);
        let connect = Question::Connect { host: "169.254.169.254", port: 80, remark: None };
        assert_eq!(questions.ask(&connect).await.expect("an answer"), Answer::No);
    }
}
