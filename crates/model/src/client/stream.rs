//! Puts the pieces of an answer together.

use crate::client::failure::{Failure, Reason};
use crate::client::halves::{self, Joiner};
use crate::client::ids::unique;
use crate::client::opaque::{REASONING_DETAILS, add_detail, merge, without_marks};
use crate::client::thinking::{Piece, Thinking, unopened};
use crate::client::wire::{Arguments, Choice, Chunk, Function, Said, WireCall};
use crate::compact::runaway;
use crate::tool_calls::holdback::{Holdback, MAX_LOOKAHEAD};
use crate::tool_calls::recover::{Recovered, recover, recover_from_reasoning};
use crate::tool_calls::repair::repair;
use crate::{Ending, Messages, OnProgress, Progress, Reply, ToolSpec};
use agent_base::count_text::counted;
use agent_event::{Opaque, ToolCall, Usage};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Tools that one message may ask for.
pub const MOST_CALLS: usize = 128;
/// Bytes of one call's arguments.
pub const LONGEST_ARGUMENTS: usize = 1 << 20;
/// Bytes of text and reasoning together.
pub const LONGEST_TEXT: usize = 4 << 20;
/// The notice's words about a recovered call.
pub const WRITTEN_AS_TEXT: &str = "written as text";
/// About how many a token has, where the server does not count.
const BYTES_PER_TOKEN: u64 = 4;
/// Bytes of text between two looks for repetition.
const LOOK_EVERY: usize = 256;
/// Bytes of an id or a name; no real one comes near.
const LONGEST_NAME: usize = 256;
/// Bytes of what goes back to the endpoint as it came.
const MOST_OPAQUE: usize = 4 << 20;

/// An answer that is still coming.
pub struct Assembly<'a> {
    /// The tools that a call written as text may name.
    tools: &'a [ToolSpec],
    reply: Reply,
    /// Bytes of the text that were shown; what may turn out to be a call is held back.
    shown: usize,
    holdback: Holdback,
    calls: Vec<Partial>,
    /// The old form of a call; counts where there is no other.
    old_call: Option<Partial>,
    refusal: String,
    thinking: Thinking,
    /// The choice that the text is from, and the one that the reasoning is from.
    text_of: Option<u64>,
    reasoning_of: Option<u64>,
    /// Further choices with a text: other answers, not parts of this one.
    others: BTreeSet<u64>,
    /// Halves of surrogate pairs at the end of the content, the reasoning and the refusal.
    halves: [Joiner; 3],
    /// Fields of the message that go back as they came, and OpenRouter's reasoning among them.
    opaque: Map<String, Value>,
    details: Vec<Value>,
    opaque_bytes: usize,
    has_marks: bool,
    /// Bytes of the text at which it is looked at for repetition next; `None` where the model may repeat itself.
    next_look: Option<usize>,
    is_stopped: bool,
}

#[derive(Default)]
struct Partial {
    /// The choice that it is part of.
    choice: u64,
    index: Option<u64>,
    /// The index under which its rest comes, where that is another one.
    rest_index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    half: Joiner,
    /// Fields that go back as they came.
    opaque: Map<String, Value>,
}

impl<'a> Assembly<'a> {
    /// Nothing has come yet.
    pub fn new(tools: &'a [ToolSpec]) -> Self {
        Self {
            tools,
            reply: Reply::default(),
            shown: 0,
            holdback: Holdback::default(),
            calls: Vec::new(),
            old_call: None,
            refusal: String::new(),
            thinking: Thinking::default(),
            text_of: None,
            reasoning_of: None,
            others: BTreeSet::new(),
            halves: Default::default(),
            opaque: Map::new(),
            details: Vec::new(),
            opaque_bytes: 0,
            has_marks: false,
            next_look: None,
            is_stopped: false,
        }
    }

