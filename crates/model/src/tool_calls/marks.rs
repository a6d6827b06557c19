//! The marks of all published formats of calls, as a table: what opens a call, divides it and closes it.
//!
//! A mark is a tag (`<invoke name="f">`), a token (`<|tool_call_begin|>`) or a word (`[TOOL_CALLS]`). Formats differ in
//! little but these, so one reader reads them all. Namespaces (`<｜DSML｜invoke`, `<minimax:tool_call>`) and the
//! ways to write a token (`<｜tool▁call▁begin｜>`, `<|tool_call:begin|>`) are the same to it.

use crate::tool_calls::assignments::pairs;
use serde_json::{Map, Value};

/// Characters of a token's name, or of a tag that has not ended.
const LONGEST_NAME: usize = 64;
/// Characters of a tag with its attributes, as long as it has no end.
const LONGEST_OPEN: usize = 256;

/// The meaning of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A call, or a list of calls, follows.
    Open,
    /// The same, but the mark is common elsewhere, too: only what can be read is a call.
    Weak,
    /// A call or a list of calls ends.
    Close,
    /// The name of the tool follows.
    Name,
    /// Stands between the name and the arguments.
    Separator,
    /// A call whose tag names the tool, and its end.
    Call,
    CallEnd,
    /// An argument whose tag says its name, and its end.
    Argument,
    ArgumentEnd,
    /// The name of an argument, its value, and their ends.
    Key,
    KeyEnd,
    Raw,
    RawEnd,
    /// An element that says nothing about the call, and its end.
    Aside,
    AsideEnd,
    /// The result of a call: one in an answer is invented.
    Result,
    /// Of a chat template, or around the answer.
    Noise,
}

use Role::*;

