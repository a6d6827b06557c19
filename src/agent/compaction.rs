//! Keeps the conversation within the model's context window.
//!
//! Old tool outputs are shortened first. If that is not enough, the model summarises the older turns; the user's
//! prompts, the list of changed files, the last failure and the last turns are kept verbatim. The session file keeps
//! everything.

use super::Conversation;
use crate::error::{Error, Kind, Result};
use crate::event::{Event, Usage};
use crate::model::{Message, Progress, Request};
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
/// Characters of a prompt that are always kept.
const MIN_PROMPT: usize = 600;
/// A rough average over code and English, for what was added since the endpoint's last exact count.
const CHARS_PER_TOKEN: u64 = 4;

/// The context window, and how full it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Window {
    /// Tokens that fit, where that is known.
    pub size: Option<u64>,
    /// Whether anything is compacted at all.
    pub enabled: bool,
    /// Tokens that the endpoint counted for the first `counted` messages.
    tokens: u64,
    counted: usize,
}

impl Window {
    /// A window of `size` tokens.
    pub fn new(size: Option<u64>, enabled: bool) -> Self {
        Self { size, enabled, ..Self::default() }
    }

    /// Records the endpoint's exact count for the first `messages` messages.
    pub fn count(&mut self, usage: Option<Usage>, messages: usize) {
        if let Some(usage) = usage.filter(|usage| usage.input > 0) {
            (self.tokens, self.counted) = (usage.input, messages);
        }
    }

    /// Tokens of the conversation: what was counted, and an estimate of what was added since.
    fn estimate(&self, messages: &[Message]) -> u64 {
        let fresh = messages.get(self.counted..).unwrap_or_default();
        self.tokens + fresh.iter().map(estimate).sum::<u64>()
    }

    fn recount(&mut self, messages: &[Message]) -> u64 {
        (self.tokens, self.counted) = (0, 0);
        self.estimate(messages)
    }
}

impl Conversation {
    /// Compacts if the next request would nearly fill the window.
    pub(super) async fn compact_if_needed(&mut self) -> Result<()> {
        if !self.window.enabled {
            return Ok(());
        }
        if self.window.size.is_none() {
            self.window.size = self.setup.model.context_window().await;
        }
        let Some(size) = self.window.size else { return Ok(()) };
        match self.window.estimate(&self.messages) as f64 > size as f64 * NEARLY_FULL {
            true => self.compact_to((size as f64 * TARGET) as u64).await.map(drop),
            false => Ok(()),
        }
    }

