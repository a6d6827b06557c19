//! Reads with the grammars, in a subprocess.

use super::{Class, Grammar};
use crate::policy::findings;
use crate::policy::reading::tree::{Descend, Dialect, Source, Visit};
use crate::policy::subprocess;
use std::time::{Duration, Instant};

/// How long one text may be read.
const TIME: Duration = Duration::from_millis(300);
/// Words of one text.
const MAX_WORDS: usize = 100_000;

/// The words of `text`, in order: where each begins and ends, and what it is.
pub(super) fn words(language: Grammar, text: &str) -> Vec<(usize, usize, Class)> {
    let answer = subprocess::in_child(|| serde_json::to_vec(&read(language, text)).unwrap_or_default());
    answer.and_then(|answer| serde_json::from_slice(&answer).ok()).unwrap_or_default()
}

fn read(language: Grammar, text: &str) -> Vec<(usize, usize, Class)> {
    let (grammar, dialect) = match language {
        Grammar::Shell => (findings::Language::Shell, Dialect::Usual),
        Grammar::Python => (findings::Language::Python, Dialect::Usual),
        Grammar::JavaScript => (findings::Language::JavaScript, Dialect::Usual),
        Grammar::TypeScript => (findings::Language::JavaScript, Dialect::TypeScript),
        Grammar::Rust => (findings::Language::Rust, Dialect::Usual),
        Grammar::Go => (findings::Language::Go, Dialect::Usual),
        Grammar::Ruby => (findings::Language::Ruby, Dialect::Usual),
    };
    let Some(source) = Source::parse(grammar, dialect, text, Instant::now() + TIME) else {
        return Vec::new();
    };
    let mut words = Vec::new();
    source.walk(&mut |visit| {
        let class = class_of(visit);
        if let Some(class) = class.filter(|_| words.len() < MAX_WORDS) {
            words.push((visit.node.start_byte(), visit.node.end_byte(), class));
        }
        // What is in a string or comment belongs to it.
        if class.is_some() { Descend::No } else { Descend::Yes }
    });
    words
}

/// Returns what a node is, by the names that the grammars have in common.
fn class_of(visit: &Visit<'_, '_>) -> Option<Class> {
    let (node, kind) = (visit.node, visit.node.kind());
    if !node.is_named() {
        // A keyword is a node that is named like the word itself.
        let is_word = kind.len() > 1 && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        return is_word.then_some(Class::Keyword);
    }
    match kind {
        _ if kind.contains("comment") => Some(Class::Comment),
        "string"
        | "string_literal"
        | "raw_string_literal"
        | "interpreted_string_literal"
        | "raw_string"
        | "char_literal"
        | "rune_literal"
        | "template_string"
        | "ansi_c_string"
        | "heredoc_body"
        | "regex"
        | "simple_symbol"
        | "string_array"
        | "subshell_string" => Some(Class::Text),
        "integer" | "float" | "number" | "integer_literal" | "float_literal" | "int_literal" => {
            Some(Class::Number)
        }
        "true" | "false" | "nil" | "none" | "None" | "null" | "boolean_literal" | "undefined" => {
            Some(Class::Number)
        }
        "type_identifier" | "primitive_type" | "predefined_type" => Some(Class::Type),
        "self" | "super" | "crate" | "mutable_specifier" | "this" => Some(Class::Keyword),
        "command_name" => Some(Class::Function),
        "identifier" | "field_identifier" | "property_identifier" => function_of(visit),
        _ => None,
    }
}

/// The name in a definition or a call.
fn function_of(visit: &Visit<'_, '_>) -> Option<Class> {
    let parent = visit.ancestors.last()?.kind();
    let is_definition = parent.contains("function") || parent.contains("method");
    let is_name = is_definition && matches!(visit.field, Some("name" | "method" | "function"));
    let is_call = parent.contains("call") && matches!(visit.field, Some("function" | "method"));
    (is_name || is_call).then_some(Class::Function)
}
