//! JavaScript and TypeScript: `import`, `require`, and every name that leads to a module or a global.

use super::super::findings::{Kind, Language, Name};
use super::code::{Call, Code, ExpressionPart, Syntax};
use super::names::{Reading, builtin, module};
use super::tree::{Descend, MAX_DEPTH, Place, Source, Strings, Visit, children};
use tree_sitter::Node;

/// Other names of the global object.
const GLOBALS: [&str; 4] = ["globalThis", "window", "global", "self"];
/// Functions that take code as text.
const EVALUATORS: [&str; 2] = ["eval", "Function"];
/// Functions that take a shell command.
const SHELLS: [&str; 2] = ["child_process.exec", "child_process.execSync"];
/// Functions that take a program and a list of arguments.
const SPAWNERS: [&str; 4] = [
    "child_process.spawn",
    "child_process.spawnSync",
    "child_process.execFile",
    "child_process.execFileSync",
];

const SYNTAX: Syntax = Syntax {
    strings: Strings {
        whole: &["string", "template_string"],
        content: &["string_fragment", "escape_sequence"],
        sum: "binary_expression",
        ..Strings::NONE
    },
    names: &["identifier", "shorthand_property_identifier"],
    member: ["member_expression", "object", "property"],
    element: ["subscript_expression", "object", "index"],
    call: "call_expression",
    same_as_part: &[
        ("await_expression", ExpressionPart::First),
        ("non_null_expression", ExpressionPart::First),
        ("as_expression", ExpressionPart::First),
        ("satisfies_expression", ExpressionPart::First),
        ("parenthesized_expression", ExpressionPart::Last),
        ("sequence_expression", ExpressionPart::Last),
        ("type_assertion", ExpressionPart::Last),
    ],
    member_of,
    elements_of: |of, key| of.into_iter().filter_map(|of| member_of(of, key)).collect(),
    returned,
};

/// Where an identifier gets a meaning.
const NOT_USED: [Place; 6] = [
    (&["variable_declarator", "function_declaration", "class_declaration"], Some("name")),
    (&["function_expression", "generator_function_declaration", "class"], Some("name")),
    (&["required_parameter", "optional_parameter"], Some("pattern")),
    (&["assignment_expression"], Some("left")),
    (&["arrow_function"], Some("parameter")),
    (&["formal_parameters", "array_pattern", "pair_pattern", "rest_pattern"], None),
];

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut code = Code::new(source, reading, &SYNTAX);
    code.walk(import) && code.walk_until_settled(assign) && code.walk(collect)
}

fn import<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    let node = visit.node;
    if matches!(node.kind(), "import_statement" | "export_statement" | "import_require_clause")
        && let Some(path) = node.child_by_field_name("source").and_then(|path| code.literal(path, 0))
    {
        let imported = named(&path);
        code.note([imported.clone()], node);
        for clause in children(node) {
            import_clause(code, clause, &imported);
        }
    }
    Descend::Yes
}

/// `d`, `* as ns`, `{exec as e}`
fn import_clause(code: &mut Code<'_, '_>, clause: Node<'_>, imported: &Name) {
    match clause.kind() {
        "identifier" => {
            code.names.bind(code.source.of(clause), imported.clone());
        }
        "import_clause" | "namespace_import" | "named_imports" | "export_clause" => {
            for child in children(clause) {
                import_clause(code, child, imported);
            }
        }
        "import_specifier" | "export_specifier" => {
            let Some(name) = clause.child_by_field_name("name") else { return };
            let alias = clause.child_by_field_name("alias").unwrap_or(name);
            if let Some(member) = member_of(imported.clone(), &word(code, name)) {
                code.note([member.clone()], clause);
                code.names.bind(code.source.of(alias), member);
            }
        }
        _ => {}
    }
}

/// A name, which may be written as a string: `import {"exec" as e}`.
fn word(code: &Code<'_, '_>, node: Node<'_>) -> String {
    code.literal(node, 0).unwrap_or_else(|| code.source.of(node).to_owned())
}

fn assign<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> bool {
    let (pattern, value) = match visit.node.kind() {
        "variable_declarator" => ("name", "value"),
        "assignment_expression" | "assignment_pattern" | "object_assignment_pattern" => ("left", "right"),
        "required_parameter" | "optional_parameter" => ("pattern", "value"),
        _ => return false,
    };
    let field = |name| visit.node.child_by_field_name(name);
    let (Some(pattern), Some(value)) = (field(pattern), field(value)) else { return false };
    let pairs: Vec<_> = match (pattern.kind(), value.kind()) {
        ("array_pattern", "array") => children(pattern).into_iter().zip(children(value)).collect(),
        _ => vec![(pattern, value)],
    };
    let mut is_news = false;
    for (pattern, value) in pairs {
        is_news |= bind_to(code, pattern, code.resolve(value, 0), 0);
    }
    is_news
}