/// A mark of a table, with its meaning.
type Entry = (&'static str, Role);

/// Tags by their names in lower case, without a namespace.
const TAGS: &[Entry] = &[
    // Hermes, Qwen 2.5 and 3, Granite 4, EXAONE, ERNIE, SmolLM 3, GLM 4.5 and later, Seed-OSS, Step 3.5, MiMo, LongCat.
    ("tool_call", Open),
    // Jamba, Hunyuan, Apriel, MiniMax M1, DeepSeek V4.
    ("tool_calls", Open),
    // Olmo 3, DeepSeek V3.2, Granite 20B and models that imitate OpenAI's names.
    ("function_calls", Open),
    ("function_call", Open),
    ("functioncall", Open),
    ("dots_function_call", Open),
    // Nemotron.
    ("toolcall", Open),
    // Models that take the tag around their tools for the one around a call.
    ("tools", Open),
    ("use_mcp_tool", Open),
    // FunctionGemma.
    ("start_function_call", Open),
    ("end_function_call", Close),
    // DeepSeek V4.1; Gemma 4 beside images; SmolLM 3; Laguna.
    ("calls", Weak),
    ("call", Weak),
    ("code", Weak),
    ("user", Weak),
    // Qwen3-Coder, MiniMax M2, DeepSeek's DSML, Step 3, Functionary 3.1, MiniCPM 5.
    ("invoke", Call),
    ("function", Call),
    ("parameter", Argument),
    ("param", Argument),
    ("argument", Argument),
    ("value", Argument),
    // GLM, Hunyuan V3, K2 Horizon.
    ("arg_key", Key),
    ("arg_value", Raw),
    ("arg_type", Aside),
    ("tool_sep", Separator),
    // MiroThinker.
    ("server_name", Aside),
    ("tool_name", Name),
    ("arguments", Separator),
    ("tool_response", Result),
    // Kimi K3's channels, and ERNIE's.
    ("response", Noise),
];

/// Tokens by their names in lower case, with `_` for what stands between words.
const TOKENS: &[Entry] = &[
    // Phi-4-mini, Granite 3, Solar Open.
    ("tool_call", Open),
    ("/tool_call", Close),
    ("tool_calls", Open),
    ("calls", Close),
    // DeepSeek V3 to V3.1, Step 3, Kimi K2, Solar Open.
    ("tool_calls_begin", Open),
    ("tool_calls_section_begin", Open),
    ("tool_call_section_begin", Open),
    ("tool_call_begin", Open),
    ("tool_call_name", Name),
    ("tool_call_args", Separator),
    ("tool_call_argument_begin", Separator),
    ("tool_sep", Separator),
    ("tool_call_end", Close),
    ("tool_calls_end", Close),
    ("tool_calls_section_end", Close),
    ("tool_call_section_end", Close),
    // LFM 2, openPangu, Solar Open 2.
    ("tool_call_start", Open),
    ("tool_arg_start", Key),
    ("tool_arg_value", Raw),
    ("tool_arg_end", RawEnd),
    // Llama 3 and 4.
    ("python_tag", Open),
    ("python_start", Open),
    ("python_end", Close),
    ("eom_id", Close),
    // InternLM.
    ("action_start", Open),
    ("plugin", Open),
    ("action_end", Close),
    // Command R7B and A.
    ("start_action", Open),
    ("end_action", Close),
    // Apertus.
    ("tools_prefix", Open),
    ("tools_suffix", Close),
    // GigaChat 3.
    ("function_call", Open),
    ("message_sep", Open),
    ("role_sep", Separator),
    // PLaMo 3.
    ("begin_tool_requests", Open),
    ("begin_tool_request", Open),
    ("begin_tool_name", Name),
    ("end_tool_name", Separator),
    ("begin_tool_arguments", Separator),
    ("end_tool_arguments", Close),
    ("end_tool_request", Close),
    ("end_tool_requests", Close),
    // Inkling.
    ("message_model", Weak),
    ("content_invoke_tool_json", Open),
    ("content_invoke_tool_text", Open),
    ("content_text", Noise),
    ("content_model_end_sampling", Noise),
    ("end_message", Close),
    // Results.
    ("tool_response", Result),
    ("tool_output_begin", Result),
    ("tool_outputs_begin", Result),
    // Around the answer, and at its end.
    ("start_response", Noise),
    ("end_response", Noise),
    ("start_text", Noise),
    ("end_text", Noise),
    ("chatbot_token", Noise),
    ("end_of_turn_token", Noise),
    ("im_end", Noise),
    ("eot_id", Noise),
    ("eom", Noise),
    ("eot", Noise),
    ("observation", Noise),
    ("endoftext", Noise),
    ("end_of_text", Noise),
    ("end_of_sentence", Noise),
];

/// Marks that are written in one way only.
const WORDS: &[Entry] = &[
    // Mistral.
    ("[TOOL_CALLS]", Open),
    ("[ARGS]", Separator),
    ("[TOOL_RESULTS]", Result),
    ("[TOOL_REQUEST]", Open),
    ("[END_TOOL_REQUEST]", Close),
    // Gemma 4.
    ("<|tool_call>", Open),
    ("<tool_call|>", Close),
    ("<turn|>", Noise),
    ("<channel|>", Noise),
    ("<|tool_response>", Result),
    // Gemma's turns.
    ("<end_of_turn>", Noise),
    // Of Llama 2, Mistral and GigaChat.
    ("</s>", Noise),
    // CWM, whose tag may also hold the name of the tool.
    ("<tool: function>", Open),
    ("<tool: ", Open),
    ("</tool>", Close),
];

/// MiniMax M3 writes this before each tag.
pub const PREFIX: &str = "]<]minimax[>[";
/// Before the name of a tag without being a part of it.
const PREFIXES: &[&str] = &["longcat_", "ifm|", "iquestcoder_"];
/// Of MiniMax M2, Seed-OSS, Muse Glimmer, Command, Step 3, and of models that imitate Claude.
const NAMESPACES: [&str; 6] = ["minimax", "seed", "atem", "cofl", "steptml", "antml"];
/// A space as byte-level tokenizers write it, where a server did not decode it.
const SPACE_TOKEN: char = 'Ġ';
/// The attribute that MiniCPM 5 writes without a space before it: `<functionname="f">`.
const GLUED: &str = "name";
/// Kimi K3 writes `<|open|>call tool="f"<|sep|>` for `<call tool="f">`.
const OPEN: &str = "<|open|>";
const CLOSE: &str = "<|close|>";
const END: &str = "<|sep|>";

/// A mark at the beginning of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub role: Role,
    /// As the tables name it.
    pub tag: &'static str,
    /// The name of a tool or of an argument that the tag holds.
    pub name: Option<String>,
    /// The other attributes of the tag.
    pub attributes: Map<String, Value>,
    /// Set if the tag ends in `/>`.
    pub is_empty: bool,
    /// Set if it is a token, which nobody writes in a sentence.
    pub is_token: bool,
    /// `<parameter=name>`, whose value stands on lines of its own.
    pub has_own_lines: bool,
    pub length: usize,
}

