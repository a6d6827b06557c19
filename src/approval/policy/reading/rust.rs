//! Rust: `use`, `extern crate`, paths, macros and `unsafe`.

use super::names::{Names, Reading, builtin, module};
use super::tree::{Descend, MAX_DEPTH, Source, children, line};
use tree_sitter::Node;

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut reader = Reader { source, names: Names::default() };
    reader.bind_imports(reading) && reader.collect(reading)
}

struct Reader<'s> {
    source: &'s Source<'s>,
    names: Names,
}

impl Reader<'_> {
    fn bind_imports(&mut self, reading: &mut Reading) -> bool {
        let source = self.source;
        source.walk(&mut |visit| {
            let node = visit.node;
            match node.kind() {
                "use_declaration" => {
                    if let Some(tree) = node.child_by_field_name("argument") {
                        self.use_tree(tree, "", reading, 0);
                    }
                }
                "extern_crate_declaration" => {
                    let name = node.child_by_field_name("name").map_or("", |name| source.of(name));
                    let alias = node.child_by_field_name("alias").map_or(name, |alias| source.of(alias));
                    self.import(name.to_owned(), alias, node, reading);
                }
                _ => return Descend::Yes,
            }
            Descend::No
        })
    }

    /// `a::{b as c, d::*, self}` below `prefix`.
    fn use_tree(&mut self, tree: Node<'_>, prefix: &str, reading: &mut Reading, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let path_of = |node: Option<Node<'_>>| join(prefix, node.map_or("", |node| self.source.of(node)));
        match tree.kind() {
            "use_list" => {
                for child in children(tree) {
                    self.use_tree(child, prefix, reading, depth + 1);
                }
            }
            "scoped_use_list" => {
                let path = path_of(tree.child_by_field_name("path"));
                if let Some(list) = tree.child_by_field_name("list") {
                    self.use_tree(list, &path, reading, depth + 1);
                }
            }
            "use_wildcard" => {
                let path = path_of(children(tree).first().copied());
                reading.uses.push((module(path.clone()), line(tree)));
                self.names.stars.push(module(path));
            }
            "use_as_clause" => {
                let path = path_of(tree.child_by_field_name("path"));
                let alias = tree.child_by_field_name("alias").map_or("", |alias| self.source.of(alias));
                self.import(path, alias, tree, reading);
            }
            _ => {
                let path = path_of(Some(tree));
                let last = path.rsplit("::").next().unwrap_or_default().to_owned();
                self.import(path, &last, tree, reading);
            }
        }
    }

    fn import(&mut self, path: String, alias: &str, node: Node<'_>, reading: &mut Reading) {
        reading.uses.push((module(path.clone()), line(node)));
        self.names.bind(alias, module(path));
    }

    fn collect(&self, reading: &mut Reading) -> bool {
        self.source.walk(&mut |visit| {
            let node = visit.node;
            match node.kind() {
                "use_declaration" | "extern_crate_declaration" => return Descend::No,
                "unsafe" => reading.uses.push((builtin("unsafe"), line(node))),
                "scoped_identifier" | "scoped_type_identifier" => {
                    self.path(self.source.of(node), node, reading);
                    return Descend::No;
                }
                "identifier" | "type_identifier" if visit.field != Some("name") => {
                    let name = self.source.of(node);
                    if visit.field == Some("macro") {
                        reading.uses.push((builtin(name), line(node)));
                    }
                    self.path(name, node, reading);
                }
                "token_tree" => self.tokens(node, reading),
                _ => {}
            }
            Descend::Yes
        })
    }

    /// What stands in a macro's brackets is loose tokens: paths and macros have to be put together again.
    fn tokens(&self, tree: Node<'_>, reading: &mut Reading) {
        let mut path = String::new();
        let mut cursor = tree.walk();
        for token in tree.children(&mut cursor) {
            match token.kind() {
                "identifier" | "crate" | "self" | "super" if path.is_empty() || path.ends_with("::") => {
                    path += self.source.of(token);
                }
                "::" => path += "::",
                kind => {
                    if kind == "!" && !path.is_empty() {
                        reading.uses.push((builtin(path.clone()), line(token)));
                    }
                    self.path(&path, token, reading);
                    path.clear();
                    if kind == "identifier" {
                        path += self.source.of(token);
                    }
                }
            }
        }
    }

    /// Notes a path with its first segment resolved. A path that begins with no imported name may begin with a crate's.
    fn path(&self, path: &str, node: Node<'_>, reading: &mut Reading) {
        let path = join("", path);
        let (first, rest) = path.split_once("::").unwrap_or((&path, ""));
        let below =
            |name: &super::Name| if rest.is_empty() { Some(name.clone()) } else { name.member("::", rest) };
        let bound = self.names.bound(first);
        let stars = self.names.stars.iter().take(MAX_DEPTH).filter_map(|star| star.member("::", first));
        let meanings: Vec<_> = bound.iter().cloned().chain(stars).collect();
        let crates = (bound.is_empty() && !rest.is_empty()).then(|| module(first));
        let names = meanings.iter().chain(&crates).filter_map(below);
        reading.uses.extend(names.map(|name| (name, line(node))));
    }
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
