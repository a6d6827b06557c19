//! Keeps the conversation within the model's context window.
//!
//! Old tool outputs are shortened first. If that is not enough, the model summarises the older turns; the user's
//! prompts, the list of changed files, the last failure and the last turns are kept verbatim. The session file keeps
//! everything.

use super::{Conversation, Window};
use agent_base::error::Error;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_base::shorten::head_and_tail;
use agent_event::Event;
use agent_model::Message;
use agent_model::Messages;
use agent_model::Progress;
use agent_model::Reply;
use agent_model::Request;
use agent_model::results::call_of;
use agent_model::results::is_failure;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The fraction of the window above which the conversation is compacted; the rest is for the answer.
const NEARLY_FULL: f64 = 0.8;
/// The fraction of the window that a compaction aims at.
const TARGET: f64 = 0.5;
/// Characters of an old tool output that are kept, at its beginning and at its end.
const OLD_OUTPUT: usize = 400;
/// Messages at the end that are kept verbatim, if the window allows.
const KEPT_MESSAGES: usize = 12;
/// Characters of the transcript that the summarising request shows of one message.
const TRANSCRIPT_MESSAGE: usize = 2_000;
/// Dense code has so few characters a token.
const MIN_CHARS_PER_TOKEN: u64 = 3;
/// Characters of a prompt that are always kept.
const MIN_PROMPT: usize = 600;
/// Compactions of one request; each leaves at most half of what did not fit.
const MAX_COMPACTIONS: u32 = 3;

impl Conversation {
    /// Compacts if the next request would nearly fill the window.
    pub(super) async fn compact_if_needed(&mut self) -> Result<()> {
        if !self.window.enabled {
            return Ok(());
        }
        self.window.size = self.window.size.or_else(|| self.setup.model.context_window());
        let Some(size) = self.window.size else { return Ok(()) };
        match self.window.used(&self.messages) as f64 > size as f64 * NEARLY_FULL {
            true => self.compact_to((size as f64 * TARGET) as u64).await.map(drop),
            false => Ok(()),
        }
    }

    /// Asks the model, and compacts as often as the endpoint reports that the conversation does not fit.
    pub(super) async fn ask_within_window(&mut self) -> Result<Reply> {
        for _ in 0..MAX_COMPACTIONS {
            match self.ask().await {
                Err(error) if error.kind() == Kind::ContextOverflow => {
                    self.compact_after_overflow(error).await?
                }
                other => return other,
            }
        }
        self.ask().await
    }

    /// Compacts after the endpoint reported that the conversation does not fit, or reports why that cannot help.
    async fn compact_after_overflow(&mut self, error: Error) -> Result<()> {
        self.window.size = error.known_context_window().or(self.window.size);
        if let Some(tokens) = error.known_prompt_tokens() {
            self.window.count(tokens, &self.messages);
        }
        if !self.window.enabled {
            return Err(error.hint("compaction is disabled: set compaction = true in config.toml"));
        }
        if self.messages.len() <= 2 {
            return Err(error.hint(
                "this is the very first message: shorten the prompt or AGENTS.md, or use a model with a larger context window",
            ));
        }
        let now = self.window.recount(&self.messages);
        // Without a known window, half of what did not fit is the best guess.
        let size = self.window.size.map_or(now, |size| size.min(now));
        self.compact_to((size as f64 * TARGET) as u64).await.map(drop)
    }

    /// Compacts unconditionally: `/compact`. `false` if that would not make the conversation shorter.
    pub async fn compact(&mut self) -> Result<bool> {
        let now = self.window.recount(&self.messages);
        self.compact_to(now / 4).await
    }

    async fn compact_to(&mut self, target: u64) -> Result<bool> {
        let before = self.window.recount(&self.messages);
        let original = self.messages.clone();
        let tail = tail_start(&self.messages, target, &self.window);
        self.messages.edit(|messages| shorten_outputs(&mut messages[..tail]));
        if self.window.recount(&self.messages) > target && tail > 2 {
            let summary = self.summarise(tail).await.inspect_err(|_| self.messages.clone_from(&original))?;
            self.messages = rebuilt(&self.messages, tail, &summary).into();
        }
        // In a small window the last outputs alone can be too much.
        if self.window.recount(&self.messages) > target.saturating_mul(2) {
            self.messages.edit(|messages| shorten_outputs(&mut messages[1..]));
        }
        if self.window.recount(&self.messages) > target {
            let window = self.window;
            self.messages.edit(|messages| shorten_prompts(&mut messages[1..], target, &window));
        }
        let after = self.window.recount(&self.messages);
        if after >= before {
            self.messages = original;
            self.window.recount(&self.messages);
            return Ok(false);
        }
        let messages = serde_json::to_value(&self.messages[..])?;
        self.cache.restart();
        self.emit(Event::Compacted { before, after, messages }).map(|()| true)
    }

