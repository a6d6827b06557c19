//! Python: imports, and every name that leads to a module or a built-in.

use super::super::findings::{Kind, Language, Name};
use super::names::{Names, Reading, builtin, module};
use super::tree::{Descend, MAX_DEPTH, Source, Strings, Visit, children, line};
use tree_sitter::Node;

/// What takes code as text.
const EVALUATORS: [&str; 3] = ["eval", "exec", "compile"];
/// What takes a shell command, as text or as a list of words.
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

const STRINGS: Strings = Strings {
    whole: &["string"],
    content: &["string_content"],
    delimiters: &["string_start", "string_end"],
    adjacent: "concatenated_string",
    sum: "binary_operator",
};

pub fn read(source: &Source<'_>, reading: &mut Reading) -> bool {
    let mut reader = Reader { source, names: Names::default() };
    reader.bind_imports(reading) && reader.bind_assignments() && reader.collect(reading)
}

struct Reader<'s> {
    source: &'s Source<'s>,
    names: Names,
}

impl<'s> Reader<'s> {
    fn bind_imports(&mut self, reading: &mut Reading) -> bool {
        let source = self.source;
        source.walk(&mut |visit| {
            match visit.node.kind() {
                "import_statement" => self.import(visit.node, reading),
                "import_from_statement" => self.import_from(visit.node, reading),
                _ => return Descend::Yes,
            }
            Descend::No
        })
    }

    /// `import a.b, c as d`
    fn import(&mut self, statement: Node<'_>, reading: &mut Reading) {
        for child in children(statement) {
            let (path, alias) = self.imported(child);
            reading.uses.push((module(path.clone()), line(statement)));
            match alias {
                Some(alias) => self.names.bind(alias, module(path)),
                None => {
                    let top = path.split('.').next().unwrap_or_default().to_owned();
                    self.names.bind(&top, module(top.clone()))
                }
            };
        }
    }

    /// `from a import b as c`, `from a import *`
    fn import_from(&mut self, statement: Node<'_>, reading: &mut Reading) {
        let Some(from) = statement.child_by_field_name("module_name") else { return };
        let from_module = module(self.dotted(from));
        reading.uses.push((from_module.clone(), line(statement)));
        for child in children(statement).into_iter().filter(|child| child.id() != from.id()) {
            if child.kind() == "wildcard_import" {
                self.names.stars.push(from_module.clone());
                continue;
            }
            let (name, alias) = self.imported(child);
            if let Some(member) = from_module.member(".", &name) {
                reading.uses.push((member.clone(), line(statement)));
                self.names.bind(alias.unwrap_or(&name), member);
            }
        }
    }

    fn imported(&self, node: Node<'_>) -> (String, Option<&'s str>) {
        let name = node.child_by_field_name("name").unwrap_or(node);
        (self.dotted(name), node.child_by_field_name("alias").map(|alias| self.source.of(alias)))
    }

    /// `a . b` may have blanks and comments in it.
    fn dotted(&self, node: Node<'_>) -> String {
        match node.kind() {
            "dotted_name" => {
                let parts: Vec<&str> = children(node).into_iter().map(|part| self.source.of(part)).collect();
                parts.join(".")
            }
            _ => self.source.of(node).split_whitespace().collect(),
        }
    }

    fn bind_assignments(&mut self) -> bool {
        let source = self.source;
        source.walk_until_settled(&mut |visit| {
            let mut is_news = false;
            for (name, value) in bindings(visit.node) {
                for meaning in self.resolve(value, 0) {
                    is_news |= self.names.bind(source.of(name), meaning);
                }
            }
            is_news
        })
    }

    fn collect(&self, reading: &mut Reading) -> bool {
        self.source.walk(&mut |visit| {
            match visit.node.kind() {
                "import_statement" | "import_from_statement" => return Descend::No,
                "identifier" if !is_reference(visit) => {}
                "identifier" | "attribute" | "subscript" => self.note(visit.node, reading),
                "call" => {
                    self.note(visit.node, reading);
                    self.call(visit.node, reading);
                }
                _ => {}
            }
            Descend::Yes
        })
    }

    fn note(&self, node: Node<'_>, reading: &mut Reading) {
        reading.uses.extend(self.resolve(node, 0).into_iter().map(|name| (name, line(node))));
    }

    /// Calls that take code, a command or the name of a module.
    fn call(&self, call: Node<'_>, reading: &mut Reading) {
        let Some((callee, arguments)) = parts(call) else { return };
        let Some(first) = arguments.first() else { return };
        for name in self.resolve(callee, 0) {
            if is_import(&name) && self.literal(*first, 0).is_none() {
                reading.computed_import();
            }
            if name.kind == Kind::Builtin && EVALUATORS.contains(&name.path.as_str()) {
                reading.nested.extend(self.literal(*first, 0).map(|code| (Language::Python, code)));
            }
            if name.kind == Kind::Module && SHELLS.contains(&name.path.as_str()) {
                reading.nested.extend(self.command(*first).map(|code| (Language::Shell, code)));
            }
        }
    }

    fn command(&self, argument: Node<'_>) -> Option<String> {
        match argument.kind() {
            "list" | "tuple" => {
                let words: Vec<String> =
                    children(argument).into_iter().map_while(|word| self.literal(word, 0)).collect();
                (!words.is_empty()).then(|| shell_words::join(words))
            }
            _ => self.literal(argument, 0),
        }
    }