    /// Stops an answer in which the model repeats itself, as if it were cut off.
    pub fn stopping_at_repetition(self) -> Self {
        Self { next_look: Some(LOOK_EVERY), ..self }
    }

    /// Takes in one piece and shows what it says.
    pub fn add(&mut self, chunk: Chunk, on_progress: OnProgress<'_>) -> Result<(), Failure> {
        if let Some(error) = chunk.reported_error() {
            return Err(Failure::from_error_object(&error));
        }
        if let Some(usage) = chunk.counted.or_else(|| chunk.usage.map(Usage::from)) {
            self.reply.usage = Some(usage);
        }
        self.has_marks |= chunk.has_marks;
        for (place, choice) in (0..).zip(chunk.choices) {
            self.choose(choice, place, chunk.has_marks, on_progress)?;
        }
        self.look_for_repetition();
        Ok(())
    }

    /// Takes in a piece of one choice.
    fn choose(
        &mut self,
        mut choice: Choice,
        place: u64,
        has_marks: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<(), Failure> {
        let number = choice.index.unwrap_or(place);
        // Of several ends the worst counts.
        let is_good = Ending::of(self.reply.finish_reason.as_deref().unwrap_or_default()) == Ending::Finished;
        if let Some(reason) = choice.end().filter(|_| is_good) {
            self.reply.finish_reason = Some(reason);
        }
        let nothing_yet = self.reply.text.is_empty() && self.calls.is_empty() && self.old_call.is_none();
        match choice.said(nothing_yet) {
            Some(said) => self.say(said, number, has_marks, on_progress),
            None => Ok(()),
        }
    }

    /// Returns whether the rest of the answer is not wanted.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn look_for_repetition(&mut self) {
        let length = self.reply.text.len();
        if self.next_look.is_none_or(|next| length < next) {
            return;
        }
        self.next_look = Some(length + LOOK_EVERY);
        if let Some(reason) = runaway::stop(&mut self.reply.text) {
            // The server's count would have come at the end.
            let output = length as u64 / BYTES_PER_TOKEN;
            self.reply.usage.get_or_insert(Usage { output, ..Usage::default() });
            self.reply.finish_reason = Some(reason.to_owned());
            (self.next_look, self.is_stopped) = (None, true);
        }
    }

    /// Returns whether the endpoint has said that the answer is complete.
    pub fn is_finished(&self) -> bool {
        self.reply.finish_reason.is_some()
    }

    /// The whole answer. `earlier` is the conversation so far.
    pub fn finish(mut self, earlier: &Messages, on_progress: OnProgress<'_>) -> Reply {
        let [content, reasoning, refusal] = self.halves.each_mut().map(Joiner::finish);
        self.add_reasoning(reasoning, on_progress);
        self.refusal.push_str(refusal);
        let mut rest = self.thinking.feed(content);
        rest.extend(self.thinking.finish());
        self.show(rest, on_progress);
        self.split_unopened();
        if self.calls.is_empty() {
            self.calls.extend(self.old_call.take());
        }
        let others = std::mem::take(&mut self.others);
        self.calls.retain(|call| {
            !others.contains(&call.choice) && (!call.name.is_empty() || !call.arguments.is_empty())
        });
        let recovered = if self.calls.is_empty() { self.recover(on_progress) } else { None };
        on_progress_text(self.reply.text.get(self.shown..), on_progress);
        let mut opaque = self.opaque_of_message();
        let mut reply = self.reply;
        if reply.text.trim().is_empty() && !self.refusal.is_empty() {
            on_progress_text(Some(&self.refusal), on_progress);
            reply.text = self.refusal;
        }
        let is_cut_off = reply.is_cut_off();
        let calls = self.calls.into_iter().map(Partial::finish);
        let recovered = recovered.into_iter().flatten().map(|call| (call, Map::new()));
        for (mut call, fields) in calls.chain(recovered) {
            call.id = unique(call.id, earlier, &reply.tool_calls);
            if !fields.is_empty() {
                opaque.calls.insert(call.id.clone(), fields);
            }
            if let Some(note) = repair(&mut call, self.tools, is_cut_off) {
                on_progress(Progress::Notice(&note));
            }
            reply.tool_calls.push(call);
        }
        reply.opaque = opaque;
        reply
    }