    /// The model's summary of everything before `tail`. If it fails or is cut off, a plain list of the calls replaces it.
    async fn summarise(&mut self, tail: usize) -> Result<String> {
        let messages = Messages::from(vec![
            Message::System { text: agent_prompts::COMPACT.trim().to_owned() },
            Message::User { text: transcript(&self.messages[1..tail], self.window.size) },
        ]);
        let request = Request::plain(&messages);
        let mut ignore = |_: Progress<'_>| {};
        let reply = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            reply = self.setup.model.ask(request, &mut ignore) => reply,
        };
        let summary = match reply {
            Ok(reply) => {
                self.setup.shared.prompt.add(reply.usage, self.setup.price);
                self.total.add_usage(reply.usage, self.setup.price);
                reply
            }
            Err(error) if matches!(error.kind(), Kind::Config) => return Err(error),
            Err(_) => return Ok(calls_made(&self.messages[1..tail])),
        };
        Ok(match (summary.text.trim(), summary.is_cut_off()) {
            ("", _) => calls_made(&self.messages[1..tail]),
            (text, false) => text.to_owned(),
            // The end, which describes the latest work, is missing.
            (text, true) => {
                format!("{text} [cut off here]\n\n{}", calls_made(&self.messages[1..tail]))
            }
        })
    }
}

/// The index of the first message that is kept verbatim: never between a call and its results.
fn tail_start(messages: &[Message], target: u64, window: &Window) -> usize {
    let mut start = messages.len();
    let mut tokens = 0;
    for (at, message) in messages.iter().enumerate().skip(1).rev() {
        tokens += window.estimate([message]);
        if messages.len() - at > KEPT_MESSAGES || (tokens > target && start < messages.len()) {
            break;
        }
        if !matches!(message, Message::Tool { .. }) {
            start = at;
        }
    }
    start
}

fn shorten_outputs(messages: &mut [Message]) {
    for message in messages {
        let Message::Tool { text, .. } = message else { continue };
        if text.chars().count() > OLD_OUTPUT * 3 {
            *text = head_and_tail(text, OLD_OUTPUT * 2).into_owned();
        }
    }
}

/// Prompts that fill the window by themselves keep their beginning and end: together about `target` tokens, beside the rest.
fn shorten_prompts(messages: &mut [Message], target: u64, window: &Window) {
    let is_prompt = |message: &&Message| matches!(message, Message::User { .. });
    let others = window.estimate(messages.iter().filter(|message| !is_prompt(message)));
    let prompts = messages.iter().filter(is_prompt).count().max(1) as u64;
    let budget = window.chars(target.saturating_sub(others).max(target / 4)) / prompts;
    let kept = (budget as usize).max(MIN_PROMPT);
    for message in messages {
        let Message::User { text } = message else { continue };
        if text.chars().count() > kept + kept / 4 {
            *text = head_and_tail(text, kept).into_owned();
        }
    }
}

/// The conversation with everything before `tail` replaced by one message: prompts, summary, changed files, last failure.
fn rebuilt(messages: &[Message], tail: usize, summary: &str) -> Vec<Message> {
    let old = &messages[1..tail];
    let mut text = String::new();
    for message in old {
        if let Message::User { text: prompt } = message {
            let _ = writeln!(text, "{}\n", prompt.trim());
        }
    }
    let _ = write!(text, "{SUMMARY_MARK}\n{}\n", summary.trim());
    let files = changed_files(old);
    if !files.is_empty() {
        let _ =
            write!(text, "\n[files written so far]\n{}\n", files.into_iter().collect::<Vec<_>>().join("\n"));
    }
    if let Some(failure) = last_failure(old) {
        let _ = write!(text, "\n[the last failure before this point]\n{failure}\n");
    }
    let mut rest = &messages[tail..];
    // User and assistant alternate: a prompt that follows becomes the end of this message.
    if let [Message::User { text: prompt }, others @ ..] = rest {
        let _ = write!(text, "\n{}", prompt.trim());
        rest = others;
    }
    let mut rebuilt = vec![messages[0].clone(), Message::User { text }];
    rebuilt.extend_from_slice(rest);
    rebuilt
}

/// Precedes a summary in the message that carries it.
const SUMMARY_MARK: &str = "[summary of the work since then, made because the conversation grew too long]";

/// The files that the model's own calls wrote.
fn changed_files(messages: &[Message]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for call in calls(messages) {
        let Some(arguments) = call.arguments.json() else { continue };
        match call.name.as_str() {
            "write_file" | "edit_file" => files.extend(arguments["path"].as_str().map(str::to_owned)),
            "write_files" => {
                let listed = arguments["files"].as_array().into_iter().flatten();
                files.extend(listed.filter_map(|file| file["path"].as_str().map(str::to_owned)));
            }
            _ => {}
        }
    }
    files
}