/// Binds what a pattern takes apart: `{exec: e, spawn = x}`.
fn bind_to(code: &mut Code<'_, '_>, pattern: Node<'_>, value: Vec<Name>, depth: usize) -> bool {
    if value.is_empty() || depth > MAX_DEPTH {
        return false;
    }
    match pattern.kind() {
        "identifier" | "shorthand_property_identifier_pattern" => {
            let name = code.source.of(pattern);
            value.into_iter().filter(|meaning| code.names.bind(name, meaning.clone())).count() > 0
        }
        "object_pattern" => {
            let parts = children(pattern).into_iter();
            parts.filter(|part| bind_part(code, *part, &value, depth + 1)).count() > 0
        }
        "assignment_pattern" | "object_assignment_pattern" => {
            pattern.child_by_field_name("left").is_some_and(|left| bind_to(code, left, value, depth + 1))
        }
        _ => false,
    }
}

fn bind_part(code: &mut Code<'_, '_>, part: Node<'_>, value: &[Name], depth: usize) -> bool {
    let field = |name| part.child_by_field_name(name);
    let (key, target) = match part.kind() {
        "shorthand_property_identifier_pattern" => (Some(part), Some(part)),
        "object_assignment_pattern" => (field("left"), field("left")),
        "pair_pattern" => (field("key"), field("value")),
        "rest_pattern" => {
            let rest = children(part).first().copied();
            return rest.is_some_and(|rest| bind_to(code, rest, value.to_vec(), depth));
        }
        _ => return false,
    };
    let (Some(key), Some(target)) = (key, target) else { return false };
    bind_to(code, target, code.members(value.to_vec(), &word(code, key)), depth)
}

fn collect<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    let node = visit.node;
    match node.kind() {
        "import_statement" => return Descend::No,
        // A name that gets its meaning here has taken it from somewhere: `{rm: r} = require("fs")`.
        "shorthand_property_identifier_pattern" => note_bound(code, node),
        "identifier" if visit.is_in(&NOT_USED) => note_bound(code, node),
        "identifier" | "shorthand_property_identifier" | "member_expression" | "subscript_expression" => {
            code.note_resolved(node);
        }
        "call_expression" | "new_expression" => {
            code.note_resolved(node);
            call(code, node);
        }
        _ => {}
    }
    Descend::Yes
}

fn note_bound(code: &mut Code<'_, '_>, node: Node<'_>) {
    let bound = code.names.bound(code.source.of(node)).to_vec();
    code.note(bound, node);
}

/// Calls that take code, a command or the name of a module.
fn call<'s>(code: &mut Code<'s, '_>, call: Node<'s>) {
    let Some(Call { callee, arguments }) = Call::of(call) else { return };
    let Some(first) = arguments.first() else { return };
    let text = code.literal(*first, 0);
    let callees = code.resolve(callee, 0);
    if (callee.kind() == "import" || callees.iter().any(is_require)) && text.is_none() {
        code.reading.computed_import();
    }
    let Some(text) = text else { return };
    for name in callees {
        let path = name.path.as_str();
        match name.kind {
            Kind::Builtin if EVALUATORS.contains(&path) => {
                // The last argument of `Function` is the code, the others are names of parameters.
                let inner = arguments.last().and_then(|inner| code.literal(*inner, 0));
                code.reading.nested.extend(inner.map(|inner| (Language::JavaScript, inner)));
            }
            Kind::Module if SHELLS.contains(&path) => {
                code.reading.nested.push((Language::Shell, text.clone()));
            }
            Kind::Module if SPAWNERS.contains(&path) => {
                let rest = arguments.get(1).filter(|list| list.kind() == "array");
                let rest = rest.map_or_else(Vec::new, |list| children(*list));
                let command = code.command([*first].into_iter().chain(rest));
                code.reading.nested.push((Language::Shell, command));
            }
            _ => {}
        }
    }
}

/// `require("m")`, `import("m")`, `createRequire(…)`
fn returned(code: &Code<'_, '_>, call: &Call<'_>, depth: usize) -> Vec<Name> {
    let first = call.arguments.first().and_then(|first| code.literal(*first, depth));
    let callees = code.resolve(call.callee, depth);
    if callees.iter().any(|name| name.kind == Kind::Module && name.path == "module.createRequire") {
        return vec![builtin("require")];
    }
    match first {
        Some(path) if call.callee.kind() == "import" || callees.iter().any(is_require) => vec![named(&path)],
        _ => Vec::new(),
    }
}

/// A module: `node:fs` and `fs` are the same.
fn named(path: &str) -> Name {
    module(path.strip_prefix("node:").unwrap_or(path))
}

/// `require`, `module.require`, `process.mainModule.require`
fn is_require(name: &Name) -> bool {
    name.kind == Kind::Builtin && (name.path == "require" || name.path.ends_with(".require"))
}

/// `X.name`; the global object adds nothing to a name, and neither does a module's `default`.
fn member_of(of: Name, name: &str) -> Option<Name> {
    match of.kind {
        Kind::Builtin if GLOBALS.contains(&of.path.as_str()) => Some(builtin(name)),
        Kind::Builtin if matches!(name, "call" | "apply" | "bind") => Some(of),
        Kind::Module if name == "default" => Some(of),
        _ => of.member(".", name),
    }
}