    /// The fields of the message that go back as they came. The client names the model.
    fn opaque_of_message(&mut self) -> Opaque {
        let mut message = std::mem::take(&mut self.opaque);
        if !self.details.is_empty() {
            message.insert(REASONING_DETAILS.to_owned(), std::mem::take(&mut self.details).into());
        }
        if self.has_marks {
            message.values_mut().for_each(without_marks);
        }
        Opaque { message, ..Opaque::default() }
    }

    /// Some templates open the reasoning in the prompt: the content then holds the closing tag alone.
    fn split_unopened(&mut self) {
        let Some((before, after, close)) = unopened(&self.reply.text) else { return };
        // In the value of a call it is a part of that.
        let is_readable = |recovered: &Recovered| {
            let mut calls = recovered.calls.iter();
            !recovered.calls.is_empty() && calls.all(|call| call.arguments.parse().is_ok())
        };
        let recovered = recover(&self.reply.text, self.tools, self.reply.is_cut_off()).filter(is_readable);
        if recovered.is_some_and(|recovered| !recovered.text.contains(close)) {
            return;
        }
        let (reasoning, answer) = (before.trim().to_owned(), after.trim_start().to_owned());
        self.shown = self.shown.saturating_sub(self.reply.text.len() - answer.len());
        self.reply.reasoning.get_or_insert_default().push_str(&reasoning);
        self.reply.text = answer;
    }

    /// Takes calls that were written as text out of the text, or out of the reasoning where there is no text.
    fn recover(&mut self, on_progress: OnProgress<'_>) -> Option<Vec<ToolCall>> {
        let is_cut_off = self.reply.is_cut_off();
        let from_reasoning = || {
            let reasoning = self.reply.reasoning.as_ref().filter(|_| self.reply.text.trim().is_empty())?;
            recover_from_reasoning(reasoning, self.tools, is_cut_off)
        };
        let calls = match recover(&self.reply.text, self.tools, is_cut_off) {
            Some(recovered) => {
                let unshown = recovered.text.strip_prefix(self.reply.text[..self.shown].trim());
                on_progress_text(unshown, on_progress);
                self.shown = recovered.text.len();
                self.reply.text = recovered.text;
                recovered.calls
            }
            None => {
                let recovered = from_reasoning()?;
                self.reply.reasoning = Some(recovered.text);
                recovered.calls
            }
        };
        if calls.is_empty() {
            return None;
        }
        let count = calls.len().min(MOST_CALLS);
        on_progress(Progress::Notice(&format!(
            "recovered {} {WRITTEN_AS_TEXT}",
            counted(count, "tool call")
        )));
        let calls = calls.into_iter().take(MOST_CALLS);
        let calls =
            calls.map(|call| ToolCall { id: String::new(), name: call.name, arguments: call.arguments });
        Some(calls.collect())
    }