/// The last tool output that reports a failure.
fn last_failure(messages: &[Message]) -> Option<String> {
    messages.iter().rev().find_map(|message| match message {
        Message::Tool { id, name, text } if is_failure(call_of(messages, id), text) => {
            Some(format!("{name}: {}", text.chars().take(TRANSCRIPT_MESSAGE).collect::<String>()))
        }
        _ => None,
    })
}

fn calls(messages: &[Message]) -> impl Iterator<Item = &agent_event::ToolCall> {
    messages.iter().flat_map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    })
}

fn calls_made(messages: &[Message]) -> String {
    let line = |call: &agent_event::ToolCall| {
        format!("- {} {}", call.name, call.arguments.chars().take(200).collect::<String>())
    };
    format!("The calls made so far:\n{}", calls(messages).map(line).collect::<Vec<_>>().join("\n"))
}

/// The messages as the summarising request shows them: at most half of the window.
fn transcript(messages: &[Message], window: Option<u64>) -> String {
    let room = window.map_or(usize::MAX, |tokens| (tokens * MIN_CHARS_PER_TOKEN) as usize / 2);
    let most = (room / messages.len().max(1)).min(TRANSCRIPT_MESSAGE);
    let cut = |text: &str| head_and_tail(text, most).into_owned();
    let mut transcript = String::new();
    for message in messages {
        let _ = match message {
            Message::System { .. } => Ok(()),
            Message::User { text } => writeln!(transcript, "## user\n{}\n", cut(text)),
            Message::Assistant { text, tool_calls, .. } => {
                let calls: String = tool_calls
                    .iter()
                    .map(|call| format!("\ncall {}: {}", call.name, cut(&call.arguments)))
                    .collect();
                writeln!(transcript, "## agent\n{}{calls}\n", cut(text))
            }
            Message::Tool { name, text, .. } => writeln!(transcript, "## result of {name}\n{}\n", cut(text)),
        };
    }
    head_and_tail(&transcript, room).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_event::ToolCall;

    fn conversation(rounds: usize) -> Vec<Message> {
        let mut messages =
            vec![Message::System { text: "system".into() }, Message::User { text: "the task".into() }];
        for round in 0..rounds {
            let id = format!("call-{round}");
            let arguments = format!("{{\"path\":\"f{round}\",\"data\":\"\"}}");
            let call = ToolCall { id: id.clone(), name: "write_file".into(), arguments: arguments.into() };
            messages.push(Message::Assistant {
                text: String::new(),
                reasoning: None,
                tool_calls: vec![call],
                opaque: Default::default(),
            });
            messages.push(Message::Tool { id, name: "write_file".into(), text: "x".repeat(4000) });
        }
        messages
    }

    #[test]
    fn the_tail_never_begins_with_a_tool_result() {
        let messages = conversation(20);
        for target in [0, 100, 1_000, 5_000, 1_000_000] {
            let start = tail_start(&messages, target, &Window::default());
            assert!(start > 1 && !matches!(messages[start], Message::Tool { .. }), "{target}: {start}");
        }
    }

    #[test]
    fn task_and_changed_files_are_kept_verbatim() {
        let messages = conversation(20);
        let rebuilt = rebuilt(&messages, 30, "the summary");
        let Message::User { text } = &rebuilt[1] else { panic!("{:?}", rebuilt[1]) };
        assert!(text.starts_with("the task\n"), "{text}");
        assert!(text.contains("the summary") && text.contains("\nf0\n") && text.contains("\nf13"), "{text}");
        assert_eq!(rebuilt.len(), 2 + messages.len() - 30);
    }

    #[test]
    fn prompts_that_fill_the_window_keep_head_and_tail() {
        let long =
            |name: &str| Message::User { text: format!("{name} begins {} {name} ends", "x".repeat(40_000)) };
        let mut messages = vec![long("one"), long("two"), long("three")];
        let window = Window::default();
        shorten_prompts(&mut messages, 4_096, &window);
        assert!(window.estimate(&messages) < 4_200);
        let Message::User { text } = &messages[2] else { panic!() };
        assert!(text.starts_with("three begins") && text.ends_with("three ends"), "{text}");
        let shortened = messages.clone();
        shorten_prompts(&mut messages, 4_096, &window);
        assert_eq!(messages, shortened);
    }

    #[test]
    fn the_transcript_fits_into_half_of_the_window() {
        let messages = conversation(40);
        assert!(transcript(&messages, Some(4_096)).len() < 4_096 * 2);
        assert!(transcript(&messages, None).len() > 40_000);
    }

    #[test]
    fn old_outputs_keep_head_and_tail() {
        let mut messages = conversation(1);
        shorten_outputs(&mut messages);
        let Message::Tool { text, .. } = &messages[3] else { panic!() };
        assert!(text.contains("[3200 characters left out]"), "{text}");
    }
}