    /// What an expression may stand for.
    fn resolve(&self, node: Node<'_>, depth: usize) -> Vec<Name> {
        if depth > MAX_DEPTH {
            return Vec::new();
        }
        let resolve = |field| {
            node.child_by_field_name(field).map_or_else(Vec::new, |child| self.resolve(child, depth + 1))
        };
        match node.kind() {
            "identifier" => self.names.meanings(self.source.of(node), "."),
            "parenthesized_expression" => {
                children(node).first().map_or_else(Vec::new, |inner| self.resolve(*inner, depth + 1))
            }
            "named_expression" => resolve("value"),
            "attribute" => {
                let name = node.child_by_field_name("attribute").map_or("", |name| self.source.of(name));
                members(resolve("object"), name)
            }
            "subscript" => {
                let key = node.child_by_field_name("subscript").and_then(|key| self.literal(key, depth + 1));
                key.map_or_else(Vec::new, |key| elements(resolve("value"), &key))
            }
            "call" => self.resolve_call(node, depth),
            _ => Vec::new(),
        }
    }

    /// `__import__("os")`, `importlib.import_module("os")`, `getattr(os, "system")`, `vars(os)`
    fn resolve_call(&self, call: Node<'_>, depth: usize) -> Vec<Name> {
        let Some((callee, arguments)) = parts(call) else { return Vec::new() };
        let literal = |n: usize| arguments.get(n).and_then(|node| self.literal(*node, depth + 1));
        let mut found = Vec::new();
        for name in self.resolve(callee, depth + 1) {
            if is_import(&name) {
                let path = literal(0).unwrap_or_default();
                let top = path.split('.').next().unwrap_or_default().to_owned();
                found.extend([top, path].into_iter().filter(|path| !path.is_empty()).map(module));
            }
            let Some(of) = arguments.first() else { continue };
            match (name.kind, name.path.as_str()) {
                (Kind::Builtin, "getattr") => {
                    let member = literal(1).unwrap_or_default();
                    found.extend(members(self.resolve(*of, depth + 1), &member));
                }
                (Kind::Builtin, "vars") => found.extend(self.resolve(*of, depth + 1)),
                _ => {}
            }
        }
        found
    }

    fn literal(&self, node: Node<'_>, depth: usize) -> Option<String> {
        self.source.literal(node, &STRINGS, depth)
    }
}

fn parts<'t>(call: Node<'t>) -> Option<(Node<'t>, Vec<Node<'t>>)> {
    Some((call.child_by_field_name("function")?, children(call.child_by_field_name("arguments")?)))
}

/// What is bound here: assignments, one by one where several are made at once, `:=`, defaults of parameters.
fn bindings(node: Node<'_>) -> Vec<(Node<'_>, Node<'_>)> {
    let (name, value) = match node.kind() {
        "assignment" => ("left", "right"),
        "named_expression" | "default_parameter" | "typed_default_parameter" => ("name", "value"),
        _ => return Vec::new(),
    };
    let (Some(name), Some(value)) = (node.child_by_field_name(name), node.child_by_field_name(value)) else {
        return Vec::new();
    };
    match (name.kind(), value.kind()) {
        ("identifier", _) => vec![(name, value)],
        ("pattern_list" | "tuple_pattern" | "list_pattern", "expression_list" | "tuple" | "list") => {
            children(name)
                .into_iter()
                .zip(children(value))
                .filter(|(name, _)| name.kind() == "identifier")
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Whether an identifier is used here, not given a new meaning or a part of another name.
fn is_reference(visit: &Visit<'_, '_>) -> bool {
    let parent = visit.ancestors.last().map_or("", |parent| parent.kind());
    match (parent, visit.field) {
        ("attribute", Some("attribute"))
        | ("keyword_argument" | "function_definition" | "class_definition", Some("name"))
        | ("default_parameter" | "typed_default_parameter" | "named_expression", Some("name"))
        | ("assignment" | "for_statement" | "for_in_clause", Some("left")) => false,
        ("parameters" | "lambda_parameters" | "typed_parameter", _) => false,
        ("pattern_list" | "tuple_pattern" | "list_pattern" | "as_pattern_target", _) => false,
        ("global_statement" | "nonlocal_statement", _) => false,
        ("dotted_name", _) => {
            visit.ancestors.iter().rev().nth(1).is_none_or(|above| above.kind() != "case_pattern")
        }
        _ => true,
    }
}

fn is_import(name: &Name) -> bool {
    match name.kind {
        Kind::Builtin => name.path == "__import__",
        Kind::Module => matches!(name.path.as_str(), "importlib.import_module" | "importlib.__import__"),
    }
}

/// `X.name`, where the ways around a dot are the dot: `builtins.eval` is `eval`, `os.__dict__` is `os`.
fn members(of: Vec<Name>, name: &str) -> Vec<Name> {
    let member = |of: Name| match (name, of.path.as_str()) {
        ("", _) => None,
        ("__dict__" | "__call__", _) => Some(of),
        (_, "builtins" | "__builtins__") => Some(builtin(name)),
        _ => of.member(".", name),
    };
    of.into_iter().filter_map(member).collect()
}

/// `X["key"]`: of `sys.modules` a module, of a `__dict__` a member.
fn elements(of: Vec<Name>, key: &str) -> Vec<Name> {
    let (modules, others): (Vec<Name>, Vec<Name>) =
        of.into_iter().partition(|of| of.kind == Kind::Module && of.path == "sys.modules");
    let mut found = members(others, key);
    if !modules.is_empty() {
        found.push(module(key));
    }
    found
}