    fn say(
        &mut self,
        mut said: Said,
        choice: u64,
        has_marks: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<(), Failure> {
        if is_from(&mut self.reasoning_of, choice, said.reasoning()) {
            let reasoning = self.halves[1].join(said.reasoning(), has_marks);
            self.add_reasoning(&reasoning, on_progress);
        }
        if is_from(&mut self.text_of, choice, &said.content) {
            let content = self.halves[0].join(&said.content, has_marks);
            let pieces = self.thinking.feed(&content);
            self.show(pieces, on_progress);
        } else if !said.content.trim().is_empty() {
            self.others.insert(choice);
        }
        let refusal = self.halves[2].join(&said.refusal, has_marks);
        self.refusal.push_str(&refusal);
        self.check_length()?;
        self.keep_opaque(&mut said)?;
        for call in said.tool_calls {
            self.add_call(call, choice, has_marks)?;
        }
        if let Some(function) = said.function_call {
            self.old_call.get_or_insert_default().extend(function, has_marks)?;
        }
        Ok(())
    }

    fn add_reasoning(&mut self, reasoning: &str, on_progress: OnProgress<'_>) {
        if !reasoning.is_empty() {
            self.reply.reasoning.get_or_insert_default().push_str(reasoning);
            on_progress(Progress::Reasoning(reasoning));
        }
    }

    fn keep_opaque(&mut self, said: &mut Said) -> Result<(), Failure> {
        for piece in std::mem::take(&mut said.reasoning_details) {
            self.opaque_bytes += size(&piece);
            add_detail(&mut self.details, piece);
        }
        let fields = said.opaque();
        self.opaque_bytes += size(&fields);
        merge(&mut self.opaque, fields);
        self.check_opaque()
    }

    fn check_opaque(&self) -> Result<(), Failure> {
        if self.opaque_bytes <= MOST_OPAQUE {
            return Ok(());
        }
        let message =
            format!("the fields beside the model's answer are larger than {} MiB", MOST_OPAQUE >> 20);
        Err(Failure::new(Reason::TooLarge, message))
    }

    fn show(&mut self, pieces: Vec<Piece>, on_progress: OnProgress<'_>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => {
                    let held = self.reply.text.len() - self.shown;
                    self.reply.text.push_str(&text);
                    // What is held back for long is decided at the end of the answer.
                    if held <= MAX_LOOKAHEAD {
                        let end = self.holdback.showable(&self.reply.text, self.shown, self.tools);
                        on_progress_text(self.reply.text.get(self.shown..end), on_progress);
                        self.shown = end;
                    }
                }
                Piece::Reasoning(text) => {
                    self.reply.reasoning.get_or_insert_default().push_str(&text);
                    on_progress(Progress::Reasoning(&text));
                }
            }
        }
    }

    fn check_length(&self) -> Result<(), Failure> {
        let reasoning = self.reply.reasoning.as_ref().map_or(0, String::len);
        if self.reply.text.len() + reasoning + self.refusal.len() > LONGEST_TEXT {
            let message =
                format!("the model's answer is longer than {} MiB and was stopped", LONGEST_TEXT >> 20);
            return Err(Failure::new(Reason::TooLarge, message));
        }
        Ok(())
    }

    fn add_call(&mut self, mut piece: WireCall, choice: u64, has_marks: bool) -> Result<(), Failure> {
        self.opaque_bytes += size(&piece.rest);
        self.check_opaque()?;
        let fields = std::mem::take(&mut piece.rest);
        if self.calls.iter().any(|call| repeats(call, &piece)) {
            return Ok(());
        }
        let call = match self.place_of(&piece, choice) {
            Some(place) => &mut self.calls[place],
            None if self.calls.len() == MOST_CALLS => {
                let message = format!("the model asks for more than {MOST_CALLS} tools in one message");
                return Err(Failure::new(Reason::TooLarge, message));
            }
            None => {
                self.calls.push(Partial { choice, index: piece.index, ..Partial::default() });
                // Pushed just above.
                let last = self.calls.len() - 1;
                &mut self.calls[last]
            }
        };
        if call.id.is_empty() && piece.id.len() <= LONGEST_NAME {
            call.id = piece.id;
        }
        merge(&mut call.opaque, fields);
        call.extend(piece.function, has_marks)
    }

    /// The call that a piece belongs to; `None` where it begins another one.
    fn place_of(&mut self, piece: &WireCall, choice: u64) -> Option<usize> {
        let place = self.calls.iter().rposition(|call| {
            call.choice == choice
                && match piece.index {
                    Some(index) => [call.index, call.rest_index].contains(&Some(index)),
                    None => piece.id.is_empty() || call.id == piece.id,
                }
        });
        let place = place.or_else(|| self.place_of_rest(piece, choice))?;
        let call = &self.calls[place];
        (!begins_another(call, piece)).then_some(place)
    }

    /// The call whose arguments a piece without name and id continues under an index of its own: servers that count the beginning
    /// of a call wrongly count its rest rightly. From then on it has that index, too.
    fn place_of_rest(&mut self, piece: &WireCall, choice: u64) -> Option<usize> {
        let place = self.calls.iter().rposition(|call| call.choice == choice)?;
        let call = &mut self.calls[place];
        let is_rest = piece.id.is_empty() && piece.function.name.is_empty();
        if !is_rest || call.rest_index.is_some() || call.name.is_empty() || !call.is_begun() {
            return None;
        }
        call.rest_index = piece.index;
        Some(place)
    }
}

