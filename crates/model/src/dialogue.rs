//! The order of a conversation: what the strictest chat template accepts, whatever was interrupted or failed.
//!
//! User and assistant alternate, each tool call has exactly one answer directly after it, and nothing is sent twice.

use super::Message;
use agent_event::Opaque;
use std::collections::{HashSet, VecDeque};

/// Bytes of notes that wait for the next prompt; the oldest are dropped first.
const MAX_NOTES: usize = 16 << 10;
/// Characters of one note, half of them from its beginning.
const MAX_NOTE: usize = 4_000;
/// Characters of the reason for a stop.
const MAX_REASON: usize = 300;

/// In place of an answer that was never recorded: the process was killed.
const NO_ANSWER: &str = "the session ended before this was answered";
/// In place of the result of a call that was never recorded.
const NO_RESULT: &str = "interrupted: the session ended before this call was done; it may have run in part";

/// The assistant's message for an answer that ended early: what had arrived of it, and why it ended.
pub fn stopped(text: &str, reason: &str) -> Message {
    let reason: String = reason.chars().take(MAX_REASON).collect();
    let text = match text.trim_end() {
        "" => format!("[{reason}]"),
        text => format!("{text}\n\n[{reason}]"),
    };
    Message::Assistant { text, reasoning: None, tool_calls: Vec::new(), opaque: Opaque::default() }
}

/// Returns whether a prompt or the results of tools wait for an answer.
pub fn awaits_answer(messages: &[Message]) -> bool {
    matches!(messages.last(), Some(Message::User { .. } | Message::Tool { .. }))
}

/// The same conversation with every gap closed: calls without a result get one, results without a call are dropped, and
/// a prompt without an answer gets a note in its place. What is in order stays exactly as it is.
pub fn well_formed(messages: Vec<Message>) -> Vec<Message> {
    let mut formed: Vec<Message> = Vec::with_capacity(messages.len());
    let mut open: Vec<(String, String)> = Vec::new();
    for message in messages {
        match &message {
            Message::Tool { id, .. } => {
                let Some(call) = open.iter().position(|(open_id, _)| open_id == id) else { continue };
                open.remove(call);
            }
            _ => close(&mut open, &mut formed),
        }
        match message {
            Message::User { .. } if awaits_answer(&formed) => {
                formed.push(stopped("", NO_ANSWER));
                formed.push(message);
            }
            Message::Assistant { text, reasoning, mut tool_calls, opaque } => {
                let mut seen = HashSet::new();
                tool_calls.retain(|call| seen.insert(call.id.clone()));
                open = tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())).collect();
                // Two in a row are one: lines of the session file are missing between them.
                let text = match formed.pop_if(|last| is_plain_answer(last)) {
                    Some(Message::Assistant { text: before, .. }) => format!("{before}\n\n{text}"),
                    _ => text,
                };
                formed.push(Message::Assistant { text, reasoning, tool_calls, opaque });
            }
            message => formed.push(message),
        }
    }
    close(&mut open, &mut formed);
    if awaits_answer(&formed) {
        formed.push(stopped("", NO_ANSWER));
    }
    formed
}

fn is_plain_answer(message: &Message) -> bool {
    matches!(message, Message::Assistant { tool_calls, .. } if tool_calls.is_empty())
}

fn close(open: &mut Vec<(String, String)>, messages: &mut Vec<Message>) {
    messages.extend(open.drain(..).map(|(id, name)| Message::Tool { id, name, text: NO_RESULT.to_owned() }));
}

/// News since the last prompt, for the model; sent in front of the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    notes: VecDeque<String>,
    dropped: bool,
    /// The files that the next prompt names, as text that stands behind it.
    attached: String,
}

impl Notes {
    /// Adds a note.
    pub fn push(&mut self, text: &str) {
        self.notes.push_back(bounded(text));
        while self.notes.len() > 1 && self.notes.iter().map(String::len).sum::<usize>() > MAX_NOTES {
            self.notes.pop_front();
            self.dropped = true;
        }
    }

    /// Adds what the next prompt names with `@`. The caller bounds it.
    pub fn attach(&mut self, name: &str, text: &str) {
        self.attached += &format!("\n\n<attached name={name:?}>\n{}\n</attached>", text.trim_end());
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// `prompt` with the notes in front of it and what is attached behind it, which are taken.
    pub fn before(&mut self, prompt: &str) -> String {
        let Self { notes, dropped, attached } = std::mem::take(self);
        let prompt = prompt.to_owned() + &attached;
        if notes.is_empty() {
            return prompt;
        }
        let mut text = String::from("[Since the last prompt:\n");
        if dropped {
            text += "- (earlier notes are left out)\n";
        }
        for note in notes {
            text += &format!("- {note}\n");
        }
        text + "]\n\n" + &prompt
    }
}

/// A note of at most `MAX_NOTE` characters: its beginning and its end.
pub fn bounded(text: &str) -> String {
    let (text, half) = (text.trim(), MAX_NOTE / 2);
    let length = text.chars().count();
    if length <= MAX_NOTE {
        return text.to_owned();
    }
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    format!("{head}\n[{} characters left out]\n{tail}", length - 2 * half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_stand_in_front_of_one_prompt_and_are_bounded() {
        let mut notes = Notes::default();
        assert_eq!(notes.before("go"), "go");
        notes.push("The user ran `ls`.");
        assert_eq!(notes.before("go"), "[Since the last prompt:\n- The user ran `ls`.\n]\n\ngo");
        assert_eq!(notes.before("go"), "go");
        for _ in 0..20 {
            notes.push(&"x".repeat(100_000));
        }
        let text = notes.before("go");
        assert!(
            text.len() < MAX_NOTES + 1000 && text.contains("earlier notes are left out"),
            "{}",
            text.len()
        );
    }

    #[test]
    fn what_a_prompt_names_stands_behind_it_once() {
        let mut notes = Notes::default();
        notes.push("The user ran `ls`.");
        notes.attach("a.rs, lines 1 to 2", "fn main() {}\n");
        assert_eq!(
            notes.before("fix it"),
            "[Since the last prompt:\n- The user ran `ls`.\n]\n\nfix it\n\n<attached name=\"a.rs, lines 1 to 2\">\nfn main() \
             {}\n</attached>"
        );
        assert_eq!(notes.before("again"), "again");
    }

    #[test]
    fn an_answer_that_ended_early_keeps_what_had_arrived() {
        let Message::Assistant { text, .. } = stopped("Half of\n", "the user stopped it") else { panic!() };
        assert_eq!(text, "Half of\n\n[the user stopped it]");
        let Message::Assistant { text, .. } = stopped(" ", "the user stopped it") else { panic!() };
        assert_eq!(text, "[the user stopped it]");
    }
}