    /// Compacts after the endpoint reported that the conversation does not fit, or reports why that cannot help.
    pub(super) async fn compact_after_overflow(&mut self, error: Error) -> Result<()> {
        if let Some(size) = error.known_context_window() {
            self.window.size = Some(size);
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
        let tail = tail_start(&self.messages, target);
        shorten_outputs(&mut self.messages[..tail]);
        if self.window.recount(&self.messages) > target && tail > 2 {
            let summary = self.summarise(tail).await.inspect_err(|_| self.messages.clone_from(&original))?;
            self.messages = rebuilt(&self.messages, tail, &summary);
        }
        // In a small window the last outputs alone can be too much.
        if self.window.recount(&self.messages) > target.saturating_mul(2) {
            let end = self.messages.len();
            shorten_outputs(&mut self.messages[1..end]);
        }
        if self.window.recount(&self.messages) > target {
            shorten_prompts(&mut self.messages[1..], target);
        }
        let after = self.window.recount(&self.messages);
        if after >= before {
            self.messages = original;
            self.window.recount(&self.messages);
            return Ok(false);
        }
        let messages = serde_json::to_value(&self.messages)?;
        self.emit(Event::Compacted { before, after, messages }).map(|()| true)
    }

    /// The model's summary of everything before `tail`. If it fails or is cut off, a plain list of the calls replaces it.
    async fn summarise(&mut self, tail: usize) -> Result<String> {
        let messages = [
            Message::System { text: include_str!("../../prompts/compact.md").trim().to_owned() },
            Message::User { text: transcript(&self.messages[1..tail]) },
        ];
        let request = Request { messages: &messages, tools: &[], answer_schema: None };
        let mut ignore = |_: Progress<'_>| {};
        let reply = tokio::select! {
            biased;
            stop = self.interrupt.triggered() => return Err(stop.error()),
            reply = self.setup.model.ask(request, &mut ignore) => reply,
        };
        let summary = match reply {
            Ok(reply) => {
                self.spent.add_usage(reply.usage, self.setup.price);
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
fn tail_start(messages: &[Message], target: u64) -> usize {
    let mut start = messages.len();
    let mut tokens = 0;
    for (at, message) in messages.iter().enumerate().skip(1).rev() {
        tokens += estimate(message);
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
        let length = text.chars().count();
        if length > OLD_OUTPUT * 3 {
            let head: String = text.chars().take(OLD_OUTPUT).collect();
            let tail: String = text.chars().skip(length - OLD_OUTPUT).collect();
            *text = format!(
                "{head}\n[{} characters of this old output omitted]\n{tail}",
                length - 2 * OLD_OUTPUT
            );
        }
    }
}

/// Prompts that fill the window by themselves keep their beginning and end: together about `target` tokens, beside the rest.
fn shorten_prompts(messages: &mut [Message], target: u64) {
    let is_prompt = |message: &&Message| matches!(message, Message::User { .. });
    let others: u64 = messages.iter().filter(|message| !is_prompt(message)).map(estimate).sum();
    let prompts = messages.iter().filter(is_prompt).count().max(1) as u64;
    let budget = target.saturating_sub(others).max(target / 4).saturating_mul(CHARS_PER_TOKEN) / prompts;
    let kept = (budget as usize).max(MIN_PROMPT);
    for message in messages {
        let Message::User { text } = message else { continue };
        let length = text.chars().count();
        if length > kept + kept / 4 {
            let head: String = text.chars().take(kept / 2).collect();
            let tail: String = text.chars().skip(length - kept / 2).collect();
            *text = format!("{head}\n[{} characters left out]\n{tail}", length - kept / 2 * 2);
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
    let failed = |text: &str| {
        text.starts_with("error:") || (text.starts_with("exit code ") && !text.starts_with("exit code 0"))
    };
    messages.iter().rev().find_map(|message| match message {
        Message::Tool { name, text, .. } if failed(text) => {
            Some(format!("{name}: {}", text.chars().take(TRANSCRIPT_MESSAGE).collect::<String>()))
        }
        _ => None,
    })
}

fn calls(messages: &[Message]) -> impl Iterator<Item = &crate::event::ToolCall> {
    messages.iter().flat_map(|message| match message {
        Message::Assistant { tool_calls, .. } => tool_calls.as_slice(),
        _ => &[],
    })
}

fn calls_made(messages: &[Message]) -> String {
    let line = |call: &crate::event::ToolCall| {
        format!("- {} {}", call.name, call.arguments.chars().take(200).collect::<String>())
    };
    format!("The calls made so far:\n{}", calls(messages).map(line).collect::<Vec<_>>().join("\n"))
}

fn transcript(messages: &[Message]) -> String {
    let cut = |text: &str| text.chars().take(TRANSCRIPT_MESSAGE).collect::<String>();
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
    transcript
}

/// A rough number of tokens.
fn estimate(message: &Message) -> u64 {
    let chars = match message {
        Message::System { text } | Message::User { text } | Message::Tool { text, .. } => text.len(),
        Message::Assistant { text, reasoning, tool_calls } => {
            let calls: usize = tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
            text.len() + reasoning.as_ref().map_or(0, String::len) + calls
        }
    };
    chars as u64 / CHARS_PER_TOKEN + 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ToolCall;

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
            });
            messages.push(Message::Tool { id, name: "write_file".into(), text: "x".repeat(4000) });
        }
        messages
    }

    #[test]
    fn the_tail_never_begins_with_a_tool_result() {
        let messages = conversation(20);
        for target in [0, 100, 1_000, 5_000, 1_000_000] {
            let start = tail_start(&messages, target);
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
        shorten_prompts(&mut messages, 4_096);
        assert!(messages.iter().map(estimate).sum::<u64>() < 4_200);
        let Message::User { text } = &messages[2] else { panic!() };
        assert!(text.starts_with("three begins") && text.ends_with("three ends"), "{text}");
        let shortened = messages.clone();
        shorten_prompts(&mut messages, 4_096);
        assert_eq!(messages, shortened);
    }

    #[test]
    fn old_outputs_keep_head_and_tail() {
        let mut messages = conversation(1);
        shorten_outputs(&mut messages);
        let Message::Tool { text, .. } = &messages[3] else { panic!() };
        assert!(text.contains("3200 characters of this old output omitted"), "{text}");
    }
}