/// Some servers give every call index 0, or no index, or the same id: then another name, another id beside a name, or
/// arguments that begin anew behind complete ones tell that another begins. A whole call that comes twice is one call.
fn begins_another(call: &Partial, piece: &WireCall) -> bool {
    let function = &piece.function;
    if function.name.is_empty() || call.name.is_empty() {
        return false;
    }
    let other_id = !piece.id.is_empty() && !call.id.is_empty() && piece.id != call.id;
    let starts_anew = match &function.arguments {
        Arguments::Text(text) => text.trim_start().starts_with('{'),
        Arguments::Whole(_) => true,
    };
    other_id || function.name != call.name || starts_anew && call.is_complete()
}

/// Returns whether `piece` says once more what `call` has said already: some servers send the whole call again at the end.
fn repeats(call: &Partial, piece: &WireCall) -> bool {
    let (Arguments::Text(arguments) | Arguments::Whole(arguments)) = &piece.function.arguments;
    let same_id = !piece.id.is_empty() && piece.id == call.id;
    let same_place = piece.index.is_none() || piece.index == call.index;
    let same_words = piece.function.name == call.name && *arguments == call.arguments;
    same_id && same_place && same_words && call.is_complete()
}

/// Returns whether a text is part of what the choice of `owner` says; the first choice that says something owns it.
fn is_from(owner: &mut Option<u64>, choice: u64, text: &str) -> bool {
    match owner {
        Some(owner) => *owner == choice,
        None => {
            *owner = Some(choice).filter(|_| !text.trim().is_empty());
            true
        }
    }
}

/// About how many bytes these fields take.
fn size(fields: &Map<String, Value>) -> usize {
    let of_value = |value: &Value| match value {
        Value::String(text) => text.len(),
        value => value.to_string().len(),
    };
    fields.iter().map(|(name, value)| name.len() + of_value(value)).sum()
}

impl Partial {
    /// Returns whether the arguments are all there, asked where a server repeats itself. Some begin every call with empty ones.
    fn is_complete(&self) -> bool {
        matches!(serde_json::from_str(&self.arguments), Ok(Value::Object(object)) if !object.is_empty())
    }

    /// Returns whether more has to come of the arguments. A call may do without any, and those of another are not for it.
    fn is_begun(&self) -> bool {
        let arguments = self.arguments.trim();
        !arguments.is_empty() && serde_json::from_str::<IgnoredAny>(arguments).is_err()
    }

    /// The call, and the fields that go back with it.
    fn finish(mut self) -> (ToolCall, Map<String, Value>) {
        self.arguments.push_str(self.half.finish());
        // A half that the model itself wrote as an escape.
        let arguments = halves::replaced(&self.arguments).unwrap_or(self.arguments);
        (ToolCall { id: self.id, name: self.name, arguments: arguments.into() }, self.opaque)
    }

