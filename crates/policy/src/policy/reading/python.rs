//! Python: imports, and every name that leads to a module or a built-in.

use super::super::findings::{Kind, Language, Name};
use super::code::{Call, Code, ExpressionPart, Syntax};
use super::names::{Reading, builtin, module};
use super::tree::{Descend, Place, Source, Strings, Visit, children};
use tree_sitter::Node;

/// Functions that take code as text.
const EVALUATORS: [&str; 3] = ["eval", "exec", "compile"];
/// Functions that take a shell command, as text or as a list of words.
const SHELLS: [&str; 10] = [
    "os.system",
    "os.popen",
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "subprocess.Popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "pty.spawn",
];

const SYNTAX: Syntax = Syntax {
    strings: Strings {
        whole: &["string"],
        content: &["string_content"],
        delimiters: &["string_start", "string_end"],
        adjacent: "concatenated_string",
        sum: "binary_operator",
    },
    names: &["identifier"],
    member: ["attribute", "object", "attribute"],
    element: ["subscript", "value", "subscript"],
    call: "call",
    same_as_part: &[
        ("parenthesized_expression", ExpressionPart::First),
        ("named_expression", ExpressionPart::Field("value")),
    ],
    member_of,
    elements_of,
    returned,
};

/// Where an identifier gets a meaning, or is a part of another name.
const NOT_USED: [Place; 7] = [
    (&["attribute"], Some("attribute")),
    (&["keyword_argument", "function_definition", "class_definition"], Some("name")),
    (&["default_parameter", "typed_default_parameter", "named_expression"], Some("name")),
    (&["assignment", "for_statement", "for_in_clause"], Some("left")),
    (&["parameters", "lambda_parameters", "typed_parameter"], None),
    (&["pattern_list", "tuple_pattern", "list_pattern", "as_pattern_target"], None),
    (&["global_statement", "nonlocal_statement"], None),
];

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut code = Code::new(source, reading, &SYNTAX);
    code.walk(import) && code.walk_until_settled(assign) && code.walk(collect)
}

fn import<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    match visit.node.kind() {
        "import_statement" => import_modules(code, visit.node),
        "import_from_statement" => import_from(code, visit.node),
        _ => return Descend::Yes,
    }
    Descend::No
}

/// `import a.b, c as d`
fn import_modules(code: &mut Code<'_, '_>, statement: Node<'_>) {
    for child in children(statement) {
        let (path, alias) = imported(code, child);
        let top = path.split('.').next().unwrap_or_default();
        code.note([module(path.as_str())], statement);
        match alias {
            Some(alias) => code.names.bind(alias, module(path.as_str())),
            None => code.names.bind(top, module(top)),
        };
    }
}

/// `from a import b as c`, `from a import *`
fn import_from(code: &mut Code<'_, '_>, statement: Node<'_>) {
    let Some(from) = statement.child_by_field_name("module_name") else { return };
    let from_module = module(dotted(code, from));
    code.note([from_module.clone()], statement);
    for child in children(statement).into_iter().filter(|child| child.id() != from.id()) {
        if child.kind() == "wildcard_import" {
            code.names.stars.push(from_module.clone());
            continue;
        }
        let (name, alias) = imported(code, child);
        if let Some(member) = from_module.member(".", &name) {
            code.note([member.clone()], statement);
            code.names.bind(alias.unwrap_or(&name), member);
        }
    }
}

fn imported<'s>(code: &Code<'s, '_>, node: Node<'_>) -> (String, Option<&'s str>) {
    let name = node.child_by_field_name("name").unwrap_or(node);
    (dotted(code, name), node.child_by_field_name("alias").map(|alias| code.source.of(alias)))
}

/// `a . b` may have blanks and comments in it.
fn dotted(code: &Code<'_, '_>, node: Node<'_>) -> String {
    match node.kind() {
        "dotted_name" => {
            let parts: Vec<&str> = children(node).into_iter().map(|part| code.source.of(part)).collect();
            parts.join(".")
        }
        _ => code.source.of(node).split_whitespace().collect(),
    }
}