impl Mark {
    fn plain((tag, role): Entry, length: usize, is_token: bool) -> Self {
        let attributes = Map::new();
        Self { role, tag, name: None, attributes, is_empty: false, is_token, has_own_lines: false, length }
    }

    /// Returns whether a call begins with it.
    pub fn opens(&self) -> bool {
        matches!(self.role, Open | Weak | Call)
    }

    /// Returns whether it ends a call, or a list of them.
    pub fn closes(&self) -> bool {
        matches!(self.role, Close | CallEnd)
    }
}

/// The mark at the beginning of `text`.
pub fn mark(text: &str) -> Option<Mark> {
    let first = text.as_bytes().first()?;
    if !matches!(first, b'<' | b'[' | b']') {
        return None;
    }
    if let Some(tag) = text.strip_prefix(PREFIX) {
        let mark = tag_in_brackets(tag)?;
        return Some(Mark { length: mark.length + PREFIX.len(), is_token: true, ..mark });
    }
    if let Some(entry @ (word, _)) = WORDS.iter().find(|(word, _)| text.starts_with(word)) {
        return Some(Mark::plain(*entry, word.len(), word.contains('|') || word.starts_with('[')));
    }
    spelled_out(text).or_else(|| token(text)).or_else(|| tag_in_brackets(text))
}