    fn extend(&mut self, function: Function, has_marks: bool) -> Result<(), Failure> {
        // Some servers repeat the name in every piece: it is never joined.
        if self.name.is_empty() && function.name.len() <= LONGEST_NAME {
            self.name = function.name;
        }
        match function.arguments {
            Arguments::Text(text) => {
                let text = self.half.join(&text, has_marks);
                self.arguments.push_str(&text);
            }
            Arguments::Whole(text) => self.arguments = self.half.join(&text, has_marks).into_owned(),
        }
        if self.arguments.len() > LONGEST_ARGUMENTS {
            let name = if self.name.is_empty() { "a tool" } else { &self.name };
            let message = format!("the arguments for {name} are larger than {} MiB", LONGEST_ARGUMENTS >> 20);
            return Err(Failure::new(Reason::TooLarge, message));
        }
        Ok(())
    }
}

fn on_progress_text(text: Option<&str>, on_progress: OnProgress<'_>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        on_progress(Progress::Text(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The answer that these pieces, as JSON, come to.
    fn answer(pieces: &[&str]) -> Reply {
        let mut ignore = |_: Progress<'_>| {};
        let mut assembly = Assembly::new(&[]);
        for piece in pieces {
            assembly.add(Chunk::read(piece).unwrap(), &mut ignore).unwrap();
        }
        assembly.finish(&Vec::new().into(), &mut ignore)
    }

    fn names(reply: &Reply) -> Vec<&str> {
        reply.tool_calls.iter().map(|call| call.name.as_str()).collect()
    }

    /// Gateways in front of Claude give the text and each call as a choice of its own; only the first one was read.
    #[test]
    fn text_and_calls_in_different_choices_are_one_message() {
        let whole = json!({ "choices": [
            { "message": { "content": "I'm on it." }, "finish_reason": "tool_calls" },
            { "message": { "tool_calls": [{ "id": "a", "function": { "name": "one", "arguments": "{}" } }] } },
            { "message": { "tool_calls": [{ "id": "b", "function": { "name": "two", "arguments": "{}" } }] } },
        ] });
        let reply = answer(&[&whole.to_string()]);
        assert_eq!((reply.text.as_str(), names(&reply)), ("I'm on it.", vec!["one", "two"]));
        let piece = |choice: u64, delta: Value| {
            json!({ "choices": [{ "index": choice, "delta": delta }] }).to_string()
        };
        let call = |name: &str| json!({ "tool_calls": [{ "index": 0, "function": { "name": name, "arguments": "{}" } }] });
        let pieces = [
            piece(0, json!({ "content": "I'm " })),
            piece(1, call("one")),
            piece(0, json!({ "content": "on it." })),
            piece(2, call("two")),
        ];
        let reply = answer(&pieces.each_ref().map(String::as_str));
        assert_eq!((reply.text.as_str(), names(&reply)), ("I'm on it.", vec!["one", "two"]));
    }

    #[test]
    fn of_two_choices_with_texts_the_first_is_the_answer() {
        let call = json!([{ "function": { "name": "other", "arguments": "{}" } }]);
        let whole = json!({ "choices": [
            { "message": { "content": "One." } },
            { "message": { "content": "Two.", "tool_calls": call } },
        ] });
        let reply = answer(&[&whole.to_string()]);
        assert_eq!((reply.text.as_str(), names(&reply)), ("One.", vec![]));
    }

    /// Each such piece was a failed request.
    #[test]
    fn a_surrogate_pair_that_is_cut_between_two_pieces_is_one_character_again() {
        let said = |field: &str| {
            let one = format!(r#"{{"choices":[{{"delta":{{"{field}":"party \ud83c"}}}}]}}"#);
            let two = format!(r#"{{"choices":[{{"delta":{{"{field}":"\udf89 done \ud83c"}}}}]}}"#);
            answer(&[&one, &two])
        };
        assert_eq!(said("content").text, "party 🎉 done \u{fffd}");
        assert_eq!(said("reasoning_content").reasoning.unwrap(), "party 🎉 done \u{fffd}");
        let call = |name: &str, arguments: &str| {
            let function = format!(r#"{{"name":"{name}","arguments":"{arguments}"}}"#);
            format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{function}}}]}}}}]}}"#)
        };
        let reply = answer(&[&call("f", r#"{\"a\":\"\ud83c"#), &call("", r#"\udf89\ud83c\"}"#)]);
        assert_eq!(reply.tool_calls[0].arguments.text("a"), Some("🎉\u{fffd}"));
        let reply = answer(&[&call("f", r#"{\"a\":\"x\\ud83c\"}"#)]);
        assert_eq!(reply.tool_calls[0].arguments.text("a"), Some("x\u{fffd}"));
    }

    #[test]
    fn fields_beside_a_call_are_kept_also_where_they_come_in_a_piece_of_their_own() {
        let call = json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
        let extra = json!({ "google": { "thought_signature": "SIG" } });
        let pieces = [
            json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }).to_string(),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "extra_content": extra }] } }] }).to_string(),
            json!({ "choices": [{ "delta": { "reasoning_details": [{ "type": "reasoning.text", "text": "H" }] } }] })
                .to_string(),
            json!({ "choices": [{ "delta": { "reasoning_details": [{ "type": "reasoning.text", "text": "m" }] } }] })
                .to_string(),
        ];
        let reply = answer(&pieces.each_ref().map(String::as_str));
        assert_eq!(names(&reply), ["f"]);
        assert_eq!(reply.opaque.calls["a"]["extra_content"], extra);
        let details = json!([{ "type": "reasoning.text", "text": "Hm" }]);
        assert_eq!(reply.opaque.message["reasoning_details"], details);
    }

    /// The pieces of a call of `tool`, or of one without name and id, that say this of its arguments.
    fn piece(index: u64, tool: &str, arguments: &str) -> String {
        let call = json!({ "index": index, "function": { "name": tool, "arguments": arguments } });
        json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }).to_string()
    }

    #[test]
    fn a_call_without_arguments_does_not_run_with_those_of_another() {
        for none in ["", "{}", " "] {
            let reply =
                answer(&[&piece(0, "clear", none), &piece(1, "", r#"{"path":"#), &piece(1, "", "1}")]);
            assert_eq!(reply.tool_calls[0].name, "clear", "{none:?}");
            assert!(!reply.tool_calls[0].arguments.as_str().contains("path"), "{none:?}");
        }
    }

    /// All that had come was parsed for each piece.
    #[test]
    fn the_index_of_the_rest_of_a_call_is_learned() {
        let mut ignore = |_: Progress<'_>| {};
        let mut assembly = Assembly::new(&[]);
        for piece in [piece(0, "f", r#"{"a":"#), piece(1, "", "[1"), piece(0, "", ",2"), piece(1, "", "]}")] {
            assembly.add(Chunk::read(&piece).unwrap(), &mut ignore).unwrap();
            assert_eq!(assembly.calls.len(), 1);
        }
        assert_eq!((assembly.calls[0].index, assembly.calls[0].rest_index), (Some(0), Some(1)));
        // Under a third index is another call's.
        let third = WireCall { index: Some(2), ..WireCall::default() };
        assembly.calls[0].arguments = r#"{"a":"#.to_owned();
        assert_eq!(assembly.place_of(&third, 0), None);
        assert_eq!(assembly.finish(&Vec::new().into(), &mut ignore).tool_calls.len(), 1);
    }

    #[test]
    fn of_several_ends_the_worst_counts() {
        let end = |choice: u64, reason: &str| {
            json!({ "choices": [{ "index": choice, "delta": {}, "finish_reason": reason }] }).to_string()
        };
        assert!(answer(&[&end(0, "length"), &end(1, "tool_calls")]).is_cut_off());
        assert!(answer(&[&end(0, "stop"), &end(1, "length")]).is_cut_off());
        assert_eq!(answer(&[&end(0, "stop"), &end(1, "tool_calls")]).ending(), Ending::Finished);
    }
}
