//! Go: imports, what is taken from them, and built-in functions.

use super::names::{Names, Reading, builtin, module};
use super::tree::{Descend, Source, line};
use tree_sitter::Node;

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut names = Names::default();
    let in_time = source.walk(&mut |visit| {
        if visit.node.kind() == "import_spec" {
            import(source, visit.node, &mut names, reading);
        }
        Descend::Yes
    });
    in_time && collect(source, &names, reading)
}

fn import(source: &Source<'_>, spec: Node<'_>, names: &mut Names, reading: &mut Reading) {
    let Some(path) = spec.child_by_field_name("path") else { return };
    let path = source.of(path).trim_matches(['"', '`']);
    reading.uses.push((module(path), line(spec)));
    match spec.child_by_field_name("name").map(|name| source.of(name)) {
        Some(".") => names.stars.push(module(path)),
        Some(alias) => {
            names.bind(alias, module(path));
        }
        None => {
            names.bind(package(path), module(path));
        }
    }
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

fn collect(source: &Source<'_>, names: &Names, reading: &mut Reading) -> bool {
    source.walk(&mut |visit| {
        let node = visit.node;
        let fields = match node.kind() {
            "import_declaration" => return Descend::No,
            "selector_expression" => ("operand", "field"),
            "qualified_type" => ("package", "name"),
            "identifier" => {
                let name = source.of(node);
                let stars = names.stars.iter().filter_map(|star| star.member(".", name));
                reading.uses.extend(stars.take(16).chain([builtin(name)]).map(|name| (name, line(node))));
                return Descend::Yes;
            }
            _ => return Descend::Yes,
        };
        let text = |field| node.child_by_field_name(field).map_or("", |child| source.of(child));
        let members = names.bound(text(fields.0)).iter().filter_map(|name| name.member(".", text(fields.1)));
        reading.uses.extend(members.map(|name| (name, line(node))));
        Descend::Yes
    })
}
