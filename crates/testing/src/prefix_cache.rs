//! A prompt cache as the vendors describe theirs: what of a prompt was sent before, up to which place.
//!
//! A token is four bytes of JSON. A prefix of fewer than 1,024 tokens is not cached.

use serde_json::Value;
use std::collections::HashSet;

const BYTES_PER_TOKEN: u64 = 4;
const SMALLEST: u64 = 1_024;
/// Anthropic looks for an entry so many blocks back from a mark.
const LOOKBACK: usize = 20;
/// OpenAI's entries grow by so many tokens.
const STEP: u64 = 128;

/// The cost of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Count {
    pub read: u64,
    pub written: u64,
    pub fresh: u64,
}

impl Count {
    pub fn total(&self) -> u64 {
        self.read + self.written + self.fresh
    }
}

#[derive(Default)]
pub struct PrefixCache {
    /// Marked prefixes.
    entries: HashSet<String>,
    /// Whole prompts, by their key.
    prompts: Vec<(String, String)>,
}

impl PrefixCache {
    /// A prompt in blocks, some of which have a mark: the longest marked prefix that was written before, at most 20 blocks in front
    /// of a mark, is read; the rest up to the last mark is written.
    pub fn marked(&mut self, blocks: &[(String, bool)]) -> Count {
        let mut prefixes = vec![String::new()];
        for (text, _) in blocks {
            prefixes.push(format!("{}{text}\u{0}", prefixes.last().unwrap()));
        }
        let tokens = |at: usize| prefixes[at].len() as u64 / BYTES_PER_TOKEN;
        let total = tokens(blocks.len());
        let marks: Vec<usize> =
            (1..=blocks.len()).filter(|at| blocks[at - 1].1 && tokens(*at) >= SMALLEST).collect();
        let Some(last) = marks.last().copied() else { return Count { fresh: total, ..Count::default() } };
        let hit = |mark: &usize| {
            (mark.saturating_sub(LOOKBACK)..=*mark).rev().find(|at| self.entries.contains(&prefixes[*at]))
        };
        let read = marks.iter().filter_map(hit).max().map_or(0, tokens);
        self.entries.extend(marks.iter().map(|at| prefixes[*at].clone()));
        Count { read, written: tokens(last) - read, fresh: total - tokens(last) }
    }

    /// A prompt as one text: the longest part from its beginning that was sent before with this key.
    pub fn automatic(&mut self, key: &str, prompt: &str) -> Count {
        let common = |before: &str| prompt.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
        let same_key = self.prompts.iter().filter(|(of, _)| of == key);
        let longest = same_key.map(|(_, before)| common(before)).max().unwrap_or(0) as u64 / BYTES_PER_TOKEN;
        let read = if longest < SMALLEST { 0 } else { longest / STEP * STEP };
        self.prompts.push((key.to_owned(), prompt.to_owned()));
        Count { read, written: 0, fresh: (prompt.len() as u64 / BYTES_PER_TOKEN).saturating_sub(read) }
    }
}

/// Returns what a model's reasoning is signed or encrypted with: only what this process made is taken back.
pub fn seal(text: &str) -> String {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let of = |seed: u64| text.bytes().fold(seed, hash);
    format!("sealed-{:016x}{:016x}+/=", of(0xcbf2_9ce4_8422_2325), of(0x1234_5678_9abc_def1))
}

/// The fields of an object that are not among `known`.
pub fn unknown_field<'a>(object: &'a Value, known: &[&str]) -> Option<&'a str> {
    object.as_object()?.keys().map(String::as_str).find(|name| !known.contains(name))
}
