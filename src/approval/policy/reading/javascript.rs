//! JavaScript and TypeScript: `import`, `require`, and every name that leads to a module or a global.

use super::super::findings::{Kind, Language, Name};
use super::names::{Names, Reading, builtin, module};
use super::tree::{Descend, MAX_DEPTH, Source, Strings, Visit, children, line};
use tree_sitter::Node;

/// Other names of the global object.
const GLOBALS: [&str; 4] = ["globalThis", "window", "global", "self"];
/// What takes code as text.
const EVALUATORS: [&str; 2] = ["eval", "Function"];
/// What takes a shell command.
const SHELLS: [&str; 2] = ["child_process.exec", "child_process.execSync"];
/// What takes a program and a list of arguments.
const SPAWNERS: [&str; 4] = [
    "child_process.spawn",
    "child_process.spawnSync",
    "child_process.execFile",
    "child_process.execFileSync",
];

const STRINGS: Strings = Strings {
    whole: &["string", "template_string"],
    content: &["string_fragment", "escape_sequence"],
    delimiters: &[],
    adjacent: "",
    sum: "binary_expression",
};

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut reader = Reader { source, names: Names::default() };
    reader.bind_imports(reading) && reader.bind_assignments() && reader.collect(reading)
}

struct Reader<'s> {
    source: &'s Source<'s>,
    names: Names,
}

