//! Ruby: what is required, and the methods and constants that need no `require`.

use super::super::findings::Language;
use super::names::{Reading, builtin, module};
use super::tree::{Descend, MAX_DEPTH, Source, Strings, Visit, children, line};
use tree_sitter::Node;

/// What takes in a file or library by its name; `autoload` has the name second.
const LOADERS: [&str; 4] = ["require", "require_relative", "load", "autoload"];
/// What calls a method by its name.
const SENDERS: [&str; 5] = ["send", "public_send", "__send__", "method", "const_get"];
/// What takes a shell command.
const SHELLS: [&str; 3] = ["system", "exec", "spawn"];
/// Receivers that add nothing: every object has the methods of `Kernel`.
const KERNEL: [&str; 4] = ["Kernel", "Object", "self", "Process"];

const STRINGS: Strings = Strings {
    whole: &["string"],
    content: &["string_content", "escape_sequence"],
    delimiters: &[],
    adjacent: "",
    sum: "",
};

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    source.walk(&mut |visit| {
        match visit.node.kind() {
            "call" => call(source, visit.node, reading),
            "identifier" | "constant" if is_reference(visit) => {
                note(source.of(visit.node), visit.node, reading)
            }
            "scope_resolution" => note(&path(source, visit.node, 0), visit.node, reading),
            // Backticks and %x(…) run a command as `system` does.
            "subshell" => {
                note("system", visit.node, reading);
                let text = source.of(visit.node);
                let text = text.trim_start_matches("%x").trim_matches(['`', '(', ')', '{', '}', '[', ']']);
                reading.nested.push((Language::Shell, text.to_owned()));
            }
            _ => {}
        }
        Descend::Yes
    })
}

fn call(source: &Source<'_>, call: Node<'_>, reading: &mut Reading) {
    let text = |field| call.child_by_field_name(field).map(|child| source.of(child));
    let method = text("method").unwrap_or_default();
    let receiver = call.child_by_field_name("receiver");
    let arguments = call.child_by_field_name("arguments").map_or_else(Vec::new, children);
    let first = arguments.first().and_then(|first| literal(source, *first));
    let on_kernel = receiver.is_none_or(|receiver| KERNEL.contains(&source.of(receiver)));
    if on_kernel && LOADERS.contains(&method) {
        let library = if method == "autoload" { arguments.get(1) } else { arguments.first() };
        match library.map(|library| literal(source, *library)) {
            Some(Some(library)) => reading.uses.push((module(library), line(call))),
            Some(None) => reading.computed_import(),
            None => {}
        }
    }
    if on_kernel {
        note(method, call, reading);
        if SHELLS.contains(&method) && !arguments.is_empty() {
            let words: Vec<String> = arguments.iter().map_while(|word| literal(source, *word)).collect();
            let command = if words.len() == 1 { words.concat() } else { shell_words::join(words) };
            reading.nested.push((Language::Shell, command));
        }
        if let ("eval", Some(code)) = (method, &first) {
            reading.nested.push((Language::Ruby, code.clone()));
        }
    } else if let Some(receiver) =
        receiver.filter(|receiver| matches!(receiver.kind(), "constant" | "scope_resolution"))
    {
        note(&format!("{}.{method}", path(source, receiver, 0)), call, reading);
    }
    if let (true, Some(name)) = (SENDERS.contains(&method), first) {
        note(&name, call, reading);
    }
}

/// A name may be a built-in, or a constant of a library: both are noted.
fn note(name: &str, node: Node<'_>, reading: &mut Reading) {
    if !name.is_empty() {
        reading.uses.push((builtin(name), line(node)));
    }
}

fn path(source: &Source<'_>, node: Node<'_>, depth: usize) -> String {
    let scope = node.child_by_field_name("scope").filter(|_| depth < MAX_DEPTH);
    let name = node.child_by_field_name("name").map_or_else(|| source.of(node), |name| source.of(name));
    match scope {
        Some(scope) => format!("{}::{name}", path(source, scope, depth + 1)),
        None => name.to_owned(),
    }
}

/// A string without interpolation, or a symbol.
fn literal(source: &Source<'_>, node: Node<'_>) -> Option<String> {
    match node.kind() {
        "simple_symbol" => source.of(node).strip_prefix(':').map(str::to_owned),
        _ => source.literal(node, &STRINGS, 0),
    }
}

/// Whether a name is used here by itself: not as a method's name on some object, a parameter, a definition.
fn is_reference(visit: &Visit<'_, '_>) -> bool {
    let parent = visit.ancestors.last().map_or("", |parent| parent.kind());
    !matches!(
        (parent, visit.field),
        ("call", Some("method"))
            | (
                "method"
                    | "singleton_method"
                    | "class"
                    | "module"
                    | "keyword_parameter"
                    | "optional_parameter",
                Some("name")
            )
            | ("assignment", Some("left"))
            | ("method_parameters" | "block_parameters" | "lambda_parameters" | "scope_resolution", _)
    )
}
