//! Rust: `use`, `extern crate`, paths, macros and `unsafe`.

use super::code::{Code, Syntax};
use super::names::{Reading, builtin, module};
use super::tree::{Descend, MAX_DEPTH, Source, Strings, Visit, children};
use tree_sitter::Node;

const SYNTAX: Syntax = Syntax::of_strings(Strings::NONE);

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut code = Code::new(source, reading, &SYNTAX);
    code.walk(import) && code.walk(collect)
}

fn import<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    let node = visit.node;
    match node.kind() {
        "use_declaration" => {
            if let Some(tree) = node.child_by_field_name("argument") {
                use_tree(code, tree, "", 0);
            }
        }
        "extern_crate_declaration" => {
            let name = code.field(node, "name");
            let alias = node.child_by_field_name("alias").map_or(name, |alias| code.source.of(alias));
            code.import(name, alias, node);
        }
        _ => return Descend::Yes,
    }
    Descend::No
}

/// `a::{b as c, d::*, self}` below `prefix`.
fn use_tree(code: &mut Code<'_, '_>, tree: Node<'_>, prefix: &str, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    let below = |path: &str| join(prefix, path);
    match tree.kind() {
        "use_list" => {
            for child in children(tree) {
                use_tree(code, child, prefix, depth + 1);
            }
        }
        "scoped_use_list" => {
            let path = below(code.field(tree, "path"));
            if let Some(list) = tree.child_by_field_name("list") {
                use_tree(code, list, &path, depth + 1);
            }
        }
        "use_wildcard" => {
            let path = module(below(children(tree).first().map_or("", |path| code.source.of(*path))));
            code.note([path.clone()], tree);
            code.names.stars.push(path);
        }
        "use_as_clause" => code.import(below(code.field(tree, "path")), code.field(tree, "alias"), tree),
        _ => {
            let path = below(code.source.of(tree));
            code.import(path.as_str(), path.rsplit("::").next().unwrap_or_default(), tree);
        }
    }
}

fn collect<'s>(code: &mut Code<'s, '_>, visit: &Visit<'_, 's>) -> Descend {
    let node = visit.node;
    match node.kind() {
        "use_declaration" | "extern_crate_declaration" => return Descend::No,
        "unsafe" => code.note([builtin("unsafe")], node),
        "scoped_identifier" | "scoped_type_identifier" => {
            note_path(code, code.source.of(node), node);
            return Descend::No;
        }
        "identifier" | "type_identifier" if visit.field != Some("name") => {
            let name = code.source.of(node);
            if visit.field == Some("macro") {
                code.note([builtin(name)], node);
            }
            note_path(code, name, node);
        }
        "token_tree" => tokens(code, node),
        _ => {}
    }
    Descend::Yes
}

/// Reads the loose tokens in a macro's brackets: paths and macros have to be put together again.
fn tokens(code: &mut Code<'_, '_>, tree: Node<'_>) {
    let mut path = String::new();
    let mut cursor = tree.walk();
    for token in tree.children(&mut cursor) {
        match token.kind() {
            "identifier" | "crate" | "self" | "super" if path.is_empty() || path.ends_with("::") => {
                path += code.source.of(token);
            }
            "::" => path += "::",
            kind => {
                if kind == "!" && !path.is_empty() {
                    code.note([builtin(path.clone())], token);
                }
                note_path(code, &path, token);
                path.clear();
                if kind == "identifier" {
                    path += code.source.of(token);
                }
            }
        }
    }
}

/// Notes a path with its first segment resolved. A path that begins with no imported name may begin with a crate's.
fn note_path(code: &mut Code<'_, '_>, path: &str, node: Node<'_>) {
    let path = join("", path);
    let (first, rest) = path.split_once("::").unwrap_or((&path, ""));
    let below =
        |name: &super::Name| if rest.is_empty() { Some(name.clone()) } else { name.member("::", rest) };
    let bound = code.names.bound(first);
    let stars = code.names.stars.iter().take(MAX_DEPTH).filter_map(|star| star.member("::", first));
    let crates = (bound.is_empty() && !rest.is_empty()).then(|| module(first));
    let meanings: Vec<_> = bound.iter().cloned().chain(stars).chain(crates).collect();
    code.note(meanings.iter().filter_map(below), node);
}

/// One path from two, without blanks, type arguments, a leading `::`, `crate`'s raw marks and a last `self`.
fn join(prefix: &str, path: &str) -> String {
    let path = path.split(['<', '>']).next().unwrap_or_default();
    let segments = prefix.split("::").chain(path.split("::"));
    let segments: Vec<&str> = segments
        .map(|segment| segment.trim().trim_start_matches("r#"))
        .filter(|segment| !segment.is_empty() && *segment != "self")
        .collect();
    segments.join("::")
}
