//! Ruby: what is required, and the methods and constants that need no `require`.

use super::super::findings::Language;
use super::code::{Code, Syntax};
use super::names::{Reading, builtin, module};
use super::tree::{Descend, MAX_DEPTH, Place, Source, Strings, Visit, children};
use tree_sitter::Node;

/// Functions that take in a file or library by its name; `autoload` has the name second.
const LOADERS: [&str; 4] = ["require", "require_relative", "load", "autoload"];
/// Methods that call a method by its name.
const SENDERS: [&str; 5] = ["send", "public_send", "__send__", "method", "const_get"];
/// Functions that take a shell command.
const SHELLS: [&str; 3] = ["system", "exec", "spawn"];
/// Receivers that add nothing: every object has the methods of `Kernel`.
const KERNEL: [&str; 4] = ["Kernel", "Object", "self", "Process"];

const SYNTAX: Syntax = Syntax::of_strings(Strings {
    whole: &["string"],
    content: &["string_content", "escape_sequence"],
    ..Strings::NONE
});

/// Where a name is a method's on some object, a parameter, or gets its definition.
const NOT_USED: [Place; 4] = [
    (&["call"], Some("method")),
    (
        &["method", "singleton_method", "class", "module", "keyword_parameter", "optional_parameter"],
        Some("name"),
    ),
    (&["assignment"], Some("left")),
    (&["method_parameters", "block_parameters", "lambda_parameters", "scope_resolution"], None),
];

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    Code::new(source, reading, &SYNTAX).walk(collect)
}

fn collect<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    let node = visit.node;
    match node.kind() {
        "call" => call(code, node),
        "identifier" | "constant" if !visit.is_in(&NOT_USED) => note(code, code.source.of(node), node),
        "scope_resolution" => note(code, &path(code, node, 0), node),
        // Backticks and %x(…) run a command as `system` does.
        "subshell" => {
            note(code, "system", node);
            let text = code.source.of(node).trim_start_matches("%x");
            let text = text.trim_matches(['`', '(', ')', '{', '}', '[', ']']);
            code.reading.nested.push((Language::Shell, text.to_owned()));
        }
        _ => {}
    }
    Descend::Yes
}

fn call<'s>(code: &mut Code<'s, '_>, call: Node<'s>) {
    let method = code.field(call, "method");
    let receiver = call.child_by_field_name("receiver");
    let arguments = call.child_by_field_name("arguments").map_or_else(Vec::new, children);
    let first = arguments.first().and_then(|first| literal(code, *first));
    let on_kernel = receiver.is_none_or(|receiver| KERNEL.contains(&code.source.of(receiver)));
    if on_kernel && LOADERS.contains(&method) {
        match arguments.get(usize::from(method == "autoload")).map(|library| literal(code, *library)) {
            Some(Some(library)) => code.note([module(library)], call),
            Some(None) => code.reading.computed_import(),
            None => {}
        }
    }
    if on_kernel {
        note(code, method, call);
        if SHELLS.contains(&method) && !arguments.is_empty() {
            let words: Vec<String> = arguments.iter().map_while(|word| literal(code, *word)).collect();
            let command = if words.len() == 1 { words.concat() } else { shell_words::join(words) };
            code.reading.nested.push((Language::Shell, command));
        }
        if let ("eval", Some(text)) = (method, &first) {
            code.reading.nested.push((Language::Ruby, text.clone()));
        }
    } else if let Some(receiver) = receiver.filter(|it| matches!(it.kind(), "constant" | "scope_resolution"))
    {
        note(code, &format!("{}.{method}", path(code, receiver, 0)), call);
    }
    if let (true, Some(name)) = (SENDERS.contains(&method), first) {
        note(code, &name, call);
    }
}

/// A name may be a built-in, or a constant of a library: both are noted.
fn note(code: &mut Code<'_, '_>, name: &str, node: Node<'_>) {
    if !name.is_empty() {
        code.note([builtin(name)], node);
    }
}

fn path(code: &Code<'_, '_>, node: Node<'_>, depth: usize) -> String {
    let name = node.child_by_field_name("name").unwrap_or(node);
    let name = code.source.of(name);
    match node.child_by_field_name("scope").filter(|_| depth < MAX_DEPTH) {
        Some(scope) => format!("{}::{name}", path(code, scope, depth + 1)),
        None => name.to_owned(),
    }
}

/// A string without interpolation, or a symbol.
fn literal(code: &Code<'_, '_>, node: Node<'_>) -> Option<String> {
    match node.kind() {
        "simple_symbol" => code.source.of(node).strip_prefix(':').map(str::to_owned),
        _ => code.literal(node, 0),
    }
}