impl Reader<'_> {
    fn bind_imports(&mut self, reading: &mut Reading) -> bool {
        let source = self.source;
        source.walk(&mut |visit| {
            if matches!(visit.node.kind(), "import_statement" | "export_statement" | "import_require_clause")
                && let Some(path) =
                    visit.node.child_by_field_name("source").and_then(|path| self.literal(path, 0))
            {
                let imported = named(&path);
                reading.uses.push((imported.clone(), line(visit.node)));
                for clause in children(visit.node) {
                    self.import_clause(clause, &imported, reading);
                }
            }
            Descend::Yes
        })
    }

    /// `d`, `* as ns`, `{exec as e}`
    fn import_clause(&mut self, clause: Node<'_>, imported: &Name, reading: &mut Reading) {
        match clause.kind() {
            "identifier" => {
                self.names.bind(self.source.of(clause), imported.clone());
            }
            "import_clause" | "namespace_import" | "named_imports" | "export_clause" => {
                for child in children(clause) {
                    self.import_clause(child, imported, reading);
                }
            }
            "import_specifier" | "export_specifier" => {
                let Some(name) = clause.child_by_field_name("name") else { return };
                let alias = clause.child_by_field_name("alias").unwrap_or(name);
                for member in members(vec![imported.clone()], &self.word(name)) {
                    reading.uses.push((member.clone(), line(clause)));
                    self.names.bind(self.source.of(alias), member);
                }
            }
            _ => {}
        }
    }

    /// A name, which may be written as a string: `import {"exec" as e}`.
    fn word(&self, node: Node<'_>) -> String {
        self.literal(node, 0).unwrap_or_else(|| self.source.of(node).to_owned())
    }

    fn bind_assignments(&mut self) -> bool {
        let source = self.source;
        source.walk_until_settled(&mut |visit| {
            let (name, value) = match visit.node.kind() {
                "variable_declarator" => ("name", "value"),
                "assignment_expression" | "assignment_pattern" | "object_assignment_pattern" => {
                    ("left", "right")
                }
                "required_parameter" | "optional_parameter" => ("pattern", "value"),
                _ => return false,
            };
            match (visit.node.child_by_field_name(name), visit.node.child_by_field_name(value)) {
                (Some(name), Some(value)) => self.bind(name, value),
                _ => false,
            }
        })
    }

    fn bind(&mut self, pattern: Node<'_>, value: Node<'_>) -> bool {
        match (pattern.kind(), value.kind()) {
            ("array_pattern", "array") => {
                let pairs = children(pattern).into_iter().zip(children(value));
                pairs.filter(|(name, value)| self.bind_to(*name, self.resolve(*value, 0), 0)).count() > 0
            }
            _ => self.bind_to(pattern, self.resolve(value, 0), 0),
        }
    }

    /// Binds what a pattern takes apart: `{exec: e, spawn = x}`.
    fn bind_to(&mut self, pattern: Node<'_>, value: Vec<Name>, depth: usize) -> bool {
        if value.is_empty() || depth > MAX_DEPTH {
            return false;
        }
        match pattern.kind() {
            "identifier" | "shorthand_property_identifier_pattern" => {
                let name = self.source.of(pattern);
                value.into_iter().filter(|meaning| self.names.bind(name, meaning.clone())).count() > 0
            }
            "object_pattern" => {
                let parts = children(pattern).into_iter();
                parts.filter(|part| self.bind_part(*part, &value, depth + 1)).count() > 0
            }
            "assignment_pattern" | "object_assignment_pattern" => {
                pattern.child_by_field_name("left").is_some_and(|left| self.bind_to(left, value, depth + 1))
            }
            _ => false,
        }
    }

    fn bind_part(&mut self, part: Node<'_>, value: &[Name], depth: usize) -> bool {
        let (key, target) = match part.kind() {
            "shorthand_property_identifier_pattern" => (Some(part), Some(part)),
            "object_assignment_pattern" => {
                (part.child_by_field_name("left"), part.child_by_field_name("left"))
            }
            "pair_pattern" => (part.child_by_field_name("key"), part.child_by_field_name("value")),
            "rest_pattern" => {
                let rest = children(part).first().copied();
                return rest.is_some_and(|rest| self.bind_to(rest, value.to_vec(), depth));
            }
            _ => return false,
        };
        let (Some(key), Some(target)) = (key, target) else { return false };
        self.bind_to(target, members(value.to_vec(), &self.word(key)), depth)
    }

    fn collect(&self, reading: &mut Reading) -> bool {
        self.source.walk(&mut |visit| {
            match visit.node.kind() {
                "import_statement" => return Descend::No,
                // A name that gets its meaning here has taken it from somewhere: `{rm: r} = require("fs")`.
                "shorthand_property_identifier_pattern" => self.note_bound(visit.node, reading),
                "identifier" if !is_reference(visit) => self.note_bound(visit.node, reading),
                "identifier"
                | "shorthand_property_identifier"
                | "member_expression"
                | "subscript_expression" => {
                    self.note(visit.node, reading);
                }
                "call_expression" | "new_expression" => {
                    self.note(visit.node, reading);
                    self.call(visit.node, reading);
                }
                _ => {}
            }
            Descend::Yes
        })
    }

    fn note_bound(&self, node: Node<'_>, reading: &mut Reading) {
        let bound = self.names.bound(self.source.of(node)).iter().cloned();
        reading.uses.extend(bound.map(|name| (name, line(node))));
    }

    fn note(&self, node: Node<'_>, reading: &mut Reading) {
        reading.uses.extend(self.resolve(node, 0).into_iter().map(|name| (name, line(node))));
    }

    /// Calls that take code, a command or the name of a module.
    fn call(&self, call: Node<'_>, reading: &mut Reading) {
        let Some((callee, arguments)) = parts(call) else { return };
        let Some(first) = arguments.first() else { return };
        let text = self.literal(*first, 0);
        let callees = self.resolve(callee, 0);
        if (callee.kind() == "import" || callees.iter().any(is_require)) && text.is_none() {
            reading.computed_import();
        }
        let Some(text) = text else { return };
        for name in callees {
            let path = name.path.as_str();
            match name.kind {
                Kind::Builtin if EVALUATORS.contains(&path) => {
                    // The last argument of `Function` is the code, the others are names of parameters.
                    let code = arguments.last().and_then(|code| self.literal(*code, 0));
                    reading.nested.extend(code.map(|code| (Language::JavaScript, code)));
                }
                Kind::Module if SHELLS.contains(&path) => {
                    reading.nested.push((Language::Shell, text.clone()))
                }
                Kind::Module if SPAWNERS.contains(&path) => {
                    let rest =
                        arguments.get(1).filter(|list| list.kind() == "array").map(|list| children(*list));
                    let rest = rest.unwrap_or_default().into_iter().map_while(|word| self.literal(word, 0));
                    let words: Vec<String> = std::iter::once(text.clone()).chain(rest).collect();
                    reading.nested.push((Language::Shell, shell_words::join(words)));
                }
                _ => {}
            }
        }
    }

    /// What an expression may stand for.
    fn resolve(&self, node: Node<'_>, depth: usize) -> Vec<Name> {
        if depth > MAX_DEPTH {
            return Vec::new();
        }
        let resolve =
            |child: Option<Node<'_>>| child.map_or_else(Vec::new, |child| self.resolve(child, depth + 1));
        match node.kind() {
            "identifier" | "shorthand_property_identifier" => self.names.meanings(self.source.of(node), "."),
            "member_expression" => {
                let name = node.child_by_field_name("property").map_or("", |name| self.source.of(name));
                members(resolve(node.child_by_field_name("object")), name)
            }
            "subscript_expression" => {
                let key = node.child_by_field_name("index").and_then(|key| self.literal(key, depth + 1));
                key.map_or_else(Vec::new, |key| members(resolve(node.child_by_field_name("object")), &key))
            }
            "call_expression" => self.resolve_call(node, depth),
            "await_expression" | "non_null_expression" | "as_expression" | "satisfies_expression" => {
                resolve(node.named_child(0))
            }
            "parenthesized_expression" | "sequence_expression" | "type_assertion" => {
                resolve(children(node).last().copied())
            }
            _ => Vec::new(),
        }
    }

    /// `require("m")`, `import("m")`, `createRequire(…)`
    fn resolve_call(&self, call: Node<'_>, depth: usize) -> Vec<Name> {
        let Some((callee, arguments)) = parts(call) else { return Vec::new() };
        let first = arguments.first().and_then(|first| self.literal(*first, depth + 1));
        let callees = self.resolve(callee, depth + 1);
        if callees.iter().any(|name| name.kind == Kind::Module && name.path == "module.createRequire") {
            return vec![builtin("require")];
        }
        match first {
            Some(path) if callee.kind() == "import" || callees.iter().any(is_require) => vec![named(&path)],
            _ => Vec::new(),
        }
    }

    fn literal(&self, node: Node<'_>, depth: usize) -> Option<String> {
        self.source.literal(node, &STRINGS, depth)
    }
}

