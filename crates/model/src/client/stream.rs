//! Puts the pieces of an answer together.

use crate::client::failure::{Failure, Reason};
use crate::client::thinking::{Piece, Thinking};
use crate::client::wire::{Arguments, Chunk, Function, Said, WireCall};
use crate::compact::runaway;
use crate::tool_calls::holdback::{Holdback, MAX_LOOKAHEAD};
use crate::tool_calls::recover::{recover, recover_from_reasoning};
use crate::tool_calls::repair::repair;
use crate::{Messages, OnProgress, Progress, Reply, ToolSpec};
use agent_event::{ToolCall, Usage};
use serde_json::Value;

/// Tools that one message may ask for.
pub const MOST_CALLS: usize = 128;
/// Bytes of one call's arguments.
pub const LONGEST_ARGUMENTS: usize = 1 << 20;
/// Bytes of text and reasoning together.
pub const LONGEST_TEXT: usize = 4 << 20;
/// What the notice of a recovered call says.
pub const WRITTEN_AS_TEXT: &str = "written as text";
/// About how many a token has, where the server does not count.
const BYTES_PER_TOKEN: u64 = 4;
/// Bytes of text between two looks for repetition.
const LOOK_EVERY: usize = 256;
/// Bytes of an id or a name; no real one comes near.
const LONGEST_NAME: usize = 256;

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
    /// Bytes of the text at which it is looked at for repetition next; `None` where the model may repeat itself.
    next_look: Option<usize>,
    is_stopped: bool,
}

