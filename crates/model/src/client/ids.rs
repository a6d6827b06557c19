//! The ids of calls: those that are made here have the form that the strictest servers take, nine letters and digits.

use crate::Messages;
use agent_event::ToolCall;
use std::borrow::Cow;

/// Characters of an id in that form.
const LENGTH: usize = 9;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// `id`, or one that no call of the conversation `earlier` and none of `calls` has.
pub fn unique(id: String, earlier: &Messages, calls: &[ToolCall]) -> String {
    let is_taken = |id: &str| earlier.has_call(id) || calls.iter().any(|call| call.id == id);
    if !id.is_empty() && !is_taken(&id) {
        return id;
    }
    let mut numbered = (earlier.calls() + calls.len() + 1..).map(|number| format!("call{number:05}"));
    numbered.find(|id| !is_taken(id)).unwrap_or_default()
}

/// `id` in nine letters and digits, the same for the call and its result.
pub fn short(id: &str) -> Cow<'_, str> {
    if id.len() == LENGTH && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    // FNV-1a. Two ids of one conversation have the same one in a billion conversations.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut number = id.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let digit = |_| {
        let digit = DIGITS[(number % DIGITS.len() as u64) as usize];
        number /= DIGITS.len() as u64;
        char::from(digit)
    };
    Cow::Owned((0..LENGTH).map(digit).collect())
}

/// Characters of an id that OpenAI takes.
const LONGEST: usize = 64;

/// `id` as OpenAI and Anthropic take those of other models, the same for the call and its result.
pub fn portable(id: &str) -> Cow<'_, str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match !id.is_empty() && id.len() <= LONGEST && id.bytes().all(fits) {
        true => Cow::Borrowed(id),
        false => short(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_strict(id: &str) -> bool {
        id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())
    }

    #[test]
    fn ids_that_are_made_here_have_nine_letters_and_digits() {
        let none = Messages::from(Vec::new());
        let first =
            ToolCall { id: unique(String::new(), &none, &[]), name: String::new(), arguments: "".into() };
        let calls = [first.clone(), ToolCall { id: "call_abc".into(), ..first }];
        for id in ["", "call_abc", &calls[0].id] {
            let made = unique(id.to_owned(), &none, &calls);
            assert!(is_strict(&made) && calls.iter().all(|call| call.id != made), "{id}: {made}");
        }
        assert_eq!(unique("functions.x:0".into(), &none, &calls), "functions.x:0");
    }

    #[test]
    fn any_id_becomes_a_short_one_and_always_the_same() {
        let ids = ["call_abc123", "functions.run_commands:0", "", "é", &"x".repeat(300), "call_abc124"];
        let shortened: Vec<_> = ids.iter().map(|id| short(id)).collect();
        assert!(shortened.iter().all(|id| is_strict(id)), "{shortened:?}");
        let mut different = shortened.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), ids.len());
        assert_eq!(short("call_abc123"), shortened[0]);
        assert_eq!(short("aB3456789"), "aB3456789");
    }
}