fn parts<'t>(call: Node<'t>) -> Option<(Node<'t>, Vec<Node<'t>>)> {
    let callee = call.child_by_field_name("function").or_else(|| call.child_by_field_name("constructor"))?;
    Some((callee, children(call.child_by_field_name("arguments")?)))
}

/// A module: `node:fs` and `fs` are the same.
fn named(path: &str) -> Name {
    module(path.strip_prefix("node:").unwrap_or(path))
}

/// Whether an identifier is used here, not given a new meaning.
fn is_reference(visit: &Visit<'_, '_>) -> bool {
    let parent = visit.ancestors.last().map_or("", |parent| parent.kind());
    !matches!(
        (parent, visit.field),
        ("variable_declarator" | "function_declaration" | "class_declaration", Some("name"))
            | ("function_expression" | "generator_function_declaration" | "class", Some("name"))
            | ("required_parameter" | "optional_parameter", Some("pattern"))
            | ("assignment_expression", Some("left"))
            | ("arrow_function", Some("parameter"))
            | ("formal_parameters" | "array_pattern" | "pair_pattern" | "rest_pattern", _)
    )
}

/// `require`, `module.require`, `process.mainModule.require`
fn is_require(name: &Name) -> bool {
    name.kind == Kind::Builtin && (name.path == "require" || name.path.ends_with(".require"))
}

/// `X.name`; the global object adds nothing to a name, and neither does a module's `default`.
fn members(of: Vec<Name>, name: &str) -> Vec<Name> {
    let member = |of: Name| match of.kind {
        Kind::Builtin if GLOBALS.contains(&of.path.as_str()) => Some(builtin(name)),
        Kind::Builtin if matches!(name, "call" | "apply" | "bind") => Some(of),
        Kind::Module if name == "default" => Some(of),
        _ => of.member(".", name),
    };
    of.into_iter().filter_map(member).collect()
}