#[derive(Default)]
struct Partial {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
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
        if let Some(usage) = chunk.usage {
            self.reply.usage = Some(usage.into());
        }
        let Some(choice) = chunk.choices.into_iter().next() else { return Ok(()) };
        if let Some(said) = choice.delta.or(choice.message) {
            self.say(said, on_progress)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.reply.finish_reason = Some(reason);
        }
        self.look_for_repetition();
        Ok(())
    }

    /// Whether the rest of the answer is not wanted.
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

    /// Whether the endpoint has said that the answer is complete.
    pub fn is_finished(&self) -> bool {
        self.reply.finish_reason.is_some()
    }

    /// The whole answer. `earlier` is the conversation so far.
    pub fn finish(mut self, earlier: &Messages, on_progress: OnProgress<'_>) -> Reply {
        let rest = self.thinking.finish();
        self.show(rest, on_progress);
        self.split_unopened();
        if self.calls.is_empty() {
            self.calls.extend(self.old_call.take());
        }
        self.calls.retain(|call| !call.name.is_empty() || !call.arguments.is_empty());
        let recovered = if self.calls.is_empty() { self.recover(on_progress) } else { None };
        on_progress_text(self.reply.text.get(self.shown..), on_progress);
        let mut reply = self.reply;
        if reply.text.trim().is_empty() && !self.refusal.is_empty() {
            on_progress_text(Some(&self.refusal), on_progress);
            reply.text = self.refusal;
        }
        let is_cut_off = reply.is_cut_off();
        let calls = self.calls.into_iter().map(ToolCall::from);
        for mut call in calls.chain(recovered.into_iter().flatten()) {
            call.id = unique(call.id, earlier, &reply.tool_calls);
            if let Some(note) = repair(&mut call, self.tools, is_cut_off) {
                on_progress(Progress::Notice(&note));
            }
            reply.tool_calls.push(call);
        }
        reply
    }

    /// Some templates open the reasoning in the prompt: the content then holds the closing tag alone.
    fn split_unopened(&mut self) {
        let Some((before, after)) = self.reply.text.split_once("</think>") else { return };
        if before.contains("<think>") {
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
        on_progress(Progress::Notice(&format!("{count} tool call(s) {WRITTEN_AS_TEXT} were recovered")));
        let calls = calls.into_iter().take(MOST_CALLS);
        let calls =
            calls.map(|call| ToolCall { id: String::new(), name: call.name, arguments: call.arguments });
        Some(calls.collect())
    }

    fn say(&mut self, said: Said, on_progress: OnProgress<'_>) -> Result<(), Failure> {
        let reasoning = said.reasoning();
        if !reasoning.is_empty() {
            self.reply.reasoning.get_or_insert_default().push_str(reasoning);
            on_progress(Progress::Reasoning(reasoning));
        }
        let pieces = self.thinking.feed(&said.content);
        self.show(pieces, on_progress);
        self.refusal.push_str(&said.refusal);
        self.check_length()?;
        for call in said.tool_calls {
            self.add_call(call)?;
        }
        if let Some(function) = said.function_call {
            self.old_call.get_or_insert_default().extend(function)?;
        }
        Ok(())
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

    fn add_call(&mut self, piece: WireCall) -> Result<(), Failure> {
        if self.calls.iter().any(|call| repeats(call, &piece)) {
            return Ok(());
        }
        let call = match self.place_of(&piece) {
            Some(place) => &mut self.calls[place],
            None if self.calls.len() == MOST_CALLS => {
                let message = format!("the model asks for more than {MOST_CALLS} tools in one message");
                return Err(Failure::new(Reason::TooLarge, message));
            }
            None => {
                self.calls.push(Partial { index: piece.index, ..Partial::default() });
                // Pushed just above.
                let last = self.calls.len() - 1;
                &mut self.calls[last]
            }
        };
        if call.id.is_empty() && piece.id.len() <= LONGEST_NAME {
            call.id = piece.id;
        }
        call.extend(piece.function)
    }

    /// The call that a piece belongs to; `None` where it begins another one.
    fn place_of(&self, piece: &WireCall) -> Option<usize> {
        let same_id = || self.calls.iter().rposition(|call| call.id == piece.id);
        let place = match piece.index {
            Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
            None if !piece.id.is_empty() => same_id(),
            None => self.calls.len().checked_sub(1),
        }?;
        let call = &self.calls[place];
        (!begins_another(call, piece)).then_some(place)
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

/// Whether `piece` says once more what `call` has said already: some servers send the whole call again at the end.
fn repeats(call: &Partial, piece: &WireCall) -> bool {
    let (Arguments::Text(arguments) | Arguments::Whole(arguments)) = &piece.function.arguments;
    let same_id = !piece.id.is_empty() && piece.id == call.id;
    let same_place = piece.index.is_none() || piece.index == call.index;
    let same_words = piece.function.name == call.name && *arguments == call.arguments;
    same_id && same_place && same_words && call.is_complete()
}

impl From<Partial> for ToolCall {
    fn from(call: Partial) -> Self {
        Self { id: call.id, name: call.name, arguments: call.arguments.into() }
    }
}

impl Partial {
    /// Whether the arguments are all there, asked where a server repeats itself. Some begin every call with empty ones.
    fn is_complete(&self) -> bool {
        matches!(serde_json::from_str(&self.arguments), Ok(Value::Object(object)) if !object.is_empty())
    }

    fn extend(&mut self, function: Function) -> Result<(), Failure> {
        // Some servers repeat the name in every piece: it is never joined.
        if self.name.is_empty() && function.name.len() <= LONGEST_NAME {
            self.name = function.name;
        }
        match function.arguments {
            Arguments::Text(text) => self.arguments.push_str(&text),
            Arguments::Whole(text) => self.arguments = text,
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

/// `id`, or one like it that no call of the conversation `earlier` and none of `calls` has.
pub fn unique(id: String, earlier: &Messages, calls: &[ToolCall]) -> String {
    let is_taken = |id: &str| earlier.has_call(id) || calls.iter().any(|call| call.id == id);
    if !id.is_empty() && !is_taken(&id) {
        return id;
    }
    let stem = if id.is_empty() { "call" } else { &id };
    let mut numbered = (earlier.calls() + calls.len() + 1..).map(|number| format!("{stem}_{number}"));
    numbered.find(|id| !is_taken(id)).unwrap_or_default()
}