/// Assignments, one by one where several are made at once, `:=`, defaults of parameters.
fn assign<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> bool {
    let (name, value) = match visit.node.kind() {
        "assignment" => ("left", "right"),
        "named_expression" | "default_parameter" | "typed_default_parameter" => ("name", "value"),
        _ => return false,
    };
    let field = |name| visit.node.child_by_field_name(name);
    let (Some(name), Some(value)) = (field(name), field(value)) else { return false };
    let pairs: Vec<_> = match (name.kind(), value.kind()) {
        ("pattern_list" | "tuple_pattern" | "list_pattern", "expression_list" | "tuple" | "list") => {
            children(name).into_iter().zip(children(value)).collect()
        }
        _ => vec![(name, value)],
    };
    let mut is_news = false;
    for (name, value) in pairs.into_iter().filter(|(name, _)| name.kind() == "identifier") {
        for meaning in code.resolve(value, 0) {
            is_news |= code.names.bind(code.source.of(name), meaning);
        }
    }
    is_news
}

fn collect<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    match visit.node.kind() {
        "import_statement" | "import_from_statement" => return Descend::No,
        "identifier" if visit.is_in(&NOT_USED) || is_in_case_pattern(visit) => {}
        "identifier" | "attribute" | "subscript" => code.note_resolved(visit.node),
        "call" => {
            code.note_resolved(visit.node);
            call(code, visit.node);
        }
        _ => {}
    }
    Descend::Yes
}

fn is_in_case_pattern(visit: &Visit<'_, '_>) -> bool {
    let mut above = visit.ancestors.iter().rev().map(Node::kind);
    above.next() == Some("dotted_name") && above.next() == Some("case_pattern")
}

/// Calls that take code, a command or the name of a module.
fn call<'s>(code: &mut Code<'s, '_>, call: Node<'s>) {
    let Some(Call { callee, arguments }) = Call::of(call) else { return };
    let Some(first) = arguments.first() else { return };
    let text = code.literal(*first, 0);
    for name in code.resolve(callee, 0) {
        if is_import(&name) && text.is_none() {
            code.reading.computed_import();
        }
        if name.kind == Kind::Builtin && EVALUATORS.contains(&name.path.as_str()) {
            code.reading.nested.extend(text.clone().map(|text| (Language::Python, text)));
        }
        if name.kind == Kind::Module && SHELLS.contains(&name.path.as_str()) {
            let command = match first.kind() {
                "list" | "tuple" => {
                    Some(code.command(children(*first))).filter(|command| !command.is_empty())
                }
                _ => text.clone(),
            };
            code.reading.nested.extend(command.map(|command| (Language::Shell, command)));
        }
    }
}

/// `__import__("os")`, `importlib.import_module("os")`, `getattr(os, "system")`, `vars(os)`
fn returned(code: &Code<'_, '_>, call: &Call<'_>, depth: usize) -> Vec<Name> {
    let literal = |n: usize| call.arguments.get(n).and_then(|node| code.literal(*node, depth));
    let mut found = Vec::new();
    for name in code.resolve(call.callee, depth) {
        if is_import(&name) {
            let path = literal(0).unwrap_or_default();
            let top = path.split('.').next().unwrap_or_default().to_owned();
            found.extend([top, path].into_iter().filter(|path| !path.is_empty()).map(module));
        }
        let Some(of) = call.arguments.first() else { continue };
        match (name.kind, name.path.as_str()) {
            (Kind::Builtin, "getattr") => {
                found.extend(code.members(code.resolve(*of, depth), &literal(1).unwrap_or_default()));
            }
            (Kind::Builtin, "vars") => found.extend(code.resolve(*of, depth)),
            _ => {}
        }
    }
    found
}

fn is_import(name: &Name) -> bool {
    match name.kind {
        Kind::Builtin => name.path == "__import__",
        Kind::Module => matches!(name.path.as_str(), "importlib.import_module" | "importlib.__import__"),
    }
}

/// `X.name`, where the ways around a dot are the dot: `builtins.eval` is `eval`, `os.__dict__` is `os`.
fn member_of(of: Name, name: &str) -> Option<Name> {
    match (name, of.path.as_str()) {
        ("", _) => None,
        ("__dict__" | "__call__", _) => Some(of),
        (_, "builtins" | "__builtins__") => Some(builtin(name)),
        _ => of.member(".", name),
    }
}

/// `X["key"]`: of `sys.modules` a module, of a `__dict__` a member.
fn elements_of(of: Vec<Name>, key: &str) -> Vec<Name> {
    let (modules, others): (Vec<Name>, Vec<Name>) =
        of.into_iter().partition(|of| of.kind == Kind::Module && of.path == "sys.modules");
    let members = others.into_iter().filter_map(|of| member_of(of, key));
    members.chain((!modules.is_empty()).then(|| module(key))).collect()
}