/// Returns whether `text` is the beginning of a mark, or of a tag whose end has not come.
pub fn may_become_mark(text: &str) -> bool {
    let begins = |mark: &str| mark.len() > text.len() && mark.starts_with(text);
    if begins(PREFIX) || WORDS.iter().any(|(word, _)| begins(word)) {
        return true;
    }
    let text = text.strip_prefix(PREFIX).unwrap_or(text);
    if text.starts_with(OPEN) || text.starts_with(CLOSE) {
        return text.len() <= LONGEST_OPEN && !text.contains(END);
    }
    let Some(inner) = text.strip_prefix('<') else { return text.is_empty() };
    let inner = inner.strip_prefix('/').unwrap_or(inner);
    if inner.starts_with(['|', '｜']) {
        return inner.chars().count() <= LONGEST_NAME && !inner.contains(['<', '>', '\n']);
    }
    let end = inner.find(|c: char| !is_word(c)).unwrap_or(inner.len());
    let word = inner[..end].to_ascii_lowercase();
    match inner[end..].chars().next() {
        None => is_beginning_of_name(&word),
        Some(':' | '|') => {
            let is_known = NAMESPACES.contains(&&*word) || word == "ifm" || is_name(&word);
            is_known && inner.len() <= LONGEST_OPEN && !inner.contains('>')
        }
        Some(_) => is_name(&word) && inner.len() <= LONGEST_OPEN && !inner.contains('>'),
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn is_name(word: &str) -> bool {
    let word = without_prefix(word);
    TAGS.iter().any(|(name, _)| *name == word || word.strip_suffix(GLUED) == Some(name))
}

fn is_beginning_of_name(word: &str) -> bool {
    let begins = |name: &str| name.starts_with(word);
    let names = TAGS.iter().map(|(name, _)| *name).chain(NAMESPACES).chain(PREFIXES.iter().copied());
    let mut names = names.chain(["channel", "turn", "end_of_turn"]);
    let word = without_prefix(word);
    let is_glued = |name: &str| word.strip_prefix(name).is_some_and(|rest| GLUED.starts_with(rest));
    names.any(begins) || TAGS.iter().any(|(name, _)| name.starts_with(word) || is_glued(name))
}

fn without_prefix(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

/// `<|name|>`, in any spelling.
fn token(text: &str) -> Option<Mark> {
    let bars = ['|', '｜'];
    let inner = text.strip_prefix('<')?;
    let inner = inner.strip_prefix(bars)?.trim_start_matches(bars);
    let end =
        inner.char_indices().take(LONGEST_NAME).find(|(_, c)| bars.contains(c) || "<>\n".contains(*c))?.0;
    let rest = inner[end..].strip_prefix(bars)?.trim_start_matches(bars).strip_prefix('>')?;
    let name = inner[..end].replace('\\', "").replace(['▁', ' ', ':'], "_").to_ascii_lowercase();
    let name = name.strip_prefix("plamo_").and_then(|name| name.strip_suffix("_plamo")).unwrap_or(&name);
    let entry = TOKENS.iter().find(|(known, _)| *known == name)?;
    Some(Mark::plain(*entry, text.len() - rest.len(), true))
}

/// `<|open|>call tool="f"<|sep|>` and `<|close|>call<|sep|>`.
fn spelled_out(text: &str) -> Option<Mark> {
    if let Some(inner) = text.strip_prefix(OPEN) {
        let inner = inner.trim_start_matches(' ');
        let (name, attributes) = inner.split_at(inner.find(|c: char| !is_word(c))?);
        let (entry, attributes, rest) = attributed(entry_of(name)?, attributes)?;
        let rest = rest.strip_prefix(END)?;
        let mut mark = Mark::plain(entry, text.len() - rest.len(), true);
        take_name(&mut mark, attributes);
        return Some(mark);
    }
    let inner = text.strip_prefix(CLOSE)?;
    let (name, rest) = inner.split_once(END).filter(|(name, _)| name.len() <= LONGEST_NAME)?;
    // It closes a call: its tag would have said a name.
    let entry = match name.trim_matches(' ') {
        "call" => ("call", CallEnd),
        name => end_of(entry_of(name)?),
    };
    Some(Mark::plain(entry, text.len() - rest.len(), true))
}

/// `<name …>`, `</name>` and `<name=…>`, with any namespace.
fn tag_in_brackets(text: &str) -> Option<Mark> {
    let inner = text.strip_prefix('<')?;
    let (inner, mut is_end) = match inner.strip_prefix('/') {
        Some(inner) => (inner, true),
        None => (inner, false),
    };
    let (mut inner, is_token) = without_bars(inner);
    if let Some(behind) = inner.strip_prefix('/').filter(|_| is_token) {
        (inner, is_end) = (behind, true);
    }
    let inner = PREFIXES.iter().find_map(|prefix| inner.strip_prefix(prefix)).unwrap_or(inner);
    let end = inner.find(|c: char| !is_word(c))?;
    let (mut name, mut rest) = inner.split_at(end);
    let mut has_namespace = is_token;
    if let Some(behind) = rest.strip_prefix(':') {
        let end = behind.find(|c: char| !is_word(c))?;
        // `minimax:tool_call`, or `tool_call:opensource`.
        if NAMESPACES.contains(&name) && entry_of(&behind[..end]).is_some() {
            (name, has_namespace) = (&behind[..end], true);
        } else {
            entry_of(name)?;
        }
        rest = &behind[end..];
    }
    let glued = name.strip_suffix(GLUED).filter(|_| rest.starts_with("=\""));
    if let Some(word) = glued.filter(|word| entry_of(word).is_some()) {
        (name, rest) = inner.split_at(word.len());
    }
    let entry @ (_, role) = entry_of(name)?;
    let length = |rest: &str| text.len() - rest.len();
    if is_end {
        let rest = rest.trim_start_matches(' ').strip_prefix('>')?;
        return Some(Mark::plain(end_of(entry), length(rest), is_token));
    }
    if let Some(named) = rest.strip_prefix('=').filter(|_| matches!(role, Call | Argument)) {
        let end = named.find(['>', '\n', '<'])?;
        let behind = named[end..].strip_prefix('>')?;
        let mut mark = Mark::plain(entry, length(behind), is_token);
        mark.name = Some(named[..end].trim_matches(['"', '\'', ' ', '/']).to_owned());
        mark.has_own_lines = true;
        return Some(mark);
    }
    if let Some(rest) = rest.strip_prefix('>') {
        // An element of HTML or XML that only shares its name with the formats.
        let is_other = matches!(role, Call | Argument) || name == "calls" && !has_namespace;
        return (!is_other).then(|| Mark::plain(entry, length(rest), is_token));
    }
    let attributes = rest.strip_prefix([' ', '\n', SPACE_TOKEN]).or(glued.map(|_| rest))?;
    let (entry, attributes, rest) = attributed(entry, attributes)?;
    let (rest, is_empty) = match rest.strip_prefix("/>") {
        Some(rest) => (rest, true),
        None => (rest.strip_prefix('>')?, false),
    };
    let mut mark = Mark::plain(entry, length(rest), is_token);
    mark.is_empty = is_empty;
    take_name(&mut mark, attributes);
    (mark.name.is_some() || !matches!(role, Call | Argument)).then_some(mark)
}

/// Attributes at the beginning of `text`, and what their names make of the tag.
fn attributed((tag, role): Entry, text: &str) -> Option<(Entry, Map<String, Value>, &str)> {
    let (attributes, rest) = pairs(text.trim_start())?;
    let names_tool = attributes.contains_key("name") || attributes.contains_key("tool");
    let role = if names_tool && matches!(role, Open | Weak) { Call } else { role };
    Some(((tag, role), attributes, rest.trim_start()))
}

fn take_name(mark: &mut Mark, mut attributes: Map<String, Value>) {
    let name = ["name", "tool", "key"].iter().find_map(|key| attributes.shift_remove(*key));
    if let Some(Value::String(name)) = name {
        mark.name = Some(name);
    }
    mark.attributes = attributes;
}

/// `text` without the bars of a namespace (`｜DSML｜`), and whether there were any.
fn without_bars(text: &str) -> (&str, bool) {
    let bars = ['|', '｜'];
    let stripped = || {
        let inner = text.strip_prefix(bars)?.trim_start_matches(bars);
        let rest = inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        let rest = rest.strip_prefix(bars).filter(|rest| rest.len() < inner.len())?;
        Some(rest.trim_start_matches(bars).trim_start_matches(' '))
    };
    stripped().map_or((text, false), |rest| (rest, true))
}

fn entry_of(name: &str) -> Option<Entry> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let name = name.to_ascii_lowercase();
    TAGS.iter().find(|(known, _)| *known == name).copied()
}

fn end_of((tag, role): Entry) -> Entry {
    let end = match role {
        Open | Weak | Close => Close,
        Call => CallEnd,
        Argument => ArgumentEnd,
        Key => KeyEnd,
        Raw => RawEnd,
        Aside => AsideEnd,
        Name | Separator => Separator,
        other => other,
    };
    (tag, end)
}
