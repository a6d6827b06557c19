//! Go: imports, what is taken from them, and built-in functions.

use super::code::{Code, Syntax};
use super::names::{Reading, module};
use super::tree::{Descend, Source, Strings, Visit};

const SYNTAX: Syntax = Syntax::of_strings(Strings::NONE);

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut code = Code::new(source, reading, &SYNTAX);
    code.walk(import) && code.walk(collect)
}

fn import<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    let spec = visit.node;
    if let ("import_spec", Some(path)) = (spec.kind(), spec.child_by_field_name("path")) {
        let path = code.source.of(path).trim_matches(['"', '`']);
        match code.field(spec, "name") {
            "." => {
                code.note([module(path)], spec);
                code.names.stars.push(module(path));
            }
            "" => code.import(path, package(path), spec),
            alias => code.import(path, alias, spec),
        }
    }
    Descend::Yes
}

/// The name that a package goes by if it follows custom: the last element, a major version left out.
fn package(path: &str) -> &str {
    let is_version = |element: &str| {
        element
            .strip_prefix('v')
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit()))
    };
    let mut elements = path.rsplit('/');
    let last = elements.next().unwrap_or(path);
    if is_version(last) { elements.next().unwrap_or(last) } else { last }
}

fn collect<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    let node = visit.node;
    let (of, name) = match node.kind() {
        "import_declaration" => return Descend::No,
        "selector_expression" => ("operand", "field"),
        "qualified_type" => ("package", "name"),
        "identifier" => {
            code.note(code.names.meanings(code.source.of(node), "."), node);
            return Descend::Yes;
        }
        _ => return Descend::Yes,
    };
    let name = code.field(node, name);
    let of = code.names.bound(code.field(node, of)).iter();
    code.note(of.filter_map(|of| of.member(".", name)).collect::<Vec<_>>(), node);
    Descend::Yes
}
